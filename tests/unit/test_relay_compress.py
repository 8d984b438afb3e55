"""Compressed relay files: the same bytes for every reader at every offset, or an error, never other bytes."""

import os
import random
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest

from millrace.errors import Fatal, Retryable
from millrace.producer.relay.files import DISK
from millrace.producer.relay.purge import PurgePolicy, purge_before, purge_due
from millrace.producer.relay.reader import RelayReader
from millrace.producer.relay.stored_file import FRAME_BYTES, PackedFile, open_stored, read_stored
from millrace.producer.relay.writer import RelayLog
from millrace.schemas.gtid import Flavour
from millrace.schemas.place import Coordinates
from tests.fixtures.sweep import Sweep
from tests.kit.relay.compress import compress, log_of_files, names_in
from tests.kit.relay.disk import Fault, FaultyFiles
from tests.kit.relay.relay import read_everything

NAMES = [f"mysql-bin.{number:06d}" for number in (1, 2, 3)]


@pytest.mark.parametrize("mariadb", [False, True])
def test_compressed_files_read_the_same(tmp_path: Path, mariadb: bool) -> None:
    """Every closed file shrinks; readers see the same bytes, by small and by large spans; the active file stays."""
    relay = log_of_files(tmp_path, mariadb=mariadb)
    before = read_everything(relay)
    assert [at.file for at in compress(relay)] == NAMES[:2]
    assert compress(relay) == []
    (subdir,) = {subdir for subdir, _ in relay.list_files()}
    folder = tmp_path / str(subdir)
    assert names_in(folder) == [*(f"{name}.zst" for name in NAMES[:2]), NAMES[2], "relay.meta"]
    assert read_everything(relay) == before
    assert read_everything(relay, bytes_max=100_000) == before
    relay.close()
    flavour = Flavour.MARIADB if mariadb else Flavour.MYSQL
    again = RelayLog.open(tmp_path, flavour=flavour)
    assert read_everything(again) == before
    with RelayReader(again) as reader:
        first = reader.first()
        assert first is not None
        assert first.file == NAMES[0]
    again.close()


def test_any_range_of_a_compressed_file_can_be_read(tmp_path: Path) -> None:
    """Ranges that begin and end anywhere, also at the bounds of frames and after the end."""
    relay = log_of_files(tmp_path)
    path = relay.root / str(relay.list_files()[0][0]) / NAMES[0]
    plain = path.read_bytes()
    assert len(plain) > 2 * FRAME_BYTES
    compress(relay)
    file = open_stored(path, DISK)
    assert isinstance(file, PackedFile)
    assert file.size() == len(plain)
    random_ = random.Random(7)
    bounds = [0, 1, FRAME_BYTES - 1, FRAME_BYTES, FRAME_BYTES + 1, len(plain), len(plain) + 9]
    bounds += [random_.randrange(len(plain)) for _ in range(20)]
    for begin in bounds:
        for end in bounds:
            if begin <= end:
                assert read_stored(file, begin, end) == plain[begin:end]
    file.close()
    relay.close()


def test_other_decoders_unpack_the_servers_file(tmp_path: Path) -> None:
    """The table of frames is ignored by a decoder of streams, and by the program zstd if this machine has it."""
    relay = log_of_files(tmp_path)
    path = relay.root / str(relay.list_files()[0][0]) / NAMES[0]
    plain = path.read_bytes()
    compress(relay)
    packed = f"{path}.zst"
    assert pa.CompressedInputStream(pa.OSFile(packed, "rb"), "zstd").read() == plain
    if program := shutil.which("zstd"):
        assert subprocess.check_output([program, "-dc", packed]) == plain
    relay.close()


def test_file_that_a_reader_is_in_is_not_compressed(tmp_path: Path) -> None:
    """Files before and after it are; the reader continues in the plain file."""
    relay = log_of_files(tmp_path, count=4)
    with RelayReader(relay) as reader:
        first = reader.first()
        assert first is not None
        reader.release(Coordinates(first.subdir, NAMES[1], 4))
        assert [at.file for at in compress(relay)] == [NAMES[0], NAMES[2]]
        assert len(reader.read(first.at(4), bytes_max=1 << 20).payload)
    relay.close()


