"""Java's Avro, which most subscribers use, reads records of every type, and prints schemas as they are registered."""

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace.schemas.record.framing import unframe
from millrace.schemas.table.structure import Column
from millrace.schemas.view.format_options import (
    FormatName,
    FormatOptions,
    TimeMode,
    Types,
    ZeroDates,
)
from tests.kit.apply.tables import integer, table
from tests.kit.apply.topic import RecordStream
from tests.kit.avro_java import JavaAvro, java_avro
from tests.kit.avro_rows import avro_records
from tests.kit.format_cases import CASES

TABLE = table(
    "shop", "t", integer("id"), *(Column(name, case.type, True) for name, case in CASES.items())
)
OPTIONS = (
    FormatOptions.of(FormatName.DEBEZIUM_AVRO),
    FormatOptions(FormatName.DEBEZIUM_AVRO, time=TimeMode.CONNECT),
    FormatOptions.of(FormatName.AVRO),
    FormatOptions(FormatName.AVRO, types=Types.LOGICAL, zero_dates=ZeroDates.NULL),
)
ROWS = st.fixed_dictionaries(
    {"id": st.integers(0, 3)}
    | {name: st.one_of(st.none(), case.values) for name, case in CASES.items()}
)


@pytest.fixture(scope="module")
def java() -> Iterator[JavaAvro]:
    """One JVM for the module."""
    with java_avro() as reader:
        yield reader


@settings(deadline=None, max_examples=15)
@given(st.lists(st.tuples(ROWS, ROWS), min_size=1, max_size=3), st.sampled_from(OPTIONS))
def test_java_reads_and_writes_the_same_bytes(
    java: JavaAvro,
    drawn: list[tuple[dict[str, object], dict[str, object]]],
    options: FormatOptions,
) -> None:
    """So no byte is read in another sense. The text of a schema is the one that Java's own printer has."""
    stream = RecordStream()
    for before, after in drawn:
        stream.insert(TABLE, before)
        stream.update(TABLE, before, after)
        stream.delete(TABLE, after)
    records, registry = avro_records(options, TABLE, stream)
    for number in range(len(records)):
        for octets in (records.key(number), records.value(number)):
            if octets is not None:
                schema_id, body = unframe(octets)
                assert java.written_again(registry.texts[schema_id], body) == body
    for text in registry.texts.values():
        assert java.schema_text(text) == text
