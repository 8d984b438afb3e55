"""Records of the formats equal what Python's own libraries make of the values, for rows of every type."""

from collections.abc import Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace.schemas.table.structure import Column, TableSchema
from millrace.schemas.view.format_options import FormatName, FormatOptions, Types, ZeroDates
from tests.kit.apply.tables import integer, table
from tests.kit.apply.topic import COMMIT_MS, SET, UUID, RecordStream
from tests.kit.avro_rows import avro_records, read_avro
from tests.kit.format_cases import CASES, Convert
from tests.kit.format_rows import Sent, sent

Row = Mapping[str, object]

FIELDS = ("before", "after", "source", "transaction", "op", "ts_ms", "ts_us", "ts_ns")

columns = [Column(name, case.type, nullable=True) for name, case in CASES.items()]
TABLE: TableSchema = table("shop", "t", integer("id"), *columns)
rows: "st.SearchStrategy[Row]" = st.fixed_dictionaries(
    {"id": st.integers(0, 3)}
    | {name: st.one_of(st.none(), case.values) for name, case in CASES.items()}
)
changes = st.lists(st.tuples(st.sampled_from("cud"), rows, rows), min_size=1, max_size=4)


def _stream(drawn: list[tuple[str, Row, Row]]) -> RecordStream:
    stream = RecordStream()
    for op, before, after in drawn:
        if op == "c":
            stream.insert(TABLE, after)
        elif op == "u":
            stream.update(TABLE, before, after)
        else:
            stream.delete(TABLE, before)
    return stream


def _shown(row: Row, converts: Mapping[str, Convert]) -> dict[str, object]:
    shown: dict[str, object] = {"id": row["id"]}
    for name, convert in converts.items():
        shown[name] = convert(row[name]) if row[name] is not None else None
    return shown


def _events(
    drawn: list[tuple[str, Row, Row]],
) -> list[tuple[int, int, str, Row | None, Row | None]]:
    """(seq, part, op, before, after) of each record of Debezium; the op of a tombstone is empty."""
    events: list[tuple[int, int, str, Row | None, Row | None]] = []
    for seq, (op, before, after) in enumerate(drawn, 1):
        if op == "u" and before["id"] != after["id"]:
            events += [
                (seq, 0, "d", before, None),
                (seq, 1, "", before, None),
                (seq, 2, "c", None, after),
            ]
        elif op == "d":
            events += [(seq, 0, "d", before, None), (seq, 1, "", before, None)]
        else:
            events.append((seq, 0, op, before if op == "u" else None, after))
    return events


def _source(seq: int) -> dict[str, object]:
    return {
        "version": "0.1.0",
        "connector": "mysql",
        "name": "pre",
        "ts_ms": COMMIT_MS + seq,
        "snapshot": "false",
        "db": "shop",
        "sequence": None,
        "ts_us": (COMMIT_MS + seq) * 1000,
        "ts_ns": (COMMIT_MS + seq) * 1_000_000,
        "table": "t",
        "server_id": 1,
        "gtid": f"{UUID}:1",
        "file": "bin.000001",
        "pos": 4 + seq,
        "row": 0,
        "thread": None,
        "query": None,
    }


def _debezium(drawn: list[tuple[str, Row, Row]], converts: Mapping[str, Convert]) -> list[Sent]:
    records = []
    for seq, part, op, before, after in _events(drawn):
        key = {"id": (after or before or {})["id"]}
        value = {
            "before": _shown(before, converts) if before is not None else None,
            "after": _shown(after, converts) if after is not None else None,
            "source": _source(seq),
            "transaction": None,
            "op": op,
            "ts_ms": COMMIT_MS + seq,
            "ts_us": (COMMIT_MS + seq) * 1000,
            "ts_ns": (COMMIT_MS + seq) * 1_000_000,
        }
        records.append(Sent(seq, part, key, value if op else None))
    return records


@settings(deadline=None, max_examples=40)
@given(changes)
def test_debezium_records_equal_an_independent_conversion(
    drawn: list[tuple[str, Row, Row]],
) -> None:
    """With the default options: images, keys, tombstones, the source and all fields in Debezium's order."""
    converts = {name: case.debezium for name, case in CASES.items()}
    records = sent(FormatOptions(FormatName.DEBEZIUM_JSON), TABLE, _stream(drawn))
    assert records == _debezium(drawn, converts)
    for record in records:
        assert not isinstance(record.value, dict) or list(record.value) == list(FIELDS)


@settings(deadline=None, max_examples=20)
@given(changes)
def test_exact_types_keep_texts_of_the_set_topic(drawn: list[tuple[str, Row, Row]]) -> None:
    """Dates, times, decimals and large numbers are texts."""
    converts = {name: case.exact for name, case in CASES.items()}
    options = FormatOptions(FormatName.DEBEZIUM_JSON, types=Types.EXACT)
    assert sent(options, TABLE, _stream(drawn)) == _debezium(drawn, converts)


