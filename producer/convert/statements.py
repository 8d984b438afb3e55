"""Events that the kernel leaves to Python: statements, file heads, payloads, XA. Each event gives one ``Outcome``.

    FORMAT_DESCRIPTION   the file's checksum           TRANSACTION_PAYLOAD   a source of its events
    QUERY                transaction words, XA, DDL    QUERY_COMPRESSED      the same, inflated
    XA_PREPARE           the group is remembered by its xid
    EXECUTE_LOAD_QUERY   LOAD DATA as a statement: 13 as in QUERY | file 4 | start, end of its name 4 + 4 | duplicates 1

The kernel determines how an event changes its source transaction (STEP). The rows of a prepared XA transaction are
written at its XA COMMIT, with the GTID of that. Until then its events are skipped; they are then read again from the
relay log.
"""

import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace

from millrace.errors import Fatal
from millrace.producer.binlog import events as t
from millrace.producer.binlog.transactions import (
    AFTER_GTID,
    ENDS,
    INSIDE,
    OPENS_XA,
    OUTSIDE,
    ROLLS_BACK,
)
from millrace.producer.convert.arrays import Bytes, KernelArrays, Numbers
from millrace.producer.convert.event_sources import (
    EventSource,
    Reader,
    XaEvents,
    checksum_bytes_of,
    open_payload,
    server_of,
)
from millrace.producer.convert.kernel import state as s
from millrace.producer.convert.kernel.walk import end_transaction
from millrace.producer.convert.position import make_room
from millrace.producer.convert.query import Query, parse_query
from millrace.producer.convert.savepoints import Mark, Savepoints
from millrace.producer.convert.table_filter import NameFilter
from millrace.producer.convert.xa import (
    Release,
    XaGroup,
    XaGroups,
    xid_of_prepare,
    xid_of_statement,
)
from millrace.schemas.place import Coordinates
from millrace.schemas.record.control import (
    DdlRecord,
    DdlStatement,
    EventPlace,
    Origin,
    RecordSource,
    RecordTransaction,
)
from millrace.schemas.server_version import NO_NUMBERS, ServerVersion
from millrace.schemas.sql.statement import (
    APPLIED_KINDS,
    RECORDED_KINDS,
    Kind,
    Statement,
    changed_table,
    classify,
)
from millrace.schemas.sql.tokens import SqlMode, plain_text, with_plain_blanks

_PREPARED, _PREPARED_AND_DONE = 1, 2  # IS_XA
_INFLATED_BYTES_MAX = 1 << 30
_QUERY_BYTES = 13  # of a QUERY before its status variables
_LOAD_BYTES = 13  # what LOAD DATA has between the two

