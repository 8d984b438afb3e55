"""Names in a relay directory, in the manner of DM, and their order.

    <relay_dir>/
        lock                            held by the process that writes
        server-uuid.index               one sub-directory a line, oldest first
        <server>.<6-digit seq>/         <server>: MySQL's server_uuid; MariaDB's <domain>-<server_id>
            mysql-bin.000001            the server's own files under the server's own names
            relay.meta                  TOML: binlog-name, binlog-pos, binlog-gtid

Numbers order names, never text: seq and file numbers grow beyond their padding (``mysql-bin.999999``, ``….1000000``).
The index and relay.meta repeat what the files say: both are rebuilt from them when missing.

Guarantees: a replaced file is there whole, old or new, after any crash. Not done here: binlog contents.
"""

import json
import os
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

from millrace.errors import Fatal

INDEX_NAME = "server-uuid.index"
META_NAME = "relay.meta"
LOCK_NAME = "lock"
SEQ_DIGITS = 6
NAME_BYTES_MAX = 255

_SUBDIR = re.compile(r"(?P<server>[0-9A-Za-z-]+)\.(?P<seq>[0-9]{6,18})", re.ASCII)
_FILE = re.compile(r"[^/\x00-\x1f.][^/\x00-\x1f]*\.(?P<number>[0-9]{1,18})")


@dataclass(frozen=True, slots=True)
class Subdir:
    """One run of files of one server; a doubt about continuity opens the next ``seq``."""

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
    """None when it is not the name of a sub-directory."""
    found = _SUBDIR.fullmatch(name)
    return Subdir(found["server"], int(found["seq"])) if found else None


def file_number(name: str) -> int:
    """The number at the end of a binlog file's name; Fatal MR-2010 for a name that could leave the directory."""
    found = _FILE.fullmatch(name)
    if found is None or len(os.fsencode(name)) > NAME_BYTES_MAX:
        raise Fatal("MR-2010", f"{name!r} is not the name of a binlog file")
    return int(found["number"])


def list_subdirs(root: Path) -> list[Subdir]:
    """Those that exist, oldest first."""
    found = (parse_subdir(path.name) for path in root.iterdir() if path.is_dir())
    return sorted((subdir for subdir in found if subdir), key=lambda subdir: subdir.seq)


def list_files(directory: Path) -> list[str]:
    """The binlog files of a sub-directory, oldest first."""
    names = [path.name for path in directory.iterdir() if _FILE.fullmatch(path.name)]
    return sorted(names, key=file_number)


def write_index(root: Path, subdirs: list[Subdir]) -> None:
    """Rewrite the index of sub-directories."""
    replace_file(root / INDEX_NAME, "".join(f"{subdir}\n" for subdir in subdirs), is_durable=True)


def write_meta(directory: Path, meta: Meta, *, is_durable: bool) -> None:
    """Replace relay.meta; it is a hint, so the frequent ones need not be durable."""
    text = (
        f"binlog-name = {json.dumps(meta.binlog_name)}\n"
        f"binlog-pos = {meta.binlog_pos}\n"
        f"binlog-gtid = {json.dumps(meta.binlog_gtid)}\n"
    )
    replace_file(directory / META_NAME, text, is_durable=is_durable)


def read_meta(directory: Path) -> Meta | None:
    """None when there is none or it can't be used."""
    try:
        table = tomllib.loads((directory / META_NAME).read_text())
        name, pos, gtid = table["binlog-name"], table["binlog-pos"], table["binlog-gtid"]
    except (FileNotFoundError, ValueError, KeyError, RecursionError):
        return None
    if not (isinstance(name, str) and isinstance(pos, int) and isinstance(gtid, str)):
        return None
    return Meta(name, pos, gtid)


def replace_file(path: Path, text: str, *, is_durable: bool) -> None:
    """Put ``text`` in the place of ``path`` in one step."""
    beside = path.with_name(path.name + ".new")
    with beside.open("w") as file:
        file.write(text)
        file.flush()
        if is_durable:
            os.fsync(file.fileno())
    beside.replace(path)
    if is_durable:
        sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    """Make the names in a directory durable."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
