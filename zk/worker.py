"""A worker or scheduler as a process: open the session, run until SIGTERM or SIGINT, end in order.

    run_worker(TaskKind.CAPTURE, lambda store: CaptureRunner(store, relay_dir), name="w1")   → exit status

Order at the end: tasks asked to stop → their threads joined → leases given up → session closed (the worker's node
goes at once, so that others take its tasks without waiting for the session timeout). A task that does not stop keeps
its lease: the process ends hard, and the ensemble frees the lease after the session timeout. So it ends with whatever
else holds it up for ``END_S``: its log shows then what each thread was at.
"""

import faulthandler
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType

from millrace.errors import Retryable
from millrace.log import get_logger
from schemas.documents import TaskKind
from zk.backoff import Pace
from zk.ensemble import Ensemble
from zk.membership import process_name
from zk.runner import TaskRunner
from zk.scheduler import Scheduler
from zk.session import Session
from zk.store import Store
from zk.supervisor import Supervisor

EXIT_STUCK = 70  # a task did not stop: the process ended around it
OPEN_TRY_S = 3.0  # one try to reach the ensemble; a signal is heard between two
HEAR_S = (
    1.0  # the system may give a signal to any thread, and the main one, which hears it, sleeps on
)
END_S = 150.0  # tasks have `Pace.stop_s`, then session and JVM are closed

log = get_logger("zk.worker")


def run_worker(
    kind: TaskKind,
    runner_factory: Callable[[Store], TaskRunner],
    *,
    name: str = "",
    ensemble: Ensemble | None = None,
    pace: Pace | None = None,
) -> int:
    """Run tasks of one kind until a signal; 0 after an orderly end. Call it from the main thread."""
    worker = process_name(name)
    where = ensemble or Ensemble.from_environment()
    stop = _stopped_by_signals()
    session = _opened(where, stop)
    if session is None:
        return 0
    store = Store(session, where.tree)
    supervisor = Supervisor(
        session, where.tree, name=worker, kind=kind, runner=runner_factory(store), pace=pace
    )
    log.info("worker runs", worker=worker, kind=kind.value, cluster=where.tree.cluster)
    if _in_thread(supervisor.run, supervisor.wake, stop):
        session.close()
        log.info("worker ended", worker=worker)
        return 0
    sys.stderr.flush()
    # not sys.exit: closing the session would free the lease of a task that still runs
    os._exit(EXIT_STUCK)


def run_scheduler(*, name: str = "", ensemble: Ensemble | None = None) -> int:
    """Lead or stand by until a signal. Call it from the main thread."""
    called = process_name(name)
    where = ensemble or Ensemble.from_environment()
    stop = _stopped_by_signals()
    session = _opened(where, stop)
    if session is None:
        return 0
    scheduler = Scheduler(session, where.tree, name=called)

    def run(stop: threading.Event) -> bool:
        scheduler.run(stop)
        return True

    is_clean = _in_thread(run, scheduler.wake, stop)
    session.close()
    return 0 if is_clean else 1


def _opened(where: Ensemble, stop: threading.Event) -> Session | None:
    """A session, however long the ensemble takes; ``None`` when a signal came first."""
    while not stop.is_set():
        try:
            return where.open(connect_timeout_s=OPEN_TRY_S)
        except Retryable as error:
            log.warning("waits for ZooKeeper", error=error)
    return None


def _in_thread(
    run: Callable[[threading.Event], bool], wake: Callable[[], None], stop: threading.Event
) -> bool:
    """Run a loop beside the main thread, which only waits for the signal; False when the loop broke."""
    results: list[bool] = []
    loop_stop = threading.Event()

    def body() -> None:
        try:
            results.append(run(loop_stop))
        finally:
            stop.set()  # a loop that breaks ends the process

    thread = threading.Thread(target=body, name="loop")
    thread.start()
    while (
        not stop.is_set()
    ):  # a wait would hold its lock now and then, which the handler of a signal wants
        time.sleep(HEAR_S)
    faulthandler.dump_traceback_later(END_S, exit=True)
    loop_stop.set()
    wake()
    thread.join()
    return bool(results and results[0])


def _stopped_by_signals() -> threading.Event:
    stop = threading.Event()

    def heard(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, heard)
    return stop
