"""The relay log without a server: torn tails, readers, names and the lock."""

import struct
import threading
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from millrace.errors import Fatal, Retryable
from millrace.producer.binlog.file_head import read_file_head
from millrace.producer.relay import layout
from millrace.producer.relay.layout import Meta, Subdir
from millrace.producer.relay.reader import RelayReader
from millrace.producer.relay.recovery import recover_file
from millrace.producer.relay.writer import RelayLog
from millrace.schemas.gtid import Flavour, parse_gtid_set
from millrace.schemas.place import Coordinates
from tests.fixtures.sweep import Sweep
from tests.kit.binlog.plain_files import MAGIC, SERVER, BinlogFile, event
from tests.kit.relay.disk import FaultyFiles
from tests.kit.relay.lay import grow_file, lay_file, write_file
from tests.kit.relay.relay import read_everything

NAME = "mysql-bin.000001"


FLAVOURS = [Flavour.MYSQL, Flavour.MARIADB]


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_incident_between_source_transactions_belongs_to_none(
    flavour: Flavour, tmp_path: Path
) -> None:
    """MariaDB's has no GTID: it stays separate, no file is dropped for it, and the reader passes it on (MR-6510)."""
    file = BinlogFile(mariadb=flavour is Flavour.MARIADB)
    for _ in range(2):
        last_group_at = len(file.data)
        file.transaction().add(26, b"\1\0\3sic")
        path = lay_file(tmp_path, file.data)
        walked = recover_file(path, flavour)
        assert walked is not None
        assert (walked.is_whole, walked.end) == (True, len(file.data))
        assert walked.last_group_at == last_group_at
        gtid = f"{SERVER}:1-{file.number}" if flavour is Flavour.MYSQL else f"0-1-{file.number}"
        assert walked.position == parse_gtid_set(flavour, gtid)


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("events", [0, 1])
def test_file_without_its_head_is_skipped_before_a_whole_one(
    flavour: Flavour, events: int, tmp_path: Path
) -> None:
    """A first connection broke in the head of a file; the next began a sub-directory, where the reader begins."""
    whole = BinlogFile(mariadb=flavour is Flavour.MARIADB)
    whole.transaction()
    head = b"".join([b"\xfebin", *whole.events[:events]])
    lay_file(tmp_path, head, subdir="server-a.000001")
    lay_file(tmp_path, whole.data, subdir="server-a.000002")
    relay = RelayLog.open(tmp_path, flavour=flavour)
    with RelayReader(relay) as reader:
        at = reader.first()
    assert at is not None
    assert at.subdir == "server-a.000002"
    assert relay.position_before(at) is not None
    relay.close()


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.guarantee("relay log")
def test_tail_torn_at_any_byte_is_cut(flavour: Flavour, memory_path: Path, sweep: Sweep) -> None:
    """The rest ends with a whole transaction, is a prefix, and has exactly its GTIDs."""
    file = BinlogFile(mariadb=flavour is Flavour.MARIADB)
    for ending in ("xid", "ddl", "xid", "commit"):
        file.transaction(ending=ending)
    for length in sweep(_lengths(file), every=3, kind=partial(_place, file)):
        root = memory_path / str(length)
        path = lay_file(root, file.data[:length])
        relay = RelayLog.open(root, flavour=flavour, disk=FaultyFiles(root))
        end, position = relay.end(), relay.position()
        relay.close()
        assert end is not None
        wanted = max(end for end in file.ends if end <= length)
        assert (end.pos, path.stat().st_size) == (wanted, wanted), "a torn tail remains"
        count = file.ends.index(wanted)
        text = f"{SERVER}:1-{count}" if flavour is Flavour.MYSQL else f"0-1-{count}"
        assert position == parse_gtid_set(flavour, text)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_zeros_from_any_byte_of_the_tail_are_cut(
    flavour: Flavour, memory_path: Path, sweep: Sweep
) -> None:
    """A file system may set the length before the bytes: to the old end, beyond it, or to less than a header."""
    file = BinlogFile(mariadb=flavour is Flavour.MARIADB)
    for ending in ("xid", "ddl", "xid", "commit"):
        file.transaction(ending=ending)
    data = file.data
    for length in sweep(_lengths(file), every=3, kind=partial(_place, file)):
        intact = len(data) - len(data[length:].lstrip(b"\0"))  # the file has zeros as well
        wanted = max(end for end in file.ends if end <= intact)
        rest = len(data) - length
        for zeros in (rest, rest + 4096, 1, 18, 19, 23) if length in file.ends else (rest,):
            root = memory_path / f"{length}-{zeros}"
            path = lay_file(root, data[:length] + bytes(zeros))
            relay = RelayLog.open(root, flavour=flavour, disk=FaultyFiles(root))
            end, position = relay.end(), relay.position()
            relay.close()
            assert end is not None
            assert end.pos == wanted, "zeros remain"
            assert path.read_bytes() == data[:wanted], "zeros remain"
            count = file.ends.index(wanted)
            text = f"{SERVER}:1-{count}" if flavour is Flavour.MYSQL else f"0-1-{count}"
            assert position == parse_gtid_set(flavour, text)


