"""Reads the relay log while it is written: whole, intact events of whole source transactions, in order.

A span never reaches into an unfinished source transaction, never cuts an event, and every event of it has been checked
again (CRC-32, length, position): damage on disk is Fatal MR-2004, not rows.

    at = reader.seek(progress.gtid_set)              # the file that holds the first wanted GTID
    while reader.wait(at, timeout_s=1.0):
        span = reader.read(at, bytes_max=4 << 20)    # may be empty at the end of a file:
        at = at.at(at.pos + len(span.payload)) if len(span.payload) else reader.after_file(at)

Each reader holds the files from where it started until ``release`` says that they are not needed: purge leaves them.
Not done here: decoding. A reader is used by one thread; any number of readers and the writer run at once.
"""

import os
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Self

import numpy as np

from millrace.errors import Fatal, Retryable
from producer.relay import groups
from producer.relay.crc import TABLES
from producer.relay.event_types import EVENT_BYTES_MIN, HEADER_BYTES
from producer.relay.layout import Subdir, parse_subdir
from producer.relay.log import RelayLog
from producer.relay.prelude import read_file_prelude
from producer.relay.recovery import walk_file
from producer.relay.walk import scan_events
from schemas.coordinates import FIRST_POS, Coordinates
from schemas.gtid import Flavour, GtidPosition

_DAMAGE = {
    groups.BAD_LENGTH: "an impossible length",
    groups.BAD_CHECKSUM: "a wrong checksum",
    groups.BAD_POSITION: "a wrong position",
}


@dataclass(frozen=True, slots=True)
class RelaySpan:
    """Whole events of whole source transactions from ``at`` on."""

    at: Coordinates
    payload: memoryview


class RelayReader:
    """One reader of a ``RelayLog``."""

    def __init__(self, relay: RelayLog) -> None:
        self._relay = relay
        self._open: tuple[str, str, int] | None = None  # sub-directory, file, fd
        self._folded = np.zeros(16, np.uint8)
        self._mariadb = relay.flavour is Flavour.MARIADB

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file and let purge have everything."""
        self._close_file()
        self._relay.hold(self, None)

    # ---- where to begin ----------------------------------------------------------------------------

    def first(self) -> Coordinates | None:
        """The start of the oldest file; None while there is none."""
        files = self._files()
        return self._begin(*files[0]) if files else None

    def seek(self, gtid_set: GtidPosition) -> Coordinates | None:
        """The start of the file that holds the first transaction behind ``gtid_set``.

        It is the newest file whose previous GTIDs are all in ``gtid_set``. None when the relay log begins later, or
        when a gap between two sub-directories lies between that file and the end.
        """
        newer: tuple[Subdir, GtidPosition] | None = None
        for subdir, name in reversed(self._files()):
            before = read_file_prelude(self._path(subdir, name), self._relay.flavour)
            if before is None:
                continue
            if newer is not None and newer[0] != subdir and not self._reaches(subdir, newer[1]):
                return None
            if gtid_set.includes(before):
                return self._begin(subdir, name)
            newer = (subdir, before)
        return None

    # ---- reading -----------------------------------------------------------------------------------

    def read(self, at: Coordinates, *, bytes_max: int) -> RelaySpan:
        """Bytes from ``at``, at most ``bytes_max`` unless one event is larger. Fatal MR-2004; Retryable MR-2011."""
        end = self._relay.visible_end(at)
        if at.pos >= end:
            return RelaySpan(at, memoryview(b""))
        wanted = min(end - at.pos, max(bytes_max, EVENT_BYTES_MIN))
        buffer = self._fetch(at, wanted)
        status, length = scan_events(buffer, wanted, at.pos, TABLES, self._folded, self._mariadb)
        if status == groups.OK and length == 0:
            wanted = int.from_bytes(self._fetch(at, HEADER_BYTES)[9:13].tobytes(), "little")
            if at.pos + wanted > end:
                raise Fatal("MR-2004", f"an event at {at} is longer than the file")
            buffer = self._fetch(at, wanted)
            status, length = scan_events(
                buffer, wanted, at.pos, TABLES, self._folded, self._mariadb
            )
        if status != groups.OK and length == 0:
            raise Fatal(
                "MR-2004", f"an event at {at} has {_DAMAGE[status]}", directory=self._relay.root
            )
        return RelaySpan(at, buffer.data[:length])

    def wait(self, at: Coordinates, timeout_s: float) -> bool:
        """True as soon as there is something behind ``at``, in its file or a later one."""
        # a closed file may have to be walked: not while the writer waits for us
        self._relay.visible_end(at)
        with self._relay.condition:
            return self._relay.condition.wait_for(lambda: self._has_more(at), timeout_s)

    def after_file(self, at: Coordinates) -> Coordinates | None:
        """The start of the file behind that of ``at``, once ``at`` is its end and it is closed."""
        if at.pos < self._relay.visible_end(at):
            return None
        files = self._files()
        here = (parse_subdir(at.subdir), at.file)
        for known, following in pairwise(files):
            if known == here:
                return Coordinates(str(following[0]), following[1], FIRST_POS)
        return None

    def release(self, at: Coordinates) -> None:
        """Files in front of ``at`` are not needed any more by this reader."""
        self._relay.hold(self, at)

    # ---- inside ------------------------------------------------------------------------------------

    def _files(self) -> list[tuple[Subdir, str]]:
        return self._relay.list_files()

    def _path(self, subdir: Subdir, name: str) -> Path:
        return self._relay.root / str(subdir) / name

    def _begin(self, subdir: Subdir, name: str) -> Coordinates:
        at = Coordinates(str(subdir), name, FIRST_POS)
        self._relay.hold(self, at)
        return at

    def _has_more(self, at: Coordinates) -> bool:
        return at.pos < self._relay.visible_end(at) or self.after_file(at) is not None

    def _reaches(self, older: Subdir, wanted: GtidPosition) -> bool:
        """True if the end of sub-directory ``older`` holds everything that the next one presumes."""
        names = [name for subdir, name in self._files() if subdir == older]
        walked = walk_file(
            self._relay.root / str(older) / names[-1], self._relay.flavour, verify=False
        )
        return walked is not None and walked.position.includes(wanted)

    def _fetch(self, at: Coordinates, length: int) -> "np.ndarray[tuple[int], np.dtype[np.uint8]]":
        buffer = np.empty(length, np.uint8)
        fd = self._fd(at)
        done = 0
        while done < length:
            count = os.preadv(fd, [buffer.data[done:]], at.pos + done)
            if count == 0:
                raise Fatal(
                    "MR-2004",
                    f"the file of {at} is shorter than it was",
                    directory=self._relay.root,
                )
            done += count
        return buffer

    def _fd(self, at: Coordinates) -> int:
        if self._open is not None and self._open[:2] == (at.subdir, at.file):
            return self._open[2]
        self._close_file()
        try:
            fd = os.open(self._relay.path(at), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError as error:
            raise Retryable(
                "MR-2011", f"{at} is not in the relay log", directory=self._relay.root
            ) from error
        self._open = (at.subdir, at.file, fd)
        return fd

    def _close_file(self) -> None:
        if self._open is not None:
            os.close(self._open[2])
            self._open = None
