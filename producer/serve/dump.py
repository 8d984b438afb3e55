"""Streams a relay log to one client: whole files in order, from a position or after its GTIDs.

| the client names       | it gets                                                                                     |
|------------------------|---------------------------------------------------------------------------------------------|
| a file and a position  | the bytes from there on, then every later file                                              |
| GTIDs                  | the newest file that begins no later than its first missing transaction, without those that |
|                        | it has                                                                                      |

Where another member's sub-directory follows, its first file also holds transactions that were sent already. A client
that names GTIDs continues without them. A client that names positions continues at the first new transaction, inside
that file. If both members logged these transactions in another order, only GTIDs distinguish them: error 1236.

A ROTATE at the end of the newest file is sent once the next file is there. Until then the client could take the
position of a heartbeat for that of the file that it names.

Guarantees: no event is sent before it is durable in the relay log and its source transaction is whole; each is checked
before it is sent. Not done here: commands (``session``).
"""

import threading
import time
from uuid import UUID
from zlib import crc32

import numpy as np

from millrace.errors import MillraceError, Retryable
from millrace.producer.binlog import events as t
from millrace.producer.binlog import framing, transactions
from millrace.producer.binlog.compiled import Words
from millrace.producer.binlog.crc import TABLES
from millrace.producer.binlog.framing import DONE_WORDS, frame_events
from millrace.producer.binlog.gtid_events import NUMBER, SOURCE_HIGH, SOURCE_LOW, TAG, TAG_BYTES_MAX
from millrace.producer.relay.stored_file import StoredFile, open_stored, read_stored
from millrace.producer.serve.artificial import inner_format_description, rotate_event, sign_of_life
from millrace.producer.serve.catalogue import Catalogue, Served, ServedFile
from millrace.producer.serve.requests import DUMP_ERROR, STATE, DumpRequest
from millrace.producer.serve.wire import PAYLOAD_MAX, Refusal, Wire, eof_packet
from millrace.schemas.gtid import Flavour, GtidPosition, GtidSet, MariadbGtid, MariadbGtidSet, unite
from millrace.schemas.place import FIRST_POS

WINDOW_BYTES = 4 << 20
OUT_BYTES = WINDOW_BYTES * 5 // 4  # the smallest event, of 23 bytes, becomes 28
STOP_S = 1.0  # how soon an idle dump notices its end

_DAMAGE = {
    transactions.BAD_LENGTH: "an impossible length",
    transactions.BAD_CHECKSUM: "a wrong checksum",
    transactions.BAD_POSITION: "a wrong position",
    transactions.BAD_BODY: "a malformed GTID",
}


