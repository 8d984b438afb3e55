"""A worker or scheduler as a process: opens the session, runs until SIGTERM or SIGINT, shuts down in order.

    run_worker(WorkerIdentity(name="w1", kind=TaskKind.CAPTURE), lambda store: CaptureRunner(…))   → exit status

Order of a shutdown: tasks are asked to stop → their threads are joined → leases are released → the session is closed.
Closing it deletes the worker's node at once, so that other workers take its tasks without waiting for the session
timeout. If a task does not stop, the process exits without closing the session. The lease is then freed after the
session timeout. If anything else delays the shutdown for ``SHUTDOWN_S_MAX``, the process prints the stack of each
thread to standard error and exits.
"""

import faulthandler
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace

from millrace.errors import MillraceError, Retryable
from millrace.http import Page
from millrace.log import get_logger
from millrace.process.signals import stop_on_signals
from millrace.zk.client.session import Session
from millrace.zk.ensemble import Ensemble
from millrace.zk.lease.membership import WorkerIdentity, process_name
from millrace.zk.lease.starts import kills_max_from
from millrace.zk.placement.scheduler import Scheduler
from millrace.zk.run.backoff import Pace
from millrace.zk.run.probes import probes_of
from millrace.zk.run.runner import TaskRunner
from millrace.zk.run.supervisor import Supervisor
from millrace.zk.tree.store import Store

EXIT_STUCK = 70  # a task did not stop, or the loop failed
CONNECT_TRY_S = 3.0  # one attempt to reach the ensemble; a signal takes effect between two
# The system may deliver a signal to any thread. Its handler runs in the main thread, which may still sleep.
SIGNAL_POLL_S = 1.0
SHUTDOWN_S_MAX = 150.0  # `Pace.stop_s` for the tasks, the rest to close the session and the JVM

log = get_logger("zk.run.worker")


def run_worker(
    worker: WorkerIdentity,
    runner_factory: Callable[[Store], TaskRunner],
    *,
    ensemble: Ensemble | None = None,
    pace: Pace | None = None,
    page: Page | None = None,
) -> int:
    """Run tasks of one kind until a signal; returns 0 after an orderly end. Call it from the main thread.

    ``page`` shows the process to monitoring.
    """
    where = ensemble or Ensemble.from_environment()
    kills_max = kills_max_from()
    stop = stop_on_signals()
    session = _open_session(where, stop, page)
    if session is None:
        return 0
    store = Store(session, where.tree)
    supervisor = Supervisor(
        session,
        where.tree,
        worker=worker,
        runner=runner_factory(store),
        pace=replace(pace or Pace(), kills_max=kills_max),
    )
    log.info(
        "worker started", worker=worker.name, kind=worker.kind.value, cluster=where.tree.cluster
    )
    if page is not None:
        page.show(probes_of(supervisor, session, read_reports=supervisor.reports))
    if _in_thread(supervisor.run, supervisor.wake, stop):
        session.close()
        log.info("worker ended", worker=worker.name)
        return 0
    sys.stderr.flush()
    # not sys.exit: closing the session would free the lease of a task that still runs
    os._exit(EXIT_STUCK)


def run_scheduler(
    *, name: str = "", ensemble: Ensemble | None = None, page: Page | None = None
) -> int:
    """Lead or wait to lead until a signal; returns 0 after an orderly end. Call it from the main thread.

    Raises the error that ends it, such as Fatal MR-7028 if its login may only read.
    """
    process = process_name(name)
    where = ensemble or Ensemble.from_environment()
    stop = stop_on_signals()
    session = _open_session(where, stop, page)
    if session is None:
        return 0
    scheduler = Scheduler(session, where.tree, name=process)
    if page is not None:
        page.show(probes_of(scheduler, session))

    refused: list[MillraceError] = []

    def run(stop: threading.Event) -> bool:
        try:
            scheduler.run(stop)
        except MillraceError as error:
            refused.append(error)
        return True

    is_clean = _in_thread(run, scheduler.wake, stop)
    session.close()
    if refused:
        raise refused[0]
    return 0 if is_clean else EXIT_STUCK


def _open_session(where: Ensemble, stop: threading.Event, page: Page | None) -> Session | None:
    """A session, as soon as the ensemble answers; ``None`` when a signal comes first."""
    while not stop.is_set():
        try:
            session = where.open(connect_timeout_s=CONNECT_TRY_S)
        except Retryable as error:
            log.warning("waits for ZooKeeper", error=error)
            if page is not None:
                page.wait(f"for ZooKeeper at {where.hosts}")
        else:
            for weakness in where.access.weaknesses():
                log.warning(weakness, see="docs/zookeeper.md")
            return session
    return None


def _in_thread(
    run: Callable[[threading.Event], bool], wake: Callable[[], None], stop: threading.Event
) -> bool:
    """Run a loop in another thread while the main thread waits for a signal; False when the loop failed."""
    results: list[bool] = []
    loop_stop = threading.Event()

    def body() -> None:
        try:
            results.append(run(loop_stop))
        finally:
            stop.set()  # a loop that fails ends the process

    thread = threading.Thread(target=body, name="loop")
    thread.start()
    while not stop.is_set():  # not stop.wait(): it may hold the lock that the signal handler needs
        time.sleep(SIGNAL_POLL_S)
    faulthandler.dump_traceback_later(SHUTDOWN_S_MAX, exit=True)
    loop_stop.set()
    wake()
    thread.join()
    return bool(results and results[0])
