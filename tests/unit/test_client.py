"""The subscriber's helper without a broker: what it decodes, refuses and imports."""

from collections.abc import Callable
from pathlib import Path

import pytest

from millrace.client import (
    Delivered,
    FenceRecord,
    Place,
    RecordStream,
    ResolvedRecord,
    RowRecord,
)
from millrace.errors import Fatal
from millrace.schemas.gtid import Flavour
from millrace.schemas.record.control import RecordKind
from millrace.schemas.record.framing import peek_kind
from millrace.schemas.record.record import KnownSchemas, decode_control
from tests.kit.capture.topic_text import TopicText, whole
from tests.kit.subscriber import run_as_subscriber


def _taken(stream: RecordStream, text: TopicText) -> list[Delivered]:
    """Return every record from the stream's position to the end, without schema records."""
    start = stream.place.offset
    found = [
        stream.take(start + number, key, value)
        for number, (key, value) in enumerate(text.records[start:])
    ]
    return [record for record in found if record is not None]


def _seq(record: Delivered) -> int:
    mark = isinstance(record, ResolvedRecord | FenceRecord)
    return record.progress.seq if mark else record.source.seq  # type: ignore[union-attr]


@pytest.mark.parametrize("flavour", list(Flavour))
def test_subscriber_sees_every_row_decoded_and_in_order(flavour: Flavour) -> None:
    """Rows have column names, with marks between them and without schema records."""
    text = whole(flavour)
    stream = RecordStream(Place(0), from_beginning=True)
    taken = _taken(stream, text)
    rows = [record for record in taken if isinstance(record, RowRecord)]
    assert [row.source.seq for row in rows] == list(range(1, 17))
    images = [row.change.after or row.change.before or {} for row in rows]
    assert {frozenset(image) for image in images} == {frozenset({"id", "state"})}
    assert stream.place == Place(len(text.records), 16)
    assert taken[-1] == stream.resolved
    assert stream.resolved is not None
    assert stream.resolved.progress == text.stream.progress


def _known(text: TopicText) -> KnownSchemas:
    known = KnownSchemas()
    for _, value in text.records:
        if peek_kind(value) is RecordKind.SCHEMA:
            decode_control(value, known)
    return known


def test_subscriber_resumes_at_any_position() -> None:
    """From each position of an earlier run, the rest follows as if the run had never ended."""
    text = whole()
    look_up = _known(text).text
    first = RecordStream(Place(0), from_beginning=True)
    places = [Place(0)]
    for offset, (key, value) in enumerate(text.records):
        first.take(offset, key, value)
        places.append(first.place)
    for place in places:
        stream = RecordStream(place, look_up=look_up)
        numbers = [_seq(r) for r in _taken(stream, text) if isinstance(r, RowRecord)]
        assert numbers == list(range((place.seq or 0) + 1, 17))


def _lost(records: list[tuple[bytes | None, bytes]], at: int) -> None:
    del records[at]


def _repeated(records: list[tuple[bytes | None, bytes]], at: int) -> None:
    records.insert(at, records[at - 1])


def _swapped(records: list[tuple[bytes | None, bytes]], at: int) -> None:
    records[at], records[at + 1] = records[at + 1], records[at]


@pytest.mark.parametrize("harm", [_lost, _repeated, _swapped])
@pytest.mark.parametrize("distance", [0, 1], ids=["first", "later"])
def test_gap_repeat_or_swap_after_a_resume_is_refused(
    harm: Callable[[list[tuple[bytes | None, bytes]], int], None], distance: int
) -> None:
    """The saved `seq` also checks the first record after the position."""
    text = whole()
    look_up = _known(text).text
    first = RecordStream(Place(0), from_beginning=True)
    for offset, (key, value) in enumerate(text.records):
        record = first.take(offset, key, value)
        if isinstance(record, RowRecord) and record.source.seq == 5:
            break
    harm(text.records, first.place.offset + distance)
    with pytest.raises(Fatal) as caught:
        _taken(RecordStream(first.place, look_up=look_up), text)
    assert caught.value.code == "MR-3503"
    assert "seq: seq " in caught.value.message


def test_client_needs_only_confluent_kafka_and_fastavro(tmp_path: Path) -> None:
    """No other distribution is imported, and none could be."""
    code = """
import sys
import millrace.client
ours = {"__main__", "millrace"}
print(*sorted({name.partition(".")[0] for name in sys.modules} - sys.stdlib_module_names - ours))
"""
    done = run_as_subscriber(code, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    others = {name for name in done.stdout.split() if "cython" not in name}
    assert others == {"confluent_kafka", "fastavro"}
