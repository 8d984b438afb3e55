"""Names in a relay directory and their order, as in DM.

    <relay_dir>/
        lock                            held by the process that writes
        relay.durable                   how far the newest file is durable (``durable_end``)
        server-uuid.index               one sub-directory per line, oldest first
        <server>.<6-digit seq>/         <server>: MySQL's server_uuid; MariaDB's <domain>-<server_id>
            mysql-bin.000001            the server's files under their own names
            mysql-bin.000001.zst        the same, compressed (``compressed_file``)
            mysql-bin.000001.damaged    set aside (``quarantine``)
            relay.meta                  TOML: binlog-name, binlog-pos, binlog-gtid
            relay.before                the GTID set that the server had executed and that none of these files contains
            relay.apart                 optional: the transactions that the preceding sub-directory has and this
                                        server is missing

Names are ordered by their numbers, not as text, because seq and file numbers outgrow their padding
(``mysql-bin.999999``, ``….1000000``).

The index and relay.meta can be derived from the files. They are for people; ``recovery`` also reads relay.meta, for the
durable end. If they are missing or wrong, the start rewrites them. relay.before and relay.apart can't be derived. The
files of a server that was rebuilt from a backup don't name all the transactions that it has executed. After a failover,
a server may reuse the GTIDs of lost transactions, so the loss can't be detected later.

Guarantees: after a process crash, a replaced file has its old or its new content. After a power cut this holds for
durable replacements; other files may be unusable. Not done here: binlog contents.
"""

import errno
import json
import os
import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from millrace.errors import Fatal
from millrace.producer.relay.files import DISK, Files, read_all, write_all
from millrace.schemas.gtid import Flavour, GtidPosition, parse_gtid_set

INDEX_NAME = "server-uuid.index"
META_NAME = "relay.meta"
BEFORE_NAME = "relay.before"
DIVERGED_NAME = "relay.apart"
LOCK_NAME = "lock"
NOT_COMPARED = "not compared with the preceding sub-directory yet"  # a text of relay.apart
NEW_SUFFIX = ".new"  # of a file that will replace another one
PACKED_SUFFIX = ".zst"
DAMAGED_SUFFIX = ".damaged"
SEQ_DIGITS = 6
NAME_BYTES_MAX = 255

_SUBDIR = re.compile(r"(?P<server>[0-9A-Za-z-]+)\.(?P<seq>[0-9]{6,18})", re.ASCII)
_FILE = re.compile(r"[^/\x00-\x1f.][^/\x00-\x1f]*\.(?P<number>[0-9]{1,18})")


@dataclass(frozen=True, slots=True)
class Subdir:
    """A continuous series of one server's files. If continuity is in doubt, the next ``seq`` is started."""

    server: str
    seq: int

    def __str__(self) -> str:
        return f"{self.server}.{self.seq:0{SEQ_DIGITS}d}"


@dataclass(frozen=True, slots=True)
class Meta:
    """Where a sub-directory ends: the end of the last whole source transaction."""

    binlog_name: str
    binlog_pos: int
    binlog_gtid: str


def parse_subdir(name: str) -> Subdir | None:
    """Parse the name of a sub-directory; None for any other name."""
    found = _SUBDIR.fullmatch(name)
    return Subdir(found["server"], int(found["seq"])) if found else None


def file_number(name: str) -> int:
    """The number at the end of a binlog file's name; Fatal MR-2010 for an invalid name, such as one with a slash."""
    found = _FILE.fullmatch(name)
    if found is None or len(os.fsencode(name)) > NAME_BYTES_MAX:
        raise Fatal("MR-2010", f"{name!r} is not the name of a binlog file")
    return int(found["number"])


def is_file_name(name: str) -> bool:
    """Whether a binlog file may have this name."""
    return _FILE.fullmatch(name) is not None


def list_subdirs(root: Path, files: Files = DISK) -> list[Subdir]:
    found = (parse_subdir(name) for name in files.list_directories(root))
    return sorted((subdir for subdir in found if subdir), key=lambda subdir: subdir.seq)


def find_subdirs(root: Path, files: Files = DISK) -> list[Subdir]:
    """The same; none if ``root`` is missing."""
    try:
        return list_subdirs(root, files)
    except (FileNotFoundError, NotADirectoryError):
        return []


def list_files(directory: Path, files: Files = DISK) -> list[str]:
    """The binlog files of a sub-directory, oldest first, stored plain or compressed."""
    stored = {name.removesuffix(PACKED_SUFFIX) for name in files.list_files(directory)}
    names = [name for name in stored if _FILE.fullmatch(name)]
    return sorted(names, key=file_number)


