"""How far the newest relay file is durable, for other processes: they may show these bytes to others.

    <relay_dir>/relay.durable    crc32 of the rest, 8 hex digits | space | subdir/file:pos | spaces up to NOTE_BYTES

The writer overwrites it in place after each fsync, in one write. relay.meta is replaced once a second and may miss the
last fsync before a pause, so it can't answer this.

Guarantees: the bytes up to the noted position were durable when it was written, and end with a whole source
transaction. After a crash, the note may be older than the files, never newer. Not done here: making the note durable.
"""

from pathlib import Path
from zlib import crc32

from millrace.errors import Fatal
from millrace.log import get_logger
from producer.relay.files import DISK, Files, read_all, write_all
from schemas.place import Coordinates

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
