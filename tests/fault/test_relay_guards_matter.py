"""The relay log with one of its guards taken away: the tests that show what it guarantees go red, each by its harm.

What is shown with all guards on stands where it is called from: ``test_relay_disk`` (power cuts), ``test_relay_damage``
and ``test_relay_packets`` (checksums), ``test_relay_log`` (torn tails), ``test_receiver_stream`` (the overlap).
"""

import os
import struct
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from millrace.errors import Retryable
from producer import packets
from producer.relay import groups, layout, prelude, reader, recovery
from producer.relay import log as relay_log
from producer.relay.event_types import CHECKSUM_BYTES, EVENT_BYTES_MIN, HEADER_BYTES
from producer.relay.files import DiskFiles, Files
from producer.relay.layout import Meta
from producer.relay.log import OpenFile, RelayLog
from producer.relay.recovery import Walked, walk_file
from producer.relay.walk import walk_events
from schemas.gtid import Flavour
from tests.binlog_bytes import BinlogFile
from tests.fault import test_relay_disk as power
from tests.integration import test_receiver_stream as stream
from tests.relay_disk import FaultyFiles
from tests.relay_writer import StepSync, Writer
from tests.unit import test_relay_damage as damage
from tests.unit import test_relay_log as tails
from tests.unit import test_relay_packets as wire

Patch = pytest.MonkeyPatch
Bytes = Any  # numpy's

dump = stream.dump  # the fixture


# ---- power cuts --------------------------------------------------------------------------------------


def no_file_is_synced(patch: Patch) -> None:
    """fsync does nothing, as on a disk that lies."""
    patch.setattr(FaultyFiles, "sync", lambda *_: None)


def no_directory_is_synced(patch: Patch) -> None:
    """Names of files last when the system pleases."""
    patch.setattr(FaultyFiles, "sync_directory", lambda *_: None)


def a_failed_sync_is_overheard(patch: Patch) -> None:
    """The writer goes on as if it had not failed."""
    sync = FaultyFiles.sync

    def careless(self: FaultyFiles, fd: int) -> None:
        with suppress(OSError):
            sync(self, fd)

    patch.setattr(FaultyFiles, "sync", careless)


def a_failed_sync_cuts_nothing(patch: Patch) -> None:
    """The writer stops, but the file stays as it looks: who opens it next believes it, and writes nothing again."""

    def trust(self: RelayLog, file: OpenFile) -> None:
        self._file = None
        self.disk.close(file.fd)

    patch.setattr(RelayLog, "_distrust", trust)
    patch.setattr(recovery, "_write_again", lambda *_: None)  # alone it makes good for the cut


def relay_meta_comes_before_the_sync(patch: Patch, *, is_durable: bool) -> None:
    """It names what is not durable yet."""
    make_durable = RelayLog._make_durable

    def early(self: RelayLog, file: OpenFile) -> None:
        meta = Meta(file.name, file.end, str(self.position()))
        directory = self.root / str(file.subdir)
        layout.write_meta(directory, meta, is_durable=is_durable, files=self.disk)
        make_durable(self, file)

    patch.setattr(RelayLog, "_make_durable", early)


def after_a_power_cut(folder: Path) -> None:
    """The body of ``test_after_a_power_cut_a_prefix_is_left_that_goes_on``."""
    power.check_crash_states(folder, power.WRITTEN.record(folder / "record").ops, go_on_every=1000)


def after_a_failed_sync(folder: Path, *, number: int) -> None:
    """That of ``test_after_a_failed_fsync_and_a_power_cut_a_prefix_is_left``; ``number`` of the sync that fails."""
    disk = FaultyFiles(folder / "run", fail_at=number)
    power.error_of(power.WRITTEN, disk)
    assert disk.has_failed
    Writer(disk.root, power.FILES, disk).run()
    power.check_crash_states(folder / "cut", disk.ops, begin=number, go_on_every=1000)


def syncs_of_binlogs(folder: Path) -> list[int]:
    """Which operations of a run in which nothing goes wrong are fsyncs of binlog files."""
    ops = power.WRITTEN.record(folder).ops
    return [at for at, op in enumerate(ops) if op.name == "sync" and power.is_binlog(op.path)]


@dataclass(frozen=True)
class Guard:
    """``off`` takes the guard away; ``harm`` is what is seen then."""

    name: str
    off: Callable[[Patch], None]
    harm: str


DAMAGE = "a power cut made damage"
LIE = "relay.meta claims what is not there"

