"""Requirements as text for a terminal, and as plain values for ``--json``. Pure.

    source db1:3306
      ok             binlog_format             ROW
      warn  MR-4162  binlogs are kept          24.0 h
                     wanted  at least 72 h (--pause-h)
                     fix     SET GLOBAL binlog_expire_logs_seconds = 259200;

A line has at most 80 columns, unless a word is longer: a statement is never cut.
"""

import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence

from millrace.checks.requirement import Level, Requirement, exit_code

WIDTH = 80
_CODE, _WHAT, _FOUND = 8, 17, 44  # columns at which the parts of a line begin
FORMAT = 1


def as_lines(found: Sequence[Requirement], *, ignored_count: int = 0) -> Iterator[str]:
    last = None
    for requirement in found:
        if requirement.subject != last:
            last = requirement.subject
            yield f"{last.area} {last.name}"
        yield from _lines(requirement)
    counts = Counter(requirement.level for requirement in found)
    ignored = f", {ignored_count} ignored" if ignored_count else ""
    yield ", ".join(f"{counts[level]} {level}" for level in Level) + ignored


def _lines(requirement: Requirement) -> Iterator[str]:
    head = f"  {requirement.level:<6}{requirement.code:<9}{requirement.what}"
    wrapped = _wrapped(requirement.found, _FOUND)
    if len(head) < _FOUND - 1 and len(wrapped) == 1:
        yield f"{head:<{_FOUND}}{wrapped[0]}".rstrip()
    else:
        yield head
        yield from _detail("found", requirement.found)
    if requirement.level is not Level.OK:
        yield from _detail("wanted", requirement.wanted)
        yield from _detail("fix", requirement.fix)


def _detail(name: str, text: str) -> Iterator[str]:
    for number, line in enumerate(_wrapped(text, _WHAT + 8) if text else ()):
        yield f"{'':{_WHAT}}{name if number == 0 else '':<8}{line}"


def _wrapped(text: str, indent: int) -> list[str]:
    return textwrap.wrap(text, WIDTH - indent, break_long_words=False, break_on_hyphens=False) or [
        ""
    ]


def as_plain(found: Sequence[Requirement], *, ignored_count: int = 0) -> dict[str, object]:
    """The value of ``--json``; docs/check.md lists its keys."""
    counts = Counter(requirement.level for requirement in found)
    return {
        "format": FORMAT,
        "exit_code": exit_code(found),
        **{str(level): counts[level] for level in Level},
        "ignored": ignored_count,
        "requirements": [
            {
                "level": str(requirement.level),
                "code": requirement.code,
                "area": str(requirement.subject.area),
                "subject": requirement.subject.name,
                "what": requirement.what,
                "found": requirement.found,
                "wanted": requirement.wanted,
                "fix": requirement.fix,
            }
            for requirement in found
        ],
    }
