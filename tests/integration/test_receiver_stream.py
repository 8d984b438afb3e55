"""A dump stream on a socket pair: invalid packets from a server, and the receiver's reaction."""

import socket
import struct

import pytest

from millrace.errors import Fatal, Fenced, MillraceError, Retryable
from millrace.schemas.place import Coordinates
from tests.fixtures.dump import NAME, Dump, end_of, rotate_to
from tests.kit.binlog.plain_files import BinlogFile, artificial
from tests.kit.relay.relay import read_everything
from tests.kit.waiting import eventually


def test_stream_switches_files_with_and_without_rotate_event(dump: Dump) -> None:
    """With and without a final ROTATE event (a crashed server writes none)."""
    files = [
        BinlogFile().transaction().rotate("mysql-bin.000002"),
        BinlogFile(first_number=2).transaction(),
    ]
    thread = dump.start()
    for number, file in enumerate([*files, BinlogFile(first_number=3)]):
        dump.send(rotate_to(f"mysql-bin.{number + 1:06d}"), *file.events)
    eventually(lambda: len(dump.relay.list_files()) == 3)
    dump.server.close()
    assert end_of(dump, thread).code == "MR-1006"
    for (key, payload), file in zip(
        list(read_everything(dump.relay).items())[:2], files, strict=True
    ):
        assert payload == file.data[4:], key


@pytest.mark.parametrize(
    ("events", "kind", "code"),
    [
        ([rotate_to("mysql-bin.000003")], Retryable, "MR-1041"),
        ([rotate_to("mysql-bin.000002", pos=120)], Retryable, "MR-1041"),
        ([rotate_to(NAME, pos=99)], Retryable, "MR-1041"),
        ([rotate_to("../../etc/passwd.000002")], Fatal, "MR-2010"),
        ([artificial(99, b"")], Fatal, "MR-2008"),
        ([artificial(15, bytes(90) + b"\0")], Fatal, "MR-2009"),
    ],
)
def test_implausible_artificial_events_are_refused(
    dump: Dump, events: list[bytes], kind: type[MillraceError], code: str
) -> None:
    """A file out of order, a wrong position, a name outside the directory, an unknown type, no checksums."""
    thread = dump.start()
    dump.send(rotate_to(NAME), *events)
    error = end_of(dump, thread)
    assert (type(error), error.code) == (kind, code)
    assert not (dump.relay.root.parent.parent / "etc").exists()


def test_unfinished_transaction_at_file_end_is_never_read(dump: Dump) -> None:
    """Its server crashed; the next file starts after the last complete transaction."""
    file = BinlogFile().transaction()
    whole = len(file.data)
    file.gtid()
    file.query("BEGIN")
    following = BinlogFile(first_number=2).transaction()
    thread = dump.start()
    dump.send(rotate_to(NAME), *file.events, rotate_to("mysql-bin.000002"), *following.events)
    eventually(
        lambda: (
            dump.relay.end()
            == Coordinates("server-a.000001", "mysql-bin.000002", len(following.data))
        )
    )
    dump.server.close()
    end_of(dump, thread)
    seen = read_everything(dump.relay)
    assert list(seen.values()) == [file.data[4:whole], following.data[4:]]


def test_resumed_dump_is_compared_before_new_events(dump: Dump) -> None:
    """The same bytes again, then new ones: nothing is stored twice."""
    file = BinlogFile().transaction()
    known = len(file.data)
    thread = dump.start()
    dump.send(rotate_to(NAME), *file.events)
    eventually(lambda: dump.relay.end() == Coordinates("server-a.000001", NAME, known))
    dump.server.close()
    end_of(dump, thread)
    count = len(file.events)
    overlap = file.ends[0]
    file.transaction()
    for events, code in (
        (file.events[2:], "MR-1006"),
        (
            [*file.events[2 : count - 1], BinlogFile().transaction(ending="commit").events[-1]],
            "MR-1041",
        ),
        ([*BinlogFile().transaction(rows_bytes=31).events[2:]], "MR-1041"),
    ):
        server, client = socket.socketpair()
        with server, client:
            again = Dump(dump.relay, server, client)
            thread = again.start(start=overlap)
            again.send(rotate_to(NAME, pos=overlap), *events)
            server.shutdown(socket.SHUT_WR)
            assert end_of(again, thread).code == code, "the stream continued after a difference"
    assert read_everything(dump.relay) == {f"server-a.000001/{NAME}": file.data[4:]}


def test_server_errors_end_the_stream_with_their_code(dump: Dump) -> None:
    """An eviction is a fence."""
    thread = dump.start()
    dump.send(rotate_to(NAME))
    text = (
        b"A replica with the same server_uuid/server_id as this replica has connected to the source"
    )
    dump.send_packet(b"\xff\xd4\x04#HY000" + text)
    error = end_of(dump, thread)
    assert (type(error), error.code) == (Fenced, "MR-1042")


@pytest.mark.parametrize(
    ("number", "text", "kind", "code"),
    [
        (1236, "Could not find first log file name in binary log index", Retryable, "MR-1040"),
        (1236, "log event entry exceeded max_allowed_packet", Fatal, "MR-1044"),
        (1236, "binlog truncated in the middle of event", Fatal, "MR-1043"),
        (1236, "Binary log is not open", Fatal, "MR-1010"),
        (1236, "what a later version may say", Retryable, "MR-1045"),
    ],
)
def test_refusing_server_ends_the_stream_with_its_reason(
    dump: Dump, number: int, text: str, kind: type[MillraceError], code: str
) -> None:
    """An error packet in the middle of a dump, with the server's message."""
    thread = dump.start()
    dump.send(rotate_to(NAME), *BinlogFile().transaction().events)
    dump.send_packet(b"\xff" + struct.pack("<H", number) + b"#HY000" + text.encode())
    error = end_of(dump, thread)
    assert (type(error), error.code) == (kind, code)
    assert text in error.message


def test_silence_is_a_lost_connection(dump: Dump) -> None:
    """No byte for three heartbeat periods."""
    thread = dump.start(silence_s=0.5)
    assert end_of(dump, thread).code == "MR-1046"


def test_packets_out_of_order_are_refused(dump: Dump) -> None:
    """The sequence number shows a lost or repeated packet."""
    thread = dump.start()
    dump.sequence = 7
    dump.send(*BinlogFile().events)
    assert end_of(dump, thread).code == "MR-2005"
