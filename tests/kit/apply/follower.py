"""A stand-in for capture and apply: writes on a source, and the same on a target a little later, as a task does.

Each target transaction takes the fence FOR SHARE first and moves the task's progress with its rows.
"""

import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field

from millrace.consumer.target.progress import Owner, check_fence
from millrace.deploy.servers import DatabaseServer
from millrace.drivers.mysql.connection import MySqlSession, connect
from tests.kit.apply.local import apply_task, endpoint_of, started
from tests.kit.waiting import eventually

LATE_S = 0.05
LATE_MAX = 20  # statements that wait for the target; a writer waits for it then
DEAD_S = 30.0
WRITE_EVERY_S = 0.01


@dataclass
class Follower:
    """One task. ``write`` may be called by one thread only."""

    source: DatabaseServer
    target: DatabaseServer
    task: str
    is_paused: threading.Event = field(default_factory=threading.Event)
    is_connected: threading.Event = field(default_factory=threading.Event)
    written: int = 0
    _waiting: "queue.Queue[tuple[float, str, str] | None]" = field(
        default_factory=lambda: queue.Queue(LATE_MAX)
    )

    def write(self, session: MySqlSession, sql: str) -> None:
        """Commit a statement on the source, and leave it to the task."""
        session.run(sql.encode())
        session.commit()
        ((position,),) = session.query("SELECT @@global.gtid_binlog_pos")  # of MariaDB
        self.written += 1
        self._waiting.put((time.monotonic(), sql, str(position)), timeout=DEAD_S)

    def apply(self, owner: Owner) -> None:
        """Apply until ``end``."""
        with closing(connect(endpoint_of(self.target))) as session:
            self.is_connected.set()
            while (waiting := self._waiting.get()) is not None:
                at_s, sql, position = waiting
                time.sleep(max(0.0, at_s + LATE_S - time.monotonic()))
                while self.is_paused.is_set():
                    time.sleep(LATE_S)
                check_fence(session, owner)
                session.run(sql.encode())
                moved = f"UPDATE millrace.progress SET gtid_set = '{position}' WHERE task = '{self.task}'"
                session.run(moved.encode())
                session.commit()

    def end(self) -> None:
        """Apply what was written, and stop."""
        self.is_paused.clear()
        self._waiting.put(None, timeout=DEAD_S)


@contextmanager
def following(source: DatabaseServer, target: DatabaseServer, task: str) -> Iterator[Follower]:
    """A task that has applied what the source has now, and applies what is written in the block."""
    applier = started(target, apply_task(task, start=source.gtid_position()))
    applier.close()
    follower = Follower(source, target, task)
    thread = threading.Thread(target=follower.apply, args=(applier.owner,))
    thread.start()
    # a fork while OpenSSL connects in another thread inherits its locks, and hangs
    eventually(lambda: follower.is_connected.is_set() or not thread.is_alive(), what="it follows")
    try:
        yield follower
    finally:
        if thread.is_alive():
            follower.end()
        thread.join()


@contextmanager
def writing(follower: Follower, statement: Callable[[int], str]) -> Iterator[None]:
    """Write ``statement(number)`` for each number, one after the other, until the block ends."""
    is_over = threading.Event()

    def write() -> None:
        with closing(connect(endpoint_of(follower.source))) as session:
            while not is_over.wait(WRITE_EVERY_S):
                follower.write(session, statement(follower.written))

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
