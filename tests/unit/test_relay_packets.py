"""Dump packets become file bytes for any split of the stream, and any corruption is found."""

import re
import struct
import zlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.producer.binlog import packets, transactions
from millrace.producer.binlog.compiled import SOURCES
from millrace.producer.binlog.crc import TABLES, crc32, crc32_tables
from millrace.producer.binlog.gtid_runs import new_runs
from tests.kit.binlog.plain_files import BinlogFile, artificial, event, packet
from tests.kit.examples import examples
from tests.kit.fuzz.relay import TAGGED


class Stripper:
    """The kernel with its arrays, fed in pieces."""

    def __init__(self, *, mariadb: bool = False, start: int = 4, stop_pos: int = -1) -> None:
        self.mariadb = mariadb
        self.stop_pos = stop_pos
        self.state = np.zeros(packets.STATE_SLOTS, np.int64)
        self.state[transactions.POS] = self.state[transactions.BOUNDARY] = start
        self.runs = new_runs()
        self.wire = b""
        self.out = b""

    def feed(self, piece: bytes) -> int:
        """Return the last status; skip artificial events and full runs."""
        self.wire += piece
        while True:
            buffer = (
                np.frombuffer(self.wire, np.uint8).copy() if self.wire else np.zeros(1, np.uint8)
            )
            target = np.zeros_like(buffer)
            status, at, written = packets.strip_packets(
                buffer, 0, len(self.wire), target, self.state, self.runs, TABLES,
                np.zeros(16, np.uint8), self.mariadb, self.stop_pos,
            )  # fmt: skip
            self.out += target[:written].tobytes()
            self.wire = self.wire[at:]
            if status == packets.ARTIFICIAL:
                self.wire = self.wire[4 + int.from_bytes(self.wire[:3], "little") :]
                self.state[packets.PACKET_SEQUENCE] = (
                    self.state[packets.PACKET_SEQUENCE] + 1
                ) & 255
            else:
                return status


def wire_of(file: BinlogFile, *, with_noise: bool = True) -> bytes:
    """Return the dump of a file: an artificial rotate first, heartbeats between the events."""
    payloads = [artificial(4, struct.pack("<Q", 4) + b"mysql-bin.000001")]
    for number, made in enumerate(file.events):
        payloads.append(made)
        if with_noise and number % 3 == 0:
            payloads.append(event(27, b"mysql-bin.000001", pos=len(file.data), timestamp=0))
    wire, sequence = [], 0
    for made in payloads:
        wire.append(packet(b"\0" + made, sequence))
        sequence += 1 + (1 + len(made)) // 0xFFFFFF
    return b"".join(wire)


def sample(*, mariadb: bool) -> BinlogFile:
    """Return every form of source transaction."""
    file = BinlogFile(mariadb=mariadb)
    for ending in ("xid", "ddl", "commit", "xid", *(() if mariadb else ("xa", "payload"))):
        file.transaction(ending=ending, rows_bytes=300)
    return file


@given(st.binary(max_size=2000), st.integers(0, 2000), st.integers(0, 64))
@examples(200, deadline=None)
def test_checksum_matches_zlib_for_any_length_and_split(
    data: bytes, split: int, shift: int
) -> None:
    """The processor's instruction is used or not."""
    buffer = np.frombuffer(bytes(shift) + data + b"\0", np.uint8)
    at, split = buffer.ctypes.data + shift, min(split, len(data))
    folded = np.zeros(16, np.uint8)
    first = crc32(at, split, np.uint32(0), TABLES, folded)
    assert int(crc32(at + split, len(data) - split, first, TABLES, folded)) == zlib.crc32(data)
    assert int(crc32_tables(at, len(data), np.uint32(0), TABLES)) == zlib.crc32(data)


