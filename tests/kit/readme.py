"""The commands of the README and of docs/install.md, as a user would paste them."""

import os
import re
import subprocess
import sys
from collections.abc import Mapping

from tests.kit.paths import ROOT

README = (ROOT / "README.md").read_text()
PROGRAM = f"{sys.executable} -m millrace"
STEP_S = 600


def section(title: str) -> str:
    """Return the text under a heading."""
    return README.split(f"\n## {title}\n")[1].split("\n## ")[0]


def blocks(text: str, language: str) -> list[str]:
    """Return the fenced blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def replaced(text: str, words: Mapping[str, str]) -> str:
    """Replace the README's addresses and paths; each must be there."""
    for word, own in words.items():
        assert word in text, f"the README no longer says {word}"
        text = text.replace(word, own)
    return text


def shell(script: str, environment: Mapping[str, str]) -> str:
    """Run a block as a user would paste it; return its output."""
    done = subprocess.run(
        ["bash", "-e", "-u", "-c", script],
        cwd=ROOT,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=STEP_S,
        check=False,
    )
    assert done.returncode == 0, f"{script}\n{done.stdout}"
    return done.stdout


def script_of_a_stack() -> tuple[str, str]:
    """The commands of "A minute with a stack" from `up` on, and the one that ends it."""
    (script,) = [
        block for block in blocks(section("A minute with a stack"), "sh") if "millrace up" in block
    ]
    *lines, last = replaced(script, {".venv/bin/millrace": PROGRAM}).splitlines()
    assert last.split()[3] == "down", last
    return "\n".join(lines), last
