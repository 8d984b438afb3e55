"""A suite that hangs ends by itself."""

import faulthandler
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fix_hang import TEST_S_MAX

ROOT = Path(__file__).parents[2]
HUNG = """
import threading
from collections.abc import Callable, Iterator

import pytest

from tests import fix_hang

fix_hang.TEST_S_MAX = 0.5


@pytest.fixture
def left() -> Iterator[None]:
    yield
    {left}


def test_it(left: None, whole_time_again: Callable[[], None]) -> None:
    {body}
"""


@pytest.mark.parametrize(
    ("body", "left"),
    [
        ("threading.Event().wait()", "pass"),
        ("while True: pass", "pass"),
        ("raise AssertionError", "threading.Event().wait()"),
        ("whole_time_again(); threading.Event().wait()", "pass"),
    ],
    ids=["waiting", "running", "behind a red test", "in a later step"],
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


def test_a_test_of_many_steps_has_its_whole_time_for_each(
    whole_time_again: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a campaign would be ended for the number of its points."""
    bounds: list[float] = []
    monkeypatch.setattr(faulthandler, "dump_traceback_later", lambda s, **_: bounds.append(s))
    whole_time_again()
    whole_time_again()
    assert bounds == [TEST_S_MAX, TEST_S_MAX]
