"""The attributes of CloudEvents 1.0 as headers of a record: the Kafka protocol binding in binary mode.

ce_specversion  1.0
ce_id           SEQ.PART of the record
ce_source       /millrace/SET-TOPIC/TOPIC: with the id, one record alone, also in a replay and a rebuild
ce_type         io.millrace.insert, …: what the record is
ce_time         the source's commit
ce_subject      database.table in the view; other topics than those of tables have none
content-type    of the value; a tombstone is an event without data, as the binding has it
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np

from millrace.consumer.format.encoded import Encoded
from millrace.consumer.kernel import cloud_events as kernel
from millrace.consumer.kernel.changes import LINE_WIDTH
from millrace.consumer.kernel.compiled import Bytes
from millrace.consumer.records.numbers import Ints
from millrace.consumer.records.rows import Rows
from millrace.consumer.view.changes import Changes
from millrace.schemas.view.format_options import FormatName

TEXTS = ("ce_id", "ce_type", "ce_time", "ce_source", "ce_subject")
WIDTH = 2 * len(TEXTS)  # of ``Attributes.places``
PREFIX = "io.millrace."
TYPES: Mapping[int, str] = {
    kernel.INSERT: "insert",
    kernel.UPDATED: "update",
    kernel.DELETED: "delete",
    kernel.SNAPSHOT: "snapshot",
    kernel.TOMBSTONE: "tombstone",
}
TRANSACTION, HEARTBEAT, SCHEMA_CHANGE = "transaction", "heartbeat", "schema-change"
_NO_CHANGES: Ints = np.empty((0, LINE_WIDTH), np.int64)


@dataclass(frozen=True, slots=True)
class Attributes:
    """``places``: for each record start and end of each of ``TEXTS`` in ``payload``; -1 for none."""

    payload: Bytes
    places: Ints


def constant_headers(name: FormatName) -> tuple[tuple[str, bytes], ...]:
    """Those that are equal in all records of a format."""
    kind = b"application/avro" if name.is_avro else b"application/json"
    return (("ce_specversion", b"1.0"), ("content-type", kind))


def event_source(set_topic: str, topic: str) -> str:
    """A URI reference; names of topics have only characters that it may have."""
    return f"/millrace/{set_topic}/{topic}"


def single_texts(
    source: str, identity: tuple[int, int], type_: str, time_ms: int
) -> tuple[str | None, ...]:
    """The values of ``TEXTS`` for a record that is no row. ``identity``: its seq and part."""
    time = datetime.fromtimestamp(time_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    seq, part = identity
    return (f"{seq}.{part}", PREFIX + type_, f"{time}.{time_ms % 1000:03}Z", source, None)


def attributes(
    encoded: Encoded, rows: Rows, source: str, *, of: tuple[str, Changes] | str
) -> Attributes:
    """Those of all records. ``of``: the table's name in the view and its changes, or the type of other records."""
    subject, changes = ("", _NO_CHANGES) if isinstance(of, str) else (of[0], of[1].lines)
    other = of if isinstance(of, str) else ""
    shared = bytearray()
    types: Ints = np.empty((kernel.TYPES, 2), np.int64)

    def add(text: str) -> tuple[int, int]:
        start = len(shared)
        shared.extend(text.encode())
        return start, len(shared)

    for number in range(kernel.TYPES):
        types[number] = add(PREFIX + TYPES.get(number, other))
    places: Ints = np.empty((len(encoded), WIDTH), np.int64)
    places[:, kernel.WIDTH : kernel.WIDTH + 2] = add(source)
    places[:, kernel.WIDTH + 2 :] = add(subject) if subject else (-1, -1)
    payload = np.empty(len(shared) + kernel.BYTES_MAX * len(encoded), np.uint8)
    payload[: len(shared)] = np.frombuffer(shared, np.uint8)
    end = kernel.put_attributes(
        payload, len(shared), encoded.lines, changes, rows.records, types, places
    )
    return Attributes(payload[:end], places)
