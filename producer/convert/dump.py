"""Heads of binlog events, in the manner of mysqlbinlog: what `millrace relay dump` prints.

    for head in event_heads(survey, bounds): …      decoded heads, also of the events inside a compressed payload
    for piece in raw_bytes(survey, bounds): …       bytes that `mysqlbinlog -` reads: the magic number and whole events

Rows are counted, not decoded. A file that is cut or damaged ends the dump of it with Fatal MR-2004 at the place.
Memory: one event and one piece of a payload. Not done here: checking checksums (``producer.relay.survey``).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from millrace.errors import Fatal
from millrace.producer.binlog import events as t
from millrace.producer.binlog.gtid_runs import read_gtid
from millrace.producer.convert.arrays import Bytes, Numbers
from millrace.producer.convert.column_program import column_sizes
from millrace.producer.convert.event_sources import PayloadEvents, checksum_bytes_of
from millrace.producer.convert.kernel import program as p
from millrace.producer.convert.query import parse_query
from millrace.producer.convert.rows_head import read_rows_head, row_bounds
from millrace.producer.convert.statements import inflated_query
from millrace.producer.convert.tables import table_names
from millrace.producer.relay.files import disk_errors
from millrace.producer.relay.stored_file import StoredFile, open_stored, read_stored
from millrace.producer.relay.survey import Survey
from millrace.schemas.gtid import Flavour
from millrace.schemas.place import FIRST_POS, Coordinates
from millrace.schemas.server_version import NO_NUMBERS, ServerVersion
from millrace.schemas.sql.statement import classify
from millrace.schemas.sql.tokens import plain_text

READ_BYTES = 4 << 20
STATEMENT_CHARACTERS_MAX = 200
_GTIDS = (t.GTID, t.GTID_TAGGED, t.MARIADB_GTID)
_NAMES = {
    number: name.capitalize()
    for name, number in vars(t).items()
    if name.isupper()
    and isinstance(number, int)
    and not name.endswith(("_BYTES", "_MIN", "_AT", "_FLAG", "_CRC32"))
}


@dataclass(frozen=True, slots=True)
class Bounds:
    """The range of a dump: events from ``start`` up to ``end`` of source transactions that ``is_wanted`` accepts."""

    start: Coordinates | None = None
    end: Coordinates | None = None
    is_wanted: Callable[[str], bool] = field(default=lambda _: True)


@dataclass(frozen=True, slots=True)
class EventHead:
    """One event. ``fields`` may have: gtid, table, rows, statement, inside (the place of the payload around it)."""

    at: Coordinates
    end_pos: int
    type: str
    server_id: int
    timestamp_s: int
    fields: dict[str, str | int]


def event_heads(survey: Survey, bounds: Bounds) -> Iterator[EventHead]:
    """The heads of the events in ``bounds``. Fatal MR-2004; Retryable MR-2011, MR-2002."""
    decoder = _Decoder(survey.flavour)
    for at, event in _events(survey, bounds):
        yield from decoder.decode(at, event)


def raw_bytes(survey: Survey, bounds: Bounds) -> Iterator[bytes]:
    """The same events as bytes, after the magic number and the format description of their file."""
    yield t.MAGIC
    for at, event in _events(survey, bounds, with_format=True):
        del at
        yield event.tobytes()


def _events(
    survey: Survey, bounds: Bounds, *, with_format: bool = False
) -> Iterator[tuple[Coordinates, Bytes]]:
    """The events of the wanted source transactions. Events outside transactions count as wanted."""
    is_wanted = True
    for subdir, name in survey.files:
        start = Coordinates(str(subdir), name, FIRST_POS)
        if bounds.start is not None and start.order[:2] < bounds.start.order[:2]:
            continue
        if bounds.end is not None and start.order[:2] > bounds.end.order[:2]:
            return
        path = survey.root / str(subdir) / name
        with disk_errors(survey.root, start):
            file = open_stored(path, survey.disk)
        try:
            for at, event in _file_events(file, start):
                if bounds.end is not None and not at < bounds.end:
                    return
                kind = int(event[4])
                if kind in _GTIDS:
                    is_wanted = bounds.is_wanted(_gtid(event))
                elif kind in (t.FORMAT_DESCRIPTION, t.ROTATE, t.STOP):
                    is_wanted = True
                is_before = bounds.start is not None and at < bounds.start
                if (kind == t.FORMAT_DESCRIPTION and with_format) or (is_wanted and not is_before):
                    yield at, event
        finally:
            file.close()


def _file_events(file: StoredFile, start: Coordinates) -> Iterator[tuple[Coordinates, Bytes]]:
    pos, size = start.pos, file.size()
    while pos < size:
        window = np.frombuffer(
            bytearray(read_stored(file, pos, min(size, pos + READ_BYTES))), np.uint8
        )
        at = 0
        while at + t.HEADER_BYTES <= len(window):
            length = int.from_bytes(window[at + 9 : at + 13].tobytes(), "little")
            if length < t.HEADER_BYTES:
                raise Fatal("MR-2004", f"an event at {start.at(pos + at)} has an impossible length")
            if at + length > len(window):
                if at == 0 and pos + length <= size:
                    whole = bytearray(read_stored(file, pos, pos + length))
                    window = np.frombuffer(whole, np.uint8)
                    continue
                break
            yield start.at(pos + at), window[at : at + length]
            at += length
        if at == 0:
            return  # the file ends inside an event: it is being written
        pos += at


class _Decoder:
    """Knows the tables of the current statement and the format of the file."""

    def __init__(self, flavour: Flavour) -> None:
        self._flavour = flavour
        self._checksum_bytes = t.CHECKSUM_BYTES
        self._tables: dict[int, tuple[str, Numbers]] = {}

    def decode(self, at: Coordinates, event: Bytes) -> Iterator[EventHead]:
        kind = int(event[4])
        if kind == t.FORMAT_DESCRIPTION:
            self._checksum_bytes = checksum_bytes_of(event.data)
        size = len(event)
        yield self._head(at, event, at.pos + size, self._checksum_bytes, {})
        if kind == t.TRANSACTION_PAYLOAD:
            body = event[t.HEADER_BYTES : size - self._checksum_bytes].data
            for inner in PayloadEvents(body, at, end_pos=at.pos + size).events():
                yield self._head(at, inner, at.pos + size, 0, {"inside": str(at)})

    def _head(
        self,
        at: Coordinates,
        event: Bytes,
        end_pos: int,
        checksum_bytes: int,
        fields: dict[str, str | int],
    ) -> EventHead:
        kind = int(event[4])
        body = event[t.HEADER_BYTES : len(event) - checksum_bytes]
        return EventHead(
            at,
            end_pos,
            _NAMES.get(kind, f"Unknown_{kind}"),
            int.from_bytes(event[5:9].tobytes(), "little"),
            int.from_bytes(event[:4].tobytes(), "little"),
            fields | self._fields(kind, event, body),
        )

    def _fields(self, kind: int, event: Bytes, body: Bytes) -> dict[str, str | int]:
        if kind in _GTIDS:
            return {"gtid": _gtid(event)}
        if kind == t.TABLE_MAP:
            content = body.tobytes()
            name = ".".join(table_names(content))
            sizes = column_sizes(content, flavour=self._flavour)
            self._tables[int.from_bytes(content[:6], "little")] = name, sizes
            return {"table": name}
        if kind in t.ROWS:
            head = read_rows_head(kind, body)
            name, sizes = self._tables.get(
                head.table_id, ("", np.zeros((0, p.COLUMN_WIDTH), np.int64))
            )
            bounds = row_bounds(head, sizes)
            return {"table": name} | (
                {"rows": sum(1 for _ in bounds)} if bounds is not None else {}
            )
        if kind in (t.QUERY, t.MARIADB_QUERY_COMPRESSED):
            content = body.tobytes()
            if kind == t.MARIADB_QUERY_COMPRESSED:
                content = inflated_query(content, Coordinates("", "", FIRST_POS))
            query = parse_query(content, flavour=self._flavour)
            text = plain_text(query.text, ServerVersion(self._flavour, NO_NUMBERS))
            text = classify(text, query.database).recorded_text(text)
            return {"database": query.database, "statement": text[:STATEMENT_CHARACTERS_MAX]}
        if kind == t.ROTATE:
            return {"next_file": body[8:].tobytes().decode("utf-8", "replace")}
        return {}


def _gtid(event: Bytes) -> str:
    gtid = read_gtid(event[: -t.CHECKSUM_BYTES])
    if gtid is None:
        raise Fatal("MR-6003", "a GTID event is malformed")
    return str(gtid)
