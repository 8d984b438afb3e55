"""Keeps the stack of a failed test: a copy of its folder in ``$MILLRACE_HOME/failed``, for the last three failures.

The copy has logs, the relay log, the members' binlogs, the files of broker and ZooKeeper, and the whole target. All
processes are stopped meanwhile, so the copy shows one moment. Left out: secrets, Spark's scratch files, and the
source's tables, which its binlogs reproduce.

Guarantees: the test still fails with its own error. A note on the error names the copy, or why there is none, and the
files that could not be copied.
"""

import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path

from millrace.deploy.servers.process import ServerProcess
from millrace.home_folder import home

KEPT_MAX = 3
PIECE_BYTES = 1 << 20
NOTE_CHARACTERS_MAX = 2000  # each file that was not copied is listed
_KEPT, _NOT_KEPT = "kept in ", "not all was kept: "
_SCRATCH = {"spark", "secrets"}


def keep(
    failure: BaseException, folder: Path, processes: Iterable[ServerProcess], *, name: str
) -> None:
    """Keep a stack's folder for this failure, unless already done; removes the oldest copy."""
    if any(note.startswith((_KEPT, _NOT_KEPT)) for note in getattr(failure, "__notes__", ())):
        return
    try:
        kept = _new_folder(home() / "failed", name)
        failure.add_note(f"{_KEPT}{kept}")
        with _still(processes):
            shutil.copytree(
                folder, kept, ignore=_left_out(folder), copy_function=_copy, dirs_exist_ok=True
            )
    except Exception as error:  # noqa: BLE001 - the test's own failure is reported
        failure.add_note(f"{_NOT_KEPT}{error!r}"[:NOTE_CHARACTERS_MAX])


def _new_folder(root: Path, name: str) -> Path:
    """A new folder among at most ``KEPT_MAX``; the names sort by age."""
    root.mkdir(exist_ok=True)
    for old in sorted(root.iterdir())[: -(KEPT_MAX - 1)]:
        shutil.rmtree(old)
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S.%f")
    kept = root / f"{stamp}-{re.sub(r'[^A-Za-z0-9_.-]+', '-', name)[:100]}"
    kept.mkdir()
    return kept


@contextmanager
def _still(processes: Iterable[ServerProcess]) -> Iterator[None]:
    with ExitStack() as resumed:
        for process in processes:
            resumed.callback(process.resume)
            process.pause()
        yield


def _left_out(root: Path) -> Callable[[str, list[str]], set[str]]:
    def ignore(folder: str, names: list[str]) -> set[str]:
        parts = Path(folder).relative_to(root).parts
        if not parts:
            return _SCRATCH & set(names)
        if parts[0] == "source" and parts[-1] == "data":
            return {name for name in names if not name.startswith("mysql-bin.")}
        return set()

    return ignore


def _copy(source: str, target: str) -> None:
    """Copy a file; long runs of zeros become holes. Sockets are skipped."""
    if not Path(source).is_file():
        return
    with Path(source).open("rb") as read, Path(target).open("wb") as write:
        while piece := read.read(PIECE_BYTES):
            if piece.count(0) < len(piece):
                write.write(piece)
            else:
                write.seek(len(piece), 1)
        write.truncate()
