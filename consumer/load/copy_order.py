"""One piece of a load: the driver's order to an executor, and how the executor copies it.

    one chunk       one target transaction: the fence, the rows, their state
    a snapshot      one table or several, in one snapshot of the source at a GTID set that is known exactly. Committed
                    chunk by chunk where a table has a key, else part by part of one SELECT, so undo log and replica lag
                    of the target stay bounded. A read that is interrupted starts over: the rows so far are deleted

A Python worker of Spark keeps its sessions to source and target. All values here are sent by Spark.

The target computes a stored generated column in its own session. So after the copy of a snapshot the stored columns
that depend on the session are compared: both sides sum the digests of the key and of these columns, in the source's
snapshot. Tables without such a column cost nothing.
"""

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count

from millrace.consumer.copy import Copied, Parts, TablePair, copy_chunk
from millrace.consumer.load.structure import is_as
from millrace.consumer.tables.digest import table_digest
from millrace.consumer.tables.generated_columns import fix_of_columns
from millrace.consumer.target.loads import Amount, Reach, commit_rows
from millrace.consumer.target.progress import Owner, check_fence
from millrace.consumer.target.sessions import Sessions
from millrace.consumer.turn.order import Answer, guarded
from millrace.drivers.mysql.catalog import CatalogColumn, TableKey
from millrace.drivers.mysql.chunks.borders import chunks
from millrace.drivers.mysql.chunks.chunk import EVERYTHING, Chunk
from millrace.drivers.mysql.chunks.key import ChunkKey, chunk_key
from millrace.drivers.mysql.connection import Endpoint, MySqlSession, connect
from millrace.drivers.mysql.snapshot_position import begin_exact, read_end
from millrace.errors import Fatal, Retryable
from millrace.schemas.sql.quoting import table_name

LOADS = -3  # the lane of an executor's session for a load; of further threads of a process, the numbers below
TRIES_MAX = 5  # of a chunk, for a lock
# of a chunk and of a buffer: a second of work, and what an executor holds for each copy
BYTES_MAX = 8 << 20
# of a table without chunks, in one target transaction; its last statement may add to it
PART_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class Sites:
    """The owner of the fence, and the servers to copy from and to."""

    owner: Owner
    source: Endpoint
    target: Endpoint


@dataclass(frozen=True, slots=True)
class CopyTable:
    """One table of an order. ``key``: its name on the target. ``structure``: see ``consumer.load.structure``."""

    key: TableKey
    pair: TablePair
    rows_max: int
    structure: str


@dataclass(frozen=True, slots=True)
class CopyOrder:
    """``chunk``: of the only table; None: all rows of all tables, in one snapshot. ``begin``: the load's."""

    sites: Sites
    tables: tuple[CopyTable, ...]
    begin: str
    chunk: Chunk | None = None


def execute_copy(order: CopyOrder) -> Answer[Amount | None]:
    """Copy in an executor. An error of Millrace is returned as a value."""
    return guarded(order.sites.owner.task, lambda: copy(order))


def copy(order: CopyOrder) -> Amount | None:
    """Copy what the order names; the amount. None if a table waits for another load now.

    A chunk that could not get a lock is copied again. Fenced MR-5020 if another run has the task.
    """
    for _ in range(TRIES_MAX - 1):
        try:
            return _copy(order)
        except Retryable as exc:
            if exc.code != "MR-5005" or order.chunk is None:
                raise
    return _copy(order)


def _copy(order: CopyOrder) -> Amount | None:
    sites = order.sites
    source = _sessions.source(sites.source)
    target = _sessions.target(sites)
    try:
        target.query("SET SESSION foreign_key_checks = 0")
        if order.chunk is not None:
            return _copy_chunk(order, source, target)
        return _copy_snapshot(order, source, target)
    except BaseException:
        target.rollback()
        source.close()
        raise


def _copy_chunk(order: CopyOrder, source: MySqlSession, target: MySqlSession) -> Amount | None:
    (table,), chunk = order.tables, order.chunk
    assert chunk is not None
    key = _key(table)
    check_fence(target, order.sites.owner)
    done = _copied(copy_chunk(source, target, table.pair, chunk.where(key), bytes_max=BYTES_MAX))
    source.rollback()
    reach = Reach(order.begin, str(read_end(source)))
    owner, number = order.sites.owner, chunk.number
    return done if commit_rows(target, owner, table.key, done, reach, number=number) else None


