"""The catalogue as a page of text: ``docs/errors.md``."""

from millrace.codes import CATALOGUE, SECTIONS

_HEAD = """# Errors

Every error of Millrace has a code whose meaning never changes. `millrace explain CODE` says the same offline, and a task's
status (`millrace status`) shows code, message and fix. Whether a task tries again by itself (DEGRADED) or waits for you
(BLOCKED) is said by the status; the same condition can be either.

This page is written by `millrace explain --markdown`; each code is provoked by a test (`tests/provocations.py`).
"""


def markdown() -> str:
    """All of it, by section; ends with a line break."""
    parts = [_HEAD]
    for title, codes in SECTIONS.items():
        parts.append(f"\n## {title}\n")
        for code in codes:
            parts.append(f"\n### {code.code} {code.title}\n\n{code.cause}\n\n**Fix.** {code.fix}\n")
    assert sum(len(codes) for codes in SECTIONS.values()) == len(CATALOGUE)
    return "".join(parts)
