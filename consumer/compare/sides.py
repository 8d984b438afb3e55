"""The sessions of a comparison, and how they see the same state under writes.

A read of the source is a consistent snapshot at a known GTID set h: it is read after the snapshot has begun, so h has
every source transaction that the snapshot shows, and perhaps some more. The target is read after the task has applied
h there (``progress.gtid_set``). Without a task there is nothing to wait for.

The target may be ahead of the source: of a replica that is late, and for a moment even of a primary, whose clients see
a transaction after its replicas have received it. So a read of the source that shall not be older than a read of the
target waits as well: until the member shows all that the primary had logged after the target was read (``newest``). The
mark of the task is no such limit, because lanes commit ahead of it.

Reads only. Not done here: repairs.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from typing import TypeVar

from millrace.consumer.compare.table import Name
from millrace.consumer.tables.digest import PACKET_BYTES_MIN
from millrace.consumer.target.progress import read_mark
from millrace.drivers.mysql.connection import Endpoint, MySqlSession, Row, connect, text_of
from millrace.drivers.mysql.snapshot_position import begin_snapshot, executed, read_end
from millrace.errors import Fatal, Retryable
from millrace.schemas.gtid import Flavour, GtidPosition, parse_gtid_set, shortened

T = TypeVar("T")

POLL_S = 0.05
STREAM_ROWS = 5_000


def _ignore(_: "Sides") -> None:
    """No other thread breaks the sessions."""


@dataclass(frozen=True, slots=True)
class Ends:
    """Where both sides are. ``task`` "": nothing writes, or the comparison does not wait.

    ``wait_s``: how long a side may take to contain a position of the other. ``primary``: of the source set, None if
    ``source`` is it. ``opened`` gets the sessions when they are open, to break them from another thread.
    """

    source: Endpoint
    target: Endpoint
    task: str = ""
    wait_s: float = 60.0
    primary: Endpoint | None = None
    opened: Callable[["Sides"], None] = _ignore


class Sides:
    """One session on each side, and one on the source's primary, if another member is read."""

    def __init__(self, ends: Ends) -> None:
        self.ends = ends
        self.reached: GtidPosition | None = None  # the last position that the target had
        with ExitStack() as opened:
            self.source = _connected(ends.source)
            opened.callback(self.source.close)
            self.target = _connected(ends.target)
            opened.callback(self.target.close)
            self._primary = self.source if ends.primary is None else connect(ends.primary)
            opened.pop_all()
        self.packet_bytes = min(map(_packet_bytes, (self.source, self.target)))
        ends.opened(self)

    def close(self) -> None:
        """End the sessions."""
        for session in (self.source, self.target, self._primary):
            session.close()

    def cut(self) -> None:
        """Break the sessions, from any thread."""
        for session in (self.source, self.target, self._primary):
            session.cut()

    def rollback(self) -> None:
        """End the snapshots, so that the next reads see newer rows."""
        self.source.rollback()
        self.target.rollback()

    @contextmanager
    def on_source(
        self, needed: GtidPosition | None = None, *, wait_s: float | None = None
    ) -> Iterator[GtidPosition | None]:
        """A snapshot of the source for the block, at this position; None without a task.

        It shows all of ``needed``. Retryable MR-5128 if the member does not have it after ``wait_s`` (None: that of the
        ends).
        """
        self._wait_for_source(needed, self.ends.wait_s if wait_s is None else wait_s)
        try:
            yield read_end(self.source) if self.ends.task else None
        finally:
            self.source.rollback()

    @contextmanager
    def on_target(self, position: GtidPosition | None) -> Iterator[None]:
        """A snapshot of the target for the block, which contains the position. Retryable MR-5120 if it is too late."""
        if position is not None:
            self.reach(position)
        _begin(self.target)
        try:
            yield
        finally:
            self.target.rollback()

    def newest(self) -> GtidPosition | None:
        """All that the target may have applied until now: what the primary has logged. None without a task."""
        if not self.ends.task:
            return None
        found = read_end(self._primary)
        self._primary.rollback()
        return found

    def _wait_for_source(self, needed: GtidPosition | None, wait_s: float) -> None:
        """Begin a snapshot that shows ``needed``."""
        start_s = time.monotonic()
        while not self._began(needed):
            self.source.rollback()
            if time.monotonic() - start_s > wait_s:
                at = self.ends.source.name
                raise Retryable(
                    "MR-5128",
                    f"{at} does not have {shortened(str(needed))} after {wait_s:g} s",
                    task=self.ends.task,
                )
            time.sleep(POLL_S)

    def _began(self, needed: GtidPosition | None) -> bool:
        """Begin a snapshot of the source; False if it may not show all of ``needed``."""
        if needed is not None and not executed(self.source).includes(needed):
            return False
        if needed is not None and self.source.flavour is Flavour.MARIADB:
            # a transaction is in its binlog before it is visible
            return begin_snapshot(self.source).includes(needed)
        _begin(self.source)
        return True

    def reach(self, position: GtidPosition) -> float:
        """Wait until the task has applied the position; returns the seconds. Retryable MR-5120 at the timeout."""
        start_s = time.monotonic()
        while not contains(self.target, self.ends.task, position):
            self.target.rollback()
            if time.monotonic() - start_s > self.ends.wait_s:
                raise Retryable(
                    "MR-5120",
                    f"{self.ends.task} has not applied {shortened(str(position))} within {self.ends.wait_s:g} s",
                    task=self.ends.task,
                )
            time.sleep(POLL_S)
        self.target.rollback()
        self.reached = position
        return time.monotonic() - start_s

    def position(self) -> GtidPosition:
        """The GTID set that the source has now."""
        found = read_end(self.source)
        self.source.rollback()
        return found