def index_text(subdirs: Iterable[Subdir]) -> str:
    ordered = sorted(subdirs, key=lambda subdir: subdir.seq)
    return "".join(f"{subdir}\n" for subdir in ordered)


def read_index(root: Path, files: Files = DISK) -> str | None:
    """Read the index; None if it is missing or not UTF-8."""
    try:
        return read_all(files, root / INDEX_NAME).decode()
    except (FileNotFoundError, UnicodeDecodeError):
        return None


def write_index(root: Path, subdirs: Iterable[Subdir], files: Files = DISK) -> None:
    replace_file(root / INDEX_NAME, index_text(subdirs), is_durable=True, files=files)


def write_meta(directory: Path, meta: Meta, *, is_durable: bool, files: Files = DISK) -> None:
    """Replace relay.meta. It is a hint, so frequent replacements need not be durable."""
    text = (
        f"binlog-name = {json.dumps(meta.binlog_name)}\n"
        f"binlog-pos = {meta.binlog_pos}\n"
        f"binlog-gtid = {json.dumps(meta.binlog_gtid)}\n"
    )
    replace_file(directory / META_NAME, text, is_durable=is_durable, files=files)


def read_meta(directory: Path, files: Files = DISK) -> Meta | None:
    """Read relay.meta; None if it is missing or unusable."""
    try:
        table = tomllib.loads(read_all(files, directory / META_NAME).decode())
        name, pos, gtid = table["binlog-name"], table["binlog-pos"], table["binlog-gtid"]
    except (FileNotFoundError, ValueError, KeyError, RecursionError):
        return None
    if not (isinstance(name, str) and isinstance(pos, int) and isinstance(gtid, str)):
        return None
    return Meta(name, pos, gtid)


def write_before(directory: Path, before: GtidPosition, files: Files = DISK) -> None:
    """Write relay.before. Called once, before the first file of a sub-directory is created."""
    replace_file(directory / BEFORE_NAME, f"{before}\n", is_durable=True, files=files)


def read_before(directory: Path, flavour: Flavour, files: Files = DISK) -> GtidPosition | None:
    """Read relay.before; None if it is missing, which means that the files name every transaction. Fatal MR-2004."""
    try:
        return parse_gtid_set(flavour, read_all(files, directory / BEFORE_NAME).decode().strip())
    except FileNotFoundError:
        return None
    except (UnicodeDecodeError, Fatal) as error:
        message = f"{BEFORE_NAME} can't be read: {error}"
        raise Fatal("MR-2004", message, directory=directory) from error


def write_diverged(directory: Path, missing: str, files: Files = DISK) -> None:
    """Write relay.apart once, before the first file, if the sub-directory does not continue the preceding one."""
    replace_file(directory / DIVERGED_NAME, f"{missing}\n", is_durable=True, files=files)


def remove_diverged(directory: Path, files: Files = DISK) -> None:
    """Remove relay.apart: the sub-directory continues the preceding one."""
    files.unlink(directory / DIVERGED_NAME)


def is_diverged(directory: Path, files: Files = DISK) -> bool:
    """Whether the server was missing transactions that the preceding sub-directory ends with."""
    return DIVERGED_NAME in files.list_files(directory)


def read_diverged(directory: Path, files: Files = DISK) -> str:
    """Why the sub-directory does not continue the preceding one; "" if it does."""
    try:
        return read_all(files, directory / DIVERGED_NAME).decode(errors="replace").strip()
    except FileNotFoundError:
        return ""


def replace_file(path: Path, text: str, *, is_durable: bool, files: Files = DISK) -> None:
    """Replace the content of ``path`` with ``text``, atomically."""
    new_path = path.with_name(path.name + NEW_SUFFIX)
    fd = files.open(new_path, is_new=True)
    try:
        write_all(files, fd, memoryview(text.encode()), 0)
        if is_durable:
            files.sync(fd)
    finally:
        files.close(fd)
    files.replace(new_path, path)
    if is_durable:
        files.sync_directory(path.parent)


def remove_subdir(directory: Path, files: Files = DISK, *, with_damaged: bool = False) -> bool:
    """Remove a sub-directory that has no binlog files; False if it holds files of others, which are kept.

    Files that were set aside are kept unless ``with_damaged``.
    """
    for name in files.list_files(directory) if with_damaged else ():
        if name.endswith(DAMAGED_SUFFIX):
            files.unlink(directory / name)
    for name in (META_NAME, BEFORE_NAME, DIVERGED_NAME):
        files.unlink(directory / name)
        files.unlink(directory / (name + NEW_SUFFIX))
    try:
        files.remove_directory(directory)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        return False
    return True