OF_POWER_CUTS = [
    Guard("files are synced", no_file_is_synced, LIE),
    Guard("names are synced", no_directory_is_synced, LIE),
    Guard(
        "relay.meta comes behind the sync",
        lambda patch: relay_meta_comes_before_the_sync(patch, is_durable=False),
        LIE,
    ),
    Guard(
        "a durable relay.meta comes behind the sync",
        lambda patch: relay_meta_comes_before_the_sync(patch, is_durable=True),
        LIE,
    ),
]
OF_FAILED_SYNCS = [
    Guard("a failed sync stops the writer", a_failed_sync_is_overheard, f"{DAMAGE}|{LIE}"),
    Guard("a failed sync cuts the file", a_failed_sync_cuts_nothing, f"{DAMAGE}|{LIE}"),
]


@pytest.fixture
def one_thread(monkeypatch: Patch) -> None:
    """As in ``test_relay_disk``."""
    monkeypatch.setattr(relay_log, "SyncThread", StepSync)
    monkeypatch.setattr(relay_log, "META_INTERVAL_S", 0.0)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("guard", OF_POWER_CUTS, ids=lambda guard: guard.name)
def test_without_its_guard_a_power_cut_does_harm(
    guard: Guard, memory_path: Path, monkeypatch: Patch
) -> None:
    """The very checks that hold with it fail."""
    guard.off(monkeypatch)
    with pytest.raises(AssertionError, match=guard.harm):
        after_a_power_cut(memory_path)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("guard", OF_FAILED_SYNCS, ids=lambda guard: guard.name)
def test_without_its_guard_a_failed_fsync_does_harm(
    guard: Guard, memory_path: Path, monkeypatch: Patch
) -> None:
    """In the first file and in the second; behind it stand whole source transactions that only the cache has."""
    syncs = syncs_of_binlogs(memory_path / "record")
    guard.off(monkeypatch)
    for number in (syncs[1], syncs[4]):
        with pytest.raises(AssertionError, match=guard.harm):
            after_a_failed_sync(memory_path / str(number), number=number)


@pytest.mark.usefixtures("one_thread")
def test_without_writing_again_what_is_not_known_to_be_durable_a_failed_fsync_does_harm(
    memory_path: Path, monkeypatch: Patch
) -> None:
    """One that failed at the start, and one behind which the file could not be cut back."""
    monkeypatch.setattr(recovery, "_write_again", lambda *_: None)
    with pytest.raises(AssertionError, match=f"{DAMAGE}|{LIE}"):
        power.test_after_an_fsync_that_failed_at_the_start_and_a_power_cut_a_prefix_is_left(
            memory_path / "start"
        )
    with pytest.raises(AssertionError, match=f"{DAMAGE}|{LIE}"):
        power.test_after_an_fsync_that_failed_and_could_not_be_cut_back_a_prefix_is_left(
            memory_path / "cut", 0
        )


# ---- checksums, the overlap, the cut, the lock -------------------------------------------------------


def scan_without_sums(
    buf: Bytes, end: int, pos: int, _tables: Bytes, _folded: Bytes, mariadb: bool
) -> tuple[int, int]:
    """``scan_events`` that looks at lengths and positions alone."""
    at, octets = 0, buf[:end].tobytes()
    while end - at >= HEADER_BYTES:
        size, next_pos = struct.unpack_from("<II", octets, at + 9)
        if size < EVENT_BYTES_MIN:
            return groups.BAD_LENGTH, at
        if at + size > end:
            break
        if next_pos != pos + at + size and not (mariadb and next_pos == 0):
            return groups.BAD_POSITION, at
        at += size
    return groups.OK, at


def files_are_read_without_sums(patch: Patch) -> None:
    """The reader, the walk over a closed or torn file, and the head of a file believe what they find."""
    patch.setattr(reader, "scan_events", scan_without_sums)
    walk: Any = walk_events
    patch.setattr(recovery, "walk_events", lambda *given: walk(*given[:-1], False))
    patch.setattr(prelude, "zlib", SimpleNamespace(crc32=AnySum))


class AnySum:
    """Equal to each sum."""

    def __init__(self, _data: object) -> None:
        pass

    def __ne__(self, _other: object) -> bool:
        return False


def packets_come_without_sums(patch: Patch) -> None:
    """The receiver's pass goes on where a sum is wrong."""
    strip = packets.strip_packets

    def credulous(buffer: Bytes, at: int, fill: int, target: Bytes, *rest: Any) -> Any:
        status, at, written = strip(buffer, at, fill, target, *rest)
        if status != groups.BAD_CHECKSUM:
            return status, at, written
        size = int.from_bytes(buffer[at + 14 : at + 18].tobytes(), "little")
        event = buffer[at + 5 : at + 5 + size]
        event[-CHECKSUM_BYTES:] = memoryview(struct.pack("<I", zlib.crc32(event[:-CHECKSUM_BYTES])))
        rest[0][packets.PACKET_SEQUENCE] -= 1  # it was counted before the sum was looked at
        status, at, more = credulous(buffer, at, fill, target[written:], *rest)
        return status, at, written + more

    patch.setattr(packets, "strip_packets", credulous)


