"""The packets that a served relay log sends, from files made event by event; no network."""

import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from millrace.producer.relay import layout
from millrace.producer.relay.durable_end import note_durable
from millrace.producer.relay.layout import Subdir
from millrace.producer.serve.catalogue import Catalogue
from millrace.producer.serve.dump import Dump
from millrace.producer.serve.requests import DumpRequest
from millrace.producer.serve.wire import Refusal, Wire
from millrace.schemas.gtid import Flavour, GtidPosition, GtidSet, MariadbGtidSet
from millrace.schemas.place import Coordinates
from tests.kit.binlog.plain_files import SERVER, BinlogFile, packet
from tests.kit.relay.lay import lay_file

A, B = Subdir("server-a", 1), Subdir("server-b", 2)
FIRST, SECOND = "mysql-bin.000001", "mysql-bin.000002"


class RecordingWire(Wire):
    """A wire whose packets are kept."""

    def __init__(self, on_send: Callable[[], None] = lambda: None) -> None:
        super().__init__(socket.socket())
        self.socket.close()
        self.sequence = 1
        self.sent = b""
        self.on_send = on_send

    def send(self, framed: bytes | bytearray | memoryview) -> None:
        """Keep them."""
        self.sent += bytes(framed)
        self.on_send()

    def payloads(self) -> list[bytes]:
        """The payloads that a client joins from the packets; their sequence has no gap."""
        found, at, sequence, whole = [], 0, 1, b""
        while at < len(self.sent):
            length = int.from_bytes(self.sent[at : at + 3], "little")
            assert self.sent[at + 3] == sequence & 255
            whole += self.sent[at + 4 : at + 4 + length]
            at, sequence = at + 4 + length, sequence + 1
            if length < 0xFFFFFF:
                found.append(whole)
                whole = b""
        return found


def lay(root: Path, subdir: Subdir, *files: BinlogFile) -> None:
    """Files of a sub-directory; the newest is durable."""
    for number, file in enumerate(files, 1):
        name = f"mysql-bin.{number:06d}"
        lay_file(root, file.data, name=name, subdir=str(subdir))
        note_durable(root, Coordinates(str(subdir), name, len(file.data)))


def request(done: GtidPosition | None = None, *, file: str = "", pos: int = 4) -> DumpRequest:
    """A dump that ends at the end of the log."""
    return DumpRequest(
        server_id=0,
        uuid="",
        done=done,
        file=file,
        pos=pos,
        is_endless=False,
        has_annotations=True,
        has_checksum=True,
        heartbeat_s=0.0,
    )


def dumped(root: Path, wanted: DumpRequest) -> list[bytes]:
    """The events of a dump, without the end packet."""
    wire = RecordingWire()
    Dump(wire, Catalogue(root), wanted, server_id=1).run(threading.Event())
    *packets, end = wire.payloads()
    assert end[:1] == b"\xfe"
    return [payload[1:] for payload in packets]


def events_of(found: list[bytes]) -> list[bytes]:
    """Without artificial events."""
    return [event for event in found if not is_artificial(event)]


def is_artificial(event: bytes) -> bool:
    """An artificial ROTATE, or a format description without a place."""
    return event[:4] == bytes(4) or (event[4] == 15 and event[13:17] == bytes(4))


def rotates(found: list[bytes]) -> list[tuple[str, int]]:
    """File and position of the artificial ROTATEs."""
    heads = [event for event in found if event[4] == 4 and event[:4] == bytes(4)]
    return [(event[27:-4].decode(), struct.unpack_from("<Q", event, 19)[0]) for event in heads]


def files_of(mariadb: bool = False) -> tuple[BinlogFile, BinlogFile]:
    """Transactions 1 to 3, and 4 to 5 in the next file."""
    first = BinlogFile(mariadb=mariadb).transaction().transaction().transaction().rotate(SECOND)
    second = BinlogFile(mariadb=mariadb, first_number=4).transaction().transaction()
    return first, second