@pytest.mark.parametrize("mariadb", [False, True])
@given(pieces=st.lists(st.integers(1, 400), min_size=1, max_size=30))
@examples(60, deadline=None)
def test_any_split_of_the_stream_gives_the_same_file(mariadb: bool, pieces: list[int]) -> None:
    """Splits inside packet headers, event headers and checksums give the same bytes, boundaries and GTIDs."""
    file = sample(mariadb=mariadb)
    wire, stripper, at = wire_of(file), Stripper(mariadb=mariadb), 0
    for piece in pieces:
        assert stripper.feed(wire[at : at + piece]) == transactions.OK
        at += piece
        pos = int(stripper.state[transactions.POS])
        assert stripper.state[transactions.BOUNDARY] == max(
            [4, *(end for end in boundaries(file) if end <= pos)]
        )
    assert stripper.feed(wire[at:]) == transactions.OK
    assert stripper.out == file.data[4:]
    assert stripper.state[transactions.BOUNDARY] == len(file.data)
    assert stripper.state[transactions.RUN_COUNT] == 1
    assert stripper.runs[0, 6:].tolist() == [1, file.number]


def test_mariadb_incident_repeats_no_gtid() -> None:
    """It has no GTID; a boundary follows it nevertheless."""
    file, stripper = BinlogFile(mariadb=True), Stripper(mariadb=True)
    file.transaction(ending="ddl").add(26, b"\1\0\3sic")
    assert stripper.feed(wire_of(file)) == transactions.OK
    assert stripper.state[transactions.BOUNDARY] == len(file.data)
    assert stripper.state[transactions.LAST_GROUP_AT] == file.ends[-2]
    assert [
        row[6:].tolist() for row in stripper.runs[: stripper.state[transactions.RUN_COUNT]]
    ] == [[1, 1]]


def boundaries(file: BinlogFile) -> list[int]:
    """Return the offsets after whole transactions, and after the file's first event, which is separate."""
    return [4 + len(file.events[0]), *file.ends]


@pytest.mark.parametrize("extra", [-2, -1, 0, 1, 0xFFFFFF - 1, 0xFFFFFF])
def test_events_at_the_packet_limit_are_joined(extra: int) -> None:
    """An empty packet closes a payload of exactly 16 MiB - 1; another byte goes into the next packet."""
    file = BinlogFile()
    file.transaction(rows_bytes=0xFFFFFF - 24 + extra)
    wire, stripper = wire_of(file), Stripper()
    for at in range(0, len(wire), 5_000_003):
        assert stripper.feed(wire[at : at + 5_000_003]) == transactions.OK
    assert stripper.out == file.data[4:]
    assert stripper.wire == b""


@pytest.mark.parametrize(
    ("place", "status"),
    [
        ("packet sequence", packets.BAD_SEQUENCE),
        ("packet length", transactions.BAD_LENGTH),
        ("event size", transactions.BAD_LENGTH),
        ("next_pos", transactions.BAD_POSITION),
        ("body", transactions.BAD_CHECKSUM),
        ("checksum", transactions.BAD_CHECKSUM),
    ],
)
@pytest.mark.parametrize("piece", [7, 1 << 20])
def test_corrupt_byte_in_the_stream_is_detected_before_writing(
    place: str, status: int, piece: int
) -> None:
    """One byte of the fifth packet is changed: no part of that event appears as finished."""
    file = sample(mariadb=False)
    payloads = [b"\0" + made for made in file.events]
    wire = [bytearray(packet(payload, number)) for number, payload in enumerate(payloads)]
    at = {
        "packet sequence": 3,
        "packet length": 0,
        "event size": 14,
        "next_pos": 18,
        "body": 30,
        "checksum": -1,
    }
    wire[4][at[place]] ^= 0x5A if place != "packet length" else 0x01
    stripper = Stripper()
    stream = b"".join(wire)
    pieces = iter([stream[at : at + piece] for at in range(0, len(stream), piece)])
    found = next((found for found in map(stripper.feed, pieces) if found != transactions.OK), None)
    assert found == status, "a lie was taken for the truth"
    assert stripper.state[transactions.POS] == 4 + sum(map(len, file.events[:4]))


def _grouped(*kinds: Any) -> BinlogFile:
    file = BinlogFile()
    for kind in kinds:
        kind(file)
    return file


