"""The Python programs that ``docs/subscribers.md`` prints, run as printed."""

import re
import subprocess
import sys
from pathlib import Path

from tests.kit.paths import ROOT

DOCUMENT = ROOT / "docs" / "subscribers.md"


def example(document: Path, *, after: str) -> str:
    """The first Python program after this text in a document."""
    text = document.read_text().partition(after)[2]
    return str(re.findall(r"```python\n(.*?)```", text, re.DOTALL)[0])


def checked(bootstrap: str, topic: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """The document's checker as a program."""
    program = folder / "checker.py"
    program.write_text(example(DOCUMENT, after="## A checker"))
    command = [sys.executable, str(program), bootstrap, topic]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