def _lengths(file: BinlogFile) -> range:
    """The lengths that a torn tail may have."""
    return range(file.ends[-3], len(file.data) + 1)


def _place(file: BinlogFile, length: int) -> int:
    """A sweep has each end of a source transaction, and some of the bytes between."""
    return length if length in file.ends else 0


@pytest.mark.parametrize("length", [0, 3, 4, 5, 50, 124])
def test_file_without_a_whole_head_is_removed(length: int, tmp_path: Path) -> None:
    """The file ends with the one before it; an empty sub-directory is removed too."""
    closed = BinlogFile().transaction().rotate("mysql-bin.000002")
    lay_file(tmp_path, closed.data)
    torn = lay_file(tmp_path, BinlogFile(first_number=2).data[:length], name="mysql-bin.000002")
    lay_file(tmp_path, b"", subdir="server-b.000002")
    relay = RelayLog.open(tmp_path, flavour=Flavour.MYSQL)
    assert not torn.exists()
    assert relay.end() == Coordinates("server-a.000001", NAME, len(closed.data))
    assert layout.list_subdirs(tmp_path) == [Subdir("server-a", 1)]
    relay.close()


def test_name_of_a_dropped_sub_directory_is_used_again(tmp_path: Path) -> None:
    """The notes of the dropped one don't count: a reader crosses over to the new one."""
    closed = BinlogFile().transaction().rotate("mysql-bin.000002")
    relay = RelayLog.open(tmp_path, flavour=Flavour.MYSQL)
    relay.begin_subdir("server-a")
    write_file(relay, NAME, closed)
    end = relay.end()
    before = parse_gtid_set(Flavour.MYSQL, f"{SERVER}:1-9")
    dropped = relay.begin_subdir("server-b", before=before, apart="not compared")
    relay.begin_file("mysql-bin.000002")
    relay.drop_subdir(dropped)
    assert relay.end() == end
    again = relay.begin_subdir("server-b")
    assert again == dropped
    write_file(relay, "mysql-bin.000002", BinlogFile(first_number=2).transaction())
    assert relay.notes.before(again) is None
    assert end is not None
    with RelayReader(relay) as reader:
        assert reader.after_file(end) == Coordinates(str(again), "mysql-bin.000002", 4)
    relay.close()


def test_damage_in_the_last_file_is_cut(tmp_path: Path) -> None:
    """A bit is flipped in the middle: everything before its transaction stays."""
    file = BinlogFile().transaction().transaction().transaction()
    damaged = bytearray(file.data)
    damaged[file.ends[1] + 30] ^= 1
    lay_file(tmp_path, bytes(damaged))
    relay = RelayLog.open(tmp_path, flavour=Flavour.MYSQL)
    assert relay.end() == Coordinates("server-a.000001", NAME, file.ends[1])
    relay.close()


def test_damage_in_a_closed_file_stops_its_reader(tmp_path: Path) -> None:
    """The error is Fatal with the place, and no byte of the damaged event is returned."""
    file = BinlogFile().transaction().transaction().rotate("mysql-bin.000002")
    damaged = bytearray(file.data)
    damaged[file.ends[1] + 30] ^= 1
    lay_file(tmp_path, bytes(damaged))
    lay_file(tmp_path, BinlogFile(first_number=3).data, name="mysql-bin.000002")
    relay = RelayLog.open(tmp_path, flavour=Flavour.MYSQL)
    with pytest.raises(Fatal) as caught:
        read_everything(relay)
    assert caught.value.code == "MR-2004"
    relay.close()


