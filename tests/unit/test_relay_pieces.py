"""Large events of relay files are read in pieces: the same bytes, and damage is found before a byte is used."""

import random
from pathlib import Path

import pytest

from millrace.errors import Fatal, Retryable
from millrace.producer.binlog import transactions
from millrace.producer.relay import large_event, recovery
from millrace.producer.relay.reader import RelayReader
from millrace.producer.relay.recovery import WalkResult, walk_file
from millrace.producer.relay.writer import RelayLog
from millrace.schemas.gtid import Flavour
from millrace.schemas.place import Coordinates
from tests.kit.binlog.plain_files import BinlogFile
from tests.kit.relay.compress import compress
from tests.kit.relay.lay import NAME, lay_file, write_file

PIECE = 1000
BYTES_MAX = 500


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces and windows of a few hundred bytes."""
    monkeypatch.setattr(large_event, "PIECE_BYTES", PIECE)
    monkeypatch.setattr(recovery, "WINDOW_BYTES", BYTES_MAX)


def _file(sizes: list[int]) -> BinlogFile:
    """Payloads of these sizes with random bytes, between small transactions."""
    file, chance = BinlogFile().transaction(), random.Random(1)
    for size in sizes:
        file.gtid()
        file.add(40, chance.randbytes(size))
        file.ends.append(len(file.data))
        file.transaction()
    return file


def _payloads(file: BinlogFile) -> list[tuple[int, bytes]]:
    """The offset and the bytes of each payload."""
    found, at = [], 4
    for made in file.events:
        if made[4] == 40:
            found.append((at, made))
        at += len(made)
    return found


def _log(root: Path, file: BinlogFile) -> RelayLog:
    relay = RelayLog.open(root, flavour=Flavour.MYSQL)
    relay.begin_subdir("server-a")
    write_file(relay, NAME, file)
    return relay


SIZES = [PIECE - 23 + n for n in (-3, -1, 0, 1, 2, 3, 4, 5, 99)] + [2 * PIECE - 20, 7 * PIECE]


@pytest.mark.parametrize("is_packed", [False, True])
def test_large_payload_streams_all_its_bytes(tmp_path: Path, *, is_packed: bool) -> None:
    """At every size: the checksum may begin anywhere in the last piece. Plain and compressed files are equal."""
    file = _file(SIZES)
    relay = _log(tmp_path, file)
    if is_packed:
        write_file(relay, "mysql-bin.000002", BinlogFile(first_number=file.number + 1))
        assert len(compress(relay)) == 1
    with RelayReader(relay) as reader:
        at = reader.first()
        assert at is not None
        for pos, event in _payloads(file):
            span = reader.read(at.at(pos), bytes_max=BYTES_MAX, cuts_payloads=True)
            assert bytes(span.payload) == event[:BYTES_MAX]
            stream, found = reader.open_event(at.at(pos)), b""
            while piece := stream.read(77):
                found += piece
            assert found == event[:-4]
            assert reader.open_event(at.at(pos)).read(1 << 30) == event[:-4]
            whole = reader.read(at.at(pos), bytes_max=BYTES_MAX)
            assert bytes(whole.payload) == event
    relay.close()


def test_payload_that_fits_is_not_cut(tmp_path: Path) -> None:
    """Neither are events of other types."""
    file = _file([BYTES_MAX - 23])
    file.transaction(rows_bytes=3 * PIECE)
    relay = _log(tmp_path, file)
    with RelayReader(relay) as reader:
        at, found = reader.first(), []
        assert at is not None
        while span := bytes(reader.read(at, bytes_max=BYTES_MAX, cuts_payloads=True).payload):
            found.append(span)
            at = at.at(at.pos + len(span))
    assert b"".join(found) == file.data[4:]
    relay.close()


@pytest.mark.parametrize("offset", [13, 19, PIECE - 1, PIECE, 2 * PIECE + 7, -5, -4, -1])
def test_damaged_payload_is_refused_before_a_byte_is_returned(tmp_path: Path, offset: int) -> None:
    """Damage at any place of it raises MR-2004 with its coordinates, as for an event held in memory."""
    file = _file([3 * PIECE])
    relay = _log(tmp_path, file)
    ((pos, event),) = _payloads(file)
    at = Coordinates("server-a.000001", NAME, pos)
    _flip(relay.path(at), pos + offset % len(event))
    errors = []
    with RelayReader(relay) as reader:
        for cuts in (False, True):
            with pytest.raises(Fatal) as caught:
                reader.read(at, bytes_max=BYTES_MAX, cuts_payloads=cuts)
            errors.append((caught.value.code, caught.value.message, caught.value.context))
    assert errors[0] == errors[1]
    assert errors[0][0] == "MR-2004"
    relay.close()


def test_damage_after_the_check_stops_before_the_end(tmp_path: Path) -> None:
    """The disk returns other bytes the second time: the last piece, which has the commit, is not returned."""
    file = _file([3 * PIECE])
    relay = _log(tmp_path, file)
    ((pos, _),) = _payloads(file)
    at = Coordinates("server-a.000001", NAME, pos)
    with RelayReader(relay) as reader:
        reader.read(at, bytes_max=BYTES_MAX, cuts_payloads=True)
        _flip(relay.path(at), pos + 100)
        stream = reader.open_event(at)
        assert len(stream.read(3 * PIECE)) == 3 * PIECE
        with pytest.raises(Fatal) as caught:
            stream.read(1)
    assert caught.value.code == "MR-2004"
    relay.close()


def test_file_cut_back_ends_a_stream(tmp_path: Path) -> None:
    """After a failed fsync the file may end inside the event: Retryable MR-2011, no damage."""
    file = _file([3 * PIECE])
    relay = _log(tmp_path, file)
    ((pos, _),) = _payloads(file)
    at = Coordinates("server-a.000001", NAME, pos)
    with RelayReader(relay) as reader:
        stream = reader.open_event(at)
        stream.read(10)
        relay._file.end = pos  # type: ignore[union-attr]
        with relay.path(at).open("r+b") as cut:
            cut.truncate(pos)
        with pytest.raises(Retryable) as caught:
            stream.read(1 << 20)
    assert caught.value.code == "MR-2011"
    relay.close()


def _same(walked: WalkResult | None) -> tuple[int, ...]:
    assert walked is not None
    return (walked.end, walked.last_group_at, walked.status, walked.walked_to, walked.size)


def test_walk_in_pieces_finds_the_same_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Recovery and readers walk files: whole, cut at any large event, and damaged in one."""
    file = _file([3 * PIECE, 2 * PIECE])
    file.transaction(rows_bytes=2 * PIECE)
    first, last = _payloads(file)[0], _payloads(file)[-1]
    cases = [file.data]
    cases += [file.data[: last[0] + n] for n in (18, 19, 700, len(last[1]) - 1, len(last[1]))]
    for offset in (12, 14, 600, len(first[1]) - 1):
        damaged = bytearray(file.data)
        damaged[first[0] + offset] ^= 64
        cases.append(bytes(damaged))
    statuses = set()
    for number, content in enumerate(cases):
        path = lay_file(tmp_path / str(number), content)
        in_pieces = walk_file(path, Flavour.MYSQL)
        with monkeypatch.context() as patch:
            patch.setattr(recovery, "WINDOW_BYTES", 1 << 20)
            at_once = walk_file(path, Flavour.MYSQL)
        assert _same(in_pieces) == _same(at_once)
        assert in_pieces is not None
        assert at_once is not None
        assert in_pieces.position == at_once.position
        statuses.add(in_pieces.status)
    assert statuses == {
        transactions.OK,
        transactions.BAD_CHECKSUM,
        transactions.BAD_POSITION,
    }


def _flip(path: Path, offset: int) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        (byte,) = file.read(1)
        file.seek(offset)
        file.write(bytes([byte ^ 64]))
