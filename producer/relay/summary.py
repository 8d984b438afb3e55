"""The files of a relay log, and the tasks that need them: for the status. Asks the disk, so it is renewed seldom.

The first 4 bytes of an event are the second of its commit, little-endian (MySQL's manual, "binlog event header").
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from millrace.producer.relay.files import disk_errors
from millrace.producer.relay.purge import Positions
from millrace.producer.relay.reader import RelayReader
from millrace.producer.relay.stored_file import open_stored, read_stored, stored_bytes
from millrace.producer.relay.writer import RelayLog
from millrace.schemas.place import FIRST_POS, Coordinates

TIMESTAMP_BYTES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """``needed``: by task, the oldest file that it needs as ``subdir/file``; "" if it needs more than there is."""

    stored_bytes: int | None = None
    disk_left_bytes: int | None = None
    oldest_file: str = ""
    needed: Mapping[str, str] = field(default_factory=dict)
    end_at_s: float | None = None  # when the server logged the newest transaction, in Unix time


def summarize(relay: RelayLog, positions: Positions) -> Summary:
    """The summary. ``positions``: what each task of the set has published, running or not. Retryable MR-2002."""
    files = relay.list_files()
    total_bytes = 0
    with disk_errors(relay.root):
        for subdir, name in files:
            at = Coordinates(str(subdir), name, FIRST_POS)
            with suppress(FileNotFoundError):  # purged just now
                total_bytes += stored_bytes(relay.path(at), relay.disk)
        left_bytes = relay.disk.free_bytes(relay.root)
    return Summary(
        stored_bytes=total_bytes,
        disk_left_bytes=left_bytes,
        oldest_file=f"{files[0][0]}/{files[0][1]}" if files else "",
        needed={**_find_files(relay, positions), **_held_files(relay)},
        end_at_s=_end_at_s(relay),
    )


def _find_files(relay: RelayLog, positions: Positions) -> dict[str, str]:
    found = {}
    files = relay.list_files()
    first = Coordinates(str(files[0][0]), files[0][1], FIRST_POS) if files else None
    with RelayReader(relay) as reader:
        for task, position in positions.items():
            at = reader.seek(position) if position is not None else first
            found[task] = "" if at is None else f"{at.subdir}/{at.file}"
    return found


def _held_files(relay: RelayLog) -> dict[str, str]:
    """The files that running tasks hold."""
    return {task: f"{at.subdir}/{at.file}" for task, at in relay.holds.by_owner().items()}


def _end_at_s(relay: RelayLog) -> float | None:
    point = relay.resume_point()
    if point is None:
        return None
    with disk_errors(relay.root):
        try:
            file = open_stored(relay.path(point.at), relay.disk)
        except FileNotFoundError:  # its sub-directory was dropped just now
            return None
        try:
            head = read_stored(file, point.overlap_at, point.overlap_at + TIMESTAMP_BYTES)
        finally:
            file.close()
    return float(int.from_bytes(head, "little")) if len(head) == TIMESTAMP_BYTES else None
