"""A load of numbered rows on a set, and checks that all of them are captured once and in order."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from millrace.deploy.servers import DatabaseServer, DatabaseSet
from tests.kit.binlog.session import session
from tests.kit.capture.rig import MemoryCapture
from tests.kit.waiting import eventually

PAUSE_S = 0.02  # between two transactions


@dataclass
class Load:
    """Writes rows 1, 2, 3, … in transactions of one to four rows until ``pause``; ``primary`` may be replaced then."""

    primary: DatabaseServer
    settings: Sequence[str] = ()  # one of these statements before each transaction, in turn
    count: int = 0
    _go: threading.Event = field(default_factory=threading.Event)
    _is_idle: threading.Event = field(default_factory=threading.Event)
    _stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Run in a thread."""
        while not self._stop.is_set():
            if not self._go.wait(0.05):
                self._is_idle.set()
                continue
            ids = range(self.count + 1, self.count + 2 + self.count % 4)
            values = ", ".join(f"({number}, REPEAT('v', 300))" for number in ids)
            self._write(f"INSERT INTO f.t VALUES {values}")
            self.count = ids[-1]
            self._stop.wait(PAUSE_S)

    def _write(self, statement: str) -> None:
        if not self.settings:
            self.primary.execute(statement)
            return
        with session(self.primary) as connection:
            connection.execute(self.settings[self.count % len(self.settings)])
            connection.execute(statement)

    def resume(self) -> None:
        """Start or continue to write."""
        self._go.set()

    def pause(self) -> None:
        """Returns when no write is in progress."""
        self._is_idle.clear()
        self._go.clear()
        assert self._is_idle.wait(120)

    def stop(self) -> None:
        """End the thread."""
        self._stop.set()


@contextmanager
def load_on(servers: DatabaseSet, settings: Sequence[str] = ()) -> Iterator[Load]:
    """A table, and a thread that fills it from ``resume`` until the block ends. ``settings``: see ``Load``."""
    servers.execute("CREATE DATABASE f")
    servers.execute("CREATE TABLE f.t (id INT PRIMARY KEY, v VARCHAR(300))")
    servers.wait_for_replicas()
    load = Load(servers.primary, settings)
    thread = threading.Thread(target=load.run)
    thread.start()
    try:
        yield load
    finally:
        load.stop()
        thread.join()


def assert_complete(capture: MemoryCapture, load: Load) -> None:
    """Pause the load, check that every row was captured once and in order, and resume the load."""
    load.pause()

    def is_there() -> bool:
        assert capture.error is None, capture.error
        return len(capture.rows) >= load.count

    eventually(is_there, what=f"{load.count} rows")
    ids = [dict(row.change.after or {})["id"] for row in capture.rows]
    assert ids == list(range(1, load.count + 1))
    assert [row.source.seq for row in capture.rows] == ids
    load.resume()


def wait_for_rows(capture: MemoryCapture, rows: int = 40) -> None:
    """Wait for ``rows`` more captured rows."""
    wanted = len(capture.rows) + rows

    def is_there() -> bool:
        assert capture.error is None, capture.error
        return len(capture.rows) >= wanted

    eventually(is_there, what=f"{wanted} rows")
