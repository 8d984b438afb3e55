"""Debezium's transaction metadata: the order of each event in its source transaction, and the transaction topic.

A change of the key is two events. Only events of the view count, so the numbers of a view have no gaps. All tables of a
batch are numbered together, and one batch leaves a ``CountedTransaction`` to the next. It is a value that the caller
keeps with its position: the numbers do not depend on where batches end.

Records of the topic have the seq of the first and of the last row. ``PART``: 0 the end of a transaction whose last row
was not seen, 1 a begin, 2 an end. A source transaction without an event in the view has no records.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from millrace.consumer.format.avro_data import AvroSchemas
from millrace.consumer.format.avro_format import Register, encoded
from millrace.consumer.format.connect_schema import schema_text, transaction_key, transaction_value
from millrace.consumer.format.encoded import LINE_WIDTH, OTHER, OTHER_END, Encoded
from millrace.consumer.format.table_format import EventFormat
from millrace.consumer.kernel import json_transactions as kernel
from millrace.consumer.kernel import walk
from millrace.consumer.records.numbers import Ints
from millrace.consumer.records.rows import Rows
from millrace.consumer.view.changes import OP, RECORD, Changes
from millrace.schemas.record.avro_schema import canonical_text
from millrace.schemas.record.framing import frame
from millrace.schemas.view.format_options import FormatOptions

_NUMBERS_BYTES_MAX = 128  # of a key and a value, and the room that a copy needs
_READ = ord("r")


@dataclass(frozen=True, slots=True)
class CountedTransaction:
    """``id`` is the GTID, "" for none; ``counts`` the events so far of each table, by name in the view."""

    id: str = ""
    counts: tuple[tuple[str, int], ...] = ()

    @property
    def total(self) -> int:
        """The events so far."""
        return sum(count for _, count in self.counts)


NONE_COUNTED = CountedTransaction()


@dataclass(frozen=True, slots=True)
class TableChanges:
    """The changes of one table in a batch. ``name``: database.table in the view."""

    name: str
    format: EventFormat
    changes: Changes


@dataclass(frozen=True, slots=True)
class Numbered:
    """``orders`` of each table's changes, for ``encode``; the records of the topic; the transaction open after them."""

    orders: tuple[Ints, ...]
    records: Encoded
    after: CountedTransaction


@dataclass(frozen=True, slots=True)
class TransactionFormat:
    """How the records of the topic are written. ``schemas``: as JSON with Connect's schemas.

    ``frames``: in Avro; the frames of key and value.
    """

    schemas: bool = False
    frames: tuple[bytes, bytes] | None = None


PLAIN_JSON = TransactionFormat()


def make_transaction_format(
    options: FormatOptions, topic: str, register: Register
) -> TransactionFormat:
    """The format of the topic's records. ``register``: for Avro, as ``avro_format``."""
    if not options.name.is_avro:
        return TransactionFormat(options.schemas)
    key, value = (
        canonical_text(AvroSchemas().of(schema))
        for schema in (transaction_key(), transaction_value())
    )
    return TransactionFormat(
        frames=(
            frame(register(f"{topic}-key", key), b""),
            frame(register(f"{topic}-value", value), b""),
        )
    )


def number_events(
    rows: Rows,
    tables: Sequence[TableChanges],
    before: CountedTransaction,
    format_: TransactionFormat = PLAIN_JSON,
) -> Numbered:
    """The numbers of all changes of a batch. Rows of snapshots belong to no source transaction."""
    names = sorted({table.name for table in tables} | {name for name, _ in before.counts})
    events = _events(rows, tables, names)
    texts = _avro_texts(names, format_.frames) if format_.frames else _json_texts(names, format_)
    first_id = np.frombuffer(before.id.encode() or b" ", np.uint8)
    state: Ints = np.zeros(kernel.STATE, np.int64)
    state[kernel.IS_OPEN] = state[kernel.IS_BEFORE] = bool(before.id)
    state[kernel.ID_STOP], state[kernel.TOTAL] = len(before.id.encode()), before.total
    counted = dict(before.counts)
    counts: Ints = np.array([counted.get(name, 0) for name in names], np.int64)
    orders: Ints = np.empty((len(events), 2), np.int64)
    limit = _records_max(rows, events)
    lines: Ints = np.empty((limit, LINE_WIDTH), np.int64)
    lines[:, OTHER : OTHER_END + 1] = -1
    # an id twice, a byte as six at most; a table is in the end of a transaction that has an event of it
    size = (
        int(texts.pieces[-1, 1]) + _NUMBERS_BYTES_MAX + 12 * max(len(before.id), _longest_id(rows))
    )
    tables_size = (len(events) + len(names)) * _longest(names)
    out = np.empty(limit * size + tables_size + _NUMBERS_BYTES_MAX, np.uint8)
    length, count = kernel.number_events(
        out,
        kernel.IDs(rows.values.payload, first_id),
        rows.records,
        events[:, : kernel.EVENT_WIDTH],
        orders,
        state,
        counts,
        texts,
        lines,
    )
    return Numbered(
        tuple(_orders_of(events, orders, at, table) for at, table in enumerate(tables)),
        Encoded(out[:length], lines[:count]),
        _after(rows, before, state, dict(zip(names, counts.tolist(), strict=True))),
    )


