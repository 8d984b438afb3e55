"""Payloads that are larger than a window are streamed: the same rows, the same errors, and little memory."""

import random
import tracemalloc
from dataclasses import dataclass

import pytest

from millrace.errors import Fatal
from millrace.producer.binlog.zstd import Source
from millrace.producer.convert import event_sources
from millrace.producer.convert.event_sources import WINDOW_BYTES
from millrace.schemas.place import Coordinates
from millrace.schemas.progress import Progress
from millrace.schemas.record.record import RowRecord
from tests.kit.binlog.builder import BinlogBuilder
from tests.kit.binlog.payload import KIND, STORED, ZSTD, inner_events, zstd_body
from tests.kit.capture.converter import UUID_TEXT, FileReader, convert, mysql_progress

WINDOW = 4096


def _rows(builder: BinlogBuilder, *, count: int = 400, end: bool = True) -> None:
    """Events of a transaction whose values do not compress."""
    chance = random.Random(1)
    builder.query("BEGIN")
    builder.map_shop_table("t", table_id=7)
    for number in range(0, count, 20):
        builder.insert(7, [(number + n, chance.randbytes(39).hex()) for n in range(20)])
    if end:
        builder.xid()


def _xa_rows(builder: BinlogBuilder) -> None:
    builder.query("XA START X'61',X'62',3")
    builder.map_shop_table("t", table_id=7)
    chance = random.Random(2)
    for number in range(0, 200, 20):
        builder.insert(7, [(number + n, chance.randbytes(39).hex()) for n in range(20)])
    builder.query("XA END X'61',X'62',3")
    lengths = (3).to_bytes(4, "little") + (1).to_bytes(4, "little") * 2
    builder.event(38, b"\0" + lengths + b"ab")


def _binlog(*bodies: bytes) -> BinlogBuilder:
    """Payloads, and an uncompressed transaction after them."""
    builder = BinlogBuilder()
    for number, body in enumerate(bodies, 1):
        builder.gtid(number)
        builder.event(KIND, body)
    builder.transaction(len(bodies) + 1, 7, "t", [(-1, "after")])
    return builder


def _streams(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Make windows small, and return the places of the events that are streamed from now on."""
    opened: list[int] = []
    open_event = FileReader.open_event

    def spied(self: FileReader, at: Coordinates) -> Source:
        opened.append(at.pos)
        return open_event(self, at)

    monkeypatch.setattr(FileReader, "open_event", spied)
    monkeypatch.setattr(event_sources, "WINDOW_BYTES", WINDOW)
    return opened


EVENTS = inner_events(_rows)
HALF = len(EVENTS) // 2
BODIES = {
    "one frame": zstd_body(EVENTS),
    "no size in the frame": zstd_body(EVENTS, with_size=False),
    "several frames": zstd_body(EVENTS[:HALF], EVENTS[HALF : HALF + 9], EVENTS[HALF + 9 :]),
    "stored": STORED + EVENTS,
    "long head": b"\x09\xfd\x00\x08\x00" + bytes(2048) + zstd_body(EVENTS),
}


@pytest.mark.parametrize("name", BODIES)
def test_streamed_payload_gives_the_same_rows(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values, coordinates, order and the flag of the last row are those of a payload held in memory."""
    builder = _binlog(BODIES[name], BODIES["one frame"])
    held = convert(builder).rows()
    opened = _streams(monkeypatch)
    streamed = convert(builder).rows()
    assert len(opened) == 2
    assert len(held) == 801
    assert streamed == held


def test_streamed_payload_of_a_known_transaction_is_skipped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is in the published progress: it is not opened, and what follows is converted."""
    opened = _streams(monkeypatch)
    progress: Progress = mysql_progress(f"{UUID_TEXT}:1-2", seq=800)
    rows = convert(_binlog(BODIES["one frame"], BODIES["stored"]), progress=progress).rows()
    assert [row.change.after for row in rows] == [{"id": -1, "v": "after"}]
    assert opened == []


def test_streamed_payload_with_prepared_rows_is_read_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """XA COMMIT writes the rows of a large payload: remembered, or found by a search after a restart."""
    builder = _binlog(BODIES["stored"], zstd_body(inner_events(_xa_rows)), BODIES["one frame"])
    builder.gtid(5)
    builder.query("XA COMMIT X'61',X'62',3")
    held = convert(builder).rows()
    opened = _streams(monkeypatch)
    assert convert(builder).rows() == held
    assert len(held) == 400 + 400 + 1 + 200
    assert len(opened) == 4
    progress = mysql_progress(f"{UUID_TEXT}:1-4", seq=801)
    found: list[RowRecord] = convert(builder, progress=progress).rows()
    assert found == held[801:]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (ZSTD + BODIES["one frame"][4:9000] + b"garbage" * 3000, "MR-6003"),
        (ZSTD + b"garbage" * 3000, "MR-6003"),
        (BODIES["one frame"][:-100], "MR-6003"),
        (zstd_body(EVENTS[:-1]), "MR-6003"),
        (STORED + EVENTS[:-1], "MR-6003"),
        (zstd_body(inner_events(lambda b: _rows(b, end=False))), "MR-6506"),
        (b"\2\1\7\0" + EVENTS, "MR-6502"),
    ],
    ids=[
        "garbage inside",
        "garbage",
        "frame cut",
        "event cut",
        "stored cut",
        "no commit",
        "method",
    ],
)
def test_damage_in_a_streamed_payload_has_the_old_codes(
    body: bytes, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Held or streamed, the error is the same, and the transaction's last row never comes out."""
    held = _failure(body)
    _streams(monkeypatch)
    assert _failure(body) == held
    assert held.code == code


@dataclass(frozen=True, slots=True)
class Failure:
    """An error of the converter."""

    code: str
    message: str
    context: dict[str, object]


def _failure(body: bytes) -> Failure:
    """The error of a payload. Until then no batch has the end of its transaction."""
    batches = convert(_binlog(body)).batches(rows_max=50)
    try:
        for batch in batches:
            assert not str(batch.progress.gtid_set)
    except Fatal as error:
        return Failure(error.code, error.message, dict(error.context))
    raise AssertionError("no error")


@pytest.mark.parametrize("ratio", [1, 100])
def test_memory_does_not_grow_with_a_payload(ratio: int) -> None:
    """40 MiB in an event, or 40 MiB that are inflated from little: a few windows of 4 MiB are held."""
    chance = random.Random(3)

    def build(builder: BinlogBuilder) -> None:
        builder.query("BEGIN")
        builder.map_shop_table("t", table_id=7)
        for _ in range(40):  # of ROWS_QUERY, which has no row
            builder.event(29, chance.randbytes((1 << 20) // ratio) * ratio)
        builder.insert(7, [(1, "a")])
        builder.xid()

    converting = convert(_binlog(zstd_body(inner_events(build))))
    convert(_binlog(BODIES["one frame"])).rows()  # loads the kernels
    tracemalloc.start()
    try:
        assert len(converting.rows()) == 2
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 6 * WINDOW_BYTES
