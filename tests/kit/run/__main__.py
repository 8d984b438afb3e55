"""The runner of `make test`: four lanes, the longest file first. It prints a line per file, and failures twice.

    python -m tests.kit.run [--lanes 4] PATH... [-- OPTION OF PYTEST...]

Failures are printed at once and again at the end, with the files that took most CPU time. The last line is
``N passed, N failed``. The exit code is 0 only if no test failed and at least one passed. What each file took is kept
in $MILLRACE_HOME for the order of the next run. If a lane dies (a crash, a test over its time limit), its current test
and the rest of its file fail, and another lane is started.
"""

import argparse
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path

from tests.kit.economy import economize
from tests.kit.forked import ending_with_us
from tests.kit.paths import ROOT
from tests.kit.run.budgets import budget_lines
from tests.kit.run.messages import Assigned, Begun, Collected, Ended, FileDone, Message
from tests.kit.run.plan import Cost, Plan, TestFile, store_costs, stored_costs
from tests.kit.run.shared import SHARED_NAMES, shared_servers
from tests.kit.run.uses import shared_fixtures

END_S = 60.0  # for a lane to stop its servers
LOG_BYTES = 20_000  # shown of a dead lane's log
DEAREST = 10  # files that are listed at the end
DIED = "its lane ended"


@dataclass(slots=True)
class Tally:
    """The results so far; times are of the monotonic clock."""

    begun_s: float = field(default_factory=time.monotonic)
    passed: int = 0
    skipped: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    costs: dict[str, Cost] = field(default_factory=dict)
    measured_s: float = 0.0
    expected_s: float = 0.0  # of the finished files

    @property
    def usual_costs(self) -> dict[str, Cost]:
        """Without those of files with a failure, which may have waited for minutes."""
        failed = {test.partition("::")[0] for test in self.failed}
        return {path: cost for path, cost in self.costs.items() if path not in failed}


@dataclass(slots=True)
class FileRun:
    """A file that a lane is running."""

    file: TestFile
    begun_s: float = field(default_factory=time.monotonic)
    left: int = 0
    passed: int = 0
    failed: int = 0
    test: str = ""


class LaneProcess:
    """A pytest process with a pipe to it; its own output is in ``log``, its servers' files are beside it."""

    def __init__(self, number: int, folder: Path, options: Sequence[str]) -> None:
        self.number = number
        own = Path(tempfile.mkdtemp(prefix=f"{number}-", dir=folder))
        self.log = own / "log"
        self.file_run: FileRun | None = None
        self.line: Connection[Assigned | None, Message]
        self.line, theirs = Pipe()
        plugin = ("-p", "tests.kit.run.lane", "--lane-fd", str(theirs.fileno()))
        files = ("-p", "no:cacheprovider", "--basetemp", str(own / "tmp"))
        pytest = (sys.executable, "-m", "pytest", *files, *plugin, *options)
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                ending_with_us(*pytest),
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[theirs.fileno()],
                process_group=0,
            )
        theirs.close()

    def assign(self, file: TestFile | None, *, needs_sets: bool) -> None:
        """Send the next file; None ends the lane."""
        self.file_run = FileRun(file) if file else None
        self.line.send(Assigned(file.path, needs_sets or file.uses_sets) if file else None)

    def end(self, number: signal.Signals | None = None) -> int:
        """Wait for the lane's exit status; kills the lane after ``END_S``."""
        if number is not None and self.process.poll() is None:
            self.process.send_signal(number)
        try:
            return self.process.wait(END_S)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            return self.process.wait()

    def log_tail(self) -> str:
        """The end of the lane's log."""
        return self.log.read_bytes()[-LOG_BYTES:].decode(errors="replace")


