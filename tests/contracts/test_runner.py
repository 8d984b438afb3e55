"""The runner of `make test` counts correctly, and neither a crash nor a hang hides a test."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.paths import ROOT
from tests.kit.run.plan import Plan, TestFile
from tests.kit.waiting import eventually

# two lanes, without the project's fixtures
LIGHT = ("--lanes", "2", "--", "-o", "testpaths=deploy")
FILES = {
    "test_good.py": "def test_one():\n    pass\n\ndef test_two():\n    pass\n",
    "test_bad.py": "def test_red():\n    print('printed')\n    assert 1 == 2\n",
    "test_dies.py": "import os\n\ndef test_dies():\n    os._exit(3)\n\ndef test_behind():\n    pass\n",
    "test_hangs.py": "import time, pytest\n\n@pytest.mark.timeout(1)\ndef test_hangs():\n    time.sleep(600)\n",
    "test_empty.py": "NOTHING = 0\n",
    "test_broken.py": "import nothing_of_this_name\n",
}


def test_crashes_hangs_and_failures_are_counted_and_shown_twice(tmp_path: Path) -> None:
    """Each is shown at once and at the end; the last line and the exit code give the result."""
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    command = [sys.executable, "-m", "tests.kit.run", str(tmp_path), *LIGHT]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )
    lines = done.stdout.splitlines()
    assert (done.returncode, lines[-1]) == (1, "2 passed, 5 failed"), done.stdout + done.stderr
    for words in ("assert 1 == 2", "status 3", "Timeout", "nothing_of_this_name", "not run"):
        assert done.stdout.count(words) >= 2, words
    assert [line for line in lines if line.startswith("[6/6 ")]


def _file(name: str, expected_s: float, *needs: str) -> TestFile:
    return TestFile(name, expected_s, frozenset(needs))


def test_longest_file_runs_first_and_servers_share_one_lane() -> None:
    """Another lane takes files without a shared server, and stacks."""
    plan = Plan.of(
        [
            _file("short", 1),
            _file("long", 9),
            _file("servers 1", 5, "servers"),
            _file("servers 2", 4, "servers"),
            _file("stack", 7, "stack"),
        ],
        lane_count=2,
    )
    taken = [(lane, plan.take(lane)) for lane in (0, 1, 0, 1, 1, 0)]
    names = [(lane, file and file.path) for lane, file in taken]
    assert names == [
        (0, "stack"),
        (1, "servers 1"),
        (0, "long"),
        (1, "servers 2"),
        (1, "short"),
        (0, None),
    ]


def test_another_lane_helps_if_the_servers_files_take_long() -> None:
    """One lane has a second copy of the servers, and uses it to the end; source sets are not started twice."""
    sets = TestFile("sets", 50, frozenset({"servers"}), uses_sets=True)
    files = [_file(f"servers {seconds}", seconds, "servers") for seconds in (10, 20, 30, 40)]
    other = _file("other", 60)
    plan = Plan.of([sets, other, *files], lane_count=3)
    taken = [plan.take(lane) for lane in (0, 1, 2, 2, 0, 1, 1)]
    assert taken == [sets, files[3], other, None, files[2], files[1], files[0]]


def test_files_of_the_servers_end_within_a_lanes_share() -> None:
    """As many lanes help as that needs, and no more: each further copy of the servers costs memory."""
    files = [_file(f"servers {number}", 20, "servers") for number in range(60)]
    others = [_file(f"other {number}", 20) for number in range(60)]
    plan = Plan.of([*files, *others], lane_count=5)
    rounds = 0
    while [file for lane in range(5) if (file := plan.take(lane))]:
        rounds += 1
    assert (rounds, len(plan.helpers)) == (len([*files, *others]) / 5, 2)


def test_few_files_of_the_servers_stay_in_their_lane() -> None:
    """They are done before a second copy of the servers has started."""
    plan = Plan.of(
        [_file(f"servers {seconds}", seconds, "servers") for seconds in (10, 50)], lane_count=2
    )
    assert plan.take(0)
    assert plan.take(1) is None


@pytest.mark.parametrize("path", [Path(__file__)])
def test_file_without_a_stored_duration_gets_an_estimate(path: Path) -> None:
    """A new file is not assumed to be short."""
    assert TestFile.of(path, {}).expected_s > 1


def test_each_file_has_a_lane() -> None:
    """Shared servers and stacks have different lanes, so a file that needed both was never run."""
    files = [TestFile.of(path, {}) for path in (ROOT / "tests").rglob("test_*.py")]
    assert any("servers" in file.needs for file in files)
    assert any("stack" in file.needs for file in files)
    plan = Plan.of(files, lane_count=3)
    while sum(plan.take(lane) is not None for lane in range(3)):
        pass
    assert [file.path for file in plan.waiting] == []


def test_ctrl_c_ends_the_lanes(tmp_path: Path) -> None:
    """A lane in a shell's background, where SIGINT is ignored, ends too."""
    mark = tmp_path / "pid"
    (tmp_path / "test_waits.py").write_text(
        f"import os, pathlib, time\n\ndef test_waits():\n    pathlib.Path({str(mark)!r}).write_text(str(os.getpid()))\n"
        "    time.sleep(600)\n"
    )
    command = [sys.executable, "-m", "tests.kit.run", str(tmp_path), *LIGHT]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as runner:
        eventually(lambda: mark.exists() and mark.read_text(), what="a lane is at its test")
        runner.send_signal(signal.SIGINT)
        output, _ = runner.communicate(timeout=300)
    assert (runner.returncode, output) == (130, "interrupted\n")
    assert not Path(f"/proc/{mark.read_text()}").exists()