def test_reader_sees_only_whole_transactions(tmp_path: Path) -> None:
    """Bytes of an unfinished one are in the file and not in a span; ``wait`` reports more."""
    file = BinlogFile().transaction()
    half = len(file.data)
    file.gtid()
    file.query("BEGIN")
    relay = RelayLog.open(tmp_path, flavour=Flavour.MYSQL)
    relay.begin_subdir("server-a")
    write_file(relay, NAME, file, end=half)
    with RelayReader(relay) as reader:
        at = reader.first()
        assert at is not None
        span = reader.read(at, bytes_max=1 << 20)
        assert bytes(span.payload) == file.data[4:half]
        at = at.at(half)
        assert not reader.wait(at, 0.01)
        assert len(reader.read(at, bytes_max=100).payload) == 0
        written = len(file.data)
        file.add(16, bytes(8))
        grows = threading.Timer(
            0.05, grow_file, (relay, file.data[written:]), {"end": len(file.data)}
        )
        grows.start()
        assert reader.wait(at, 60)
        grows.join()
        assert bytes(reader.read(at, bytes_max=1 << 20).payload) == file.data[half:]
    relay.close()


def test_span_holds_whole_events_and_grows_for_a_giant(tmp_path: Path) -> None:
    """An event is never split, however small the bound is."""
    file = BinlogFile().transaction(rows_bytes=10_000).transaction()
    relay = RelayLog.open(tmp_path, flavour=Flavour.MYSQL)
    relay.begin_subdir("server-a")
    write_file(relay, NAME, file)
    with RelayReader(relay) as reader:
        at, seen = reader.first(), []
        assert at is not None
        while span := bytes(reader.read(at, bytes_max=1).payload):
            seen.append(span)
            at = at.at(at.pos + len(span))
    assert seen == file.events
    relay.close()


def test_readers_cross_files_and_sub_directories_by_number(tmp_path: Path) -> None:
    """mysql-bin.1000000 follows mysql-bin.999999, and seq 10 follows seq 9."""
    relay = RelayLog.open(tmp_path, flavour=Flavour.MYSQL)
    numbers = iter(range(1, 100))
    expected = []
    for seq in range(1, 12):
        server = "server-a" if seq % 2 else "server-b"  # two of one server in a row are not joined
        relay.begin_subdir(server)
        for name in ("mysql-bin.999999", "mysql-bin.1000000") if seq == 10 else (NAME,):
            write_file(relay, name, BinlogFile(first_number=next(numbers)).transaction())
            expected.append(f"{server}.{seq:06d}/{name}")
    assert list(read_everything(relay)) == expected
    relay.close()
    relay = RelayLog.open(tmp_path, flavour=Flavour.MYSQL)
    assert list(read_everything(relay)) == expected
    assert (tmp_path / "server-uuid.index").read_text().split() == list(
        dict.fromkeys(e[:15] for e in expected)
    )
    relay.close()


def test_two_sub_directories_of_one_server_are_not_joined(tmp_path: Path) -> None:
    """The second was begun because the first was in doubt: a start begins there, whatever the GTIDs are."""
    relay = RelayLog.open(tmp_path, flavour=Flavour.MYSQL)
    for number in (1, 2):
        relay.begin_subdir("server-a")
        write_file(relay, NAME, BinlogFile(first_number=number).transaction())
    assert list(read_everything(relay)) == [f"server-a.000002/{NAME}"]
    relay.close()


def test_seek_finds_the_file_of_the_first_wanted_transaction(tmp_path: Path) -> None:
    """Each file records what was executed before it."""
    relay = RelayLog.open(tmp_path, flavour=Flavour.MYSQL)
    relay.begin_subdir("server-a")
    for number, first in enumerate((3, 5, 7), 1):  # transactions 3-4, 5-6, 7-8
        file = BinlogFile(first_number=first).transaction().transaction()
        write_file(relay, f"mysql-bin.{number:06d}", file)
    with RelayReader(relay) as reader:
        for done, found in ((2, 1), (3, 1), (4, 2), (5, 2), (6, 3), (99, 3)):
            at = reader.seek(parse_gtid_set(Flavour.MYSQL, f"{SERVER}:1-{done}"))
            assert at == Coordinates("server-a.000001", f"mysql-bin.{found:06d}", 4)
        assert reader.seek(parse_gtid_set(Flavour.MYSQL, f"{SERVER}:1")) is None
    relay.close()