def _copy_snapshot(order: CopyOrder, source: MySqlSession, target: MySqlSession) -> Amount | None:
    sources = [table.pair.source.key for table in order.tables]
    exact = str(begin_exact(source, sources))
    for table in order.tables:
        _check_structure(source, table)
    reach, whole = Reach(order.begin, exact, exact), Amount()
    owner = order.sites.owner

    def commit(table: CopyTable, copied: Copied) -> None:
        """Commit a part, and open the target transaction of the next one."""
        nonlocal whole
        done = _copied(copied)
        if not commit_rows(target, owner, table.key, done, reach, number=None):
            raise _WaitsError
        whole += done
        check_fence(target, owner)

    try:
        for table in order.tables:
            check_fence(target, owner)
            parts = Parts(PART_BYTES, partial(commit, table))
            for where in _conditions(source, table):
                commit(
                    table,
                    copy_chunk(source, target, table.pair, where, bytes_max=BYTES_MAX, parts=parts),
                )
            if not table.pair.is_viewed:
                check_values(source, target, table.pair)
            target.rollback()
    except _WaitsError:
        return None
    finally:
        source.rollback()
    return whole


def _check_structure(source: MySqlSession, table: CopyTable) -> None:
    """In a snapshot: it has no statement about the table that the copy does not have. Retryable MR-5111.

    The stream passes the statements of the exact GTID set.
    """
    name = table.pair.source.name
    try:
        is_same = is_as(source, table.pair.source, table.structure)
    except Fatal as exc:
        if exc.code != "MR-5012":
            raise
        is_same = False
    if not is_same:
        raise Retryable("MR-5111", f"{name} was altered before its snapshot began", table=name)


class _WaitsError(Exception):
    """The table waits for another load now."""


def _conditions(source: MySqlSession, table: CopyTable) -> Iterator[str]:
    """The conditions of the SELECTs that have all rows."""
    name = table.pair.source
    key = chunk_key(name.columns, name.unique_keys)
    if key is None:
        yield EVERYTHING
        return
    quoted = table_name(*name.key).decode()
    condition = table.pair.condition
    for chunk in chunks(
        source.query, quoted, key, rows=lambda: table.rows_max, condition=condition
    ):
        yield chunk.where(key)


def _key(table: CopyTable) -> ChunkKey:
    key = chunk_key(table.pair.source.columns, table.pair.source.unique_keys)
    assert key is not None, "only a table with a key is read in chunks"
    return key


def _copied(copied: Copied) -> Amount:
    return Amount(copied.rows, copied.bytes)


class _Sessions(threading.local):
    """The sessions of one thread. A Python worker of Spark has one that copies."""

    def __init__(self) -> None:
        self.lane = LOADS - next(_threads)
        self._sources: dict[Endpoint, MySqlSession] = {}
        self._targets: dict[str, Sessions] = {}  # by task

    def source(self, endpoint: Endpoint) -> MySqlSession:
        """The session on a source."""
        kept = self._sources.get(endpoint)
        if kept is None or not kept.is_open:
            kept = self._sources[endpoint] = connect(endpoint)
        return kept

    def target(self, sites: Sites) -> MySqlSession:
        """The session on the target."""
        sessions = Sessions(sites.target, sites.owner)
        kept = self._targets.setdefault(sites.owner.task, sessions)
        return kept.of(sites.owner, sites.target).for_lane(self.lane)


_threads = count()
_sessions = _Sessions()


def check_values(source: MySqlSession, target: MySqlSession, pair: TablePair) -> None:
    """Fatal MR-5080 if the target has computed another value than the source has."""
    columns = [
        column
        for column in pair.target.columns.values()
        if column.by_session and column.is_stored and column.name in pair.source.columns
    ]
    if not columns or _are_equal(source, target, pair, columns):
        return
    wrong = [one for one in columns if not _are_equal(source, target, pair, [one])]
    names = ", ".join(column.name for column in wrong or columns)
    what = (
        f"{pair.name}: what the target generates for {names} is not the source's value; its expression may depend on"
        " the session's time_zone, sql_mode or lc_time_names"
    )
    fix = fix_of_columns(pair.target, columns, "TASK")
    raise Fatal("MR-5080", what, fix=fix, table=pair.name)


def _are_equal(
    source: MySqlSession, target: MySqlSession, pair: TablePair, columns: list[CatalogColumn]
) -> bool:
    key = next((key.columns for key in pair.source.unique_keys if key.is_whole), ())
    names = list(
        dict.fromkeys(
            name
            for name in (*key, *(column.name for column in columns))
            if name in pair.target.columns
        )
    )
    flavours = (source.flavour, target.flavour)
    here = table_digest(pair.source, names, pair.target, flavours=flavours)
    there = table_digest(pair.target, names, pair.source, flavours=flavours)
    # a SUM, because no key is known to be unique: its type does not depend on character_set_results
    (one,) = source.query(here.sums(EVERYTHING))
    (other,) = target.query(there.sums(EVERYTHING))
    return list(map(str, one)) == list(map(str, other))
