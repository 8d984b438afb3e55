"""The meaning of a schema id at a reader's start comes from earlier records, later records, or the registry."""

from collections.abc import Iterator
from dataclasses import replace
from typing import cast

import pytest

from millrace.consumer.topic.decode import TopicLookUp
from millrace.drivers.kafka.reader import Ends, TopicReader, TopicRecord
from millrace.errors import Fatal
from millrace.schemas.record.avro_schema import AvroSchema, envelope_schema
from millrace.schemas.record.control import RegisteredSchema, SchemaRecord
from millrace.schemas.record.record import encode_control
from millrace.schemas.record.row_layout import parse_row_layout
from tests.kit.capture.topic_rows import SET, TABLE

REGISTRY = envelope_schema(SET, replace(TABLE, table="of_the_registry"))


def a_schema(meaning: str) -> AvroSchema:
    """Return the schema of a table of this name."""
    return envelope_schema(SET, replace(TABLE, table=meaning))


def meaning_of(text: str) -> str:
    """Return the table of a schema."""
    return parse_row_layout(text).table.table


class KeptTopic:
    """A reader of a topic with schema records of id 5 at these offsets; nothing before ``low`` is kept."""

    def __init__(self, explained: dict[int, str], low: int = 0) -> None:
        self.explained, self.low, self.stable = explained, low, 100_000
        self.read_count = self.open_count = 0

    def ends(self) -> Ends:
        return Ends(self.low, self.stable)

    def chunks(self, start: int, stop: int) -> Iterator[list[TopicRecord]]:
        assert self.low <= start <= stop <= self.stable
        for offset in range(start, stop, 16):
            chunk = range(offset, min(offset + 16, stop))
            self.read_count += len(chunk)
            yield [
                TopicRecord(at, None, explanation(meaning))
                for at, meaning in self.explained.items()
                if at in chunk
            ]

    def close(self) -> None:
        self.open_count -= 1

    def look_up(self, at: int, *, asks_registry: bool) -> TopicLookUp:
        """Look up an id for a reader that begins there."""

        def opened() -> TopicReader:
            self.open_count += 1
            return cast(TopicReader, self)

        return TopicLookUp(
            opened, at, registry=(lambda _: REGISTRY.text) if asks_registry else None
        )


def explanation(meaning: str) -> bytes:
    """Return the schema record for id 5."""
    registered = RegisteredSchema("t", 5, a_schema(meaning))
    return encode_control(SchemaRecord(registered, None, "shop", meaning, 0), schema_id=1)


@pytest.mark.parametrize("asks_registry", [False, True])
@pytest.mark.parametrize(
    ("at", "low", "meaning", "read_max"),
    [
        (50_000, 0, "second", 100),  # not far back
        (49_990, 0, "first", 100_000),  # the last one before it, at any distance
        (49_991, 0, "second", 100),  # the one directly before it
        (100_000, 0, "third", 50_000),
        (49_990, 40_000, "second", 11_000),  # retention removed the first
        (99_999, 99_000, "", 1_000),  # and all of them: the registry, if one is named
    ],
)
def test_schema_id_has_its_last_meaning_before_the_reader(
    at: int, low: int, meaning: str, read_max: int, asks_registry: bool
) -> None:
    """If no earlier record is left, the next later one counts; a registry is last, as it may have reused the id."""
    topic = KeptTopic({10: "first", 49_990: "second", 70_000: "third"}, low)
    look_up = topic.look_up(at, asks_registry=asks_registry)
    if meaning or asks_registry:
        for _ in range(2):
            assert meaning_of(look_up(5)) == (meaning or "of_the_registry")
    else:
        with pytest.raises(Fatal, match="MR-6009 schema id 5"):
            look_up(5)
    assert topic.read_count <= 2 * read_max
    assert topic.open_count == 0


def test_searching_for_one_id_changes_no_other_meaning() -> None:
    """The whole topic is searched for an id without a schema record."""
    look_up = KeptTopic({10: "first", 49_990: "second"}).look_up(50_000, asks_registry=False)
    with pytest.raises(Fatal, match="MR-6009 schema id 6"):
        look_up(6)
    assert meaning_of(look_up(5)) == "second"