def test_whole_files_are_sent_as_they_are(tmp_path: Path) -> None:
    """Under names that distinguish the sub-directories."""
    first, second = files_of()
    lay(tmp_path, A, first, second)
    found = dumped(tmp_path, request(file="mysql-bin-000001.000001"))
    assert events_of(found) == first.events + second.events
    assert rotates(found) == [("mysql-bin-000001.000001", 4), ("mysql-bin-000001.000002", 4)]
    assert dumped(tmp_path, request()) == found


@pytest.mark.guarantee("served relay log")
def test_only_the_durable_part_of_the_newest_file_is_sent(tmp_path: Path) -> None:
    """Neither what is not synced, nor a ROTATE whose file is not there, nor a sub-directory that may be dropped."""
    first, second = files_of()
    lay(tmp_path, A, first, second)
    note_durable(tmp_path, Coordinates(str(A), SECOND, second.ends[1]))
    sent = events_of(dumped(tmp_path, request()))
    assert sent == first.events + second.events[: len(second.events) - 5]
    (tmp_path / str(A) / SECOND).unlink()
    note_durable(tmp_path, Coordinates(str(A), FIRST, len(first.data)))
    assert events_of(dumped(tmp_path, request())) == first.events[:-1]
    lay(tmp_path, B, BinlogFile(first_number=2).transaction().transaction().transaction())
    layout.write_diverged(tmp_path / str(B), layout.NOT_COMPARED)
    assert events_of(dumped(tmp_path, request())) == first.events[:-1]


@pytest.mark.parametrize("mariadb", [False, True])
@pytest.mark.parametrize("by_gtid", [False, True])
@pytest.mark.guarantee("served relay log")
def test_switch_of_member_repeats_no_transaction(
    tmp_path: Path, mariadb: bool, by_gtid: bool
) -> None:
    """The next member's file begins with two transactions that were sent already."""
    first, second = files_of(mariadb)
    lay(tmp_path, A, first, second)
    other = BinlogFile(mariadb=mariadb, first_number=4).transaction().transaction().transaction()
    lay(tmp_path, B, other.transaction())
    empty = MariadbGtidSet() if mariadb else GtidSet()
    wanted = request(empty if by_gtid else None)
    found = dumped(tmp_path, wanted)
    begin = next(n for n, event in enumerate(other.events) if event[13:17] == _place(other.ends[2]))
    new = other.events[begin + 1 :]
    assert (
        events_of(found)[: len(first.events) + len(second.events)] == first.events + second.events
    )
    assert found[-len(new) :] == new
    last_before = other.events[1] if by_gtid else second.events[-1]  # its head, or none
    assert events_of(found)[-len(new) - 1] == last_before
    assert rotates(found)[-1][0] == "mysql-bin-000002.000001"
    if not by_gtid:
        assert rotates(found)[-1][1] == other.ends[2]


def _place(end: int) -> bytes:
    return end.to_bytes(4, "little")


def test_interleaved_members_need_a_client_with_gtids(tmp_path: Path) -> None:
    """The next member logged a new transaction before one that was sent already."""
    first, second = files_of()
    lay(tmp_path, A, first, second)
    other = BinlogFile(first_number=4)
    for number in (4, 6, 5):
        other.number = number - 1
        other.transaction()
    lay(tmp_path, B, other)
    with pytest.raises(Refusal, match="only a client with GTIDs"):
        dumped(tmp_path, request())
    found = dumped(tmp_path, request(GtidSet()))
    gtids = [struct.unpack_from("<Q", event, 36)[0] for event in found if event[4] == 33]
    assert gtids == [1, 2, 3, 4, 5, 6]