def test_seek_goes_back_to_a_gtid_reused_by_another_server(tmp_path: Path) -> None:
    """The reuse would go unnoticed after it: that transaction is in the previous file, where it is refused (MR-1033).

    The server before a sub-directory's first file is guessed, so it is no reason there.
    """
    relay = RelayLog.open(tmp_path, flavour=Flavour.MARIADB)
    relay.begin_subdir("server-a")
    for number, first in enumerate((3, 5, 7), 1):  # transactions 3-4, 5-6, 7-8 of server 1
        file = BinlogFile(mariadb=True, first_number=first).transaction().transaction()
        write_file(relay, f"mysql-bin.{number:06d}", file)
    with RelayReader(relay) as reader:
        for done, found in (("0-1-6", 3), ("0-2-6", 2), ("0-2-7", 3), ("0-2-4", 1), ("0-2-2", 1)):
            at = reader.seek(parse_gtid_set(Flavour.MARIADB, done))
            assert at == Coordinates("server-a.000001", f"mysql-bin.{found:06d}", 4), done
    relay.close()


def test_reader_never_crosses_from_a_tail_lost_in_failover(tmp_path: Path) -> None:
    """A failover lost those transactions: a reader of earlier ones gets them from the current server."""
    for missing, is_reached in (("", True), (f"{SERVER}:2", False)):
        root = tmp_path / (missing or "joined")
        relay = RelayLog.open(root, flavour=Flavour.MYSQL)
        relay.begin_subdir("server-a")
        write_file(relay, NAME, BinlogFile().transaction().transaction())
        relay.begin_subdir("server-b", apart=missing)
        write_file(relay, NAME, BinlogFile(first_number=2).transaction())
        for _ in range(2):
            with RelayReader(relay) as reader:
                at = reader.seek(parse_gtid_set(Flavour.MYSQL, f"{SERVER}:1"))
                assert at == Coordinates("server-b.000002", NAME, 4)
                first = reader.first()
                assert first is not None
                assert (first.subdir == "server-a.000001") is is_reached
                earlier = reader.seek(parse_gtid_set(Flavour.MYSQL, ""))
                assert (earlier is not None) is is_reached
            relay.close()
            relay = RelayLog.open(root, flavour=Flavour.MYSQL)  # it knows it too
        relay.close()


def test_reader_waits_until_the_next_sub_directory_is_joined(tmp_path: Path) -> None:
    """A reader at the end of one sub-directory crosses over when the two servers were compared, and not before."""
    relay = RelayLog.open(tmp_path, flavour=Flavour.MYSQL)
    relay.begin_subdir("server-a")
    write_file(relay, NAME, BinlogFile().transaction().transaction())
    with RelayReader(relay) as reader:
        end = relay.end()
        assert end is not None
        reader.release(end)
        subdir = relay.begin_subdir("server-b", apart="not compared")
        write_file(relay, NAME, BinlogFile().transaction().transaction().transaction())
        assert reader.after_file(end) is None
        assert not reader.wait(end, timeout_s=0)
        relay.join(subdir)
        assert reader.wait(end, timeout_s=0)
        assert reader.after_file(end) == Coordinates("server-b.000002", NAME, 4)
    relay.close()
    relay = RelayLog.open(tmp_path, flavour=Flavour.MYSQL)
    with RelayReader(relay) as reader:
        assert reader.after_file(end) == Coordinates("server-b.000002", NAME, 4)
    relay.close()


def test_separate_file_is_always_marked_by_its_sub_directory(tmp_path: Path) -> None:
    """Any operation may fail while the file is begun: no reader enters it from the tail before it."""
    begun = 0
    for fail_at in count():
        disk = FaultyFiles(tmp_path / str(fail_at))
        relay = RelayLog.open(disk.root, flavour=Flavour.MYSQL, disk=disk)
        relay.begin_subdir("server-a")
        write_file(relay, NAME, BinlogFile().transaction().transaction())
        disk.fail_at = len(disk.ops) + fail_at
        with suppress(Retryable):
            relay.begin_subdir("server-b", apart=f"{SERVER}:2")
            write_file(relay, NAME, BinlogFile(first_number=2).transaction())
        has_failed = disk.has_failed
        disk.heal()
        relay.close()
        relay = RelayLog.open(disk.root, flavour=Flavour.MYSQL)
        with RelayReader(relay) as reader:
            is_begun = len(relay.list_files()) == 2
            begun += is_begun
            at = reader.seek(parse_gtid_set(Flavour.MYSQL, ""))
            assert at is None or not is_begun, "it is come to from a lost tail"
        relay.close()
        if not has_failed:
            break
    assert fail_at > 10 > begun > 0, "each operation failed once, and then none"