def test_purge_deletes_compressed_files_by_their_own_age(tmp_path: Path) -> None:
    """The age is that of the content, not of the compression."""
    relay = log_of_files(tmp_path)
    path = relay.root / str(relay.list_files()[0][0]) / NAMES[0]
    os.utime(path, (0, 0))
    compress(relay)
    hour = PurgePolicy(age_s_max=3600)
    assert [at.file for at in purge_due(relay, hour, needed={})] == [NAMES[0]]
    end = relay.end()
    assert end is not None
    assert [at.file for at in purge_before(relay, end, needed={})] == [NAMES[1]]
    assert names_in(path.parent) == [NAMES[2], "relay.meta"]
    relay.close()


def test_damage_in_a_compressed_file_stops_its_reader(tmp_path: Path) -> None:
    """One flipped bit anywhere gives MR-2004 or the same bytes (a bit that zstd ignores), never other bytes."""
    relay = log_of_files(tmp_path, count=2)
    before = read_everything(relay)
    path = relay.root / str(relay.list_files()[0][0]) / f"{NAMES[0]}.zst"
    compress(relay)
    relay.close()
    whole = path.read_bytes()
    random_, codes = random.Random(3), list[str]()
    places = {*range(5), *range(len(whole) - 40, len(whole))}
    places |= {random_.randrange(len(whole)) for _ in range(40)}
    for place in places:
        broken = bytearray(whole)
        broken[place] ^= 1 << random_.randrange(8)
        path.write_bytes(broken)
        opened = RelayLog.open(tmp_path, flavour=Flavour.MYSQL)
        try:
            assert read_everything(opened) == before
        except Fatal as error:
            codes.append(error.code)
        finally:
            opened.close()
    assert set(codes) == {"MR-2004"}
    assert len(codes) > len(places) * 3 // 4


def test_lost_newest_file_makes_the_one_before_it_plain(tmp_path: Path) -> None:
    """The file after it was lost in a crash, so it is written again: to a plain file with the same bytes."""
    relay = log_of_files(tmp_path, count=2)
    folder = relay.root / str(relay.list_files()[0][0])
    plain = (folder / NAMES[0]).read_bytes()
    compress(relay)
    relay.close()
    (folder / NAMES[1]).write_bytes(b"\xfebin")
    again = RelayLog.open(tmp_path, flavour=Flavour.MYSQL)
    assert (folder / NAMES[0]).read_bytes() == plain
    end = again.end()
    assert end is not None
    assert (end.file, end.pos) == (NAMES[0], len(plain))
    assert not (folder / f"{NAMES[0]}.zst").exists()
    again.close()


def test_compression_on_a_failing_disk_loses_no_file(memory_path: Path, sweep: Sweep) -> None:
    """Each operation fails once, in each way: an error or none, and the log reads the same after a restart."""
    relay = log_of_files(memory_path / "a", count=2)
    before = read_everything(relay)
    relay.close()
    record = FaultyFiles(memory_path / "a")
    copy = memory_path / "b"

    def run(disk: FaultyFiles) -> None:
        opened = RelayLog.open(disk.root, flavour=Flavour.MYSQL, disk=disk)
        try:
            compress(opened)
        finally:
            opened.close()

    shutil.copytree(memory_path / "a", copy)
    record = FaultyFiles(copy)
    run(record)
    cases = [(n, fault) for n in range(len(record.ops)) for fault in record.applicable(n)]
    for number, fault in sweep(cases, every=4, kind=lambda at: (record.ops[at[0]].name, at[1])):
        shutil.rmtree(copy)
        shutil.copytree(memory_path / "a", copy)
        disk = FaultyFiles(copy, fail_at=number, fault=fault)
        with suppress(Retryable):
            run(disk)
        assert not disk.open_fds
        again = RelayLog.open(copy, flavour=Flavour.MYSQL)
        assert read_everything(again) == before, (record.ops[number], fault)
        again.close()
    assert Fault.HALF in {fault for _, fault in cases}
