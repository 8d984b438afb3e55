"""A suite that hangs ends by itself."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HUNG = """
import threading
from collections.abc import Iterator

import pytest

from tests import fix_hang

fix_hang.TEST_S_MAX = 0.5


@pytest.fixture
def left() -> Iterator[None]:
    yield
    {left}


def test_it(left: None) -> None:
    {body}
"""


@pytest.mark.parametrize(
    ("body", "left"),
    [
        ("threading.Event().wait()", "pass"),
        ("while True: pass", "pass"),
        ("raise AssertionError", "threading.Event().wait()"),
    ],
    ids=["waiting", "running", "behind a red test"],
)
def test_a_hung_test_ends_the_run_with_what_it_was_doing(
    tmp_path: Path, body: str, left: str
) -> None:
    """Without it, it would run until somebody looks."""
    path = tmp_path / "test_hung.py"
    path.write_text(HUNG.format(body=body, left=left))
    command = [sys.executable, "-m", "pytest", "-p", "tests.fix_hang", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, "-c", "/dev/null", str(path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1
    assert "Timeout (0:00:00.500000)!" in done.stderr
    assert str(path) in done.stderr