def test_seek_does_not_cross_a_gap_between_sub_directories(tmp_path: Path) -> None:
    """The older one ends before the newer begins: reading on would skip transactions silently."""
    for newer, is_found in ((3, True), (4, False)):
        root = tmp_path / str(newer)
        lay_file(root, BinlogFile().transaction().transaction().data)
        lay_file(root, BinlogFile(first_number=newer).transaction().data, subdir="server-b.000002")
        relay = RelayLog.open(root, flavour=Flavour.MYSQL)
        with RelayReader(relay) as reader:
            found = reader.seek(parse_gtid_set(Flavour.MYSQL, f"{SERVER}:1"))
            assert (found is not None) is is_found
        relay.close()


def test_second_relay_writer_is_refused(tmp_path: Path) -> None:
    """The lock is on the directory and is free again after close."""
    relay = RelayLog.open(tmp_path, flavour=Flavour.MYSQL)
    with pytest.raises(Retryable) as caught:
        RelayLog.open(tmp_path, flavour=Flavour.MYSQL)
    assert caught.value.code == "MR-2001"
    relay.close()
    RelayLog.open(tmp_path, flavour=Flavour.MYSQL).close()


def test_relay_meta_has_the_format_of_dm(tmp_path: Path) -> None:
    """The text of DM's documentation is parsed, Millrace's text round-trips, and garbage is refused."""
    (tmp_path / "relay.meta").write_text(
        'binlog-name = "mysql-bin.000010"    # name\nbinlog-pos = 63083620\n'
        'binlog-gtid = "c0149e17-dff1-11e8-b6a8-0242ac110004:1-3328"\n'
    )
    read = layout.read_meta(tmp_path)
    assert read == Meta("mysql-bin.000010", 63083620, "c0149e17-dff1-11e8-b6a8-0242ac110004:1-3328")
    layout.write_meta(tmp_path, Meta('a"b.000001', 4, ""), is_durable=True)
    assert layout.read_meta(tmp_path) == Meta('a"b.000001', 4, "")
    (tmp_path / "relay.meta").write_text("binlog-name = ")
    assert layout.read_meta(tmp_path) is None


@pytest.mark.parametrize(
    "name", ["", "..", "../mysql-bin.000001", "a/b.000001", ".x.000001", "mysql-bin", "a.0\n1"]
)
def test_file_name_that_escapes_the_directory_is_refused(name: str) -> None:
    """Names from the server are not trusted."""
    with pytest.raises(Fatal) as caught:
        layout.file_number(name)
    assert caught.value.code == "MR-2010"


def test_file_head_names_the_earlier_transactions() -> None:
    """PREVIOUS_GTIDS without and with tags (bytes of MySQL 9.7), GTID_LIST; None while it is incomplete."""
    file = BinlogFile(first_number=6)
    for length in range(len(file.data)):
        assert read_file_head(file.data[:length], Flavour.MYSQL) is None
    assert str(read_file_head(file.data, Flavour.MYSQL)) == f"{SERVER}:1-5"
    file = BinlogFile(mariadb=True, first_number=6)
    assert str(read_file_head(file.data, Flavour.MARIADB)) == "0-1-5"
    tagged = (
        b"\x01\x01" + bytes(5) + b"\x01" + SERVER.bytes + b"\x08blue" + (1).to_bytes(8, "little")
        + (3).to_bytes(8, "little") + (9).to_bytes(8, "little")
    )  # fmt: skip
    for body in (tagged, tagged[:-1]):
        head = MAGIC + event(35, body, pos=4)
        if body is tagged:
            assert str(read_file_head(head, Flavour.MYSQL)) == f"{SERVER}:blue:3-8"
        else:
            with pytest.raises(Fatal, match="MR-2004"):
                read_file_head(head, Flavour.MYSQL)


def test_file_continues_after_the_newest_gtid_of_a_domain() -> None:
    """In a GTID_LIST with two servers the last is the newest, even if its sequence is smaller (no strict mode)."""
    entries = struct.pack("<IIQIIQ", 0, 1, 9, 0, 2, 7)
    head = MAGIC + event(163, struct.pack("<I", 2) + entries, pos=4)
    assert str(read_file_head(head, Flavour.MARIADB)) == "0-2-7"
