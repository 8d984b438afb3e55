"""Finds phrases that the project's English avoids, and prints the plain alternative of each.

    python -m tests.kit.english                    every tracked Python and Markdown file
    python -m tests.kit.english zk tests/unit      only these files and folders
    python -m tests.kit.english --counts           findings per folder

It reads comments, docstrings, string literals, names of tests, and Markdown. It skips code in backticks and fences.
The exit code is 1 if there is a finding. It does not judge grammar: a clean file may still read badly.
$MILLRACE_HOME/english.json has the digests of clean files, which are not read again until they or this module change.
"""

import argparse
import io
import json
import os
import re
import subprocess
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from millrace.home_folder import home
from tests.kit.paths import ROOT

TEST_NAME_WORDS_MAX = 10
_SKIPPED = ("tests/kit/english.py", "tests/unit/test_english.py")  # they list the phrases

# Phrases that contain one of the words below and are good English.
_ALLOWED = re.compile(
    r"\b(?:lag(?:s|ging)?|falls?|fell|far|seconds|bytes) behind\b"
    r"|\bbehind (?:an? |the )?(?:\w+ )?(?:proxy|firewall|partition|balancer|primary|source)\b"
    r"|\black of\b|\bfor good (?:reason|cause)\b|\bgives? up after\b|\bstands? for\b|\bas (?:it|they) stands?\b"
    r"|\bwhatever is killed\b|\bstand-\w+|\b(?:told|tells?|telling) (?:\w+ ){0,3}to\b|\bof (?:its|their) own accord\b",
    re.IGNORECASE,
)

# What to find (the case of letters does not matter), and what to write instead.
_RULES = tuple(
    (re.compile(pattern, re.IGNORECASE), plain)
    for pattern, plain in (
        (r"\bbehind (?=\w)|\b(?:or|directly|long|shortly) behind\b", "after, past"),
        (r"\bin front of\b", "before"),
        (r"\banew\b", "again"),
        (r"\bin vain\b", "without success, timed out"),
        (r"\bmend(?:s|ed|ing)?\b", "fix, repair"),
        (r"\black(?:s|ed|ing)?\b", "is missing, has no"),
        (r"\bfor good\b", "permanently, forever"),
        (r"\bby hand\b", "manually"),
        (r"\blet(?:s|ting)? (?:\w+ )?go\b(?! on\b)", "releases"),
        (
            r"\bg(?:ives?|ave|iven|iving) (?:it |them )?(?:up|back)\b",
            "releases, returns, stops retrying",
        ),
        (r"\b(?:hears?|heard|hearing) (?:of|about|nothing|how|that|its)\b", "receives, learns"),
        (r"\bma(?:kes?|de|king) good\b", "repairs, compensates"),
        (r"\b(?:stands?|stood)\b", "is, exists"),
        (r"\bnobody\b(?!-| *$)", "no client, no process (name the actor)"),
        (r"\bsomebody\b", "another client, an operator (name the actor)"),
        (r"\bwhoever\b", "name the actor"),
        (r"\bwhatever (?:is|was|has|had|it|they|came|comes)\b", "any, all, regardless of"),
        (r"\b(?:go|goes|went|gone) on\b(?! schedule)|\bgoing on (?=\w)", "continues, resumes"),
        (r"\btold\b", "reported, distinguished"),
        (r"\btells? (?=\w)", "reports, shows"),
        (r"\bsaid\b", "reported, stated"),
        (r"\bsay(?:s|ing)? (?:what|who|nothing)\b", "reports, names, shows"),
        (r"\bas it were\b", "delete it"),
        (r"\bthere(?:of|by|in|upon)\b", "of it, by it"),
        (
            r"\bof (?:its|their) own(?= ?(?:[.,:;)]|$|(?:and|or|in|on|at|to|for|from|with|that|which|is|are|was)\b))",
            "its own, separate",
        ),
        (r"\bof ours\b", "our"),
        (r"\bsuch one\b", "one, this one"),
        (r"[.:;] (?-i:Who) [^.?]*\.", "name the actor: a worker that …"),
    )
)
_DOCSTRING_RULES = (
    (re.compile(r"(?:Who|What|Whatever|Whoever) [^.?]*(?:\.|$)"), "name the actor or the thing"),
    (re.compile(r"(?:They as |Of )[^.]*\.$"), "write a sentence, or name the thing"),
)
_LITERAL = re.compile(r"(\w*)(\"\"\"|\'\'\'|\"|\')(.*)\2", re.DOTALL)
_FIELD = re.compile(r"\{[^{}]*\}")
_CODE = re.compile(r"``.+?``|`[^`]+`", re.DOTALL)
_NO_PROSE = re.compile(r"^ *```.*?^ *```|^    .*?$|\]\([^)]*\)", re.DOTALL | re.MULTILINE)
_TEST = re.compile(r"^\s*(?:async )?def test_(\w+)", re.MULTILINE)
_QUOTED = {"STRING", "FSTRING_MIDDLE"}


