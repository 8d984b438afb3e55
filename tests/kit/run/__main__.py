"""The runner of `make test`: two lanes, the longest file first, a line for each file, failures at once and at the end.

    python -m tests.kit.run [--lanes 2] [--store] PATH... [-- OPTION OF PYTEST...]

The last line is ``N passed, N failed``; the exit code is 0 only if nothing failed and something passed. A lane that
dies (a crash, a test over its time) fails the test that it was at and the rest of its file; another lane is started.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path

from deploy.servers import die_with_parent
from tests.kit.paths import ROOT
from tests.kit.run.messages import Begun, Collected, Ended, FileDone, Message
from tests.kit.run.plan import Plan, TestFile, store_durations, stored_durations

END_S = 60.0  # a lane stops its servers in this time
LOG_BYTES = 20_000  # of a lane that died
DIED = "its lane ended"


@dataclass(slots=True)
class Tally:
    """What has happened so far; times are of the monotonic clock."""

    begun_s: float = field(default_factory=time.monotonic)
    passed: int = 0
    skipped: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    measured: dict[str, float] = field(default_factory=dict)
    expected_s: float = 0.0  # of the files that are done


@dataclass(slots=True)
class Turn:
    """A lane at a file."""

    file: TestFile
    begun_s: float = field(default_factory=time.monotonic)
    left: int = 0
    passed: int = 0
    failed: int = 0
    test: str = ""


class LaneProcess:
    """A pytest process with a pipe to it; its own output is in ``log``."""

    def __init__(self, number: int, folder: Path, options: Sequence[str]) -> None:
        self.number = number
        self.log = folder / f"lane-{number}-{time.monotonic_ns()}"
        self.turn: Turn | None = None
        self.line: Connection[str | None, Message]
        self.line, theirs = Pipe()
        plugin = ("-p", "tests.kit.run.lane", "--lane-fd", str(theirs.fileno()))
        pytest = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *plugin, *options)
        command = (sys.executable, "-IS", die_with_parent.__file__, str(os.getpid()), *pytest)
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[theirs.fileno()],
                process_group=0,
            )
        theirs.close()

    def give(self, file: TestFile | None) -> None:
        """The next file; None ends the lane."""
        self.turn = Turn(file) if file else None
        self.line.send(file.path if file else None)

    def end(self, number: signal.Signals | None = None) -> int:
        """Its exit status, when it has ended; killed if it does not."""
        if number is not None and self.process.poll() is None:
            self.process.send_signal(number)
        try:
            return self.process.wait(END_S)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            return self.process.wait()

    def last_words(self) -> str:
        """The end of its log."""
        return self.log.read_bytes()[-LOG_BYTES:].decode(errors="replace")


class Runner:
    """Gives files to lanes until none is left."""

    def __init__(self, plan: Plan, folder: Path, options: Sequence[str]) -> None:
        self._plan, self._folder, self._options = plan, folder, options
        self._count = len(plan.waiting)
        self._lanes: dict[Connection[str | None, Message], LaneProcess] = {}
        self.tally = Tally()

    def run(self, lane_count: int) -> None:
        """Returns when every lane has ended."""
        for number in range(lane_count):
            self._start(number)
        try:
            while self._lanes:
                for line in wait(list(self._lanes)):
                    self._hear(self._lanes[line])  # type: ignore[index]
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

    def _hear(self, lane: LaneProcess) -> None:
        try:
            message = lane.line.recv()
        except (EOFError, ConnectionResetError):
            self._bury(lane)
            return
        turn = lane.turn
        match message:
            case FileDone():
                self._finish(turn)
                lane.give(self._plan.take(lane.number))
            case Collected(count) if turn:
                turn.left = count
            case Begun(test) if turn:
                turn.test = test
            case Ended() if turn:
                turn.left -= 1
                self._count_test(turn, message)

    def _count_test(self, turn: Turn, ended: Ended) -> None:
        if ended.failures:
            self._fail(turn, ended.test, "\n".join(ended.failures))
        elif ended.skipped:
            self.tally.skipped.append(f"{ended.test}: {ended.skipped}")
        else:
            turn.passed += 1
            self.tally.passed += 1

    def _fail(self, turn: Turn, test: str, report: str) -> None:
        turn.failed += 1
        self.tally.failed[test] = report
        print(_report(test, report), flush=True)

    def _finish(self, turn: Turn | None) -> None:
        if turn is None:
            return
        tally, took_s = self.tally, time.monotonic() - turn.begun_s
        tally.measured[turn.file.path] = took_s
        tally.expected_s += turn.file.expected_s
        failed = f", {turn.failed} FAILED" if turn.failed else ""
        done, passed_s = len(tally.measured), time.monotonic() - tally.begun_s
        print(
            f"[{done}/{self._count} {_minutes(passed_s)}, {_minutes(self._left_s())} left] "
            f"{turn.file.path}: {turn.passed} passed{failed}, {took_s:.1f} s",
            flush=True,
        )

    def _left_s(self) -> float:
        """By stored durations, and by how they fit so far."""
        tally, now = self.tally, time.monotonic()
        turns = [lane.turn for lane in self._lanes.values() if lane.turn]
        running_s = [turn.file.expected_s - (now - turn.begun_s) for turn in turns]
        left_s = self._plan.left_s() + sum(max(s, 0.0) for s in running_s)
        fit = sum(tally.measured.values()) / max(tally.expected_s, 1.0)
        return left_s * fit / max(len(self._lanes), 1)

    def _bury(self, lane: LaneProcess) -> None:
        """A lane that ended as it should, or died: what it was at, and the rest of its file, has failed."""
        del self._lanes[lane.line]
        status, turn = lane.end(), lane.turn
        if turn is not None:
            words = f"{DIED} with status {status}; its output ends:\n{lane.last_words()}"
            self._fail(turn, turn.test or turn.file.path, words)
            for number in range(1, turn.left):
                self._fail(turn, f"{turn.file.path} ({number} of its rest)", f"not run: {DIED}")
            self._finish(turn)
            self._start(lane.number)
        elif status not in (0, 1, 5):  # what failed is known; 5: the last file had no test
            self.tally.failed[f"the end of lane {lane.number}"] = lane.last_words()


def _report(test: str, report: str) -> str:
    return f"{f' {test} ':=^100}\n{report}\n{'=' * 100}"


def _minutes(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def _split(words: list[str]) -> tuple[list[str], list[str]]:
    """Ours, and what stands after ``--``."""
    at = words.index("--") if "--" in words else len(words)
    return words[:at], words[at + 1 :]


def main() -> int:
    """Run, then print what failed again, and how many."""
    parser = argparse.ArgumentParser(prog="python -m tests.kit.run", description=__doc__)
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("--lanes", type=int, default=2)
    parser.add_argument("--store", action="store_true", help="keep the durations for later runs")
    own, options = _split(sys.argv[1:])
    arguments = parser.parse_args(own)
    durations = stored_durations()
    found = {
        file.resolve()
        for path in arguments.paths
        for file in (path.rglob("test_*.py") if path.is_dir() else [path])
    }
    with tempfile.TemporaryDirectory(prefix="millrace-test-") as folder:
        plan = Plan.of(TestFile.of(path, durations) for path in found)
        runner = Runner(plan, Path(folder), options)
        # a shell lets what runs in its background ignore Ctrl-C
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.default_int_handler)
        try:
            runner.run(arguments.lanes)
        except KeyboardInterrupt:
            print("interrupted", flush=True)
            return 130
    tally = runner.tally
    if arguments.store:
        store_durations(tally.measured)
    for test, report in tally.failed.items():
        print(_report(test, report))
    for line in tally.skipped:
        print(f"skipped: {line}")
    print(f"{tally.passed} passed, {len(tally.failed)} failed")
    return 0 if tally.passed and not tally.failed else 1


if __name__ == "__main__":
    sys.exit(main())
