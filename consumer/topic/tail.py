"""A record as a line of text for people, or as one JSON object for programs.

    17 u shop.orders id=5 gtid=0-1-23#2 seq=9  state: new → paid
    offset, op, table, key columns, GTID and row number in it, seq; then the changes of an update, or the row

JSON has the fields of the record on the wire. Values that JSON cannot represent are converted: DECIMAL and 64-bit
unsigned to text (all digits), bytes to ``{"base64": "…"}``, a NaN or infinite float to text.
"""

import base64
import math
from collections.abc import Collection, Mapping
from decimal import Decimal

from millrace.schemas.record.control import (
    DdlRecord,
    FenceRecord,
    RecordSource,
    RecordTransaction,
    ResolvedRecord,
    SchemaRecord,
    SnapshotRecord,
)
from millrace.schemas.record.control_fields import source_to_plain, to_plain, transaction_to_plain
from millrace.schemas.record.record import Image, Record, RowRecord

_SHOWN_CHARACTERS_MAX = 60


def line(offset: int, record: Record) -> str:
    """One line of printable text; line ends and terminal control characters are escaped."""
    return printable(f"{offset} {_text(record)}".replace("\n", " "))


def printable(text: str) -> str:
    """The text with line ends and terminal control characters escaped."""
    return text if text.isprintable() else "".join(map(_printable, text))


def _printable(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode()


def _text(record: Record) -> str:
    match record:
        case RowRecord():
            source = record.source
            key = record.key if record.key is not None else {}
            shown_key = "".join(f" {name}={shown_value(value)}" for name, value in key.items())
            head = f"{record.change.op} {source.database}.{source.table}{shown_key}"
            return f"{head} {_place(source, record.transaction)}  {shown_change(record)}"
        case DdlRecord():
            return f"ddl {_place(record.source, record.transaction)}  {shown_value(record.statement.sql)}"
        case SchemaRecord():
            return f"schema {record.value.id} {record.value.subject}"
        case FenceRecord():
            return f"fence epoch={record.epoch} worker={record.worker} {_progress(record)}"
        case ResolvedRecord():
            return f"resolved epoch={record.epoch} {_progress(record)}"
        case SnapshotRecord(step, table, gtid_set, rows, seq):
            where = f" where={table.where}" if table.where else ""
            name = f"{table.database}.{table.table}"
            return f"snapshot {table.id} {step} {name}{where} rows={rows} seq={seq} gtid_set={gtid_set}"


def _place(source: RecordSource, transaction: RecordTransaction) -> str:
    end = "." if transaction.is_last else ""
    return f"gtid={transaction.gtid}#{transaction.total_order}{end} seq={source.seq}"


def _progress(record: ResolvedRecord | FenceRecord) -> str:
    progress = record.progress
    opened = f" open={progress.open.gtid}#{progress.open.rows}" if progress.open else ""
    state = progress.snapshot
    snapshot = f" snapshot={state.id}" if state else ""
    if state is not None and state.at is not None:
        snapshot += f":{'.'.join(state.at.name)}#{state.at.chunks}"
    return f"seq={progress.seq}{opened}{snapshot} gtid_set={progress.gtid_set}"


def shown_change(record: RowRecord, without: Collection[str] = ()) -> str:
    """The changes of an update; of another row its columns, ``without`` these."""
    before, after = record.change.before, record.change.after
    if before is not None and after is not None:
        return ", ".join(
            f"{name}: {shown_value(before[name])} → {shown_value(value)}"
            for name, value in after.items()
            if before[name] != value
        )
    image: Image = after if after is not None else before if before is not None else {}
    return ", ".join(
        f"{name}: {shown_value(value)}" for name, value in image.items() if name not in without
    )


def shown_value(value: object) -> str:
    """A column's value as short text."""
    match value:
        case None:
            text = "NULL"
        case bytes():
            text = "0x" + value.hex()
        case _:
            text = str(value)
    return text if len(text) <= _SHOWN_CHARACTERS_MAX else text[: _SHOWN_CHARACTERS_MAX - 1] + "…"


def as_json(offset: int, timestamp_ms: int, record: Record) -> dict[str, object]:
    """The complete record with its place in the topic, as values for ``json.dumps``."""
    return {"offset": offset, "timestamp_ms": timestamp_ms} | plain_record(record)


def plain_record(record: Record) -> dict[str, object]:
    """The complete record as values for ``json.dumps``."""
    if not isinstance(record, RowRecord):
        return _plain_fields(to_plain(record))
    return _plain_fields(
        {
            "key": record.key,
            "before": record.change.before,
            "after": record.change.after,
            "source": source_to_plain(record.source),
            "op": record.change.op,
            "ts_ms": record.ts_ms,
            "transaction": transaction_to_plain(record.transaction),
        }
    )


def _plain_fields(fields: Mapping[str, object]) -> dict[str, object]:
    return {name: _plain(value) for name, value in fields.items()}


def _plain(value: object) -> object:
    match value:
        case Decimal():
            return str(value)
        case bytes():
            return {"base64": base64.b64encode(value).decode()}
        case float() if not math.isfinite(value):
            return str(value)
        case Mapping():
            return {str(name): _plain(inner) for name, inner in value.items()}
        case list() | tuple():
            return [_plain(inner) for inner in value]
        case _:
            return value