@settings(deadline=None, max_examples=20)
@given(changes)
def test_json_records_are_rows_and_tombstones(drawn: list[tuple[str, Row, Row]]) -> None:
    """A delete is a tombstone; a changed key is a tombstone of the old key and the row."""
    converts = {name: case.in_json for name, case in CASES.items()}
    expected = []
    for seq, (op, before, after) in enumerate(drawn, 1):
        if op == "d":
            expected.append(Sent(seq, 0, {"id": before["id"]}, None))
            continue
        moves = op == "u" and before["id"] != after["id"]
        if moves:
            expected.append(Sent(seq, 0, {"id": before["id"]}, None))
        expected.append(Sent(seq, int(moves), {"id": after["id"]}, _shown(after, converts)))
    assert sent(FormatOptions.of(FormatName.JSON), TABLE, _stream(drawn)) == expected


def _with_short_floats(value: object) -> object:
    """As JSON shows them: the shortest digits of a number of 4 bytes. Its columns are ``float`` and ``vector``."""
    if not isinstance(value, dict):
        return value
    shown = {name: _with_short_floats(each) for name, each in value.items()}
    if isinstance(number := shown.get("float"), float):
        shown["float"] = float(str(np.float32(number)))
    if isinstance(numbers := shown.get("vector"), list):
        shown["vector"] = [float(str(np.float32(number))) for number in numbers]
    return shown


@settings(deadline=None, max_examples=40)
@given(changes, st.sampled_from([Types.DEBEZIUM, Types.EXACT]))
def test_avro_reader_finds_the_values_of_debezium_json(
    drawn: list[tuple[str, Row, Row]], types: Types
) -> None:
    """Keys, images, source, times and tombstones; bytes in base64 in both."""
    stream = _stream(drawn)
    options = {
        name: FormatOptions(name, types=types)
        for name in (FormatName.DEBEZIUM_JSON, FormatName.DEBEZIUM_AVRO)
    }
    in_json = sent(options[FormatName.DEBEZIUM_JSON], TABLE, stream)
    records, registry = avro_records(options[FormatName.DEBEZIUM_AVRO], TABLE, stream)
    found = read_avro(records, registry)
    values = [_with_short_floats(each.value) for each in found]
    assert [(each.seq, each.part, each.key) for each in found] == [
        (each.seq, each.part, each.key) for each in in_json
    ]
    assert values == [each.value for each in in_json]
    assert registry.subjects == ["pre.shop.t-value", "pre.shop.t-key"]


def _time_of_day(value: object) -> object:
    """A time of a day; None for another."""
    text = str(value)
    return time.fromisoformat(text) if text[:2].isdigit() and int(text.split(":")[0]) < 24 else None


def _logical(name: str, value: object) -> object:
    if value is None:
        return None
    if name == "date":
        return date.fromisoformat(str(value))
    if name.startswith("time_") or name == "time":
        return _time_of_day(value)
    if name.startswith(("datetime", "timestamp")):
        moment = datetime.fromisoformat(str(value))
        return moment.replace(tzinfo=UTC) if name.startswith("timestamp") else moment
    return _plain(name, value)


def _plain(name: str, value: object) -> object:
    """A value of the set topic that is not a date or a time."""
    if value is None or isinstance(value, Decimal):
        return value
    if name == "bit":
        return value != b"\0"
    return value[::-1] if name == "bits" and isinstance(value, bytes) else value


@settings(deadline=None, max_examples=40)
@given(changes, st.sampled_from([Types.EXACT, Types.LOGICAL]))
def test_own_envelope_has_the_values_of_the_set_topic(
    drawn: list[tuple[str, Row, Row]], types: Types
) -> None:
    """Read with Avro's logical types: texts, decimals, dates and times; the source as the set topic has it."""
    shown = _plain if types is Types.EXACT else _logical
    options = FormatOptions(FormatName.AVRO, types=types, zero_dates=ZeroDates.NULL)
    records, registry = avro_records(options, TABLE, _stream(drawn))

    def image(row: Row | None) -> object:
        return {name: shown(name, value) for name, value in row.items()} if row else None

    expected = []
    for seq, part, op, before, after in _events(drawn):
        source = {
            "version": "0.1.0",
            "connector": "mysql",
            "name": "capture",
            "snapshot": "false",
            "db": "shop",
            "table": "t",
            "set": SET,
            "ts_ms": COMMIT_MS,
            "server_id": 1,
            "gtid": f"{UUID}:1",
            "file": "bin.000001",
            "pos": 4 + seq,
            "row": 0,
            "event_flags": 0,
            "seq": seq,
        }
        value = {
            "before": image(before),
            "after": image(after),
            "source": source,
            "op": op,
            "ts_ms": COMMIT_MS + seq,
            "transaction": {"id": f"{UUID}:1", "total_order": 1, "last": False},
        }
        key = {"id": (after or before or {})["id"]}
        expected.append(Sent(seq, part, key, value if op else None))
    assert read_avro(records, registry, logical=True) == expected