@pytest.mark.parametrize(
    ("file", "status"),
    [
        (
            _grouped(BinlogFile.gtid, lambda f: f.query("BEGIN"), BinlogFile.gtid),
            transactions.GROUP_NOT_ENDED,
        ),
        (_grouped(lambda f: f.add(30, bytes(30))), transactions.ROWS_OUTSIDE),
        (_grouped(lambda f: f.add(16, bytes(8))), transactions.ROWS_OUTSIDE),
        (_grouped(lambda f: f.query("BEGIN")), transactions.ROWS_OUTSIDE),
        (_grouped(lambda f: f.add(33, bytes(10))), transactions.BAD_BODY),
        (_grouped(lambda f: f.add(42, b"\xff" * 20)), transactions.BAD_BODY),
        (_grouped(lambda f: f.add(42, TAGGED[:-3] + b"\x42" + bytes(33))), transactions.BAD_BODY),
        (_grouped(lambda f: f.add(42, TAGGED[:-3] + b"\xff" * 9)), transactions.BAD_BODY),
        (BinlogFile(checksum_algorithm=0), transactions.NO_CHECKSUM),
    ],
)
def test_unknown_event_is_an_error(file: BinlogFile, status: int) -> None:
    """A boundary is never guessed."""
    assert Stripper().feed(wire_of(file, with_noise=False)) == status


def test_tagged_gtid_is_read() -> None:
    """This is the valid form of the malformed ones above."""
    file = _grouped(lambda f: f.add(42, TAGGED), lambda f: f.query("DROP TABLE t"))
    stripper = Stripper()
    assert stripper.feed(wire_of(file, with_noise=False)) == transactions.OK
    assert stripper.state[transactions.BOUNDARY] == len(file.data)
    assert stripper.runs[0, 2:].tolist() == [int.from_bytes(b"ab", "little"), 0, 0, 0, 5, 5]


def test_reading_stops_at_the_requested_position() -> None:
    """The overlap of a resumed dump ends exactly there; a position inside an event is never reached."""
    file = sample(mariadb=False)
    stripper = Stripper(stop_pos=file.ends[2])
    assert stripper.feed(wire_of(file)) == packets.REACHED
    assert stripper.state[transactions.POS] == file.ends[2]
    stripper = Stripper(stop_pos=file.ends[2] - 1)
    assert stripper.feed(wire_of(file)) == transactions.OK


def test_error_packets_are_passed_to_the_caller() -> None:
    """They may arrive in pieces."""
    stripper = Stripper()
    wire = packet(b"\xff\xd4\x04#HY000Could not find", 0)
    assert stripper.feed(wire[:7]) == transactions.OK
    assert stripper.feed(wire[7:]) == packets.NOT_AN_EVENT


def test_positions_wrap_at_four_gib() -> None:
    """next_pos has 32 bits and the file is larger; the event that ends exactly at 2^32 names 0."""
    for end in (2**32, 2**32 + 17, 2**33):
        body = bytes(50)
        made = event(40, body, pos=end - 23 - len(body))
        stripper = Stripper(start=end - 23 - len(body))
        stripper.state[transactions.GROUP] = transactions.AFTER_GTID
        assert stripper.feed(packet(b"\0" + made, 0)) == transactions.OK
        assert stripper.state[transactions.BOUNDARY] == end


def test_compile_cache_key_covers_every_kernel() -> None:
    """The key covers files with kernels and the product modules that they import: machine code is never stale."""
    folder = SOURCES[0].parent
    kernels = [path for path in folder.glob("*.py") if "@compiled" in path.read_text()]
    wanted = {path.stem for path in kernels}
    for path in kernels:
        wanted |= set(re.findall(r"^from producer\.binlog\.(\w+) import", path.read_text(), re.M))
        for line in re.findall(r"^from producer\.binlog import (\w+)", path.read_text(), re.M):
            wanted.add(line)
    assert wanted <= {path.stem for path in SOURCES}
