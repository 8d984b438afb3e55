"""Guards of the relay log, removed one by one."""

import os
import struct
import zlib
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from millrace.producer.binlog import file_head, packets, transactions
from millrace.producer.binlog.events import CHECKSUM_BYTES, EVENT_BYTES_MIN, HEADER_BYTES
from millrace.producer.binlog.walk import walk_events
from millrace.producer.relay import layout, reader, recovery
from millrace.producer.relay import writer as relay_log
from millrace.producer.relay.files import Files
from millrace.producer.relay.layout import Meta
from millrace.producer.relay.open_file import OpenFile
from millrace.producer.relay.recovery import WalkResult, walk_file
from millrace.producer.relay.writer import RelayLog
from millrace.schemas.gtid import Flavour
from tests.kit.relay.disk import FaultyFiles
from tests.mutants.mutant import Mutant, Patch

Bytes = Any  # numpy's


def files_not_synced(patch: Patch) -> None:
    """fsync does nothing, as on a disk that ignores it."""
    patch.setattr(FaultyFiles, "sync", lambda *_: None)


def directories_not_synced(patch: Patch) -> None:
    """Directory entries become durable at any later time."""
    patch.setattr(FaultyFiles, "sync_directory", lambda *_: None)


def failed_syncs_ignored(patch: Patch) -> None:
    """The writer continues after a failed fsync."""
    sync = FaultyFiles.sync

    def careless(self: FaultyFiles, fd: int) -> None:
        with suppress(OSError):
            sync(self, fd)

    patch.setattr(FaultyFiles, "sync", careless)


def failed_syncs_truncate_nothing(patch: Patch) -> None:
    """The writer stops but does not truncate the file: the next open trusts it and rewrites nothing."""

    def trust(self: RelayLog, file: OpenFile) -> None:
        self._file = None
        self.disk.close(file.fd)

    patch.setattr(RelayLog, "_cut_to_durable", trust)
    patch.setattr(recovery, "_rewrite", lambda *_: None)  # it alone would replace the cut


def relay_meta_before_the_sync(patch: Patch, *, is_durable: bool) -> None:
    """relay.meta names bytes that are not durable yet."""
    make_durable = RelayLog._make_durable

    def early(self: RelayLog, file: OpenFile) -> None:
        meta = Meta(file.name, file.end, str(self.position()))
        directory = self.root / str(file.subdir)
        layout.write_meta(directory, meta, is_durable=is_durable, files=self.disk)
        make_durable(self, file)

    patch.setattr(RelayLog, "_make_durable", early)


DAMAGE = "a power cut made damage"

LIE = "relay.meta claims missing data"


def found_bytes_not_rewritten(patch: Patch) -> None:
    """Bytes found in a file at the start count as durable."""
    patch.setattr(recovery, "_rewrite", lambda *_: None)


def scan_without_checksums(
    buf: Bytes, end: int, pos: int, _tables: Bytes, _folded: Bytes, mariadb: bool
) -> tuple[int, int]:
    """``scan_events`` that checks only lengths and positions."""
    at, octets = 0, buf[:end].tobytes()
    while end - at >= HEADER_BYTES:
        size, next_pos = struct.unpack_from("<II", octets, at + 9)
        if size < EVENT_BYTES_MIN:
            return transactions.BAD_LENGTH, at
        if at + size > end:
            break
        if next_pos != pos + at + size and not (mariadb and next_pos == 0):
            return transactions.BAD_POSITION, at
        at += size
    return transactions.OK, at


def checksums_of_files_not_checked(patch: Patch) -> None:
    """The reader, the walk over a closed or torn file, and the head of a file check no checksum."""
    patch.setattr(reader, "scan_events", scan_without_checksums)
    patch.setattr(reader, "has_right_sum", lambda *_: True)
    patch.setattr(recovery, "has_right_sum", lambda *_: True)
    walk: Any = walk_events
    patch.setattr(recovery, "walk_events", lambda *given: walk(*given[:-1], False))
    patch.setattr(file_head, "zlib", SimpleNamespace(crc32=AnySum))


class AnySum:
    """Equal to each sum."""

    def __init__(self, _data: object) -> None:
        pass

    def __ne__(self, _other: object) -> bool:
        return False


def checksums_of_packets_not_checked(patch: Patch) -> None:
    """The receiver continues after a wrong checksum."""
    strip = packets.strip_packets

    def credulous(buffer: Bytes, at: int, fill: int, target: Bytes, *rest: Any) -> Any:
        status, at, written = strip(buffer, at, fill, target, *rest)
        if status != transactions.BAD_CHECKSUM:
            return status, at, written
        size = int.from_bytes(buffer[at + 14 : at + 18].tobytes(), "little")
        event = buffer[at + 5 : at + 5 + size]
        event[-CHECKSUM_BYTES:] = memoryview(struct.pack("<I", zlib.crc32(event[:-CHECKSUM_BYTES])))
        rest[0][packets.PACKET_SEQUENCE] -= 1  # it was counted before the checksum was checked
        status, at, more = credulous(buffer, at, fill, target[written:], *rest)
        return status, at, written + more

    patch.setattr(packets, "strip_packets", credulous)