class Dump:
    """A dump for one client; ``run`` returns at the end of a dump that is not endless."""

    def __init__(
        self, wire: Wire, catalogue: Catalogue, request: DumpRequest, *, server_id: int
    ) -> None:
        self.sent_bytes = 0
        self.ended_by: Refusal | None = None  # why another thread ended it
        self._wire = wire
        self._catalogue = catalogue
        self._request = request
        self._server_id = server_id
        self._is_mariadb = catalogue.flavour is Flavour.MARIADB
        self._served: Served = catalogue.served
        self._file: ServedFile | None = None
        self._stored: StoredFile | None = None
        self._end = FIRST_POS  # how far the file may be read
        self._is_closed = False
        self._is_start = True  # the next file is the first one of a member
        self._done: GtidPosition | None = request.done
        self._rows = no_rows()
        self._state = np.zeros(framing.SLOTS, np.int64)
        self._window = np.empty(WINDOW_BYTES, np.uint8)
        self._out = np.empty(OUT_BYTES, np.uint8)
        self._folded = np.zeros(16, np.uint8)
        self._sent_at_s = time.monotonic()

    def run(self, stop: threading.Event) -> None:
        """Send until the client leaves (Disconnected), ``stop``, or an error (Refusal)."""
        state = self._state
        state[framing.SEQUENCE] = self._wire.sequence
        state[framing.HAS_ANNOTATIONS] = self._request.has_annotations or not self._is_mariadb
        try:
            self._start()
            while not stop.is_set() and self.ended_by is None:
                if not self._send_more() and not self._go_on():
                    self._send_packet(eof_packet())
                    return
        except FileNotFoundError as error:
            raise self._refuse("the file was purged from the relay log") from error
        except OSError as error:
            raise self._refuse(f"the relay log can't be read: {error.strerror}") from error
        except MillraceError as error:
            raise self._refuse(str(error)) from error
        finally:
            self._close_file()
        raise self.ended_by or Refusal(1053, "08S01", "Server shutdown in progress")

    def end(self, why: Refusal) -> None:
        """End the dump from another thread."""
        self.ended_by = why

    # ---- where to start ------------------------------------------------------------------------------

    def _start(self) -> None:
        request, served = self._request, self._served
        if self._done is not None:
            file = served.start_for(self._done)
            if file is None:
                raise self._refuse(self._purged_text(self._done))
            self._begin(file, FIRST_POS)
            return
        file = served.find(request.file) if request.file else next(iter(served.files), None)
        if file is None:
            text = "Could not find first log file name in binary log index file"
            raise self._refuse(f"{text}: {request.file}; SHOW BINARY LOGS lists the files")
        word = "master" if self._is_mariadb else "source"
        asked = f"Client requested {word} to start replication from position"
        if request.pos < FIRST_POS:
            raise self._refuse(f"{asked} < 4")
        if request.pos > self._catalogue.size_of(served, file):
            raise self._refuse(f"{asked} > file size")
        self._begin(file, request.pos)

    def _begin(self, file: ServedFile, pos: int) -> None:
        """Send the heads of a file, and set its limits."""
        is_first = self._file is None
        self._close_file()
        self._file = file
        self._stored = open_stored(self._catalogue.path(file), self._catalogue.disk)
        self._state[framing.POS] = pos
        self._state[framing.IS_LEAVING_OUT] = 0
        self._rows = no_rows() if self._done is None else done_rows(self._done, file.before)
        self._state[framing.HINT] = 0
        self._look()
        self._send_head(file, pos, has_checksum=self._request.has_checksum or not is_first)

    def _send_head(self, file: ServedFile, pos: int, *, has_checksum: bool) -> None:
        """Send an artificial ROTATE, and the format description if the client must not take it for a new start."""
        is_continued = self._is_start and self._done is not None and not self._done.is_empty
        description = self._format_description()
        if is_continued:
            self._state[framing.POS] = FIRST_POS + len(description)
            pos = self._state[framing.POS] if self._is_mariadb else pos
        rotate = rotate_event(
            self._server_id, file.served_name, int(pos), has_checksum=has_checksum
        )
        self._send_event(rotate)
        if pos > FIRST_POS or is_continued:
            keeps_place = is_continued and not self._is_mariadb
            self._send_event(inner_format_description(description, keeps_place=keeps_place))
        self._is_start = False

    def _format_description(self) -> bytes:
        assert self._stored is not None
        head = read_stored(self._stored, FIRST_POS, FIRST_POS + t.HEADER_BYTES)
        size = int.from_bytes(head[9:13], "little")
        return read_stored(self._stored, FIRST_POS, FIRST_POS + size)

    def _look(self) -> None:
        """Take the newest snapshot, and how far the file may be read by it."""
        assert self._file is not None
        self._served = self._catalogue.served
        following = self._served.after(self._file)
        if following is not None:
            if not self._is_closed:
                self._is_closed = True
                self._end = self._catalogue.end_of(self._file, following, self._stored).end
        elif self._file == self._served.newest:
            self._end = self._served.end
        self._state[framing.HOLDS_ROTATE] = not self._is_closed

    # ---- sending -------------------------------------------------------------------------------------

    def _send_more(self) -> bool:
        """Send the next events of the file; False if there are none to send now."""
        assert self._stored is not None
        state = self._state
        pos = int(state[framing.POS])
        wanted = min(self._end - pos, WINDOW_BYTES)
        if wanted <= 0:
            return False
        length = self._stored.fill(self._window[:wanted].data, pos)
        if length < wanted:
            raise Retryable("MR-2011", f"{self.place()} is shorter than {self._end}")
        status, consumed, framed = self._frame(length)
        if framed:
            self._wire.sequence = int(state[framing.SEQUENCE])
            self._wire.send(self._out[:framed].data)
            self._note_sent(framed)
        if status == framing.IS_HELD:
            return consumed > 0
        if status == framing.IS_LARGE or (status == transactions.OK and not consumed):
            return self._send_large()
        if status not in (transactions.OK, framing.IS_FULL):
            raise self._explain(status)
        return True

    def _frame(self, length: int) -> tuple[int, int, int]:
        return frame_events(
            self._window, length, self._out, self._state, self._rows, TABLES, self._folded,
            self._is_mariadb,
        )  # fmt: skip

    def _send_large(self) -> bool:
        """Send or skip an event that is longer than a packet or than the window."""
        assert self._stored is not None
        state = self._state
        pos = int(state[framing.POS])
        head = read_stored(self._stored, pos, pos + t.HEADER_BYTES)
        size = int.from_bytes(head[9:13], "little")
        if size < t.EVENT_BYTES_MIN or pos + size > self._end:
            raise self._explain(transactions.BAD_LENGTH)
        if not state[framing.IS_LEAVING_OUT]:
            self._check_large(pos, size)
            left, begin, first = size + 1, pos, b"\0"
            while left >= 0:
                payload = min(left, PAYLOAD_MAX)
                piece = first + read_stored(self._stored, begin, begin + payload - len(first))
                self._send_packet(piece)
                begin += payload - len(first)
                left, first = (left - payload, b"") if payload == PAYLOAD_MAX else (-1, b"")
        state[framing.POS] += size
        return True

    def _check_large(self, pos: int, size: int) -> None:
        assert self._stored is not None
        found, body_end = 0, pos + size - t.CHECKSUM_BYTES
        for begin in range(pos, body_end, WINDOW_BYTES):
            piece = read_stored(self._stored, begin, min(begin + WINDOW_BYTES, body_end))
            found = crc32(piece, found)
        if found.to_bytes(4, "little") != read_stored(self._stored, body_end, pos + size):
            raise self._explain(transactions.BAD_CHECKSUM)

    def _send_event(self, event: bytes) -> None:
        self._send_packet(b"\0" + event)

    def _send_packet(self, payload: bytes) -> None:
        self._wire.write(payload)
        self._state[framing.SEQUENCE] = self._wire.sequence
        self._note_sent(len(payload))

    def _note_sent(self, count: int) -> None:
        self._sent_at_s = time.monotonic()
        self.sent_bytes += count

    # ---- at the end of a file ------------------------------------------------------------------------

    def _go_on(self) -> bool:
        """Wait for more, or begin the next file; False at the end of a dump that is not endless."""
        assert self._file is not None
        if not self._is_closed:
            self._look()
            return self._is_closed or self._has_more() or self._wait_if_endless()
        following = self._served.after(self._file)
        if following is None:  # every later file was purged
            raise self._refuse("could not find next log")
        if following.subdir == self._file.subdir:
            if not self._file.precedes(following):
                raise self._refuse(f"could not find next log: {following.served_name} follows")
            self._is_closed = False
            self._begin(following, FIRST_POS)
            return True
        return self._cross(following) or self._wait_if_endless()

    def _has_more(self) -> bool:
        """Whether there is more than a ROTATE that is held."""
        pos = int(self._state[framing.POS])
        if pos >= self._end:
            return False
        assert self._stored is not None
        kind = read_stored(self._stored, pos, pos + t.HEADER_BYTES)[4:5]
        return kind != bytes([t.ROTATE])

    def _wait_if_endless(self) -> bool:
        """Wait for a new snapshot; send a heartbeat when it is due. False if the dump is not endless."""
        assert self._file is not None
        if not self._request.is_endless:
            return False
        period_s = self._request.heartbeat_s
        due_s = self._sent_at_s + period_s - time.monotonic() if period_s else STOP_S
        self._served = self._catalogue.wait(self._served, min(max(due_s, 0.0), STOP_S))
        self._wire.check_open()
        if period_s and time.monotonic() - self._sent_at_s >= period_s:
            pos = int(self._state[framing.POS])
            self._send_event(sign_of_life(self._server_id, self._file.served_name, pos))
        return True

    def _cross(self, following: ServedFile) -> bool:
        """Continue in the sub-directory of another member; False while its first new transaction is not known."""
        assert self._file is not None
        if not self._catalogue.is_joined(self._file, following):
            text = f"the log of {self._file.subdir.server} ends here; {following.served_name}"
            raise self._refuse(f"could not find next log: {text} does not continue it")
        position = self._catalogue.end_of(self._file, None, self._stored).position
        done = position if self._done is None else unite(self._done, position)
        file = self._catalogue.served.start_in(following.subdir, done)
        if file is None:
            raise self._refuse(f"could not find next log: no file follows {position}")
        pos = FIRST_POS if self._done is not None else self._first_new(file, done)
        if pos is None:
            return False
        self._done = None if self._done is None else done
        self._is_closed, self._is_start = False, True
        self._begin(file, pos)
        return True

    def _first_new(self, file: ServedFile, done: GtidPosition) -> int | None:
        """Where the first transaction after ``done`` begins; None until all of ``done`` is durable in the file.

        Refusal if one of ``done`` comes later than it.
        """
        rows = done_rows(done, file.before)
        state = np.zeros(framing.SLOTS, np.int64)
        state[framing.POS], state[framing.IS_SEARCHING] = FIRST_POS, 1
        end = self._catalogue.size_of(self._catalogue.served, file)
        stored = open_stored(self._catalogue.path(file), self._catalogue.disk)
        try:
            status = _search(stored, state, rows, end, is_mariadb=self._is_mariadb)
        finally:
            stored.close()
        if status not in (transactions.OK, framing.IS_FOUND):
            raise self._explain(status)
        left_out = int(state[framing.LEFT_OUT_COUNT])
        if not _left_count(rows, left_out, is_mariadb=self._is_mariadb):
            return int(state[framing.POS])
        if status == transactions.OK:
            return None
        text = (
            "logged the last transactions in another order; only a client with GTIDs can continue"
        )
        raise self._refuse(f"could not find next log: {file.subdir.server} {text}")

    # ---- errors --------------------------------------------------------------------------------------

    def _purged_text(self, done: GtidPosition) -> str:
        if self._is_mariadb:
            return (
                "Could not find GTID state requested by slave in any binlog files. Probably the slave state is"
                " too old and required binlog files have been purged."
            )
        served = self._served
        missing = ""
        if served.files and isinstance(done, GtidSet):
            before = served.files[served.chain].before
            assert isinstance(before, GtidSet)
            missing = str(before - done)
        return (
            "Cannot replicate because the source purged required binary logs. Replicate the missing transactions"
            " from elsewhere, or provision a new replica from backup. The GTID set sent by the replica is"
            f" '{done}', and the missing transactions are '{missing}'"
        )

    def _explain(self, status: int) -> Refusal:
        if status == framing.DIVERGED:
            words = self._state[framing.FOUND :].tolist()
            gtid = MariadbGtid(words[SOURCE_LOW], words[SOURCE_HIGH], words[NUMBER])
            return self._refuse(
                f"connecting slave requested to start from GTID {self._done}, which is not in the master's binlog:"
                f" {gtid} is. The slave has diverged."
            )
        what = _DAMAGE.get(status, "an unknown form")
        return self._refuse(f"I/O error reading log event: the event at {self.place()} has {what}")

    def _refuse(self, text: str) -> Refusal:
        return Refusal(DUMP_ERROR, STATE, text)

    def place(self) -> str:
        """Where the dump is."""
        name = self._file.served_name if self._file is not None else ""
        return f"{name}:{self._state[framing.POS]}"

    def _close_file(self) -> None:
        if self._stored is not None:
            stored, self._stored = self._stored, None
            stored.close()


