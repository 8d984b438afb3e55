"""Damage in a relay log is found by checksums and missing parts, and never skipped."""

import ast
from collections.abc import Callable
from pathlib import Path

import pytest

from millrace.errors import Fatal, MillraceError, Retryable
from millrace.producer.relay import files as seam
from millrace.producer.relay import layout
from millrace.producer.relay.control import REQUEST_NAME, PurgeRequest, find_file, request_purge
from millrace.producer.relay.durable_end import SyncPolicy, SyncThread
from millrace.producer.relay.layout import Meta
from millrace.producer.relay.purge import purge_before
from millrace.producer.relay.reader import RelayReader
from millrace.producer.relay.writer import RelayLog
from millrace.schemas.gtid import Flavour, parse_gtid_set
from millrace.schemas.place import Coordinates
from tests.fixtures.sweep import Sweep
from tests.kit.binlog.plain_files import SERVER
from tests.kit.faults.starved import no_thread_left
from tests.kit.relay.disk import Fault, FaultyFiles
from tests.kit.relay.lay import grow_file
from tests.kit.relay.relay import read_everything
from tests.kit.relay.writer import NAMES, Writer, three_files, whole_ends
from tests.kit.waiting import eventually

FLAVOURS = [Flavour.MYSQL, Flavour.MARIADB]
FILES = {flavour: three_files(mariadb=flavour is Flavour.MARIADB) for flavour in FLAVOURS}
SUBDIR = "server-a.000001"


def lay(root: Path, files: dict[str, bytes]) -> Path:
    """Write the files of one sub-directory, without index and relay.meta; return its folder."""
    (root / SUBDIR).mkdir(parents=True)
    for name, content in files.items():
        (root / SUBDIR / name).write_bytes(content)
    return root / SUBDIR


def open_log(root: Path, flavour: Flavour = Flavour.MYSQL) -> RelayLog:
    """Open a relay log on a disk whose fsync is free."""
    return RelayLog.open(root, flavour=flavour, disk=FaultyFiles(root))


def error_of_reading(root: Path, flavour: Flavour) -> MillraceError | None:
    """Return the error that ends a reader of everything."""
    relay = open_log(root, flavour)
    try:
        read_everything(relay)
    except MillraceError as error:
        return error
    finally:
        relay.close()
    return None


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.guarantee("relay log")
def test_flipped_bit_in_a_closed_file_stops_its_reader(
    flavour: Flavour, memory_path: Path, sweep: Sweep
) -> None:
    """Head, header, body, checksum: Fatal MR-2004, and no transaction after it is skipped."""
    files = FILES[flavour]
    for at in sweep(range(len(files[NAMES[0]])), every=4):
        damaged = bytearray(files[NAMES[0]])
        damaged[at] ^= 1 << at % 8
        root = memory_path / str(at)
        lay(root, {**files, NAMES[0]: bytes(damaged)})
        error = error_of_reading(root, flavour)
        assert isinstance(error, Fatal), f"byte {at} was changed unnoticed"
        assert error.code == "MR-2004", at


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_flipped_bit_in_the_newest_file_is_cut_and_rewritten(
    flavour: Flavour, memory_path: Path, sweep: Sweep
) -> None:
    """Everything before its transaction stays; the relay log continues to the same bytes."""
    files = dict(list(FILES[flavour].items())[:2])
    name, content = list(files.items())[-1]
    ends = whole_ends(content, mariadb=flavour is Flavour.MARIADB)
    before, after_head = len(files[NAMES[0]]), ends[2]  # after FORMAT_DESCRIPTION, PREVIOUS_GTIDS
    for at in sweep(range(0, len(content), 3), every=3):
        damaged = bytearray(content)
        damaged[at] ^= 1 << at % 8
        root = memory_path / str(at)
        lay(root, {**files, name: bytes(damaged)})
        relay = open_log(root, flavour)
        wanted = max(end for end in ends if end <= at) if at >= after_head else None
        found = relay.end()
        assert found is not None
        expected = (NAMES[0], before) if wanted is None else (name, wanted)
        relay.close()
        assert (found.file, found.pos) == expected, f"byte {at} was changed and not cut off"
        disk = FaultyFiles(root)
        Writer(root, files, disk, mariadb=flavour is Flavour.MARIADB, is_split=False).run()
        assert (root / SUBDIR / name).read_bytes() == content, at


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_zeros_or_truncation_in_a_closed_file_stop_its_reader(
    flavour: Flavour, memory_path: Path
) -> None:
    """A cut between two events or two source transactions is found too, although the file looks whole."""
    files = FILES[flavour]
    content = files[NAMES[0]]
    ends = whole_ends(content, mariadb=flavour is Flavour.MARIADB)
    damages = {f"cut {at}": content[:at] for at in range(0, ends[-2], 7)}
    damages |= {f"cut {at}": content[:at] for at in ends[:-2]}
    damages |= {
        f"zeros {at}": content[:at] + bytes(min(64, len(content) - at)) + content[at + 64 :]
        for at in range(0, len(content), 31)
    }
    for what, damaged in damages.items():
        root = memory_path / what
        lay(root, {**files, NAMES[0]: damaged})
        error = error_of_reading(root, flavour)
        assert isinstance(error, Fatal), what
        assert error.code == "MR-2004", what