def contains(target: MySqlSession, task: str, position: GtidPosition) -> bool:
    """Whether the task has applied all of the position. The current transaction stays open."""
    found = read_mark(target, task)
    if found is None or not found[0].flavour:
        return False
    mark = found[0]
    if mark.flavour != position.flavour:
        return False
    return parse_gtid_set(Flavour(mark.flavour), mark.gtid_set).includes(position)


def states(
    session: MySqlSession, sql: Callable[[list[Name]], str], names: list[Name]
) -> dict[Name, str]:
    """The state of each of these rows, in the current snapshot; see ``table.Side.states``."""
    return {named(row): str(row[0]) for row in session.query(sql(names))}


def batches(given: Sequence[T], size: int) -> Iterator[list[T]]:
    """Parts of a sequence."""
    for first in range(0, len(given), size):
        yield list(given[first : first + size])


def named(row: Row) -> Name:
    """The name in a row of (state, name …)."""
    return tuple(text_of(value) for value in row[1:])


def rows(session: MySqlSession, sql: str) -> Iterator[tuple[bytes, Name]]:
    """(digest, name) of each row, as they arrive."""
    with closing(session.stream(sql)) as stream:
        while taken := stream.take(STREAM_ROWS):
            for row in taken:
                digest = row[0]
                assert isinstance(digest, bytes)
                yield digest, named(row)


def _connected(endpoint: Endpoint) -> MySqlSession:
    session = connect(endpoint)
    try:
        packet = _packet_bytes(session)
        if packet < PACKET_BYTES_MIN:
            what = f"max_allowed_packet of {endpoint.name} is {packet}"
            raise Fatal("MR-5121", f"{what}, a comparison needs {PACKET_BYTES_MIN}")
        session.query("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    except BaseException:
        session.close()
        raise
    return session


def _packet_bytes(session: MySqlSession) -> int:
    ((packet,),) = session.query("SELECT @@max_allowed_packet")
    return int(str(packet))


def _begin(session: MySqlSession) -> None:
    session.rollback()
    session.query("START TRANSACTION WITH CONSISTENT SNAPSHOT")
