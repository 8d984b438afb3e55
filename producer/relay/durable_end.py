"""Grouped fsync, and how far the newest relay file is durable, for other processes.

One thread makes written bytes durable, by count of bytes or by delay, whichever comes first. A write costs the writer
only a counter. After each fsync the writer notes the end, up to which other processes may show the bytes to others:

    <relay_dir>/relay.durable    crc32 of the rest, 8 hex digits | space | subdir/file:pos | spaces up to NOTE_BYTES

The note is overwritten in place, in one write. relay.meta is replaced once a second and may miss the last fsync before
a pause, so it can't answer this.

Guarantees: the bytes up to the noted position were durable when it was written, and end with a whole source
transaction. After a crash, the note may be older than the files, never newer. If ``sync`` fails, the error is kept and
raised by the next ``count_written``, and nothing is synced any more. Not done here: making the note durable.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

from millrace.errors import Fatal, MillraceError
from millrace.log import get_logger
from millrace.producer.relay.files import DISK, Files, read_all, write_all
from millrace.schemas.place import Coordinates

DURABLE_NAME = "relay.durable"
NOTE_BYTES = 512  # sub-directories have up to 60 characters, files up to 255
_SUM_DIGITS = 8

log = get_logger("producer.relay")


def note_durable(root: Path, at: Coordinates, files: Files = DISK) -> None:
    """Note that everything up to ``at`` is durable. A disk error is only logged: the note is a hint."""
    place = f" {at}".encode().ljust(NOTE_BYTES - _SUM_DIGITS)
    note = f"{crc32(place):08x}".encode() + place
    path = root / DURABLE_NAME
    try:
        try:
            fd = files.open(path)
        except FileNotFoundError:
            fd = files.open(path, is_new=True)
        try:
            write_all(files, fd, memoryview(note), 0)
        finally:
            files.close(fd)
    except OSError as error:
        log.warning("durable end not noted", file=str(path), error=error)


def read_durable(root: Path, files: Files = DISK) -> Coordinates | None:
    """The noted position; None if there is none, or if it is being written."""
    try:
        note = read_all(files, root / DURABLE_NAME)
    except FileNotFoundError:
        return None
    place = note[_SUM_DIGITS:]
    if note[:_SUM_DIGITS] != f"{crc32(place):08x}".encode():
        return None
    try:
        return Coordinates.parse(place.decode().strip())
    except (Fatal, UnicodeDecodeError):
        return None


@dataclass(frozen=True, slots=True)
class SyncPolicy:
    """A power cut loses at most the last ``bytes_max`` or ``delay_ms`` of the relay log, which are fetched again.

    16 MiB at 500 MB/s take 30 ms. A delay of 200 ms means five fsyncs per second at low load.
    """

    bytes_max: int = 16 << 20
    delay_ms: int = 200


class SyncThread:
    """Calls ``sync`` while written bytes are not durable."""

    def __init__(self, policy: SyncPolicy, sync: Callable[[], None]) -> None:
        self._policy = policy
        self._sync = sync
        self._condition = threading.Condition()
        self._unsynced_bytes = 0
        self._oldest_at_s = 0.0
        self._error: BaseException | None = None
        self._is_stopped = False
        self._thread = threading.Thread(target=self._run, name="relay-sync", daemon=True)
        self._thread.start()

    def count_written(self, count_bytes: int) -> None:
        """Count written bytes. Raises the error that ``sync`` failed with, if it did."""
        with self._condition:
            self.raise_failure()
            if self._unsynced_bytes == 0:
                self._oldest_at_s = time.monotonic()
                self._condition.notify()
            self._unsynced_bytes += count_bytes
            if self._unsynced_bytes >= self._policy.bytes_max:
                self._condition.notify()

    def raise_failure(self) -> None:
        """Raise the error that ended the thread, if any: Retryable MR-2003, MR-2002, an error of the content, a bug."""
        error = self._error
        if isinstance(error, MillraceError):
            raise type(error)(error.code, error.message, **error.context) from error
        if error is not None:
            raise error

    def stop(self) -> None:
        """End the thread. The caller must sync the remaining bytes."""
        with self._condition:
            self._is_stopped = True
            self._condition.notify()
        self._thread.join()

    def _run(self) -> None:
        try:
            while self._wait_until_due():
                self._sync()
        except BaseException as error:  # noqa: BLE001 - raised by `count_written`, in the writer's thread
            with self._condition:
                self._error = error

    def _wait_until_due(self) -> bool:
        with self._condition:
            while not self._is_stopped:
                if self._unsynced_bytes == 0:
                    self._condition.wait()
                    continue
                left_s = self._oldest_at_s + self._policy.delay_ms / 1000 - time.monotonic()
                if left_s <= 0 or self._unsynced_bytes >= self._policy.bytes_max:
                    self._unsynced_bytes = 0
                    return True
                self._condition.wait(left_s)
            return False