class Runner:
    """Assigns files to lanes until none is left."""

    def __init__(self, plan: Plan, folder: Path, options: Sequence[str]) -> None:
        self._plan, self._folder, self._options = plan, folder, options
        self._count = len(plan.waiting)
        self._lanes: dict[Connection[Assigned | None, Message], LaneProcess] = {}
        self.tally = Tally()

    def run(self, lane_count: int) -> None:
        """Returns when every lane has ended."""
        for number in range(lane_count):
            self._start(number)
        try:
            while self._lanes:
                for line in wait(list(self._lanes)):
                    self._handle_message(self._lanes[line])  # type: ignore[index]
            for file in self._plan.waiting:  # no lane could be started
                self.tally.failed[file.path] = "not run: there is no lane"
        finally:
            for lane in self._lanes.values():
                lane.process.send_signal(signal.SIGINT)
            for lane in self._lanes.values():
                lane.end()

    def _start(self, number: int) -> None:
        lane = LaneProcess(number, self._folder, self._options)
        self._lanes[lane.line] = lane

    def _handle_message(self, lane: LaneProcess) -> None:
        try:
            message = lane.line.recv()
        except (EOFError, ConnectionResetError):
            self._handle_exit(lane)
            return
        file_run = lane.file_run
        match message:
            case FileDone(cpu_s):
                self._finish(file_run, cpu_s)
                file = self._plan.take(lane.number)
                lane.assign(file, needs_sets=self._plan.needs_sets())
            case Collected(count) if file_run:
                file_run.left = count
            case Begun(test) if file_run:
                file_run.test = test
            case Ended() if file_run:
                file_run.left -= 1
                self._count_test(file_run, message)

    def _count_test(self, file_run: FileRun, ended: Ended) -> None:
        if ended.failures:
            self._fail(file_run, ended.test, "\n".join(ended.failures))
        elif ended.skipped:
            self.tally.skipped.append(f"{ended.test}: {ended.skipped}")
        else:
            file_run.passed += 1
            self.tally.passed += 1

    def _fail(self, file_run: FileRun, test: str, report: str) -> None:
        file_run.failed += 1
        self.tally.failed[test] = report
        print(_report(test, report), flush=True)

    def _finish(self, file_run: FileRun | None, cpu_s: float) -> None:
        if file_run is None:
            return
        tally, took_s = self.tally, time.monotonic() - file_run.begun_s
        tally.costs[file_run.file.path] = Cost(cpu_s, took_s)
        tally.measured_s += took_s
        tally.expected_s += file_run.file.expected_s
        failed = f", {file_run.failed} FAILED" if file_run.failed else ""
        done, passed_s = len(tally.costs), time.monotonic() - tally.begun_s
        print(
            f"[{done}/{self._count} {_minutes(passed_s)}, {_minutes(self._left_s())} left] "
            f"{file_run.file.path}: {file_run.passed} passed{failed}, {took_s:.1f} s, {cpu_s:.1f} CPU s",
            flush=True,
        )

    def _left_s(self) -> float:
        """Estimated from stored durations, and from how well they fit so far."""
        tally, now = self.tally, time.monotonic()
        file_runs = [lane.file_run for lane in self._lanes.values() if lane.file_run]
        running_s = [file_run.file.expected_s - (now - file_run.begun_s) for file_run in file_runs]
        left_s = self._plan.left_s() + sum(max(s, 0.0) for s in running_s)
        fit = tally.measured_s / max(tally.expected_s, 1.0)
        return left_s * fit / max(len(self._lanes), 1)

    def _handle_exit(self, lane: LaneProcess) -> None:
        """Remove a lane that ended; if it died, its current test and the rest of its file fail."""
        del self._lanes[lane.line]
        status, file_run = lane.end(), lane.file_run
        if file_run is not None:
            report = f"{DIED} with status {status}; its output ends:\n{lane.log_tail()}"
            self._fail(file_run, file_run.test or file_run.file.path, report)
            for number in range(1, file_run.left):
                self._fail(
                    file_run, f"{file_run.file.path} ({number} of the rest)", f"not run: {DIED}"
                )
            self._finish(file_run, 0.0)
            self._start(lane.number)
        elif status not in (
            0,
            1,
            5,
        ):  # 1: failures are reported already; 5: the last file had no test
            self.tally.failed[f"the end of lane {lane.number}"] = lane.log_tail()


def _report(test: str, report: str) -> str:
    return f"{f' {test} ':=^100}\n{report}\n{'=' * 100}"


def _minutes(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def _split(words: list[str]) -> tuple[list[str], list[str]]:
    """The runner's own arguments, and those after ``--``."""
    at = words.index("--") if "--" in words else len(words)
    return words[:at], words[at + 1 :]


def main() -> int:
    """Run, then print the failures again and the totals. Costs are stored also after an interruption."""
    parser = argparse.ArgumentParser(prog="python -m tests.kit.run", description=__doc__)
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("--lanes", type=int, default=4)
    own, options = _split(sys.argv[1:])
    arguments = parser.parse_args(own)
    paths = {
        file.resolve()
        for path in arguments.paths
        for file in (path.rglob("test_*.py") if path.is_dir() else [path])
    }
    # a shell starts background processes with Ctrl-C ignored
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    economize()
    with tempfile.TemporaryDirectory(prefix="millrace-test-", ignore_cleanup_errors=True) as folder:
        run = "chaos" if "--chaos" in options else "test"
        plan = _plan(paths, arguments.lanes, stored_costs(run))
        runner = Runner(plan, Path(folder), options)
        shared = set().union(*(shared_fixtures(path, SHARED_NAMES) for path in paths))
        try:
            with shared_servers(Path(folder), shared):
                runner.run(arguments.lanes)
        except KeyboardInterrupt:
            print("interrupted", flush=True)
            return 130
        finally:
            store_costs(runner.tally.usual_costs, run)
    return _print_totals(runner.tally)


def _plan(paths: Collection[Path], lane_count: int, costs: Mapping[str, Cost]) -> Plan:
    lanes_per_core = lane_count / (os.cpu_count() or 1)
    files = (TestFile.of(path, costs, lanes_per_core=lanes_per_core) for path in paths)
    return Plan.of(files, lane_count=lane_count)


def _print_totals(tally: Tally) -> int:
    """Print the failures again and what was used. Returns the exit code."""
    for test, report in tally.failed.items():
        print(_report(test, report))
    for line in tally.skipped:
        print(f"skipped: {line}")
    for path in sorted(tally.costs, key=lambda path: -tally.costs[path].cpu_s)[:DEAREST]:
        print(f"{tally.costs[path].cpu_s:7.1f} CPU s in {path}")
    print(*budget_lines({path: cost.cpu_s for path, cost in tally.costs.items()}), sep="\n")
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    took = _minutes(time.monotonic() - tally.begun_s)
    print(f"{used.ru_utime + used.ru_stime:7.1f} CPU s in all, {took}")
    print(f"{tally.passed} passed, {len(tally.failed)} failed")
    return 0 if tally.passed and not tally.failed else 1


if __name__ == "__main__":
    sys.exit(main())
