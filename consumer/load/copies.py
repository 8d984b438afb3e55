"""Copies the tables of a load: finds chunks ahead and keeps several copies under way.

    finders    one thread for each table that is open, at most ``parallel``. A finder takes the next group of tables,
               finds its chunks one by one, and stores each before it is copied
    queue      at most ``AHEAD`` pieces for each copier, so a finder never runs far ahead
    copiers    ``parallel`` threads. Each gives one piece to an executor and waits for it. No piece begins while the
               load pauses

The size of chunks follows the mean size of the rows that were copied of a table. If a copy fails because its table was
changed, the rest of this table is not copied, and all others are. Otherwise the first error ends all threads. A stop
ends the copies under way; their target transactions are rolled back, and the next run copies these pieces again.
"""

import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from millrace.consumer.load.copy_order import BYTES_MAX, CopyOrder, CopyTable, Sites
from millrace.consumer.load.tables import SourceTable
from millrace.consumer.target.loads import Amount, finish_tables, read_chunks, save_found
from millrace.consumer.turn.order import Calls
from millrace.drivers.mysql.catalog import TableKey
from millrace.drivers.mysql.chunks.borders import chunks
from millrace.drivers.mysql.chunks.chunk import Chunk
from millrace.drivers.mysql.connection import Endpoint, MySqlSession, connect
from millrace.errors import Fatal, Retryable
from millrace.schemas.sql.quoting import table_name

AHEAD = 2
WAIT_S = 0.1
STOP_AGAIN_S = 0.5
GROWTH_MAX = 4  # of a chunk's rows, from one to the next
ROWS_FIRST = 10_000


Copier = Calls[CopyOrder, Amount | None]  # None: a table waits for another load now


@dataclass(slots=True)
class ChunkSize:
    """The rows of the next chunk of a table: about ``BYTES_MAX``, at most ``rows_max``."""

    rows_max: int
    rows: int

    @classmethod
    def first(cls, rows_max: int, mean_bytes: int) -> "ChunkSize":
        """``mean_bytes``: of a row, as the source estimates it; 0: unknown."""
        fitting = BYTES_MAX // mean_bytes if mean_bytes else ROWS_FIRST
        return cls(rows_max, max(1, min(rows_max, ROWS_FIRST, fitting)))

    def note(self, done: Amount) -> None:
        """Learn from a chunk that was copied."""
        if done.rows:
            fitting = BYTES_MAX * done.rows // max(done.bytes, 1)
            self.rows = max(1, min(self.rows_max, fitting, GROWTH_MAX * self.rows))


@dataclass(frozen=True, slots=True)
class Group:
    """Tables that are loaded together: one in chunks, or those of a snapshot. ``mean_bytes``: see ``ChunkSize``."""

    tables: tuple[SourceTable, ...]
    copies: tuple[CopyTable, ...]
    mean_bytes: int = 0

    @property
    def is_snapshot(self) -> bool:
        """Whether they are read in one snapshot."""
        return self.tables[0].chunk_key is None


@dataclass(slots=True)
class _Open:
    """A group under way: whether all pieces were found, and the ``left`` ones; while more are searched, one more.

    ``is_dropped``: a table of it waits for another load now, so the rest is not copied.
    """

    group: Group
    size: ChunkSize
    left: int = 1
    is_found: bool = False
    is_dropped: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)


@dataclass(frozen=True, slots=True)
class _Piece:
    opened: _Open
    order: CopyOrder


