"""The converter delivers prepared XA transactions at their commit."""

import random
import struct
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from millrace.errors import Fatal
from millrace.producer.convert import xa
from millrace.schemas.place import Coordinates
from millrace.schemas.progress import OpenTransaction
from tests.kit.binlog.builder import BinlogBuilder, Row
from tests.kit.capture.converter import (
    SUBDIR,
    UUID_TEXT,
    Conversion,
    FileReader,
    FileSpan,
    convert,
    mysql_progress,
)


def test_xa_commit_without_its_rows_is_refused() -> None:
    """MR-6511 is raised; the transaction is not treated as empty."""
    builder = BinlogBuilder()
    builder.gtid(1)
    builder.query("XA COMMIT X'61',X'',1")
    with pytest.raises(Fatal) as caught:
        convert(builder).records()
    assert caught.value.code == "MR-6511"


def _xa(
    builder: BinlogBuilder,
    number: int,
    *,
    one_phase: bool = False,
    rows: Sequence[Row] = ((1, "a"), (2, "b")),
) -> None:
    builder.gtid(number)
    builder.query("XA START X'61',X'62',3")
    builder.map_shop_table("t", table_id=7)
    builder.insert(7, rows)
    builder.query("XA END X'61',X'62',3")
    body = bytes([one_phase]) + (3).to_bytes(4, "little") + (1).to_bytes(4, "little") * 2 + b"ab"
    builder.event(38, body)


def test_prepared_rows_come_out_at_their_commit() -> None:
    """They have the GTID of the XA COMMIT and follow the transactions committed in between."""
    builder = BinlogBuilder()
    _xa(builder, 1)
    builder.transaction(2, 7, "t", [(3, "c")])
    builder.gtid(3)
    builder.query("XA COMMIT X'61',X'62',3")
    seen = [(r.key, r.transaction.gtid[-1], r.transaction.is_last) for r in convert(builder).rows()]
    assert seen == [({"id": 3}, "2", True), ({"id": 1}, "3", False), ({"id": 2}, "3", True)]
    later = convert(builder, progress=mysql_progress(f"{UUID_TEXT}:1-2", seq=1)).rows()
    assert [r.key for r in later] == [{"id": 1}, {"id": 2}]
    inside = mysql_progress(f"{UUID_TEXT}:1-2", seq=2, opened=OpenTransaction(f"{UUID_TEXT}:3", 1))
    assert [r.key for r in convert(builder, progress=inside).rows()] == [{"id": 2}]


def test_prepare_in_an_earlier_file_is_found() -> None:
    """A converter that starts after it searches the relay log for it."""
    first, second = BinlogBuilder(), BinlogBuilder()
    _xa(first, 1)
    second.gtid(2)
    second.query("XA COMMIT X'61',X'62',3")
    reader = FileReader(
        {"mysql-bin.000001": bytes(first.content), "mysql-bin.000002": bytes(second.content)}
    )
    second_file = Coordinates(SUBDIR, "mysql-bin.000002", 4)
    run = Conversion(reader, progress=mysql_progress(f"{UUID_TEXT}:1", seq=0), at=second_file)
    assert [r.key for r in run.rows()] == [{"id": 1}, {"id": 2}]
    assert {r.source.place.file for r in run.rows()} == {"mysql-bin.000001"}


def test_prepared_transaction_pins_the_relay_log() -> None:
    """The coordinates of a batch stay before it until it is decided."""
    builder = BinlogBuilder()
    _xa(builder, 1)
    pinned = len(BinlogBuilder().content)
    builder.transaction(2, 7, "t", [(3, "c")])
    (batch,) = convert(builder).batches()
    assert pinned < batch.coordinates.pos < len(builder.content) - 300
    builder.gtid(3)
    builder.query("XA COMMIT X'61',X'62',3")
    (batch,) = convert(builder).batches()
    assert batch.coordinates.pos == len(builder.content)


@pytest.mark.parametrize("is_known", [True, False])
def test_file_of_a_prepared_transaction_is_held_until_its_end(
    is_known: bool,
) -> None:
    """Its rows are separate batches, read from an earlier file, even if that file had to be searched for."""
    first, second = BinlogBuilder(), BinlogBuilder()
    _xa(first, 1, rows=[(n, "x" * 70) for n in range(2000)])
    second.gtid(2)
    second.query("XA COMMIT X'61',X'62',3")
    second.transaction(3, 7, "t", [(3, "c")])
    files = {"mysql-bin.000001": bytes(first.content), "mysql-bin.000002": bytes(second.content)}
    run = Conversion(FileReader(files))
    if not is_known:
        at = Coordinates(SUBDIR, "mysql-bin.000002", 4)
        run = replace(run, progress=mysql_progress(f"{UUID_TEXT}:1", seq=0), at=at)
    _schemas, *made = run.batches(rows_max=200, bytes_max=4096)
    *parts, last = [(batch.progress.open is None, batch.coordinates.file) for batch in made]
    assert len(parts) > 3
    assert set(parts) == {(False, "mysql-bin.000001")}
    assert last == (True, "mysql-bin.000002")


