"""Records of the formats equal what Python's own libraries make of the values, for rows of every type."""

from collections.abc import Mapping

from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.table.structure import Column, TableSchema
from schemas.view.format_options import FormatName, FormatOptions, Types
from tests.kit.apply.tables import integer, table
from tests.kit.apply.topic import COMMIT_MS, UUID, RecordStream
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
