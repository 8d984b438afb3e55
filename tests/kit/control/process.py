"""A worker or scheduler as a separate process, to be killed, stopped and continued.

    worker NAME JOURNAL     a capture worker whose runner moves nothing
    apply NAME              an apply worker that moves rows, without Spark
    scheduler NAME

The capture worker's runner writes a line to the journal (one ``write`` each) when it starts and ends:
``start TASK EPOCH``, ``end TASK EPOCH``. MILLRACE_HTTP is the address of its page of metrics; unset, there is none.
``MILLRACE_TEST_STUCK=1`` makes it ignore its stop, and shortens the wait.
``MILLRACE_TEST_KILLER=TASK`` kills the process by SIGKILL soon after this task has started.
"""

import os
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from millrace import log
from millrace.http import OFF, Page, open_page
from millrace.schemas.documents import TaskKind, Work
from millrace.schemas.status import TaskReport, TaskState
from millrace.zk.ensemble import Ensemble
from millrace.zk.lease.membership import WorkerIdentity
from millrace.zk.run.runner import HeldLease, Report
from millrace.zk.run.worker import run_scheduler, run_worker
from tests.kit.control.control import QUICK
from tests.kit.forked import Fork, fork
from tests.kit.waiting import is_stopped

KILLER_LIVES_S = 0.3  # the others have started by then


@dataclass(frozen=True)
class JournalRunner:
    """Writes its starts and ends to the journal."""

    journal: Path

    def run(self, task: Work, *, lease: HeldLease, stop: threading.Event, report: Report) -> None:
        """See the module."""
        lease.verify()
        self._note(f"start {task.name} {lease.epoch}")
        report(TaskReport(TaskState.RUNNING))
        if task.name == os.environ.get("MILLRACE_TEST_KILLER"):
            stop.wait(KILLER_LIVES_S)
            os.kill(os.getpid(), signal.SIGKILL)
        stop.wait()
        if _is_stuck():
            threading.Event().wait()
        self._note(f"end {task.name} {lease.epoch}")

    def _note(self, line: str) -> None:
        with self.journal.open("a") as file:
            file.write(line + "\n")


def main(arguments: list[str]) -> int:
    """Run one of them; returns the exit code."""
    log.configure(json=True, level="info")
    with open_page(os.environ.get("MILLRACE_HTTP", OFF)) as page:
        return _run(arguments, page)


def _run(arguments: list[str], page: Page) -> int:
    what, name, *rest = arguments
    if what == "scheduler":
        return run_scheduler(name=name, page=page)
    if what == "apply":
        from tests.kit.apply.reader import runner_without_spark

        worker = WorkerIdentity(name=name, kind=TaskKind.APPLY)
        return run_worker(worker, runner_without_spark, pace=QUICK, page=page)
    runner = JournalRunner(Path(rest[0]))
    pace = replace(QUICK, stop_s=1.0) if _is_stuck() else QUICK
    if "MILLRACE_TEST_KILLER" in os.environ:
        pace = replace(pace, steady_s=0.5)
    worker = WorkerIdentity(name=name, kind=TaskKind.CAPTURE)
    return run_worker(worker, lambda _store: runner, pace=pace, page=page)


def _is_stuck() -> bool:
    return bool(os.environ.get("MILLRACE_TEST_STUCK"))


@dataclass
class ControlProcess:
    """A running process, seen from the test."""

    process: Fork
    journal: Path

    def lines(self) -> list[str]:
        """The journal so far."""
        return self.journal.read_text().splitlines() if self.journal.exists() else []

    def epochs(self, task: str) -> list[int]:
        """The epochs under which the process started a task."""
        words = [line.split() for line in self.lines()]
        return [int(epoch) for verb, name, epoch in words if verb == "start" and name == task]

    def send(self, number: signal.Signals) -> None:
        """Send a signal."""
        self.process.send_signal(number)

    def is_alive(self) -> bool:
        """Whether the process has not ended."""
        return self.process.poll() is None

    def is_stopped(self) -> bool:
        """Whether the process is stopped by SIGSTOP."""
        return is_stopped(self.process.pid)

    def end(self) -> int:
        """Send SIGTERM; returns the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=1.2 * QUICK.stop_s)


@contextmanager
def launched(
    ensemble: Ensemble,
    what: str,
    *,
    name: str,
    folder: Path,
    environment: Mapping[str, str] | None = None,
) -> Iterator[ControlProcess]:
    """A process that is killed when the block ends."""
    journal = folder / f"{name}.journal"
    own = {
        "MILLRACE_ZOOKEEPER": ensemble.hosts,
        "MILLRACE_CLUSTER": ensemble.tree.cluster,
        "MILLRACE_ZOOKEEPER_TIMEOUT_S": str(ensemble.session_timeout_s),
        "MILLRACE_KILLS_MAX": "0",  # most tests kill processes again and again
    }
    process = fork(
        main,
        [what, name, str(journal)],
        environment={**own, **(environment or {})},
        log=folder / f"{name}.log",
    )
    try:
        yield ControlProcess(process, journal)
    finally:
        process.kill()
        process.wait()