def test_searched_file_is_held_until_its_rows_are_published() -> None:
    """Batches made before the search are published after it and report that later files suffice."""
    first, second = BinlogBuilder(), BinlogBuilder()
    _xa(first, 1)
    second.transaction(2, 7, "t", [(3, "c")])
    second.gtid(3)
    second.query("XA COMMIT X'61',X'62',3")
    files = {"mysql-bin.000001": bytes(first.content), "mysql-bin.000002": bytes(second.content)}
    reader = FileReader(files)
    at = Coordinates(SUBDIR, "mysql-bin.000002", 4)
    run = Conversion(reader, progress=mysql_progress(f"{UUID_TEXT}:1", seq=0), at=at)
    batches = list(run.batches(rows_max=1))
    assert [held.file for held in reader.held] == ["mysql-bin.000001"]
    for batch in batches:
        assert reader.held
        batch.release()
    assert reader.held == []


def test_newest_prepare_of_an_xid_needs_no_older_files() -> None:
    """Names are reused: the latest prepare counts, and the search starts at the newest file."""
    contents = {}
    for number, value in enumerate("abc", 1):
        builder = BinlogBuilder()
        _xa(builder, number, rows=[(number, value)])
        contents[f"mysql-bin.00000{number}"] = bytes(builder.content)
    last = BinlogBuilder()
    last.gtid(4)
    last.query("XA COMMIT X'61',X'62',3")
    reader = CountingReader({**contents, "mysql-bin.000004": bytes(last.content)})
    at = Coordinates(SUBDIR, "mysql-bin.000004", 4)
    run = Conversion(reader, progress=mysql_progress(f"{UUID_TEXT}:1-3", seq=0), at=at)
    assert [row.change.after for row in run.rows()] == [{"id": 3, "v": "c"}]
    assert reader.files_read == {"mysql-bin.000003", "mysql-bin.000004"}


class CountingReader(FileReader):
    """A reader that records which files were read."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        super().__init__(files)
        self.files_read: set[str] = set()

    def read(self, at: Coordinates, *, bytes_max: int, cuts_payloads: bool = False) -> FileSpan:
        """Record the file and read."""
        self.files_read.add(at.file)
        return super().read(at, bytes_max=bytes_max, cuts_payloads=cuts_payloads)


def test_rolled_back_prepared_rows_never_come_out() -> None:
    """XA ROLLBACK discards them."""
    builder = BinlogBuilder()
    _xa(builder, 1)
    builder.gtid(2)
    builder.query("XA ROLLBACK X'61',X'62',3")
    assert convert(builder).rows() == []


def test_one_phase_commit_comes_out_at_once() -> None:
    """XA COMMIT … ONE PHASE is logged as a prepare with a flag."""
    builder = BinlogBuilder()
    _xa(builder, 1, one_phase=True)
    assert [r.transaction.is_last for r in convert(builder).rows()] == [False, True]


def _payload(*, filler: int, is_xa: bool = False, names_size: bool = True) -> bytes:
    """Return the body of a TRANSACTION_PAYLOAD event in zstd."""

    def event(kind: int, body: bytes) -> bytes:
        return struct.pack("<IBIIIH", 0, kind, 1, 19 + len(body), 0, 0) + body

    begin = b"XA START X'61',X'62',3" if is_xa else b"BEGIN"
    plain = event(2, bytes(13) + b"\0" + begin) + event(30, random.Random(1).randbytes(filler))
    if is_xa:
        lengths = (3).to_bytes(4, "little") + (1).to_bytes(4, "little") * 2
        plain += event(38, b"\0" + lengths + b"ab")
    data = pa.compress(plain, "zstd", asbytes=True)
    size = b"\3\4\xfd" + len(plain).to_bytes(3, "little") if names_size else b""
    return b"\2\1\0" + size + b"\0" + data


@pytest.mark.parametrize("filler", [10, 400_000])
@pytest.mark.parametrize("names_size", [True, False])
def test_search_inflates_only_the_beginning_of_other_payloads(
    filler: int, names_size: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """XA START is its first event, so a payload that begins otherwise is passed over; the right one is found."""
    read: list[str] = []
    prepared = xa.prepared_xids

    def spied(*given: Any) -> list[str]:
        read.append(str(given[2]))
        return prepared(*given)

    monkeypatch.setattr(xa, "prepared_xids", spied)
    builder = BinlogBuilder()
    for number in range(1, 40):
        builder.gtid(number)
        is_xa = number == 20
        builder.event(40, _payload(filler=filler, is_xa=is_xa, names_size=names_size))
    content = bytes(builder.content)
    reader = FileReader({"mysql-bin.000001": content})
    groups = xa.XaGroups(reader)
    group = groups.find_committed("61.62.3", Coordinates(SUBDIR, "mysql-bin.000001", len(content)))
    assert group is not None
    assert content[group.start.pos + 4] == 40
    assert len({*read}) == 1
    assert groups.find_committed("61.63.3", Coordinates(SUBDIR, "mysql-bin.000001", 200)) is None