class Job:
    """One run over all groups that are not copied yet.

    ``waits``: called after an error with the tables of the piece: whether one of them waits for another load now.
    """

    def __init__(
        self,
        copier: Copier,
        sites: Sites,
        groups: Sequence[Group],
        *,
        begin: str,
        parallel: int,
        waits: Callable[[Sequence[TableKey]], bool],
    ) -> None:
        self._copier, self._sites, self._begin, self._waits = copier, sites, begin, waits
        self._groups = list(groups)  # not begun
        self._pieces: queue.Queue[_Piece] = queue.Queue(AHEAD * parallel)
        self._open_count = len(groups)
        self._ending = threading.Event()
        self._go = threading.Event()
        self._lock = threading.Lock()
        self._failure: BaseException | None = None
        self._sessions: list[MySqlSession] = []
        self._threads = [
            threading.Thread(target=self._guarded, args=(work,), name=name, daemon=True)
            for number in range(parallel)
            for name, work in ((f"finds {number}", self._find), (f"copies {number}", self._copy))
        ]

    def start(self) -> None:
        """Begin; no piece is copied before ``resume``."""
        for thread in self._threads:
            thread.start()

    def pause(self) -> None:
        """Begin no further piece."""
        self._go.clear()

    def resume(self) -> None:
        """Begin pieces again."""
        self._go.set()

    @property
    def is_over(self) -> bool:
        """Whether all groups are copied, or an error has ended the job."""
        return self._open_count == 0 or self._failure is not None

    @property
    def is_complete(self) -> bool:
        """Whether all groups are copied."""
        return self._open_count == 0

    def end(self) -> None:
        """End all threads, and raise the first error."""
        self._ending.set()
        self._go.set()
        for thread in self._threads:
            while thread.is_alive():
                self._stop_copies()
                thread.join(STOP_AGAIN_S)
        if self._failure is not None:
            raise self._failure

    def _stop_copies(self) -> None:
        """End what is under way. Called until all threads have ended: a copy may begin at the moment of a stop."""
        if self._open_count:
            self._copier.stop()
            for session in tuple(self._sessions):
                session.cut()

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as exc:  # noqa: BLE001 - raised by `end`
            with self._lock:
                if self._failure is None and not self._ending.is_set():
                    self._failure = exc
            self._ending.set()

    # ---- finding ---------------------------------------------------------------------------------

    def _find(self) -> None:
        while not self._ending.is_set():
            with self._lock:
                group = self._groups.pop(0) if self._groups else None
            if group is None:
                return
            self._find_of(group)

    def _find_of(self, group: Group) -> None:
        rows_max = group.copies[0].rows_max
        opened = _Open(group, ChunkSize.first(rows_max, group.mean_bytes))
        if group.is_snapshot:
            opened.is_found = True
            tables = tuple(replace(copy, rows_max=opened.size.rows) for copy in group.copies)
            self._give(_Piece(opened, CopyOrder(self._sites, tables, self._begin)))
            return
        source, target = self._session(self._sites.source), self._session(self._sites.target)
        try:
            is_found = self._find_chunks(opened, source, target)
        except (Fatal, Retryable):
            if not self._wait_now(group.copies):
                raise
            opened.is_dropped = is_found = True
        finally:
            source.close()
            target.close()
        if is_found:
            with opened.lock:
                opened.is_found = True
                opened.left -= 1
            self._finish_if_done(opened)

    def _find_chunks(self, opened: _Open, source: MySqlSession, target: MySqlSession) -> bool:
        """Find all chunks, and queue those that are not copied; False if the job ends."""
        (table,) = opened.group.tables
        key = table.chunk_key
        assert key is not None
        known = read_chunks(target, self._sites.owner.task, table.key)
        target.rollback()
        for again in known:
            if not again.is_copied and not self._give_chunk(opened, again.chunk):
                return False
        name = table_name(*table.table.key).decode()
        begin = known[-1].chunk if known else None
        found = chunks(
            source.query,
            name,
            key,
            rows=lambda: opened.size.rows,
            begin=begin,
            condition=opened.group.copies[0].pair.condition,
        )
        for chunk in found:
            if opened.is_dropped:
                break
            source.rollback()
            save_found(target, self._sites.owner, table.key, [chunk])
            if not self._give_chunk(opened, chunk):
                return False
        return True

    def _give_chunk(self, opened: _Open, chunk: Chunk) -> bool:
        order = CopyOrder(self._sites, opened.group.copies, self._begin, chunk)
        with opened.lock:
            opened.left += 1
        return self._give(_Piece(opened, order))

    def _give(self, piece: _Piece) -> bool:
        """Queue a piece; False if the job ends."""
        while not self._ending.is_set():
            try:
                self._pieces.put(piece, timeout=WAIT_S)
            except queue.Full:
                continue
            return True
        return False

    # ---- copying ---------------------------------------------------------------------------------

    def _copy(self) -> None:
        while not self._ending.is_set() and self._open_count:
            if not self._go.wait(WAIT_S):
                continue
            try:
                piece = self._pieces.get(timeout=WAIT_S)
            except queue.Empty:
                continue
            if self._ending.is_set():
                return
            opened = piece.opened
            done = None if opened.is_dropped else self._copied(piece.order)
            with opened.lock:
                opened.left -= 1
                opened.size.note(done or Amount())
                opened.is_dropped |= done is None
            self._finish_if_done(opened)

    def _copied(self, order: CopyOrder) -> Amount | None:
        try:
            return self._copier.call(order)
        except (Fatal, Retryable):
            if not self._wait_now(order.tables):
                raise
            return None

    def _wait_now(self, tables: Sequence[CopyTable]) -> bool:
        """After an error: whether one of the tables waits for another load now."""
        return not self._ending.is_set() and self._waits([table.key for table in tables])

    def _finish_if_done(self, opened: _Open) -> None:
        with opened.lock:
            is_done = opened.is_found and opened.left == 0
            opened.is_found = opened.is_found and not is_done  # once
        if not is_done:
            return
        if not opened.is_dropped:
            self._finish([table.key for table in opened.group.tables])
        with self._lock:
            self._open_count -= 1

    def _finish(self, keys: list[TableKey]) -> None:
        with self._session(self._sites.target) as target:
            finish_tables(target, self._sites.owner, keys)

    def _session(self, endpoint: Endpoint) -> MySqlSession:
        """A session that a stop may cut."""
        session = connect(endpoint)
        with self._lock:
            self._sessions = [known for known in self._sessions if known.is_open]
            self._sessions.append(session)
        return session
