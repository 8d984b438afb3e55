"""Relay log and converter agree on the bounds of source transactions in every stream."""

import struct
from collections.abc import Callable

import numpy as np
import pytest

from millrace.errors import Fatal
from millrace.producer.binlog import transactions
from millrace.producer.binlog.compiled import Words
from millrace.producer.binlog.crc import TABLES
from millrace.producer.binlog.gtid_runs import advance_position, empty_position, new_runs
from millrace.producer.binlog.walk import walk_events
from millrace.schemas.gtid import Flavour, GtidPosition
from tests.kit.binlog.builder import BinlogBuilder
from tests.kit.capture.converter import Conversion, FileReader

Stream = Callable[[BinlogBuilder], object]


def rows(builder: BinlogBuilder) -> None:
    """Return a table map and an INSERT."""
    builder.map_shop_table("t", table_id=7)
    builder.insert(7, [(1, "a")])


def opened(word: str, end: str) -> Stream:
    """Return a transaction with these words around its rows."""

    def write(builder: BinlogBuilder) -> None:
        builder.gtid(1)
        builder.query(word)
        rows(builder)
        builder.query(end)

    return write


def statements(*texts: str) -> Stream:
    """Return a transaction of these statements and a commit."""

    def write(builder: BinlogBuilder) -> None:
        builder.gtid(1)
        for text in texts:
            builder.query(text)
        rows(builder)
        builder.xid()

    return write


def alone(text: str) -> Stream:
    """Return a transaction that is this statement."""

    def write(builder: BinlogBuilder) -> None:
        builder.gtid(1)
        builder.query(text)
        builder.transaction(2, 7, "t", [(1, "a")])

    return write


def prepared(builder: BinlogBuilder) -> None:
    """Return XA in two phases."""
    builder.gtid(1)
    builder.query("XA START X'61',X'',1")
    rows(builder)
    builder.query("XA END X'61',X'',1")
    builder.event(38, struct.pack("<BIII", 0, 1, 1, 0) + b"a")
    builder.gtid(2)
    builder.query("XA COMMIT X'61',X'',1")


def payload(builder: BinlogBuilder) -> None:
    """Return an uncompressed payload with a whole transaction."""
    inner = BinlogBuilder()
    start = len(inner.content)
    inner.query("BEGIN")
    rows(inner)
    inner.xid()
    events, at = b"", start
    while at < len(inner.content):
        size = int.from_bytes(inner.content[at + 9 : at + 13], "little")
        head = bytearray(inner.content[at : at + size - 4])
        head[9:13] = (size - 4).to_bytes(4, "little")
        events += bytes(head)
        at += size
    builder.gtid(1)
    fields = b"\2\3\xfc\xff\0" + b"\1\3\xfc" + len(events).to_bytes(2, "little") + b"\0"
    builder.event(40, fields + events)


def walk(content: bytes) -> tuple[int, int, GtidPosition]:
    """Return what the relay log reads from a file: status, ends of whole transactions, their GTIDs."""
    buffer = np.frombuffer(content, np.uint8).copy()
    state: Words = np.zeros(transactions.SLOTS, np.int64)
    state[transactions.POS] = state[transactions.BOUNDARY] = 4
    runs = new_runs()
    status, _ = walk_events(
        buffer, 4, len(content), state, runs, TABLES, np.zeros(16, np.uint8), False, True
    )
    found = advance_position(
        empty_position(Flavour.MYSQL), runs[: int(state[transactions.RUN_COUNT])]
    )
    return status, int(state[transactions.BOUNDARY]), found


@pytest.mark.parametrize(
    "stream",
    [
        pytest.param(opened("BEGIN", "COMMIT"), id="capitals"),
        pytest.param(opened("begin", "commit"), id="small letters"),
        pytest.param(opened("Begin", "Commit"), id="mixed letters"),
        pytest.param(statements("BEGIN", "SAVEPOINT `a`"), id="savepoint"),
        pytest.param(statements("BEGIN", "CREATE TABLE t (id int) START TRANSACTION"), id="ctas"),
        pytest.param(alone("CREATE TABLE u (id int) -- START TRANSACTION"), id="comment"),
        pytest.param(alone("CREATE PROCEDURE p() START TRANSACTION"), id="procedure"),
        pytest.param(alone("BEGINNING"), id="longer word"),
        pytest.param(prepared, id="xa"),
        pytest.param(payload, id="payload"),
    ],
)
def test_relay_log_and_converter_agree_on_transaction_ends(stream: Stream) -> None:
    """Both read it whole and report the same transactions as complete."""
    builder = BinlogBuilder()
    stream(builder)
    content = bytes(builder.content)
    status, boundary, found = walk(content)
    assert (status, boundary) == (transactions.OK, len(content))
    *_, last = Conversion(FileReader({"mysql-bin.000001": content})).batches()
    assert last.progress.gtid_set == found
    assert last.progress.open is None


@pytest.mark.parametrize(
    "stream",
    [
        pytest.param(lambda b: b.query("DROP TABLE t"), id="statement outside"),
        pytest.param(lambda b: b.query("BEGIN"), id="BEGIN outside"),
        pytest.param(rows, id="rows outside"),
        pytest.param(lambda b: (b.gtid(1), b.xid()), id="commit without BEGIN"),
        pytest.param(statements(), id="rows without BEGIN"),
        pytest.param(statements("CREATE TABLE t (id int) START TRANSACTION"), id="ctas, no BEGIN"),
        pytest.param(lambda b: (b.gtid(1), b.gtid(2)), id="GTID inside"),
    ],
)
def test_relay_log_and_converter_refuse_the_same_streams(stream: Stream) -> None:
    """A stream that is no source transaction to one is none to the other."""
    builder = BinlogBuilder()
    stream(builder)
    content = bytes(builder.content)
    assert walk(content)[0] in (transactions.ROWS_OUTSIDE, transactions.GROUP_NOT_ENDED)
    with pytest.raises(Fatal) as caught:
        list(Conversion(FileReader({"mysql-bin.000001": content})).batches())
    assert caught.value.code == "MR-6506"
