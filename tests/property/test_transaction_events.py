"""Debezium's transaction metadata: numbers and records are those of a plain count, wherever batches end."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace.consumer.format.json_format import make_json_format
from millrace.consumer.format.transactions import (
    CountedTransaction,
    TableChanges,
    TransactionFormat,
    make_transaction_format,
    number_events,
)
from millrace.consumer.kernel import walk
from millrace.consumer.records.numbers import RecordNumbers
from millrace.consumer.records.row_schemas import RowSchemas, make_programs
from millrace.consumer.records.rows import walk_values
from millrace.consumer.view.changes import make_changes
from millrace.consumer.view.program import make_view_program, view_of
from millrace.schemas.record.avro_schema import envelope_schema
from millrace.schemas.view.format_options import FormatName, FormatOptions
from tests.kit.apply.tables import integer, table
from tests.kit.apply.topic import COMMIT_MS, SET, UUID, RecordStream
from tests.kit.apply.values import values_of
from tests.kit.format_rows import ALL, FIRST_ID, NAMES, REGISTRY, Sent, read

TABLES = (table("shop", "a", integer("id")), table("shop", "b", integer("id")))
OPTIONS = FormatOptions(FormatName.DEBEZIUM_JSON)

# (table, operation): an insert, an update of the key, a row of a snapshot; -1 ends the source transaction
steps = st.lists(
    st.tuples(st.sampled_from([0, 0, 1, -1]), st.sampled_from("cccur")), min_size=1, max_size=12
)


def _stream(drawn: Sequence[tuple[int, str]]) -> RecordStream:
    stream = RecordStream()
    for made in TABLES:
        stream.introduce(made)
    for at, op in drawn:
        if at < 0:
            stream.commit()
        elif op == "u":
            stream.update(TABLES[at], {"id": 1}, {"id": 2})
        elif op == "c":
            stream.insert(TABLES[at], {"id": 1})
    stream.commit()
    return stream


def _expected(drawn: Sequence[tuple[int, str]]) -> tuple[list[tuple[int, int]], list[Sent]]:
    """The orders of all changes, and the records of the topic."""
    orders, records = [], []
    seq, number, counts, first = 0, 1, [0, 0], True
    pending: list[tuple[int, str]] = [*drawn, (-1, "c")]
    for at, op in pending:
        gtid = f"{UUID}:{number}"
        if at < 0:
            number += 1
            if not first:
                named = [
                    {"data_collection": f"shop.{name}", "event_count": count}
                    for name, count in zip("ab", counts, strict=True)
                    if count
                ]
                end = {
                    "status": "END",
                    "id": gtid,
                    "event_count": sum(counts),
                    "data_collections": named,
                    "ts_ms": COMMIT_MS + seq,
                }
                records.append(Sent(seq, 2, {"id": gtid}, end))
            counts, first = [0, 0], True
        elif op != "r":
            seq += 1
            if first:
                begin = {
                    "status": "BEGIN",
                    "id": gtid,
                    "event_count": None,
                    "data_collections": None,
                    "ts_ms": COMMIT_MS + seq,
                }
                records.append(Sent(seq, 1, {"id": gtid}, begin))
                first = False
            orders.append((sum(counts) + 1, counts[at] + 1))
            counts[at] += 2 if op == "u" else 1
    return orders, records


@settings(deadline=None, max_examples=60)
@given(steps, st.sets(st.integers(1, 11)), st.booleans())
def test_numbers_do_not_depend_on_batches(
    drawn: list[tuple[int, str]], cuts: set[int], in_avro: bool
) -> None:
    """Each batch begins with the state that the one before it left; the records in Avro have the values of JSON's."""
    name = FormatName.DEBEZIUM_AVRO if in_avro else FormatName.DEBEZIUM_JSON
    topic = make_transaction_format(FormatOptions(name), "pre.transaction", REGISTRY.register)
    values = [value for value in _stream(drawn).values if value[5] in (0, 2)]
    texts = {FIRST_ID + at: envelope_schema(SET, made).text for at, made in enumerate(TABLES)}
    programs = make_programs(RowSchemas(texts))
    formats = []
    for layout in programs.layouts:
        view = view_of(ALL, layout)
        assert view is not None
        made = make_json_format(OPTIONS, view, layout, NAMES)
        formats.append((make_view_program(view, layout), made))
    state, orders, records = CountedTransaction(), [], []
    places = [0, *sorted(cut for cut in cuts if cut < len(values)), len(values)]
    for first, end in pairwise(places):
        rows = walk_values(values_of(values[first:end]), programs)
        tables = []
        for slot, (program, made) in enumerate(formats):
            numbers = RecordNumbers(np.flatnonzero(rows.column(walk.SLOT) == slot))
            changes = make_changes(program, rows, numbers)
            tables.append(TableChanges(f"shop.{'ab'[slot]}", made, changes))
        numbered = number_events(rows, tables, state, topic)
        state = numbered.after
        found = [
            (int(line[0]), tuple(map(int, order)))
            for table_, its in zip(tables, numbered.orders, strict=True)
            for line, order in zip(table_.changes.lines, its, strict=True)
        ]
        orders += [order for _, order in sorted(found)]
        records += read(numbered.records)
    assert (orders, records) == _expected(drawn)
    assert state == CountedTransaction()


def test_schemas_of_the_topic_are_debeziums() -> None:
    """The payload is the record without schemas; the state before has its id in the records."""
    values = [value for value in _stream([(0, "c")]).values if value[5] in (0, 2)]
    programs = make_programs(RowSchemas({FIRST_ID: envelope_schema(SET, TABLES[0]).text}))
    rows = walk_values(values_of(values), programs)
    view = view_of(ALL, programs.layouts[0])
    assert view is not None
    program, made = (
        make_view_program(view, programs.layouts[0]),
        make_json_format(OPTIONS, view, programs.layouts[0], NAMES),
    )
    changes = make_changes(program, rows, RecordNumbers(np.arange(1)))
    before = CountedTransaction("0-1-1", (("shop.z", 3),))
    records = {}
    for schemas in (True, False):
        numbered = number_events(
            rows, [TableChanges("shop.a", made, changes)], before, TransactionFormat(schemas)
        )
        records[schemas] = read(numbered.records)
    assert [(record.seq, record.part) for record in records[True]] == [(1, 0), (1, 1), (1, 2)]
    for whole, plain in zip(records[True], records[False], strict=True):
        assert isinstance(whole.key, dict)
        assert isinstance(whole.value, dict)
        assert (whole.key["payload"], whole.value["payload"]) == (plain.key, plain.value)
        names = [whole.key["schema"]["name"], whole.value["schema"]["name"]]
        assert names == [
            f"io.debezium.connector.common.TransactionMetadata{part}" for part in ("Key", "Value")
        ]
        fields = [field["field"] for field in whole.value["schema"]["fields"]]
        assert fields == list(whole.value["payload"])
    end: object = records[False][0].value
    assert isinstance(end, dict)
    assert (end["id"], end["event_count"]) == ("0-1-1", 3)
    assert end["data_collections"] == [{"data_collection": "shop.z", "event_count": 3}]
