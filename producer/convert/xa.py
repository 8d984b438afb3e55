"""Prepared XA transactions: the position of their events, by xid, from XA PREPARE to XA COMMIT or XA ROLLBACK.

    MySQL     GTID, XA START, rows, XA END, XA_PREPARE          … GTID, XA COMMIT
    MariaDB   GTID (flag 64), rows, XA END, XA_PREPARE          … GTID, XA COMMIT

XA_PREPARE event: one phase 1 | format id 4 | gtrid length 4 | bqual length 4 | gtrid, bqual. Statements write the same
as ``X'gtrid',X'bqual',format``. Here both are the text ``gtrid.bqual.format`` in hex.

The converter remembers prepared transactions while it reads the relay log, until their rows are written. A converter
that begins after an XA PREPARE searches for it file by file, newest first. So nothing is stored, but the relay log must
reach back that far. During the search, and until the batch with the last of the rows is published, it holds the files
against purge: earlier batches do not know that they are needed. If the file no longer exists,
``producer.source.set_stream`` restarts the relay log at the oldest binlog.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from millrace.producer.binlog import events as t
from millrace.producer.binlog.walk import (
    FOUND_AT,
    FOUND_BYTES,
    FOUND_METHOD,
    FOUND_WORDS,
    find_prepared,
)
from millrace.producer.binlog.zstd import InflatedStream, MemorySource, ZstdError
from millrace.producer.convert.event_sources import (
    WINDOW_BYTES,
    Reader,
    checksum_bytes_of,
    open_payload,
    writable,
)
from millrace.schemas.byte_reader import ByteReader
from millrace.schemas.place import FIRST_POS, Coordinates

Release = Callable[[], None]

FOUND_MAX = 8192  # events that the compiled walk collects before Python looks at them
# More than the head of a statement: status variables, a database, XA START (``transactions.QUERY_HEAD_BYTES_MAX``).
XA_START_BYTES_MAX = 128 << 10
_NO_END = 1 << 62
_ZSTD = 0

_HEX = re.compile(r"[xX]'([0-9A-Fa-f]*)'")
_FORMAT = re.compile(r",\s*(\d+)\s*$")


@dataclass(frozen=True, slots=True)
class XaGroup:
    """The events from ``start`` (after the GTID) to ``end_pos`` (after XA_PREPARE or the payload), in one file."""

    start: Coordinates
    end_pos: int
    checksum_bytes: int


class XaGroups:
    """Transactions that are prepared and not yet committed or rolled back."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._groups: dict[str, XaGroup] = {}
        self._holds: dict[str, Release] = {}  # of transactions found by a search
        self._over: list[Release] = []

    def prepare(self, xid: str, group: XaGroup) -> None:
        """Remember a prepared transaction."""
        self._groups[xid] = group

    def forget(self, xid: str) -> None:
        """Forget a transaction that is rolled back, or committed and converted."""
        self._groups.pop(xid, None)
        if xid in self._holds:
            self._over.append(self._holds.pop(xid))

    def oldest(self) -> Coordinates | None:
        """The start of the oldest prepared transaction: the relay log is needed from there on."""
        return min((group.start for group in self._groups.values()), default=None)

    def take_releases(self) -> list[Release]:
        """Releases for transactions forgotten since the last call, due once the records up to here are published."""
        taken, self._over = self._over, []
        return taken

    def find_committed(self, xid: str, until: Coordinates) -> XaGroup | None:
        """The transaction's rows before `until`, held until it is forgotten. None: not in the relay log."""
        group = self._groups.get(xid) or self._search(xid, until)
        if group is not None:
            self._groups[xid] = group
        return group

    def _search(self, xid: str, until: Coordinates) -> XaGroup | None:
        """The last prepared transaction with this xid in the relay log."""
        files = self._reader.files_until(until)
        release = self._reader.hold(files[0]) if files else _nothing
        try:
            for file in reversed(files):
                group = self._search_file(xid, file, until)
                if group is not None:
                    self._holds[xid] = self._reader.hold(group.start)
                    return group
        finally:
            release()
        return None

    def _search_file(self, xid: str, file: Coordinates, until: Coordinates) -> XaGroup | None:
        """The last one in a file. The walk is compiled; Python sees only events that may hold an XA PREPARE."""
        found: XaGroup | None = None
        at, group_pos, checksum_bytes = file, file.pos, 0
        if file.pos > FIRST_POS:  # of ``producer.trial``, where a file may begin later
            head = self._reader.read(file.at(FIRST_POS), bytes_max=t.HEADER_BYTES)
            checksum_bytes = checksum_bytes_of(head.payload)
        end_pos = until.pos if (file.subdir, file.file) == (until.subdir, until.file) else _NO_END
        rows = np.zeros((FOUND_MAX, FOUND_WORDS), np.int64)
        while at.pos < end_pos:
            span = self._reader.read(at, bytes_max=WINDOW_BYTES, cuts_payloads=True)
            window = writable(span.payload)
            if not window.size:
                break
            offset, count = 0, FOUND_MAX
            while count == FOUND_MAX:
                count, offset, group = find_prepared(
                    window, offset, window.size, group_pos - at.pos, rows, True
                )
                group_pos = at.pos + group
                for row in rows[:count].tolist():
                    begin, size, group = row[:3]
                    if at.pos + begin >= end_pos:
                        return found
                    event = window[begin : begin + size].data
                    if event[4] == t.FORMAT_DESCRIPTION:
                        checksum_bytes = checksum_bytes_of(event)
                    elif _may_prepare(event, row, checksum_bytes):
                        here = at.at(at.pos + begin)
                        if xid in prepared_xids(event, checksum_bytes, here, self._reader):
                            end = here.pos + size
                            found = XaGroup(at.at(at.pos + group), end, checksum_bytes)
            at = at.at(at.pos + offset)
        return found