def test_damage_during_reading_stops_the_reader(tmp_path: Path) -> None:
    """Each reader also checks the file that is being written."""
    root = tmp_path / "relay"
    Writer(root, FILES[Flavour.MYSQL], is_split=False).run()
    relay = open_log(root)
    end = relay.end()
    assert end is not None
    path = relay.path(end)
    damaged = bytearray(path.read_bytes())
    damaged[-30] ^= 4
    path.write_bytes(bytes(damaged))
    with pytest.raises(Fatal) as caught:
        read_everything(relay)
    assert caught.value.code == "MR-2004"
    path.write_bytes(bytes(damaged[:-30]))
    with pytest.raises(Fatal) as caught:
        read_everything(relay)
    assert caught.value.code == "MR-2004"
    relay.close()


def test_missing_file_in_the_middle_is_not_skipped(tmp_path: Path) -> None:
    """No reader starts before it; a reader there must come again, which fetches the file."""
    lay(tmp_path, {name: FILES[Flavour.MYSQL][name] for name in (NAMES[0], NAMES[2])})
    relay = open_log(tmp_path)
    with RelayReader(relay) as reader:
        begin = reader.first()
        assert begin == Coordinates(SUBDIR, NAMES[2], 4), "a reader began before a missing file"
        assert reader.seek(parse_gtid_set(Flavour.MYSQL, f"{SERVER}:1")) is None
        assert reader.seek(parse_gtid_set(Flavour.MYSQL, f"{SERVER}:1-3")) is None
        end = len(FILES[Flavour.MYSQL][NAMES[0]])
        with pytest.raises(Retryable) as caught:
            reader.after_file(Coordinates(SUBDIR, NAMES[0], end))
    assert caught.value.code == "MR-2011"
    relay.close()


def test_file_deleted_under_a_reader_is_reported(tmp_path: Path) -> None:
    """Any request raises a product error, not the system's."""
    lay(tmp_path, FILES[Flavour.MYSQL])
    relay = open_log(tmp_path)
    (tmp_path / SUBDIR / NAMES[1]).unlink()
    questions: list[Callable[[RelayReader], object]] = [
        lambda reader: reader.seek(parse_gtid_set(Flavour.MYSQL, f"{SERVER}:1")),
        lambda reader: reader.read(Coordinates(SUBDIR, NAMES[1], 4), bytes_max=100),
        lambda reader: reader.wait(Coordinates(SUBDIR, NAMES[1], 4), 0.0),
        lambda _reader: read_everything(relay),
    ]
    for ask in questions:
        with RelayReader(relay) as reader, pytest.raises(Retryable) as caught:
            ask(reader)
        assert caught.value.code == "MR-2011"
    relay.close()


@pytest.mark.parametrize(
    "text",
    [
        None,
        b"",
        b"binlog-name = ",
        b"\xff\xfe",
        bytes(100),
        b'binlog-name = "mysql-bin.000003"\nbinlog-pos = 99999\nbinlog-gtid = "x:1-99"\n',
        b'binlog-name = "mysql-bin.000009"\nbinlog-pos = 4\nbinlog-gtid = ""\n',
        b'binlog-name = "mysql-bin.000001"\nbinlog-pos = 4\nbinlog-gtid = ""\n',
        b"binlog-name = 1\nbinlog-pos = []\nbinlog-gtid = {}\n",
    ],
)
def test_missing_or_wrong_meta_and_index_are_repaired(text: bytes | None, tmp_path: Path) -> None:
    """Only the files decide where the relay log ends."""
    files = FILES[Flavour.MYSQL]
    folder = lay(tmp_path, files)
    if text is not None:
        (folder / layout.META_NAME).write_bytes(text)
        (tmp_path / layout.INDEX_NAME).write_bytes(text or b"server-z.000009\n")
    relay = open_log(tmp_path)
    end = Coordinates(SUBDIR, NAMES[2], len(files[NAMES[2]]))
    assert relay.end() == end
    assert layout.read_meta(folder) == Meta(end.file, end.pos, f"{SERVER}:1-6")
    assert layout.read_index(tmp_path) == f"{SUBDIR}\n"
    assert [content[4:] for content in files.values()] == list(read_everything(relay).values())
    relay.close()