# For ``millrace try``: called with a line on what it can't show, where a task would stop.
Look = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one event.

    ``statement``: a record to write. ``counts``: a unit of the transaction that is not written. ``events``: read these
    events first. ``ends_group``: the source transaction ends here. ``drops_to``: drop its records since there first.
    """

    statement: DdlRecord | None = None
    counts: bool = False
    events: EventSource | None = None
    ends_group: bool = False
    drops_to: Mark | None = None


NOTHING = Outcome()


class EventHandler:
    def __init__(
        self,
        arrays: KernelArrays,
        *,
        origin: Origin,
        filter_: NameFilter,
        reader: Reader,
        look: Look | None = None,
    ) -> None:
        self._arrays = arrays
        self._look = look
        self._origin = origin
        self._filter = filter_
        self._reader = reader
        self._xa = XaGroups(reader)
        self._savepoints = Savepoints()
        self._file = self._outer_file = ""
        self._checksum_bytes = 0
        self._server = ServerVersion(origin.connector, NO_NUMBERS)  # that wrote the file
        self._is_replaying = False  # reading an XA transaction's rows, at its XA COMMIT
        self._replayed = ""  # its xid

    # ---- the file --------------------------------------------------------------------------------------

    def set_file(self, name: str) -> None:
        """Set ``source.file`` of all records from now on."""
        content = name.encode()
        head = _length(len(content)) + content
        self._file = name
        self._arrays.set_head(s.HEAD_FILE, s.HEAD_EVENT, head)
        self._arrays.state[s.FILE_SIZE] = len(head)

    # ---- events ----------------------------------------------------------------------------------------

    def handle(self, event: memoryview, *, events: EventSource, at: Coordinates) -> Outcome:
        """Handle an event of `events`: whole, or the beginning of a payload. `at` is its position, for errors and
        records."""
        kind = event[4]
        if kind == t.FORMAT_DESCRIPTION:
            events.checksum_bytes = self._checksum_bytes = checksum_bytes_of(event)
            self._server = server_of(event, self._origin.connector)
            return NOTHING
        if kind == t.TRANSACTION_PAYLOAD:
            return Outcome(events=open_payload(event, events.checksum_bytes, at, self._reader))
        body = event[t.HEADER_BYTES : len(event) - events.checksum_bytes]
        if kind == t.XA_PREPARE:
            return self._prepare(bytes(body), events, at)
        content = bytes(body)
        if kind in t.LOADED_ROWS:
            if self._arrays.state[s.IS_COVERED]:
                return Outcome(ends_group=self._arrays.state[s.STEP] == ENDS)
            if self._look is None:
                message = f"event type {kind} loads rows that were not logged"
                raise Fatal("MR-6501", message, coordinates=at)
            if kind != t.EXECUTE_LOAD_QUERY:
                return NOTHING
            content = content[:_QUERY_BYTES] + content[_QUERY_BYTES + _LOAD_BYTES :]
        if kind == t.MARIADB_QUERY_COMPRESSED:
            content = inflated_query(content, at)
        query = parse_query(content, flavour=self._origin.connector, server=self._server)
        return self._query(query, event, at)

    def needed_from(self, here: Coordinates) -> Coordinates:
        """The oldest position that is still needed: `here`, or that of the oldest prepared XA transaction."""
        return min(here, self._xa.oldest() or here)

    def take_releases(self) -> list[Release]:
        """Releases of files that were searched for XA transactions: due when the records up to here are published."""
        return self._xa.take_releases()

    def end_group(self, out: Bytes, bounds: Numbers) -> None:
        """End the source transaction as the kernel does. The position has room for it."""
        arrays = self._arrays
        while end_transaction(arrays.state, arrays.intervals, out, bounds) == s.POSITION_FULL:
            make_room(arrays)

    def end_source(self, events: EventSource, out: Bytes, bounds: Numbers) -> None:
        """Handle the end of an event source: commit its XA transaction, or check that its payload had a commit."""
        st = self._arrays.state
        if isinstance(events, XaEvents):
            self.set_file(self._outer_file)
            self._is_replaying = False
            self._xa.forget(self._replayed)
            self.end_group(out, bounds)
        elif st[s.GROUP] != OUTSIDE and not self._is_replaying:
            raise Fatal("MR-6506", "a compressed transaction without its commit")

    def _query(self, query: Query, event: memoryview, at: Coordinates) -> Outcome:
        st = self._arrays.state
        mode = _sql_mode(query)
        text = with_plain_blanks(query.text, query.session.get("charset_client", ""), mode)
        query = replace(query, text=plain_text(text, self._server, mode))
        statement = classify(query.text, query.database, mode)
        if statement.kind is Kind.TRANSACTION:
            return self._handle_transaction(statement, query, at)
        is_alone = st[s.STEP] == ENDS
        if st[s.IS_COVERED]:
            return Outcome(ends_group=is_alone)
        if (statement.kind is Kind.DML or statement.selects_rows) and self._look is None:
            created = [f"{name.database}.{name.table}" for name in statement.tables]
            table = next(iter(created), "") or changed_table(query.text, query.database, mode)
            raise Fatal(
                "MR-6501",
                f"{statement.verb} was logged as a statement" + (f", on {table}" if table else ""),
                coordinates=at,
                **({"database": query.database} if query.database and not table else {}),
            )
        if statement.kind is Kind.TEMPORARY:
            return Outcome(ends_group=is_alone)
        if st[s.ALTER_PHASE]:
            raise Fatal(
                "MR-6513",
                f"one phase of a two-phase statement: {statement.recorded_text(query.text)[:200]}",
                coordinates=at,
            )
        if statement.has_secret:
            query = _in_doubt(query, "holds a password, and is recorded without it")
        recorded = self._filtered(statement, query)
        if recorded is None or st[s.ROWS] < st[s.ROWS_TO_SKIP]:
            return Outcome(counts=True, ends_group=is_alone)
        return Outcome(statement=self._record(statement, recorded, event, at), ends_group=is_alone)

    def _filtered(self, statement: Statement, query: Query) -> Query | None:
        """The query to record, or None if the filter excludes the statement.

        A statement that names included and excluded tables is in doubt: a target may have those excluded tables, and
        then only an operator knows whether the statement may change them.
        """
        names = [*statement.databases, *(t.database + t.table for t in statement.tables)]
        if "in_doubt" in query.session and "\\" in "".join(names):
            return query  # the names were not decoded exactly, so the filter cannot judge them
        if statement.tables:
            excluded = [
                f"{t.database}.{t.table}"
                for t in statement.tables
                if not self._filter.admits(t.database, t.table)
            ]
            if len(excluded) == len(statement.tables):
                return None
            return _in_doubt(query, _left_out(excluded)) if excluded else query
        if statement.databases:
            is_included = any(map(self._filter.admits_database, statement.databases))
        elif statement.kind in RECORDED_KINDS:
            is_included = not query.database or self._filter.admits_database(query.database)
        else:  # what an unknown statement changes is not known, so it is always recorded
            is_included = statement.kind is Kind.UNKNOWN or self._filter.admits_database(
                query.database
            )
        return query if is_included else None

    def _record(
        self, statement: Statement, query: Query, event: memoryview, at: Coordinates
    ) -> DdlRecord:
        st = self._arrays.state
        first = statement.tables[0] if statement.tables else None
        database = first.database if first else (*statement.databases, query.database)[0]
        gtid = self.gtid()
        return DdlRecord(
            RecordSource(
                self._origin,
                database,
                first.table if first else "",
                EventPlace(
                    int.from_bytes(event[:4], "little") * 1000,
                    int.from_bytes(event[5:9], "little"),
                    gtid,
                    self._file,
                    at.pos,
                    0 if query.session.get("foreign_key_checks") != "0" else 2,
                ),
                0,
                int(st[s.SEQ]) + 1,
            ),
            DdlStatement(
                statement.recorded_text(query.text),
                _recorded_kind(statement, query).value,
                tuple((table.database, table.table) for table in statement.tables),
                query.session,
            ),
            int(st[s.COMMIT_MS]),
            RecordTransaction(gtid, int(st[s.ROWS]) + 1, False),
        )

    def gtid(self) -> str:
        """The GTID of the open transaction as text."""
        st = self._arrays.state
        end = s.HEAD_TRANSACTION + int(st[s.TRANSACTION_HEAD_SIZE])
        start = end - int(st[s.GTID_SIZE]) + (1 if st[s.GTID_SIZE] <= 64 else 2)
        return self._arrays.heads[start:end].tobytes().decode("ascii")

    # ---- transactions and XA ---------------------------------------------------------------------------

    def _handle_transaction(self, statement: Statement, query: Query, at: Coordinates) -> Outcome:
        st = self._arrays.state
        words = query.text.upper().split()
        if statement.verb == "XA":
            return self._handle_xa(words[1] if len(words) > 1 else "", query, at)
        if st[s.GROUP] != INSIDE:
            raise Fatal("MR-6506", f"{statement.verb} outside a source transaction", coordinates=at)
        if st[s.STEP] == ROLLS_BACK:
            return Outcome(drops_to=Mark.start(st), ends_group=True)
        if statement.verb == "SAVEPOINT" and not st[s.IS_COVERED]:
            self._savepoints.set(query.text, st)
        if statement.verb == "ROLLBACK" and not st[s.IS_COVERED]:
            return Outcome(drops_to=self._savepoints.back_to(query.text, st, at))
        if statement.verb in ("COMMIT", "BEGIN", "START TRANSACTION"):
            raise Fatal(
                "MR-6506", f"{query.text[:40]!r} inside a source transaction", coordinates=at
            )
        return NOTHING

    def _handle_xa(self, word: str, query: Query, at: Coordinates) -> Outcome:
        st = self._arrays.state
        if word in ("START", "BEGIN"):
            if st[s.STEP] == OPENS_XA:
                st[s.GROUP] = INSIDE
            if not self._is_replaying:
                st[s.IS_XA] = _PREPARED_AND_DONE if st[s.IS_COVERED] else _PREPARED
                st[s.IS_COVERED] = 1
            return NOTHING
        if word == "END":
            return NOTHING
        xid = xid_of_statement(query.text)
        if word == "ROLLBACK" or st[s.IS_COVERED]:
            self._xa.forget(xid)
            return Outcome(ends_group=True)
        group = self._xa.find_committed(xid, at)
        if group is None and self._look is not None:
            what = f"{self.gtid()} commits an XA transaction that was prepared before: its rows are unknown"
            self._look(what)
            return Outcome(ends_group=True)
        if group is None:
            raise Fatal(
                "MR-6511",
                f"XA COMMIT of {xid}, whose XA PREPARE is not in the relay log",
                coordinates=at,
            )
        self._replayed = xid
        return self._replay(group)

    def _prepare(self, body: bytes, events: EventSource, at: Coordinates) -> Outcome:
        st = self._arrays.state
        if self._is_replaying:
            return NOTHING
        xid, one_phase = xid_of_prepare(body)
        state, st[s.IS_XA] = int(st[s.IS_XA]), 0
        if not state:
            raise Fatal("MR-6506", "XA PREPARE without XA START", coordinates=at)
        if state == _PREPARED:
            st[s.IS_COVERED] = 0
        group = XaGroup(
            at.at(int(st[s.GROUP_POS])),
            events.end_pos(at, int(st[s.EVENT_SIZE])),
            self._checksum_bytes,
        )
        if not one_phase:
            self._xa.prepare(xid, group)
        elif state == _PREPARED:
            self._replayed = xid
            return self._replay(group)
        return Outcome(ends_group=True)

    def _replay(self, group: XaGroup) -> Outcome:
        """Read the group's events here, from the event after its GTID."""
        st = self._arrays.state
        st[s.GROUP] = INSIDE if st[s.FLAVOUR] == s.MARIADB else AFTER_GTID
        self._is_replaying = True
        self._outer_file = self._file
        self.set_file(group.start.file)
        return Outcome(events=XaEvents(self._reader, group))