def _search(
    stored: StoredFile, state: "np.ndarray", rows: "np.ndarray", end: int, *, is_mariadb: bool
) -> int:
    """Walk to the first transaction that is not in ``rows``; OK if there is none before ``end``."""
    window, folded = np.empty(WINDOW_BYTES, np.uint8), np.zeros(16, np.uint8)
    nothing = np.empty(0, np.uint8)
    while (pos := int(state[framing.POS])) < end:
        length = stored.fill(window[: end - pos].data, pos)
        status, consumed, _ = frame_events(
            window, length, nothing, state, rows, TABLES, folded, is_mariadb
        )
        if status != transactions.OK:
            return status
        if not consumed:
            wanted = int.from_bytes(window[9:13].tobytes(), "little")
            if pos + wanted > end:
                break
            window = np.empty(wanted, np.uint8)
    return transactions.OK


def _left_count(rows: "np.ndarray", left_out: int, *, is_mariadb: bool) -> int:
    """How many transactions (MariaDB: domains) of ``rows`` were not met."""
    if is_mariadb:
        return int((rows[:, framing.STOP] == 0).sum())
    return int((rows[:, framing.STOP] - rows[:, framing.FIRST]).sum()) - left_out


def done_rows(done: GtidPosition, before: GtidPosition) -> Words:
    """One row for each range of ``done`` that a file may hold that begins after ``before``."""
    if isinstance(done, GtidSet):
        assert isinstance(before, GtidSet)
        ranges = list((done - before).intervals())
        rows = np.zeros((len(ranges), DONE_WORDS), np.int64)
        for row, ((uuid, tag), bounds) in zip(rows, ranges, strict=True):
            row[:TAG] = _words(uuid)
            padded = tag.encode().ljust(TAG_BYTES_MAX, b"\0")
            row[TAG:NUMBER] = np.frombuffer(padded, "<i8")
            row[NUMBER:] = bounds
        return rows
    assert isinstance(done, MariadbGtidSet)
    assert isinstance(before, MariadbGtidSet)
    open_domains = [gtid for gtid in done.gtids() if not _is_passed(gtid, before)]
    rows = np.zeros((len(open_domains), DONE_WORDS), np.int64)
    for row, gtid in zip(rows, open_domains, strict=True):
        row[:TAG] = gtid.domain, gtid.server
        row[NUMBER] = np.uint64(gtid.sequence).astype(np.int64)
    return rows


def _is_passed(gtid: MariadbGtid, before: MariadbGtidSet) -> bool:
    """Whether a file after ``before`` begins after this GTID. The files before it were checked when they were sent."""
    last = before.last(gtid.domain)
    return last is not None and (last.sequence > gtid.sequence or last == gtid)


def no_rows() -> Words:
    return np.zeros((0, DONE_WORDS), np.int64)


def _words(uuid: UUID) -> "Words":
    return np.frombuffer(uuid.bytes, "<i8")
