"""Copies the rows of one SELECT into the target's open transaction.

Guarantees: each row of the result is one row of the target with the same values, or the copy raises. Memory stays at a
few MiB and the largest row, for any number of rows. Nothing is committed, but the caller may commit between two
statements (``Parts``).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from millrace.consumer.copy.columns import Kind
from millrace.consumer.copy.form import opening_of
from millrace.consumer.copy.masked import MaskedPackets, keys_of
from millrace.consumer.copy.outgoing import InsertWriter, LoadWriter, Outgoing, null_refused
from millrace.consumer.copy.table_pair import TablePair
from millrace.consumer.kernel.text_rows import (
    DOCUMENT,
    FULL,
    NULL,
    ROWS,
    ROWS_MAX,
    make_state,
    put_text_rows,
)
from millrace.consumer.tables.json_documents import by_expression
from millrace.drivers.mysql.connection import LENIENT_MODE, READ_S, STRICT_MODE, MySqlSession
from millrace.errors import Fatal, Retryable
from millrace.schemas.gtid import Flavour
from millrace.schemas.sql.quoting import escaped
from millrace.text_protocol.arriving import Arriving, RowPackets
from millrace.text_protocol.walk import AT, CONTINUES, END, MORE, ROW_END, SEQUENCE

BYTES_MAX = 1 << 20
_ALL_ROWS = (1 << 64) - 1  # an account's or server's default would cut the result
_WHERE_MAX = 200  # characters of a condition in an error


@dataclass(frozen=True, slots=True)
class Copied:
    """``bytes``: those that the source sent."""

    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Parts:
    """The rows in parts of about so many bytes: ``commit`` is called after each but the last one, with its size."""

    bytes_min: int
    commit: Callable[[Copied], None]


def copy_chunk(
    source: MySqlSession,
    target: MySqlSession,
    pair: TablePair,
    where: str,
    *,
    bytes_max: int = BYTES_MAX,
    parts: Parts | None = None,
) -> Copied:
    """Copy the rows that match the condition; the size, with ``parts`` that of the last one.

    ``bytes_max``: of each buffer, and of a statement.

    The source's open transaction decides which rows there are. Both sessions keep the settings that a copy needs.
    After an error the caller rolls back; a session in the middle of a statement is closed. Fatal MR-5080 if the target
    would change a value, MR-5081 if a row exists, Retryable MR-5083 if the target takes no LOAD DATA any more.
    """
    _prepare(source, target, pair)
    keys = keys_of(pair.columns)
    packets: RowPackets = source.read_packets(pair.rows(where).encode())
    if keys:
        packets = MaskedPackets(packets, keys, pair.texts, pair.name)
    incoming = Arriving(packets, bytes_max)
    make = InsertWriter if pair.load is None else LoadWriter
    outgoing: Outgoing = make(target, pair, bytes_max)
    try:
        return _Copy(pair, incoming, outgoing, parts).run(packets)
    except (Fatal, Retryable) as exc:
        if pair.is_viewed:  # the condition may have values that the view hides
            raise
        raise type(exc)(
            exc.code, exc.message, fix=exc.fix, **{**exc.context, "chunk": where[:_WHERE_MAX]}
        ) from exc
    finally:
        if not incoming.is_done:
            source.close()
        if outgoing.is_open:
            target.close()


class _Copy:
    """One result on its way. The kernel stops where it needs something."""

    def __init__(
        self, pair: TablePair, incoming: Arriving, outgoing: Outgoing, parts: Parts | None
    ) -> None:
        self._pair, self._incoming, self._outgoing = pair, incoming, outgoing
        self._parts, self._given = parts, Copied(0, 0)
        self._state = make_state(outgoing.begin, outgoing.rows_max)
        self._aside = 0  # rows written by separate statements

    def run(self, packets: RowPackets) -> Copied:
        state, incoming, outgoing = self._state, self._incoming, self._outgoing
        state[SEQUENCE] = packets.sequence
        while (stopped := self._put()) != END:
            if state[NULL]:
                break
            if stopped == MORE:
                incoming.more(state)
            elif stopped == FULL:
                outgoing.full(state)
                self._commit_part()
            elif stopped == CONTINUES:
                incoming.join(state)
            elif stopped == DOCUMENT:
                self._write_documents()
            else:
                raise Retryable(
                    "MR-5001", f"{self._pair.name}: the source sent bytes that are no rows"
                )
        if state[NULL]:
            raise null_refused(self._pair, self._pair.columns[state[NULL] - 1])
        incoming.finish(state)
        outgoing.finish(state)
        return self._grown()

    def _commit_part(self) -> None:
        """Let the caller commit, if enough is written since it did."""
        parts = self._parts
        if parts is None or self._grown().bytes < parts.bytes_min:
            return
        if not self._outgoing.is_written():
            self._state[ROWS_MAX] = self._state[ROWS] + 1  # the statement ends with the next row
        else:
            part = self._grown()
            parts.commit(part)
            self._given = Copied(self._given.rows + part.rows, self._given.bytes + part.bytes)

    def _grown(self) -> Copied:
        """The rows and bytes since the last part."""
        rows = int(self._state[ROWS]) + self._aside
        return Copied(rows - self._given.rows, self._incoming.bytes - self._given.bytes)

    def _put(self) -> int:
        incoming, outgoing, form = self._incoming, self._outgoing, self._outgoing.form
        stopped: int = put_text_rows(
            self._state,
            incoming.data,
            incoming.end,
            incoming.joined,
            outgoing.out,
            form.escapes,
            form.texts,
            form.sizes,
            form.flags,
            form.margin,
        )
        return stopped

    def _write_documents(self) -> None:
        state = self._state
        found = document_insert(self._pair, self._incoming.row(state))
        if found is None:
            return  # the kernel continues with this row
        self._outgoing.aside(state, *found)
        self._aside += 1
        state[AT], state[ROW_END] = state[ROW_END], 0


def _prepare(source: MySqlSession, target: MySqlSession, pair: TablePair) -> None:
    """Set up both sessions. The source returns all rows, its bytes unconverted, and both wait for each other."""
    limit = "max_statement_time" if source.flavour is Flavour.MARIADB else "max_execution_time"
    source.query(
        f"SET SESSION character_set_results=NULL, sql_select_limit={_ALL_ROWS},"
        f" net_write_timeout={READ_S}, {limit}=0"
    )
    has_labels = any(column.kind is Kind.ENUM for column in pair.columns)
    settings = f"sql_mode='{LENIENT_MODE if has_labels else STRICT_MODE}'"
    # a row that breaks a CHECK, as MariaDB can write it
    settings += (
        f", foreign_key_checks=0/*M!, check_constraint_checks=0 */, net_read_timeout={READ_S}"
    )
    target.query(f"SET SESSION {settings}")
    if pair.target.is_versioned:
        _insert_history(target, pair.name)


def _insert_history(target: MySqlSession, table: str) -> None:
    try:
        target.query("SET SESSION system_versioning_insert_history=1")
    except Fatal as exc:
        raise Fatal("MR-5029", f"{table}: {exc.message}", table=table) from exc


_SIZES = {0xFC: 2, 0xFD: 3, 0xFE: 8}
_NULL = 0xFB


def document_insert(pair: TablePair, row: bytes) -> tuple[bytes, int] | None:
    """The statement for a row of the text protocol, and how many ENUMs have the index 0; None if it needs none."""
    literals, is_needed, zeros = [], False, 0
    for column, value in zip(pair.columns, _values(row), strict=True):
        found = None
        if value is None and column.refuses_null:
            raise null_refused(pair, column)
        if column.kind is Kind.DOCUMENT and value is not None:
            found = by_expression(value)
            is_needed |= found is not None
        zeros += column.kind is Kind.ENUM and value == b"0"
        opening = opening_of(column)
        if value is None:
            found = b"NULL"
        elif found is None:
            found = opening + escaped(value) + b"'" if opening else value
        literals.append(found)
    if not is_needed:
        return None
    return pair.insert + b"(" + b",".join(literals) + b")", zeros


def _values(row: bytes) -> Iterator[bytes | None]:
    at = 0
    while at < len(row):
        first = row[at]
        at += 1
        if first == _NULL:
            yield None
            continue
        head = _SIZES.get(first, 0)
        size = int.from_bytes(row[at : at + head], "little") if head else first
        at += head
        yield row[at : at + size]
        at += size
