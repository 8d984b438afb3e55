"""A batch owns its buffer until it is released, and large records leave no large memory."""

import sys
import tracemalloc
from itertools import pairwise

import pytest

from tests.kit.binlog.builder import BinlogBuilder
from tests.kit.capture.converter import Conversion, FileReader, raw_records

MIB = 1 << 20


def conversion(builder: BinlogBuilder) -> Conversion:
    """Return a conversion of one file."""
    return Conversion(FileReader({"mysql-bin.000001": bytes(builder.content)}))


def many(count: int, *, first: int = 1) -> BinlogBuilder:
    """Return transactions of one row, each with a different value."""
    builder = BinlogBuilder()
    for number in range(first, first + count):
        builder.transaction(number, 7, "t", [(number, f"row {number}")])
    return builder


def test_batch_keeps_its_bytes_until_released(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reference counts of the interpreter do not matter: Python 3.14 no longer counts borrowed ones."""
    monkeypatch.setattr(sys, "getrefcount", lambda _: 1)
    kept = [(batch, raw_records(batch)) for batch in conversion(many(60)).batches(rows_max=4)]
    assert len(kept) > 10
    for batch, records in kept:
        assert raw_records(batch) == records


def test_released_buffer_is_reused() -> None:
    """A buffer is reused once, even if it is released several times."""
    buffers = []
    for batch in conversion(many(60)).batches(rows_max=4):
        buffers.append(batch.buffer.ctypes.data)
        batch.release()
        batch.release()
    assert len(set(buffers)) <= 3
    assert all(one != other for one, other in pairwise(buffers))


def test_large_source_transaction_leaves_no_large_buffer() -> None:
    """Memory for one large record is released with its batch."""
    builder = BinlogBuilder()
    builder.gtid(1)
    builder.query("BEGIN")
    builder.query("CREATE TABLE `" + "x" * (4 * MIB) + "` (id int)")
    builder.xid()
    for number in range(2, 20):
        builder.transaction(number, 7, "t", [(number, "small")])
    sizes = []
    for batch in conversion(builder).batches(rows_max=4, bytes_max=1 << 16):
        sizes.append(batch.buffer.size)
        batch.release()
    assert max(sizes) > 4 * MIB
    assert max(sizes[-3:]) < MIB


def test_payload_is_held_in_memory_once() -> None:
    """Memory holds the relay's window and the payload's window, and nothing that grows with either."""
    events_bytes = 24 * MIB
    builder = BinlogBuilder()
    inner = payload_events(bytes(events_bytes))
    builder.gtid(1)
    builder.event(40, b"\2\3\xfc\xff\0\0" + inner)  # method: stored
    converting = conversion(builder)
    del inner
    tracemalloc.start()
    try:
        assert len(converting.rows()) == 1
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2.6 * events_bytes + 8 * MIB


def payload_events(comment: bytes) -> bytes:
    """Return the events of a transaction that begins with a long ROWS_QUERY, without checksums."""
    inner = BinlogBuilder()
    start = len(inner.content)
    inner.query("BEGIN")
    inner.event(29, comment)
    inner.map_shop_table("t", table_id=7)
    inner.insert(7, [(1, "a")])
    inner.xid()
    events, at = bytearray(), start
    while at < len(inner.content):
        size = int.from_bytes(inner.content[at + 9 : at + 13], "little")
        head = inner.content[at : at + size - 4]
        head[9:13] = (size - 4).to_bytes(4, "little")
        events += head
        at += size
    return bytes(events)