def overlap_not_compared(patch: Patch) -> None:
    """Bytes that the server sends again are not compared with the file."""

    class Same(bytes):
        def __ne__(self, _other: object) -> bool:
            return False

    patch.setattr(RelayLog, "read_back", lambda *_: Same())


def torn_tails_not_truncated(patch: Patch) -> None:
    """A file found at the start is continued after its last whole event."""

    def believe(path: Path, flavour: Flavour, files: Files) -> WalkResult | None:
        walked = walk_file(path, flavour, files)
        return replace(walked, end=walked.walked_to) if walked is not None else None

    patch.setattr(relay_log, "recover_file", believe)


def directories_not_locked(patch: Patch) -> None:
    """A second process opens the directory as well."""

    def open_alone(_self: Files, path: Path) -> int:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)

    patch.setattr(Files, "lock", open_alone)


MUTANTS = [
    Mutant(
        "files are synced",
        files_not_synced,
        "tests/fault/test_relay_disk.py",
        {"test_power_cut_leaves_a_prefix_that_can_be_resumed": LIE},
    ),
    Mutant(
        "names are synced",
        directories_not_synced,
        "tests/fault/test_relay_disk.py",
        {
            "test_power_cut_leaves_a_prefix_that_can_be_resumed": LIE,
            "test_power_cut_never_joins_a_dropped_subdir": "is not apart",
        },
    ),
    Mutant(
        "relay.meta comes after the sync",
        lambda patch: relay_meta_before_the_sync(patch, is_durable=False),
        "tests/fault/test_relay_disk.py",
        {"test_power_cut_leaves_a_prefix_that_can_be_resumed": LIE},
    ),
    Mutant(
        "a durable relay.meta comes after the sync",
        lambda patch: relay_meta_before_the_sync(patch, is_durable=True),
        "tests/fault/test_relay_disk.py",
        {"test_power_cut_leaves_a_prefix_that_can_be_resumed": LIE},
    ),
    Mutant(
        "a failed sync stops the writer",
        failed_syncs_ignored,
        "tests/fault/test_relay_disk.py",
        {"test_failed_fsync_then_power_cut_leaves_a_prefix": f"{DAMAGE}|{LIE}"},
    ),
    Mutant(
        "a failed sync cuts the file",
        failed_syncs_truncate_nothing,
        "tests/fault/test_relay_disk.py",
        {"test_failed_fsync_then_power_cut_leaves_a_prefix": f"{DAMAGE}|{LIE}"},
    ),
    Mutant(
        "bytes not known to be durable are written again",
        found_bytes_not_rewritten,
        "tests/fault/test_relay_disk.py",
        {
            "test_failed_fsync_at_start_then_power_cut_leaves_a_prefix": f"{DAMAGE}|{LIE}",
            "test_failed_fsync_and_failed_truncate_leave_a_prefix[0]": f"{DAMAGE}|{LIE}",
        },
    ),
    Mutant(
        "a directory has one writer",
        directories_not_locked,
        "tests/unit/test_relay_lock.py",
        {"test_second_writer_on_a_directory_is_harmless": "two writers made one file"},
    ),
    Mutant(
        "checksums of files are checked",
        checksums_of_files_not_checked,
        "tests/unit/test_relay_damage.py",
        {
            "test_flipped_bit_in_a_closed_file_stops_its_reader": "was changed unnoticed",
            "test_flipped_bit_in_the_newest_file_is_cut_and_rewritten": "was changed and not cut off",
        },
    ),
    Mutant(
        "checksums of torn tails are checked",
        checksums_of_files_not_checked,
        "tests/unit/test_relay_log.py",
        {"test_zeros_from_any_byte_of_the_tail_are_cut": "zeros remain"},
    ),
    Mutant(
        "checksums of the stream are checked",
        checksums_of_packets_not_checked,
        "tests/unit/test_relay_packets.py",
        {
            "test_corrupt_byte_in_the_stream_is_detected_before_writing[1048576-body-15]": "a lie was taken for the truth",
            "test_corrupt_byte_in_the_stream_is_detected_before_writing[1048576-checksum-15]": "a lie was taken for the truth",
        },
    ),
    Mutant(
        "the overlap is compared",
        overlap_not_compared,
        "tests/integration/test_receiver_stream.py",
        {
            "test_resumed_dump_is_compared_before_new_events": "the stream continued after a difference"
        },
    ),
    Mutant(
        "a torn tail is cut",
        torn_tails_not_truncated,
        "tests/unit/test_relay_log.py",
        {
            "test_tail_torn_at_any_byte_is_cut": "a torn tail remains",
            "test_zeros_from_any_byte_of_the_tail_are_cut": "zeros remain",
        },
    ),
]