@dataclass
class Text:
    """A comment, a literal, a name or a page, with single spaces, and the line of each character."""

    is_docstring: bool = False
    characters: str = ""
    lines: list[int] = field(default_factory=list)

    def add(self, line: int, part: str) -> None:
        """Append a part that begins in this line."""
        for row in f"{part} ".split("\n"):
            words = " ".join(row.split())
            self.characters += f"{words} "
            self.lines += [line] * (len(words) + 1)
            line += 1


def _masked(pattern: re.Pattern[str], text: str) -> str:
    """The text with each match replaced by a word of the same length."""
    return pattern.sub(lambda found: re.sub(r"[^\n]", "x", found.group()), text)


def _literals(source: str) -> Iterator[Text]:
    """Comments and literals. Comments on adjacent lines are one text; so are literals that Python concatenates."""
    held, held_type, line_end, starts = Text(), -1, 0, True
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        line, is_comment = token.start[0], token.type == tokenize.COMMENT
        if is_comment or tokenize.tok_name[token.type] in _QUOTED:
            joins = token.type == held_type and (not is_comment or line == line_end + 1)
            if not joins:
                yield held
                held = Text(is_docstring=starts and not is_comment)
            found = _LITERAL.fullmatch(token.string)
            body = found[3].replace("\\n", "  ") if found else token.string.lstrip("#! ")
            has_fields = found is not None and "f" in found[1].lower()
            held.add(line, _masked(_FIELD, body) if has_fields else body)
            held_type, line_end = token.type, token.end[0]
            starts = starts and is_comment
        elif token.type != tokenize.NL:
            held_type = -1
            starts = token.type in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
    yield held


def _names(source: str) -> Iterator[Text]:
    """The names of tests, as words."""
    for found in _TEST.finditer(source):
        name = Text()
        name.add(source.count("\n", 0, found.start(1)) + 1, found[1].replace("_", " "))
        yield name


def _page(source: str) -> Text:
    """The prose of a page."""
    page = Text()
    page.add(1, _masked(_NO_PROSE, source))
    return page


def findings(source: str, *, is_python: bool) -> list[tuple[int, str, str]]:
    """(line, phrase, plain alternative) of each phrase of a file."""
    result = []
    for text in (*_literals(source), *_names(source)) if is_python else (_page(source),):
        prose = _masked(_ALLOWED, _masked(_CODE, text.characters))
        for pattern, plain in _RULES:
            for match in pattern.finditer(prose):
                result.append((text.lines[match.start()], match.group().strip(), plain))
        for pattern, plain in _DOCSTRING_RULES if text.is_docstring else ():
            if first := pattern.match(prose.strip()):
                result.append((text.lines[0], f"{first.group().split()[0]} …", plain))
    for name in _names(source) if is_python else ():
        if (count := len(name.characters.split())) > TEST_NAME_WORDS_MAX:
            result.append((name.lines[0], f"a name of {count} words", "ten words or fewer"))
    return sorted(result)


def files(paths: list[str]) -> list[Path]:
    """The tracked Python and Markdown files below the paths."""
    listed = subprocess.run(
        ["git", "ls-files", "--", *(paths or ["."])],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    return [
        ROOT / name for name in listed if name.endswith((".py", ".md")) and name not in _SKIPPED
    ]


def digest_of(path: Path) -> str:
    """Of what decides about the findings of this file."""
    rules = Path(__file__).read_bytes()
    return sha256(rules + path.suffix.encode() + path.read_bytes()).hexdigest()[:20]


def _replace(path: Path, text: str) -> None:
    """At once: another checkout may read it."""
    scratch = path.with_name(f"{path.name}-{os.getpid()}")
    scratch.write_text(text)
    scratch.rename(path)


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("paths", nargs="*", help="files and folders, relative to the repository")
    parser.add_argument("--counts", action="store_true", help="print the findings per folder")
    arguments = parser.parse_args()
    counts: Counter[str] = Counter()
    cache = home() / "english.json"
    clean = set(json.loads(cache.read_text())) if cache.exists() else set()
    digests = {path: digest_of(path) for path in files(arguments.paths)}
    for path in [path for path, digest in digests.items() if digest not in clean]:
        name = path.relative_to(ROOT)
        for line, phrase, plain in findings(path.read_text(), is_python=path.suffix == ".py"):
            counts[str(Path(*name.parts[:-1][:2]) if len(name.parts) > 1 else name)] += 1
            digests.pop(path, None)
            if not arguments.counts:
                print(f"{name}:{line}: {phrase} → {plain}")
    for folder, count in counts.most_common() if arguments.counts else ():
        print(f"{count:6} {folder}")
    if not arguments.paths:
        _replace(cache, json.dumps(sorted(digests.values())))
    print(f"{counts.total()} findings", file=sys.stderr)
    return 1 if counts else 0


if __name__ == "__main__":
    sys.exit(main())
