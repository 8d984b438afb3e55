"""Compresses closed relay files.

A file is compressed if it is closed, whole, and no reader is in it. The steps, for a file F:

| step                                          | a crash after it leaves                                          |
|-----------------------------------------------|------------------------------------------------------------------|
| F.zst.new written and synced                  | F, and a file that the next start removes                        |
| F.zst.new read back: the CRC-32 of each event | the same                                                         |
| F.zst.new renamed to F.zst, directory synced  | both: the next start removes F.zst, and F is compressed again    |
| F unlinked                                    | F.zst; after a power cut perhaps both, as above                  |

At every moment F or F.zst is complete and durable. While a file is compressed, it is held against purge.
Not done here: reading (``compressed_file``, ``stored_file``), removing what a crash left (``uncompress``).
"""

import threading
from pathlib import Path

from millrace.errors import Fatal, Retryable
from millrace.faults import fault_point, register
from millrace.log import get_logger
from millrace.producer.relay.files import Files, disk_errors
from millrace.producer.relay.layout import NEW_SUFFIX
from millrace.producer.relay.recovery import walk_stored
from millrace.producer.relay.stored_file import PackedFile, packed_path, packed_pieces, write_pieces
from millrace.producer.relay.writer import RelayLog
from millrace.schemas.place import FIRST_POS, Coordinates

AFTER_PACKED_WRITE = register("relay.pack.after_write")
AFTER_PACKED_CHECK = register("relay.pack.after_check")
AFTER_PACKED_RENAME = register("relay.pack.after_rename")
AFTER_PLAIN_UNLINK = register("relay.pack.after_unlink")

INTERVAL_S = 5.0

log = get_logger("producer.relay")


def compress_closed(relay: RelayLog, stop: threading.Event) -> list[Coordinates]:
    """Compress every file that can be, oldest first, until ``stop`` is set, and return them. Retryable MR-2002."""
    done = []
    for subdir, name in relay.list_files():
        at = Coordinates(str(subdir), name, FIRST_POS)
        if stop.is_set():
            break
        if _is_candidate(relay, at) and _compress(relay, at):
            done.append(at)
    return done


def _is_candidate(relay: RelayLog, at: Coordinates) -> bool:
    end = relay.end()
    in_use = {(place.subdir, place.file) for place in relay.holds.places()}
    is_closed = end is not None and at.order[:2] < end.order[:2]
    with disk_errors(relay.root):
        names = relay.disk.list_files(relay.root / at.subdir)
    return is_closed and (at.subdir, at.file) not in in_use and at.file in names


def _compress(relay: RelayLog, at: Coordinates) -> bool:
    path, files, holder = relay.path(at), relay.disk, object()
    relay.holds.keep(holder, at)
    try:
        if (at.subdir, at.file) not in {(str(subdir), name) for subdir, name in relay.list_files()}:
            return False  # purged before it was held
        size = relay.visible_end(at)  # walks it: a damaged file is not compressed
        with disk_errors(relay.root, at):
            new_path = packed_path(path).with_name(packed_path(path).name + NEW_SUFFIX)
            _write_packed(files, path, new_path)
            fault_point(AFTER_PACKED_WRITE)
            _check(files, new_path, relay, size)
            fault_point(AFTER_PACKED_CHECK)
            files.keep_time(path, new_path)
            files.replace(new_path, packed_path(path))
            files.sync_directory(path.parent)
            fault_point(AFTER_PACKED_RENAME)
            files.unlink(path)
            fault_point(AFTER_PLAIN_UNLINK)
    finally:
        relay.holds.drop(holder)
    log.info("relay file compressed", file=f"{at.subdir}/{at.file}", bytes=size)
    return True


def _write_packed(files: Files, path: Path, new_path: Path) -> None:
    fd = files.open(path, is_read_only=True)
    try:
        write_pieces(files, new_path, packed_pieces(files, fd, files.size(fd)))
    finally:
        files.close(fd)


def _check(files: Files, new_path: Path, relay: RelayLog, size: int) -> None:
    """Read the compressed file back. Retryable MR-2002 if it does not give whole events of ``size`` bytes."""
    try:
        file = PackedFile(files, files.open(new_path, is_read_only=True), new_path.name)
        try:
            walked = walk_stored(file, relay.flavour)
        finally:
            file.close()
    except Fatal as error:
        raise Retryable("MR-2002", f"the disk returns other bytes: {error.message}") from error
    if walked is None or not walked.is_whole or walked.size != size:
        raise Retryable("MR-2002", f"{new_path.name} reads back differently", directory=relay.root)


class Compressor:
    """A thread that compresses closed files. An error is logged; the thread tries again."""

    def __init__(self, relay: RelayLog) -> None:
        self._relay = relay
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="relay-compress", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread; a file that is being compressed is completed."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(INTERVAL_S):
            try:
                compress_closed(self._relay, self._stop)
            except (Fatal, Retryable) as error:
                log.warning("relay file not compressed", error=str(error))