def test_client_with_positions_waits_for_the_next_members_overlap(tmp_path: Path) -> None:
    """The next sub-directory is joined, but what it repeats is not durable yet."""
    first, second = files_of()
    lay(tmp_path, A, first, second)
    other = BinlogFile(first_number=4).transaction().transaction().transaction()
    lay(tmp_path, B, other)
    note_durable(tmp_path, Coordinates(str(B), FIRST, other.ends[1]))
    found = dumped(tmp_path, request())
    assert events_of(found) == first.events + second.events
    assert rotates(found)[-1][0] == "mysql-bin-000001.000002"


def test_client_is_not_led_into_another_history(tmp_path: Path) -> None:
    """A sub-directory of the same server, or one that is apart: a reset, or a lost tail."""
    first, second = files_of()
    lay(tmp_path, A, first, second)
    again = Subdir(A.server, 2)
    lay(tmp_path, again, BinlogFile().transaction())
    with pytest.raises(Refusal, match="does not continue it"):
        dumped(tmp_path, request(file="mysql-bin-000001.000001"))
    found = dumped(tmp_path, request(GtidSet()))
    assert rotates(found) == [("mysql-bin-000002.000001", 4)], (
        "GTIDs are served from the new history"
    )


@pytest.mark.parametrize(
    ("done", "numbers"),
    [("1-2", [3, 4, 5]), ("1:3:5", [2, 4]), ("1-5", []), ("1-9", []), ("3-4", [1, 2, 5])],
)
def test_transactions_that_a_client_has_are_left_out(
    tmp_path: Path, done: str, numbers: list[int]
) -> None:
    """Exactly those."""
    lay(tmp_path, A, *files_of())
    found = dumped(tmp_path, request(GtidSet.parse(f"{SERVER}:{done}")))
    assert [struct.unpack_from("<Q", event, 36)[0] for event in found if event[4] == 33] == numbers


@pytest.mark.parametrize(("done", "numbers"), [("0-1-2", [3, 4, 5]), ("0-1-5", []), ("0-1-9", [])])
def test_mariadb_client_continues_after_its_position(
    tmp_path: Path, done: str, numbers: list[int]
) -> None:
    """A position that the relay log has not reached yet waits for it."""
    lay(tmp_path, A, *files_of(mariadb=True))
    found = dumped(tmp_path, request(MariadbGtidSet.parse(done)))
    assert [struct.unpack_from("<Q", event, 19)[0] for event in found if event[4] == 162] == numbers


@pytest.mark.parametrize("done", ["0-2-2", "0-2-3", "0-2-4"])
def test_mariadb_client_of_another_history_is_refused(tmp_path: Path, done: str) -> None:
    """The relay log has another server's transaction of that sequence."""
    lay(tmp_path, A, *files_of(mariadb=True))
    with pytest.raises(Refusal, match="not in the master's binlog"):
        dumped(tmp_path, request(MariadbGtidSet.parse(done)))


def test_purged_transactions_are_refused_as_a_server_does(tmp_path: Path) -> None:
    """Error 1236, with the missing GTIDs."""
    first, second = files_of()
    lay(tmp_path, A, first, second)
    (tmp_path / str(A) / FIRST).unlink()
    with pytest.raises(Refusal, match=rf"purged .* '{SERVER}:2-3'") as refused:
        dumped(tmp_path, request(GtidSet.parse(f"{SERVER}:1")))
    assert refused.value.number == 1236
    with pytest.raises(Refusal, match="Could not find first log file"):
        dumped(tmp_path, request(file="mysql-bin-000001.000001"))