def test_foreign_files_in_the_relay_folder_are_left_alone(tmp_path: Path) -> None:
    """Users' files, partial files of Millrace, and folders named like files are ignored and not in the way."""
    folder = lay(tmp_path, FILES[Flavour.MYSQL])
    foreign = [folder / "notes.txt", folder / "mysql-bin.000002.bak", tmp_path / "server-b.000002"]
    for path in foreign:
        path.write_text("mine")
    (folder / "mysql-bin.000009").mkdir()
    (folder / "relay.meta.new").write_text("half")
    (tmp_path / "server-b.000007").mkdir()
    (tmp_path / "server-b.000007" / "relay.meta.new").write_text("half")
    (tmp_path / "server-b.000008").mkdir()
    (tmp_path / "server-b.000008" / "notes.txt").write_text("mine")
    relay = open_log(tmp_path)
    end = relay.end()
    assert end is not None
    assert end.file == NAMES[2]
    assert not (tmp_path / "server-b.000007").exists()
    assert relay.begin_subdir("server-b").seq == 9
    relay.begin_file(NAMES[0])
    purged = purge_before(relay, Coordinates("server-b.000009", NAMES[0], 4), needed={})
    relay.close()
    assert all(path.exists() for path in foreign), "what is not ours was purged"
    assert [path.read_text() for path in foreign] == ["mine"] * 3
    assert len(purged) == 3
    open_log(tmp_path).close()


def test_unreadable_disk_is_reported(memory_path: Path) -> None:
    """Each operation of a reader fails once: Retryable, the next reader continues, and data already read stays valid.

    The last operation closes a file: its failure is ignored, and nothing stays held or open.
    """
    lay(memory_path, FILES[Flavour.MYSQL])
    disk = FaultyFiles(memory_path)
    relay = RelayLog.open(memory_path, flavour=Flavour.MYSQL, disk=disk)
    begin = len(disk.ops)
    whole = read_everything(relay)
    count = len(disk.ops) - begin
    for number in range(count):
        relay.close()
        disk.heal()
        relay = RelayLog.open(memory_path, flavour=Flavour.MYSQL, disk=disk)
        disk.fail_at = len(disk.ops) + number
        if number == count - 1:
            assert read_everything(relay) == whole
            assert disk.ops[-1].name == "close failed"
            assert relay.held() == relay.end()
            continue
        with pytest.raises(Retryable) as caught:
            read_everything(relay)
        assert caught.value.code == "MR-2002", number
        assert read_everything(relay) == whole
    relay.close()
    assert not disk.open_fds


@pytest.mark.parametrize(
    "failure", [Fatal("MR-6002", "a sequence goes back"), ZeroDivisionError("by a sync")]
)
def test_any_sync_thread_failure_reaches_the_writer(failure: Exception) -> None:
    """Errors of other kinds than the disk's count too: a thread that ended silently would never sync again."""

    def sync() -> None:
        raise failure

    thread = SyncThread(SyncPolicy(bytes_max=1), sync)

    def is_raised() -> bool:
        try:
            thread.count_written(1)
        except (Fatal, ZeroDivisionError) as error:
            return str(error) == str(failure)
        return False

    eventually(is_raised)
    thread.stop()


def test_failed_start_of_the_sync_thread_closes_every_file(memory_path: Path) -> None:
    """The start is retried until the machine has a thread; each try releases its files."""
    lay(memory_path, FILES[Flavour.MYSQL])
    disk = FaultyFiles(memory_path)
    with no_thread_left(), pytest.raises(RuntimeError, match="new thread"):
        RelayLog.open(memory_path, flavour=Flavour.MYSQL, disk=disk)
    assert not disk.open_fds


def test_defect_in_the_sync_thread_leaves_no_file_open(memory_path: Path) -> None:
    """It is not a disk error: the bytes stay, and the directory may be opened again."""

    class Defective(FaultyFiles):
        is_defective = False

        def sync(self, fd: int) -> None:
            if self.is_defective:
                raise ZeroDivisionError("by a sync")

    lay(memory_path, FILES[Flavour.MYSQL])
    disk = Defective(memory_path)
    relay = RelayLog.open(
        memory_path, flavour=Flavour.MYSQL, policy=SyncPolicy(bytes_max=1), disk=disk
    )
    end = relay.end()
    assert end is not None
    disk.is_defective = True

    def is_refused() -> bool:
        try:
            grow_file(relay, b"\0", end=end.pos)
        except ZeroDivisionError:
            return True
        return False

    eventually(is_refused)
    with pytest.raises(ZeroDivisionError):
        relay.close()
    assert not disk.open_fds
    again = open_log(memory_path)
    assert again.end() == end
    again.close()