_TABLE_PLACE, _CHANGE = 3, 4  # of events, too: the place in ``tables``, the number of the change


def _events(rows: Rows, tables: Sequence[TableChanges], names: Sequence[str]) -> Ints:
    """The changes of all tables in the order of their records."""
    parts = []
    for place, table in enumerate(tables):
        lines = table.changes.lines
        own = np.flatnonzero(lines[:, OP] != _READ)
        part = np.empty((len(own), kernel.EVENT_WIDTH + 2), np.int64)
        part[:, kernel.EVENT_RECORD] = lines[own, RECORD]
        part[:, kernel.EVENT_TABLE] = names.index(table.name)
        part[:, kernel.EVENT_COUNT] = table.format.event_counts(rows, table.changes)[own]
        part[:, _TABLE_PLACE], part[:, _CHANGE] = place, own
        parts.append(part)
    if not parts:
        return np.empty((0, kernel.EVENT_WIDTH + 2), np.int64)
    events: Ints = np.concatenate(parts)
    return events[np.argsort(events[:, kernel.EVENT_RECORD], kind="stable")]


def _orders_of(events: Ints, orders: Ints, place: int, table: TableChanges) -> Ints:
    own = events[:, _TABLE_PLACE] == place
    result: Ints = np.zeros((len(table.changes), 2), np.int64)
    result[events[own, _CHANGE]] = orders[own]
    return result


def _records_max(rows: Rows, events: Ints) -> int:
    """Each event may end a transaction and begin one; each last row ends one."""
    return 2 * len(events) + int(np.count_nonzero(rows.column(walk.LAST))) + 1


def _longest_id(rows: Rows) -> int:
    if not len(rows):
        return 0
    return int((rows.column(walk.GTID_END) - rows.column(walk.GTID_START)).max())


def _longest(names: Sequence[str]) -> int:
    """The bytes of a table in the end of a transaction."""
    return max((len(_quoted(name).encode()) for name in names), default=0) + _NUMBERS_BYTES_MAX


def _after(
    rows: Rows, before: CountedTransaction, state: Ints, counts: dict[str, int]
) -> CountedTransaction:
    if not state[kernel.IS_OPEN]:
        return NONE_COUNTED
    octets = rows.values.payload[state[kernel.ID_START] : state[kernel.ID_STOP]].tobytes()
    open_id = before.id if state[kernel.IS_BEFORE] else octets.decode()
    return CountedTransaction(open_id, tuple((name, n) for name, n in counts.items() if n))


def _json_texts(names: Sequence[str], format_: TransactionFormat) -> kernel.Texts:
    key, value, tail = "{", "{", "}"
    if format_.schemas:
        key, value = (
            f'{{"schema":{schema_text(schema)},"payload":{{'
            for schema in (transaction_key(), transaction_value())
        )
        tail = "}}"
    texts = {
        kernel.ID: key + '"id":',
        kernel.ID_END: tail,
        kernel.BEGIN: value + '"status":"BEGIN","id":',
        kernel.BEGIN_COUNTS: ',"event_count":null,"data_collections":null',
        kernel.END: value + '"status":"END","id":',
        kernel.END_COUNT: ',"event_count":',
        kernel.TABLES: ',"data_collections":[',
        kernel.TABLE: '{"data_collection":',
        kernel.TABLE_COUNT: ',"event_count":',
        kernel.TS_MS: ',"ts_ms":',
        kernel.TAIL: tail,
    }
    pieces = {piece: text.encode() for piece, text in texts.items()}
    return _texts(pieces, [_quoted(name).encode() for name in names], is_avro=False)


def _avro_texts(names: Sequence[str], frames: tuple[bytes, bytes]) -> kernel.Texts:
    key, value = frames
    null, present = b"\0", b"\2"  # the branches of a union
    pieces = {
        kernel.ID: key,
        kernel.BEGIN: value + encoded("BEGIN"),
        kernel.BEGIN_COUNTS: null + null,
        kernel.END: value + encoded("END"),
        kernel.END_COUNT: present,
        kernel.TABLES: present,
        kernel.TABLE: present,
    }
    return _texts(pieces, [encoded(name) for name in names], is_avro=True)


def _texts(pieces: Mapping[int, bytes], names: Sequence[bytes], *, is_avro: bool) -> kernel.Texts:
    octets = bytearray()
    places = []
    for part in (*(pieces.get(piece, b"") for piece in range(kernel.PIECES)), *names):
        places.append((len(octets), len(octets) + len(part)))
        octets += part
    every: Ints = np.array(places, np.int64)
    fixed = np.frombuffer(bytes(octets), np.uint8)
    return kernel.Texts(fixed, every[: kernel.PIECES], every[kernel.PIECES :], int(is_avro))


def _quoted(name: str) -> str:
    return json.dumps(name, ensure_ascii=False)
