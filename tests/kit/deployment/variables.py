"""The variables of the environment that docs/documents.md lists."""

import re

from tests.kit.paths import ROOT


def documented_variables() -> set[str]:
    """Their names; `…_NAME` continues the first one of its row."""
    rows = re.findall(r"^\| (`MILLRACE_.*?) \|", (ROOT / "docs/documents.md").read_text(), re.M)
    found = set()
    for row in rows:
        first, *rest = re.findall(r"`([…\w]+)`", row)
        stem = first.rpartition("_")[0]
        found |= {first, *(stem + name.removeprefix("…") for name in rest)}
    return found