def test_full_disk_can_be_opened_for_a_purge(memory_path: Path) -> None:
    """Index and relay.meta are hints: no space for them is no obstacle."""
    folder = lay(memory_path, FILES[Flavour.MYSQL])
    (folder / layout.META_NAME).write_text("old")
    (memory_path / layout.LOCK_NAME).touch()
    disk = FaultyFiles(memory_path, fail_at=0, fault=Fault.NO_SPACE, is_lasting=True)
    relay = RelayLog.open(memory_path, flavour=Flavour.MYSQL, disk=disk)
    end = relay.end()
    assert end is not None
    assert len(purge_before(relay, end, needed={})) == 2
    disk.heal()
    relay.close()


def test_purge_request_on_a_failing_disk_is_reported(memory_path: Path) -> None:
    """Each operation fails once: Retryable MR-2002. On a whole disk, no process answers here, and that is reported."""
    lay(memory_path, FILES[Flavour.MYSQL])
    relay = open_log(memory_path)
    record = FaultyFiles(memory_path)
    with pytest.raises(Fatal) as untold:
        request_purge(memory_path, PurgeRequest(), timeout_s=0, files=record)
    assert untold.value.code == "MR-2012"
    assert not (memory_path / REQUEST_NAME).exists()
    for number, op in enumerate(record.ops):
        for fault in set(record.applicable(number)) - {Fault.SHORT}:
            disk = FaultyFiles(memory_path, fail_at=number, fault=fault)
            with pytest.raises(Retryable) as caught:
                request_purge(memory_path, PurgeRequest(), timeout_s=0, files=disk)
            assert caught.value.code == "MR-2002", (op, fault)
            assert not disk.open_fds
    relay.close()
    assert {op.name for op in record.ops} >= {"is_locked", "create", "write", "replace", "unlink"}
    disk = FaultyFiles(memory_path)
    with pytest.raises(Fatal) as caught_unheld:
        request_purge(memory_path, PurgeRequest(), timeout_s=0, files=disk)
    assert "no worker runs" in caught_unheld.value.message
    disk.fail_at = len(disk.ops)
    with pytest.raises(Retryable) as caught:
        find_file(memory_path, NAMES[0], files=disk)
    assert caught.value.code == "MR-2002"
    assert find_file(memory_path, NAMES[0], files=disk) == Coordinates(SUBDIR, NAMES[0], 4)


def test_relay_log_files_are_accessed_only_through_the_seam() -> None:
    """Otherwise no test could make it fail.

    Only ``files`` uses modules of the system's files, and no method of Path.
    """
    here = {"is_dir", "is_file", "exists", "iterdir", "glob", "rglob", "stat", "mkdir", "rmdir"}
    here |= {"touch", "rename", "read_bytes", "read_text", "write_bytes", "write_text"}
    both = {"open", "replace", "unlink"}  # of the seam and of Path
    folder = Path(seam.__file__).parent
    for path in set(folder.glob("*.py")) - {Path(seam.__file__)}:
        for node in ast.walk(ast.parse(path.read_text())):
            place = f"{path.name}:{getattr(node, 'lineno', 0)}"
            if isinstance(node, ast.Import):
                names = {name.name for name in node.names}
                assert not names & {"fcntl", "io", "mmap", "shutil", "tempfile"}, place
            if not isinstance(node, ast.Call):
                continue
            whole = ast.unparse(node.func)
            owner, _, name = whole.rpartition(".")
            assert whole not in ("open", "io.open"), place
            assert not owner.startswith("os") or whole in ("os.fsencode", "os.environ.get"), place
            assert name not in here, place
            is_ours = owner.split(".")[-1] in ("files", "disk", "RelayLog") or owner == "cls"
            assert name not in both or is_ours, place


def test_first_position_is_the_earliest_of_all_sub_directories(tmp_path: Path) -> None:
    """A newer sub-directory may begin earlier: its part before the older one is not skipped."""
    files = FILES[Flavour.MYSQL]
    lay(tmp_path, {NAMES[1]: files[NAMES[1]]})
    (tmp_path / "server-b.000002").mkdir()
    for name, content in files.items():
        (tmp_path / "server-b.000002" / name).write_bytes(content)
    relay = open_log(tmp_path)
    with RelayReader(relay) as reader:
        assert reader.first() == Coordinates("server-b.000002", NAMES[0], 4)
    relay.close()
