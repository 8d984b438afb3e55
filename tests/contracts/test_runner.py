"""The runner of `make test` counts correctly, and neither a crash nor a hang hides a test."""

import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from millrace.schemas.gtid import Flavour
from tests.fixtures import stack
from tests.kit.paths import ROOT
from tests.kit.run.__main__ import Tally
from tests.kit.run.cpu import LaneCpu
from tests.kit.run.plan import Cost, Plan, TestFile, store_costs, stored_costs
from tests.kit.run.uses import shared_fixtures
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


def test_chaos_run_keeps_its_costs_apart(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It runs other tests of the same files: the budgets of `make test` would be judged by them."""
    monkeypatch.setenv("MILLRACE_HOME", str(tmp_path))
    name = "tests/contracts/test_runner.py"
    store_costs({name: Cost(1.0, 2.0)}, "test")
    store_costs({name: Cost(8.0, 9.0)}, "chaos")
    assert stored_costs() == {name: Cost(1.0, 2.0)}
    assert stored_costs("chaos") == {name: Cost(8.0, 9.0)}


def test_costs_of_a_file_with_a_failure_are_not_usual() -> None:
    """A failed test may have waited for minutes: the next run must not be judged by that."""
    tally = Tally(failed={"tests/a/test_b.py::test_c[d]": "why"})
    tally.costs |= {"tests/a/test_b.py": Cost(600.0, 600.0), "tests/a/test_e.py": Cost(1.0, 2.0)}
    assert tally.usual_costs == {"tests/a/test_e.py": Cost(1.0, 2.0)}


def test_tests_on_the_running_stack_come_first() -> None:
    """A lane runs one file after the other, each on both flavours: it starts half as many stacks."""
    session, items = SimpleNamespace(stash=pytest.Stash()), [_on(None), *map(_on, Flavour)]
    stack.pytest_collection_modifyitems(cast(Any, session), cast(Any, items))
    assert [item.params for item in items] == [{}, *({"fault_stack": each} for each in Flavour)]
    session.stash[stack.RUNNING_FLAVOUR] = Flavour.MYSQL
    items.sort(key=lambda item: item.params.get("fault_stack") is Flavour.MYSQL)
    stack.pytest_collection_modifyitems(cast(Any, session), cast(Any, items))
    assert items[0].params == {"fault_stack": Flavour.MYSQL}


def _on(flavour: Flavour | None) -> SimpleNamespace:
    params = {} if flavour is None else {"fault_stack": flavour}
    return SimpleNamespace(params=params, callspec=SimpleNamespace(params=params))


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


def test_only_the_lane_of_the_servers_has_a_spark_session() -> None:
    """It runs these files after those with source sets. A lane that helps leaves them, and takes shorter ones."""
    sets = TestFile("sets", 50, frozenset({"servers"}), uses_sets=True)
    spark = [_file(f"spark {seconds}", seconds, "servers", "spark") for seconds in (70, 90)]
    files = [_file(f"servers {seconds}", seconds, "servers") for seconds in (80, 85)]
    plan = Plan.of([*files, *spark, sets], lane_count=2)
    taken = [plan.take(lane) for lane in (0, 1, 0, 1, 1, 0)]
    assert taken == [sets, files[1], spark[1], files[0], None, spark[0]]


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


def test_time_of_a_file_is_measured_here_or_estimated() -> None:
    """A new file is not assumed to be short; one that waits keeps its lane, too."""
    path = Path(__file__)
    name = str(path.relative_to(ROOT))
    times = [
        TestFile.of(path, stored, lanes_per_core=2).expected_s
        for stored in ({}, {name: Cost(30, 40)}, {name: Cost(1, 40)})
    ]
    assert times[0] > 10
    assert times[1:] == [60, 20]


def test_cpu_time_counts_all_processes_of_a_lane() -> None:
    """A child that has ended and one that runs; a process of others does not count."""
    cpu = LaneCpu()
    cpu.since_last()
    spun_s, others_s = 0.2, 2.0  # our own time, of imports and of reading /proc, is between them
    more_s = 0.05  # /proc counts in ticks of 10 ms, rounded down for each process
    with _spinning(spun_s + more_s), _spinning(others_s, env={}):
        _end(_start_spinning(spun_s + more_s))
        assert 2 * spun_s <= cpu.since_last() < others_s


def _start_spinning(cpu_s: float, env: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
    """Returns when it has used its time; it runs until its input ends."""
    spin = f"import time\nwhile time.process_time() < {cpu_s}: pass\nprint(flush=True)\ninput()\n"
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        (sys.executable, "-IS", "-c", spin), stdin=pipe, stdout=pipe, stderr=pipe, env=env
    )
    assert process.stdout is not None
    process.stdout.readline()
    return process


def _end(process: subprocess.Popen[bytes]) -> None:
    process.communicate()


@contextmanager
def _spinning(cpu_s: float, env: Mapping[str, str] | None = None) -> Iterator[None]:
    process = _start_spinning(cpu_s, env)
    try:
        yield
    finally:
        _end(process)


def test_each_file_has_a_lane() -> None:
    """Shared servers and stacks have different lanes, so a file that needed both was never run."""
    files = [
        TestFile.of(path, {}, lanes_per_core=2) for path in (ROOT / "tests").rglob("test_*.py")
    ]
    assert any("servers" in file.needs for file in files)
    assert any("stack" in file.needs for file in files)
    plan = Plan.of(files, lane_count=3)
    while sum(plan.take(lane) is not None for lane in range(3)):
        pass
    assert [file.path for file in plan.waiting] == []


def test_shared_fixtures_are_found_through_others(tmp_path: Path) -> None:
    """Through a fixture of the file, a mark, a request by name; a parameter of the same name is no fixture."""
    texts = {
        "import pytest\n@pytest.fixture\ndef made(target_server): ...\ndef test_a(made): ...\n": {
            "pool"
        },
        "import pytest\npytestmark = pytest.mark.usefixtures('source_set')\n": {
            "pool",
            "source_set",
        },
        "def test_a(request): request.getfixturevalue(f'{request.param}_server')\n": {"pool"},
        "import pytest\n@pytest.mark.parametrize('name, spark', [])\ndef test_a(name, spark): ...\n": set(),
        "import pytest\n@pytest.mark.parametrize('spark', [], indirect=True)\ndef test_a(spark): ...\n": {
            "spark"
        },
        "def other(spark): ...\ndef test_a(tmp_path): ...\n": set(),
    }
    for number, (text, expected) in enumerate(texts.items()):
        path = tmp_path / f"test_{number}.py"
        path.write_text(text)
        assert shared_fixtures(path, ("pool", "spark", "source_set")) == expected, text


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