def _nothing() -> None:
    """The release when nothing is held."""


def xid_of_prepare(body: bytes) -> tuple[str, bool]:
    """The xid, and whether XA_PREPARE also commits (one phase)."""
    reader = ByteReader(body, "XA prepare event")
    one_phase = reader.uint(1) != 0
    format_id, gtrid, bqual = reader.uint(4), reader.uint(4), reader.uint(4)
    return f"{reader.take(gtrid).hex()}.{reader.take(bqual).hex()}.{format_id}", one_phase


def xid_of_statement(text: str) -> str:
    """The xid in ``XA COMMIT X'…',X'…',1``."""
    parts = [*(found.lower() for found in _HEX.findall(text)), "", ""]
    format_id = found[1] if (found := _FORMAT.search(text)) else "1"
    return f"{parts[0]}.{parts[1]}.{format_id}"


def prepared_xids(
    event: memoryview, checksum_bytes: int, at: Coordinates, reader: Reader
) -> list[str]:
    """The xids that an event prepares; the event may be a payload, or the beginning of a large one."""
    if event[4] == t.XA_PREPARE:
        body = event[t.HEADER_BYTES : len(event) - checksum_bytes]
        return [xid_of_prepare(bytes(body))[0]]
    if event[4] != t.TRANSACTION_PAYLOAD:
        return []
    found: list[str] = []
    payload = open_payload(event, checksum_bytes, at, reader)
    rows = np.zeros((1, FOUND_WORDS), np.int64)
    while payload.load_next():
        window = payload.window
        while True:
            count, offset, _ = find_prepared(window, payload.offset, window.size, 0, rows, False)
            payload.offset = offset
            if not count:
                break
            begin, size = rows[0].tolist()[:2]
            found += prepared_xids(window[begin : begin + size].data, 0, at, reader)
    return found


def _may_prepare(event: memoryview, row: list[int], checksum_bytes: int) -> bool:
    """Whether an event may hold an XA PREPARE. A payload without XA START at its beginning does not.

    The server writes XA START first. So only that part of a payload is inflated.
    """
    method, data_at = row[FOUND_METHOD:]
    if event[4] != t.TRANSACTION_PAYLOAD or method != _ZSTD or data_at < 0:
        return True
    is_whole = len(event) == row[FOUND_BYTES]
    data = event[data_at - row[FOUND_AT] : len(event) - (checksum_bytes if is_whole else 0)]
    try:
        head = InflatedStream(MemorySource(data)).read(XA_START_BYTES_MAX)
    except ZstdError:
        return True  # `prepared_xids` names the damage
    return b"XA START" in head.upper()
