"""The catalogue as Markdown: ``docs/errors.md``. Apart: sentences."""

from millrace.codes import CATALOGUE, SECTIONS

_HEAD = """# Errors

Every error of Millrace has a code whose meaning never changes. `millrace explain CODE` prints one entry offline.
`millrace status` shows the code, the message and the fix of a task that is not running.

The column **Next** shows what happens after the error. A task that *retries by itself* is DEGRADED until the cause is gone. A
task that *needs you* is BLOCKED until you run `millrace task resume TASK`. *Another owner continues*: another process has taken
over, so this one stops. For a command, *needs you* means: follow the fix, then repeat it. MR-3021, MR-5018, MR-5026 and
MR-5038 are warnings: the task continues. `millrace check` reports MR-4160 to MR-4199; no task stops for them.

Words in capitals in a command, such as TASK, SET and GTID, are names. A status or an error shows the real names where they
are known, so that the command can be pasted.

`millrace explain --markdown` writes this page. A test provokes each code (`tests/kit/provocations.py`).
"""


def markdown() -> str:
    """The whole page: one table per section. Ends with a line break."""
    parts = [_HEAD]
    for title, codes in SECTIONS.items():
        parts.append(
            f"\n## {title}\n\n| Code | What happened | Why | Fix | Next |\n|---|---|---|---|---|\n"
        )
        for code in codes:
            cells = (code.code, code.title, code.cause, code.fix, code.branch.value)
            parts.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n")
    assert sum(len(codes) for codes in SECTIONS.values()) == len(CATALOGUE)
    return "".join(parts)
