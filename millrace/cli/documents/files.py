"""Reads all documents of folders, files or standard input, and writes a folder of them.

A file holds one or more documents, which ``---`` separates. In a folder, all files ``*.yaml`` and ``*.yml`` are read,
also in its sub-folders; names that begin with a dot are ignored.
"""

import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import mkdtemp

from millrace.cli.control import origin_of, text_from_file
from millrace.errors import Fatal, MillraceError
from millrace.schemas.documents import (
    parse_set,
    parse_task,
    plains_from_yaml,
    yaml_from_plain,
)
from millrace.schemas.documents.fields import PROBLEMS_MAX
from millrace.wording import counted
from millrace.zk.changes.changes import Problem, Wanted
from millrace.zk.tree.documents import Document, DocumentKey, set_key, task_key

Plain = dict[str, object]
SUFFIXES = (".yaml", ".yml")


@dataclass(slots=True)
class Reading:
    """The documents that were read so far, and every problem with one."""

    documents: dict[DocumentKey, Document] = field(default_factory=dict)
    origins: dict[DocumentKey, str] = field(default_factory=dict)
    broken: set[DocumentKey] = field(default_factory=set)
    problems: list[Problem] = field(default_factory=list)

    def wanted(self, *, prune: bool) -> Wanted:
        """The documents as the input of a plan."""
        return Wanted(self.documents, frozenset(self.broken), prune)

    def add_file(self, path: str, name: str) -> None:
        """Read one file, which has this name in problems; ``-`` is standard input."""
        try:
            plains = plains_from_yaml(text_from_file(path), origin=name)
        except MillraceError as error:
            self.problems.append(Problem.of(name, error))
            return
        for number, plain in enumerate(plains, start=1):
            self._add(plain, name + (f", document {number}," if len(plains) > 1 else ""))

    def _add(self, plain: object, origin: str) -> None:
        key = _key_of(plain)
        try:
            is_task = isinstance(plain, dict) and ("task" in plain or "kind" in plain)
            document = (parse_task if is_task else parse_set)(plain, origin=origin)
        except MillraceError as error:
            self.problems.append(Problem.of(origin, error))
            self.broken |= {key} if key is not None else set()
            return
        key = DocumentKey.of(document)
        if key in self.documents:
            what = f"{origin} contains {key}, which {self.origins[key]} contains already"
            self.problems.append(Problem(origin, "MR-4141", what))
        self.documents[key], self.origins[key] = document, origin


def read_documents(*places: str) -> Reading:
    """All documents of folders, files, or standard input (``-``). Fatal MR-4141 if a place has none."""
    reading = Reading()
    for place in places:
        known = len(reading.documents) + len(reading.problems)
        if place == "-" or not Path(place).is_dir():
            reading.add_file(place, origin_of(place))
        else:
            for path in _files(Path(place)):
                reading.add_file(str(path), str(path.relative_to(place)))
        if len(reading.documents) + len(reading.problems) == known:
            raise Fatal(
                "MR-4141",
                f"{origin_of(place)} contains no document",
                fix="Check the path. Documents are in files that end in .yaml or .yml.",
            )
    return reading


def refusal(places: Sequence[str], problems: Sequence[Problem]) -> Fatal:
    """One error with every problem."""
    lines = [_problem_line(each) for each in problems[:PROBLEMS_MAX]]
    hidden = len(problems) - PROBLEMS_MAX
    more = [f"  … and {hidden} more"] if hidden > 0 else []
    head = f"{', '.join(map(origin_of, places))}: {counted(len(problems), 'problem')}"
    return Fatal("MR-4141", "\n".join([head, *lines, *more]))


def _problem_line(problem: Problem) -> str:
    """The problem with its place, which the message may contain; further lines are indented."""
    message = problem.message.replace("\n", "\n  ")
    where = "" if message.startswith(problem.where) else f"{problem.where}: "
    return f"  {problem.code} {where}{message}"


def write_documents(folder: Path, plains: Iterable[Plain]) -> int:
    """Write each document to its own file: ``sets/NAME.yaml``, ``tasks/NAME.yaml``. Returns their number.

    The folder appears with all files or not at all. Fatal MR-4143 if it has files already, or can't be written.
    """
    folder = folder.absolute()
    count, partial = 0, None
    try:
        if folder.exists() and any(folder.iterdir()):
            raise Fatal("MR-4143", f"{folder} is not empty")
        folder.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
        for plain in plains:
            kind = "task" if "task" in plain else "set"
            (partial / f"{kind}s").mkdir(exist_ok=True)
            path = partial / f"{kind}s" / f"{plain[kind]}.yaml"
            path.write_text(yaml_from_plain(plain), encoding="utf-8")
            count += 1
        partial.chmod(0o777 & ~_umask())
        partial.rename(folder)
        partial = None
    except OSError as error:
        raise Fatal("MR-4143", f"{folder}: {error.strerror or error}") from error
    finally:
        if partial is not None:
            shutil.rmtree(partial, ignore_errors=True)
    return count


def print_documents(plains: Iterable[Plain]) -> None:
    """Print all documents as one stream."""
    for plain in plains:
        sys.stdout.write("---\n" + yaml_from_plain(plain))


def _files(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        is_hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if path.suffix in SUFFIXES and not is_hidden and not path.is_dir():
            yield path


def _key_of(plain: object) -> DocumentKey | None:
    """The name that a document gives itself, even if it is refused."""
    if isinstance(plain, dict):
        for field_name, key in (("task", task_key), ("set", set_key)):
            if isinstance(plain.get(field_name), str):
                return key(plain[field_name])
    return None


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