def _recorded_kind(statement: Statement, query: Query) -> Kind:
    is_in_doubt = "in_doubt" in query.session and statement.kind in APPLIED_KINDS
    return Kind.UNKNOWN if is_in_doubt else statement.kind


def _in_doubt(query: Query, reason: str) -> Query:
    """The query with one more reason why apply must not execute it."""
    reasons = [doubt for doubt in (query.session.get("in_doubt"), reason) if doubt]
    return replace(query, session={**query.session, "in_doubt": "; ".join(reasons)})


def _left_out(excluded: list[str]) -> str:
    return f"names {', '.join(dict.fromkeys(excluded))}, which the capture task leaves out"


def _sql_mode(query: Query) -> SqlMode:
    modes = query.session.get("sql_mode", "").split(",")
    return SqlMode("ANSI_QUOTES" in modes, "NO_BACKSLASH_ESCAPES" in modes)


def inflated_query(body: bytes, at: Coordinates) -> bytes:
    """MariaDB's QUERY_COMPRESSED. Only the text is compressed: 128 | n, its length (n bytes, big-endian), zlib."""
    if len(body) < 13:
        raise Fatal("MR-6003", "a compressed query event is too short", coordinates=at)
    start = 13 + int.from_bytes(body[11:13], "little") + body[8] + 1
    width = body[start] & 7 if start < len(body) else 0
    size = int.from_bytes(body[start + 1 : start + 1 + width], "big")
    if not width or size > _INFLATED_BYTES_MAX:
        raise Fatal("MR-6003", "a compressed query event has a wrong length", coordinates=at)
    inflater = zlib.decompressobj()
    try:
        text = inflater.decompress(body[start + 1 + width :], size + 1)
    except zlib.error as error:
        raise Fatal(
            "MR-6003", f"a compressed query event cannot be inflated: {error}", coordinates=at
        ) from error
    if len(text) != size:
        raise Fatal("MR-6003", "a compressed query event has a wrong length", coordinates=at)
    return body[:start] + text


def _length(count: int) -> bytes:
    """An Avro long from 0 to 8191."""
    return bytes([2 * count]) if count < 64 else bytes([2 * count & 127 | 128, count >> 6])