def _flip(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def _flip_row(file: BinlogFile) -> bytes:
    return _flip(file.data, file.ends[1] + 150)


def _drop_end(file: BinlogFile) -> bytes:
    return file.data[: file.ends[2]]


@pytest.mark.parametrize("damage", [_flip_row, _drop_end])
@pytest.mark.guarantee("served relay log")
def test_damage_is_never_sent(tmp_path: Path, damage: Callable[[BinlogFile], bytes]) -> None:
    """A flipped bit or a missing end in a closed file ends the dump before it; a later start is served."""
    first, second = files_of()
    lay(tmp_path, A, first, second)
    lay_file(tmp_path, damage(first), name=FIRST, subdir=str(A))
    wire = RecordingWire()
    with pytest.raises(Refusal, match="MR-2004"):
        Dump(wire, Catalogue(tmp_path), request(), server_id=1).run(threading.Event())
    sent = [payload[1:] for payload in wire.payloads()]
    assert all(event in first.events for event in events_of(sent))
    assert events_of(dumped(tmp_path, request(file="mysql-bin-000001.000002"))) == second.events


def test_damage_in_the_newest_file_is_never_sent(tmp_path: Path) -> None:
    """Each event is checked before it is sent."""
    first, second = files_of()
    lay(tmp_path, A, first, second)
    lay_file(tmp_path, _flip_row(second), name=SECOND, subdir=str(A))
    wire = RecordingWire()
    with pytest.raises(Refusal, match="wrong checksum"):
        Dump(wire, Catalogue(tmp_path), request(), server_id=1).run(threading.Event())
    assert set(events_of([p[1:] for p in wire.payloads()])) < {*first.events, *second.events}


@pytest.mark.parametrize("size", [0xFFFFFF - 24, 0xFFFFFF - 23, 0xFFFFFF - 22, 40_000_000])
def test_large_events_are_split_into_packets(tmp_path: Path, size: int) -> None:
    """At and around the length of a packet, and beyond several; the packets equal a server's."""
    file = BinlogFile().transaction(rows_bytes=size).transaction()
    lay(tmp_path, A, file)
    wire = RecordingWire()
    Dump(wire, Catalogue(tmp_path), request(), server_id=1).run(threading.Event())
    assert [p[1:] for p in wire.payloads()[1:-1]] == file.events
    (large,) = [event for event in file.events if len(event) > 1_000_000]
    number = file.events.index(large) + 2  # sequence 1 is the ROTATE
    assert packet(b"\0" + large, number) in wire.sent
    done = GtidSet.parse(f"{SERVER}:1")
    assert large not in dumped(tmp_path, request(done))


def test_tail_of_the_catalogue_is_walked_once(tmp_path: Path) -> None:
    """The position grows with the file."""
    first, second = files_of()
    lay(tmp_path, A, first, second)
    note_durable(tmp_path, Coordinates(str(A), SECOND, second.ends[1]))
    catalogue = Catalogue(tmp_path)
    assert catalogue.flavour is Flavour.MYSQL
    assert str(catalogue.reached().position) == f"{SERVER}:1-4"  # type: ignore[union-attr]
    note_durable(tmp_path, Coordinates(str(A), SECOND, len(second.data)))
    catalogue.refresh()
    assert str(catalogue.reached().position) == f"{SERVER}:1-5"  # type: ignore[union-attr]


def test_file_that_is_purged_meanwhile_is_sent_to_its_end(tmp_path: Path) -> None:
    """The dump holds it open; the next file follows it."""
    first, second = files_of()
    lay(tmp_path, A, first, second)
    catalogue = Catalogue(tmp_path)

    def purge() -> None:
        (tmp_path / str(A) / FIRST).unlink(missing_ok=True)
        catalogue.refresh()

    wire = RecordingWire(purge)
    Dump(wire, catalogue, request(), server_id=1).run(threading.Event())
    sent = [payload[1:] for payload in wire.payloads()[:-1]]
    assert events_of(sent) == first.events + second.events


def test_other_servers_uuid_does_not_hide_transactions(tmp_path: Path) -> None:
    """The same numbers of another uuid are other transactions."""
    lay(tmp_path, A, *files_of())
    other = GtidSet.parse(f"{UUID(int=7)}:1-5")
    found = dumped(tmp_path, replace(request(), done=other))
    assert len([event for event in found if event[4] == 33]) == 5