def the_overlap_is_not_compared(patch: Patch) -> None:
    """What the server sends again is taken for what stands here."""

    class Same(bytes):
        def __ne__(self, _other: object) -> bool:
            return False

    patch.setattr(RelayLog, "read_back", lambda *_: Same())


def a_torn_tail_is_not_cut(patch: Patch) -> None:
    """The file found at the start is gone on with behind its last whole event."""

    def believe(path: Path, flavour: Flavour, files: Files) -> Walked | None:
        walked = walk_file(path, flavour, files)
        return replace(walked, end=walked.walked_to) if walked is not None else None

    patch.setattr(relay_log, "recover_file", believe)


def nothing_is_locked(patch: Patch) -> None:
    """A second process opens the directory as well."""

    def open_alone(_self: DiskFiles, path: Path) -> int:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)

    patch.setattr(DiskFiles, "lock", open_alone)


def two_writers_on_one_directory_harm_nothing(folder: Path) -> None:
    """The second comes while the first is inside a source transaction."""
    file = BinlogFile().transaction()
    relay = RelayLog.open(folder, flavour=Flavour.MYSQL)
    relay.begin_subdir("server-a")
    tails.write_file(relay, tails.NAME, file)
    whole = len(file.data)
    cut = len(file.transaction().data) - 40
    tails.grow_file(relay, file.data[whole:cut], end=whole)
    with suppress(Retryable):
        RelayLog.open(folder, flavour=Flavour.MYSQL).close()
    tails.grow_file(relay, file.data[cut:], end=len(file.data))
    relay.close()
    written = (folder / "server-a.000001" / tails.NAME).read_bytes()
    assert written == file.data, "two writers made one file that none of them wrote"


def test_two_writers_on_one_directory_harm_nothing(tmp_path: Path) -> None:
    """The second is refused, and may come again."""
    two_writers_on_one_directory_harm_nothing(tmp_path)


def test_without_the_lock_two_writers_on_one_directory_do_harm(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    """The second cuts off what the first is about to go on behind: a hole."""
    nothing_is_locked(monkeypatch)
    with pytest.raises(AssertionError, match="two writers made one file"):
        two_writers_on_one_directory_harm_nothing(tmp_path)


@pytest.mark.parametrize("flavour", damage.FLAVOURS)
def test_without_the_checksums_damage_in_a_file_is_read_as_rows(
    flavour: Flavour, memory_path: Path, monkeypatch: Patch
) -> None:
    """In a closed file and in the newest one."""
    files_are_read_without_sums(monkeypatch)
    with pytest.raises(AssertionError, match="was changed and nobody noticed"):
        damage.test_a_flipped_bit_anywhere_in_a_closed_file_stops_its_reader(
            flavour, memory_path / "closed"
        )
    with pytest.raises(AssertionError, match="was changed and not cut off"):
        damage.test_a_flipped_bit_anywhere_in_the_newest_file_is_cut_off_and_written_again(
            flavour, memory_path / "newest"
        )
    with pytest.raises(AssertionError, match="zeros stand"):
        tails.test_zeros_from_any_byte_of_the_last_two_transactions_on_are_cut(
            flavour, memory_path / "zeros"
        )


@pytest.mark.parametrize("place", ["body", "checksum"])
def test_without_the_checksums_a_lie_in_the_stream_is_written(
    place: str, monkeypatch: Patch
) -> None:
    """The receiver's only guard against it."""
    packets_come_without_sums(monkeypatch)
    with pytest.raises(AssertionError, match="a lie was taken for the truth"):
        wire.test_a_lie_in_the_stream_is_found_and_not_written(
            place, groups.BAD_CHECKSUM, piece=1 << 20
        )


def test_without_the_comparison_a_file_that_differs_is_gone_on_with(
    dump: stream.Dump, monkeypatch: Patch
) -> None:
    """The server was restored, or is another one under the same name."""
    the_overlap_is_not_compared(monkeypatch)
    with pytest.raises(AssertionError, match="what differs was gone on with"):
        stream.test_a_resumed_dump_is_compared_before_it_goes_on(dump)


@pytest.mark.parametrize("flavour", damage.FLAVOURS)
def test_without_the_cut_a_torn_tail_stands(
    flavour: Flavour, memory_path: Path, monkeypatch: Patch
) -> None:
    """Readers would be given a source transaction that is not whole."""
    a_torn_tail_is_not_cut(monkeypatch)
    with pytest.raises(AssertionError, match="a torn tail stands"):
        tails.test_a_torn_tail_is_cut_at_every_byte_of_the_last_two_transactions(
            flavour, memory_path / "torn"
        )
    with pytest.raises(AssertionError, match="zeros stand"):
        tails.test_zeros_from_any_byte_of_the_last_two_transactions_on_are_cut(
            flavour, memory_path / "zeros"
        )
