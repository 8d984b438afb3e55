"""Reads the relay log while it is written: whole, intact events of whole source transactions, in order.

A span never includes part of an unfinished source transaction. It cuts an event only if the caller asks for it
(``cuts_payloads``): of a large TRANSACTION_PAYLOAD it has the beginning, and ``open_event`` streams the whole. Every
event is checked again (CRC-32, length, position): damage on disk raises Fatal MR-2004 and never becomes rows.

Files are read without gaps. In a sub-directory, file numbers are consecutive, and a sub-directory starts no later than
where the preceding one ends. If a file is missing, no reader starts before the gap (``first``, ``seek``), and a reader
that reaches it raises Retryable MR-2011.

    at = reader.seek(progress.gtid_set)              # the file that holds the first wanted GTID
    while reader.wait(at, timeout_s=1.0):
        span = reader.read(at, bytes_max=4 << 20)    # may be empty at the end of a file:
        at = at.at(at.pos + len(span.payload)) if len(span.payload) else reader.after_file(at)

Each reader holds the files from its start until ``release``; purge keeps held files. Each reader belongs to one thread;
any number of readers may run beside the writer. Not done here: decoding.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Self

import numpy as np

from millrace.errors import Fatal, Retryable
from millrace.log import get_logger
from millrace.producer.binlog import transactions
from millrace.producer.binlog.compiled import Bytes
from millrace.producer.binlog.crc import TABLES
from millrace.producer.binlog.events import EVENT_BYTES_MIN, HEADER_BYTES, TRANSACTION_PAYLOAD
from millrace.producer.binlog.walk import scan_events
from millrace.producer.relay.files import disk_errors
from millrace.producer.relay.large_event import EventStream, has_right_sum
from millrace.producer.relay.layout import Subdir, file_number, parse_subdir
from millrace.producer.relay.recovery import walk_file
from millrace.producer.relay.stored_file import StoredFile, open_stored
from millrace.producer.relay.writer import RelayLog
from millrace.schemas.gtid import Flavour, GtidPosition, has_same_sequence_from_other_server
from millrace.schemas.place import FIRST_POS, Coordinates

log = get_logger("producer.relay")

_DAMAGE = {
    transactions.BAD_LENGTH: "an impossible length",
    transactions.BAD_CHECKSUM: "a wrong checksum",
    transactions.BAD_POSITION: "a wrong position",
}


@dataclass(frozen=True, slots=True)
class RelaySpan:
    """Whole events of whole source transactions, which start at ``at``; or the beginning of one large payload."""

    at: Coordinates
    payload: memoryview


class RelayReader:
    """One reader of a ``RelayLog``. ``owner`` is the task that reads, which an operator may evict (MR-2014)."""

    def __init__(self, relay: RelayLog, *, owner: str = "") -> None:
        self._relay = relay
        self._owner = owner
        self._open: tuple[str, str, StoredFile] | None = None  # sub-directory, name
        self._continuous: dict[tuple[tuple[Subdir, str], tuple[Subdir, str]], bool] = {}
        self._holders: list[object] = []
        self._folded = np.zeros(16, np.uint8)
        self._mariadb = relay.flavour is Flavour.MARIADB

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file and release all holds. A disk error is only logged: everything has been read."""
        for holder in (self, *self._holders):
            self._relay.holds.drop(holder)
        try:
            self._close_file()
        except OSError as error:
            log.warning("relay file closed after an error", error=error)

    # ---- where to start ----------------------------------------------------------------------------

    def first(self) -> Coordinates | None:
        """The start of the file with the earliest position, among files with no gap up to the end of the log.

        None if there is no file. The newest file does not count until its head has arrived. The result is not always
        the oldest file: a sub-directory may exist because the earlier ones start too late.
        """
        newer: tuple[Subdir, str] | None = None
        first: tuple[tuple[Subdir, str], GtidPosition] | None = None
        for file in reversed(self._files()):
            if newer is not None and not self._is_continuous(file, newer):
                break
            before = self._relay.position_before(Coordinates(str(file[0]), file[1], FIRST_POS))
            if before is None and first is not None:
                raise Fatal("MR-2004", f"the head of {file[0]}/{file[1]} is damaged")
            if before is not None and (first is None or first[1].includes(before)):
                first = (file, before)
            newer = file
        return self._hold_start(*first[0]) if first is not None else None

    def seek(self, gtid_set: GtidPosition) -> Coordinates | None:
        """The start of the file that holds the first transaction after ``gtid_set``.

        This is the newest file whose previous GTIDs are all in ``gtid_set``. None if the relay log starts later, or if
        there is a gap between that file and the end. If the last sequence before that file was logged by another
        MariaDB server than ``gtid_set`` names, the preceding file is returned, which holds that transaction.
        """
        found = next(self._places(gtid_set), None)
        return self._hold_start(*found) if found is not None else None

    def seek_all(self, gtid_set: GtidPosition) -> list[Coordinates]:
        """The same for each sub-directory that has one, newest first. The servers' files may differ."""
        found: dict[Subdir, Coordinates] = {}
        for subdir, name in self._places(gtid_set):
            found.setdefault(subdir, Coordinates(str(subdir), name, FIRST_POS))
        places = list(found.values())
        if places:
            self.release(places[-1])
        return places

    def _places(self, gtid_set: GtidPosition) -> Iterator[tuple[Subdir, str]]:
        """The files whose previous GTIDs are all in ``gtid_set`` and that no gap follows, newest first."""
        newer: tuple[Subdir, str] | None = None
        files = self._files()
        for index, file in reversed(list(enumerate(files))):
            if newer is not None and not self._is_continuous(file, newer):
                return
            before = self._relay.position_before(Coordinates(str(file[0]), file[1], FIRST_POS))
            # The position before the first file of a sub-directory is partly a guess
            # (``drivers.mysql.start_file``).
            is_certain = index > 0 and files[index - 1][0] == file[0]
            if (
                before is not None
                and gtid_set.includes(before)
                and not (is_certain and has_same_sequence_from_other_server(before, gtid_set))
            ):
                yield file
            newer = file

    # ---- reading -----------------------------------------------------------------------------------

    def read(self, at: Coordinates, *, bytes_max: int, cuts_payloads: bool = False) -> RelaySpan:
        """Read events from ``at`` on, at most ``bytes_max`` bytes unless one event is larger.

        With ``cuts_payloads``, a TRANSACTION_PAYLOAD that is larger is checked, but only its beginning is returned.
        Fatal MR-2004, MR-2014; Retryable MR-2011, MR-2002.
        """
        self._relay.holds.check(self, self._owner)
        end = self._relay.visible_end(at)
        if at.pos >= end:
            return RelaySpan(at, memoryview(b""))
        wanted = min(end - at.pos, max(bytes_max, EVENT_BYTES_MIN))
        buffer = self._fetch(at, wanted)
        status, length = scan_events(buffer, wanted, at.pos, TABLES, self._folded, self._mariadb)
        if status == transactions.OK and length == 0:
            head = self._fetch(at, HEADER_BYTES)
            wanted = _event_bytes(head)
            if at.pos + wanted > end:
                raise Fatal("MR-2004", f"an event at {at} is longer than the file")
            if cuts_payloads and head[4] == TRANSACTION_PAYLOAD:
                self._check_large(at, buffer)
                return RelaySpan(at, buffer.data)
            buffer = self._fetch(at, wanted)
            status, length = scan_events(
                buffer, wanted, at.pos, TABLES, self._folded, self._mariadb
            )
        if status != transactions.OK and length == 0:
            raise self._damaged(at, status)
        return RelaySpan(at, buffer.data[:length])

    def open_event(self, at: Coordinates) -> EventStream:
        """The bytes of the event at ``at`` without its checksum, in pieces. Errors as of ``read``."""
        size = _event_bytes(self._fetch(at, HEADER_BYTES))
        return EventStream(
            partial(self._fetch_piece, at),
            at.pos,
            size,
            damage=partial(self._damaged, at, transactions.BAD_CHECKSUM),
        )

    def wait(self, at: Coordinates, timeout_s: float) -> bool:
        """Wait until there are bytes after ``at``, in its file or a later one; False after ``timeout_s``."""
        self._relay.holds.check(self, self._owner)
        # A closed file may have to be walked. Walk it before the lock, or the writer would wait for it.
        self._relay.visible_end(at)
        with self._relay.condition:
            return self._relay.condition.wait_for(lambda: self._has_more(at), timeout_s)

    def after_file(self, at: Coordinates) -> Coordinates | None:
        """The start of the next file; None until ``at`` is at the end of a closed file. Retryable MR-2011."""
        self._relay.holds.check(self, self._owner)
        if at.pos < self._relay.visible_end(at):
            return None
        files = self._files()
        here = (parse_subdir(at.subdir), at.file)
        for known, following in pairwise(files):
            if known == here:
                if known[0] == following[0] and not _is_next(known[1], following[1]):
                    raise Retryable(
                        "MR-2011",
                        f"the file between {at.file} and {following[1]} is not in the relay log",
                        directory=self._relay.root,
                    )
                if known[0] != following[0] and self._relay.notes.is_apart(following[0]):
                    return None  # until the receiver has compared the two servers
                return Coordinates(str(following[0]), following[1], FIRST_POS)
        return None

    def files_until(self, at: Coordinates) -> Sequence[Coordinates]:
        """The starts of the files up to that of ``at``, oldest first and without a gap. They are not held."""
        found: list[Coordinates] = []
        newer: tuple[Subdir, str] | None = None
        for file in reversed(self._files()):
            start = Coordinates(str(file[0]), file[1], FIRST_POS)
            if start.order > at.order:
                continue
            if newer is not None and not self._is_continuous(file, newer):
                break
            found.append(start)
            newer = file
        return found[::-1]

    def hold(self, at: Coordinates) -> Callable[[], None]:
        """Hold the files from ``at`` on, regardless of ``release``, until the result is called or the reader closes."""
        holder = object()
        self._holders.append(holder)
        self._relay.holds.keep(holder, at, owner=self._owner)
        return lambda: self._relay.holds.drop(holder)

    def release(self, at: Coordinates) -> None:
        """Release the files before ``at``: this reader needs them no more."""
        self._relay.holds.keep(self, at, owner=self._owner)

    # ---- inside ------------------------------------------------------------------------------------

    def _files(self) -> list[tuple[Subdir, str]]:
        return self._relay.list_files()

    def _hold_start(self, subdir: Subdir, name: str) -> Coordinates:
        at = Coordinates(str(subdir), name, FIRST_POS)
        self.release(at)
        return at

    def _has_more(self, at: Coordinates) -> bool:
        return at.pos < self._relay.visible_end(at) or self.after_file(at) is not None

    def _is_continuous(self, older: tuple[Subdir, str], newer: tuple[Subdir, str]) -> bool:
        """Whether no transaction is missing between two adjacent files of the list.

        Two sub-directories of one server are never continuous: the second exists because the first was in doubt. Nor
        are two sub-directories if the second server was missing transactions of the first: those may exist nowhere
        else.
        """
        if older[0] == newer[0]:
            return _is_next(older[1], newer[1])
        if older[0].server == newer[0].server or self._relay.notes.is_apart(newer[0]):
            return False
        known = self._continuous.get((older, newer))
        if known is not None:
            return known
        wanted = self._relay.position_before(Coordinates(str(newer[0]), newer[1], FIRST_POS))
        if wanted is None:  # its head has not arrived yet
            wanted = self._relay.notes.before(newer[0])
        if wanted is None:  # the receiver requested the file that continues the log
            return True
        path = self._relay.root / str(older[0]) / older[1]
        with disk_errors(self._relay.root):
            walked = walk_file(path, self._relay.flavour, self._relay.disk)
        is_continuous = walked is not None and self._relay.notes.with_before(
            older[0], walked.position
        ).includes(wanted)
        self._continuous[older, newer] = is_continuous
        return is_continuous

    def _check_large(self, at: Coordinates, head: Bytes) -> None:
        """Check an event of which only ``head`` is in memory. Fatal MR-2004."""
        size = _event_bytes(head)
        if int.from_bytes(head[13:17].tobytes(), "little") != (at.pos + size) & 0xFFFFFFFF:
            raise self._damaged(at, transactions.BAD_POSITION)
        if not has_right_sum(partial(self._fetch_piece, at), at.pos, size):
            raise self._damaged(at, transactions.BAD_CHECKSUM)

    def _fetch_piece(self, at: Coordinates, pos: int, count: int) -> Bytes:
        self._relay.holds.check(self, self._owner)
        return self._fetch(at.at(pos), count)

    def _damaged(self, at: Coordinates, status: int) -> Fatal:
        return Fatal(
            "MR-2004",
            f"an event at {at} has {_DAMAGE[status]}",
            directory=self._relay.root,
            coordinates=at,
        )

    def _fetch(self, at: Coordinates, length: int) -> Bytes:
        buffer = np.empty(length, np.uint8)
        with disk_errors(self._relay.root, at):
            count = self._stored(at).fill(buffer.data, at.pos)
        if count < length:
            if self._relay.visible_end(at) < at.pos + length:  # cut back after a failed fsync
                raise Retryable("MR-2011", f"{at} was cut off", directory=self._relay.root)
            raise Fatal(
                "MR-2004", f"the file of {at} has become shorter", directory=self._relay.root
            )
        return buffer

    def _stored(self, at: Coordinates) -> StoredFile:
        if self._open is not None and self._open[:2] == (at.subdir, at.file):
            return self._open[2]
        self._close_file()
        file = open_stored(self._relay.path(at), self._relay.disk)
        self._open = (at.subdir, at.file, file)
        return file

    def _close_file(self) -> None:
        if self._open is not None:
            file, self._open = self._open[2], None  # cleared first: an fd must not be closed twice
            file.close()


def _event_bytes(head: Bytes) -> int:
    return int.from_bytes(head[9:13].tobytes(), "little")


def _is_next(older: str, newer: str) -> bool:
    return file_number(newer) == file_number(older) + 1
