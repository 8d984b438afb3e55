"""A JVM with the jars of a judge, which ends with the block. Times are in UTC there."""

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from millrace.deploy.servers.fetch import fetch_jars
from millrace.deploy.servers.programs import pyspark_jars
from millrace.jvm import java_program
from millrace.producer.binlog.events import CHECKSUM_BYTES, HEADER_BYTES, TABLE_MAP
from millrace.schemas.place import FIRST_POS

TYPE_AT = 4  # of an event
IVY_FILE = Path(__file__).with_name("ivy.xml")
SIZES_MB = {"maxwell": 20, "canal": 41}


@dataclass(frozen=True, slots=True)
class Judged:
    """One record of a row. ``place`` is the same for Millrace's: the source transaction, and the row's number in it."""

    database: str
    table: str
    place: tuple[str, int]
    key: str
    value: str


@contextmanager
def judge_jvm(name: str, folder: Path) -> Iterator[Any]:
    """The JVM's classes by their names, with the jars of ``maxwell`` or ``canal``. ``folder`` is for its own files."""
    jars = fetch_jars(name, size_mb=SIZES_MB[name], ivy_file=IVY_FILE)
    (bridge,) = pyspark_jars().glob("py4j-*.jar")
    port: Any = launch_gateway(
        classpath=f"{_nashorn(folder)}:{jars}/*:{bridge}",
        jarpath=str(bridge),
        java_path=str(java_program()),
        javaopts=["-Xmx512m", "-Duser.timezone=UTC", "-Dfile.encoding=UTF-8"],
        die_on_exit=True,
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auto_convert=True))
    try:
        yield gateway.jvm
    finally:
        gateway.shutdown()


def _nashorn(folder: Path) -> Path:
    """A class path with an empty class that Maxwell names and Java has had up to version 14."""
    name = "jdk/nashorn/api/scripting/ScriptObjectMirror"
    texts = (name.encode(), b"java/lang/Object")
    pool = b"".join(
        struct.pack(">BHBH", 7, 2 * at + 2, 1, len(text)) + text for at, text in enumerate(texts)
    )
    head = struct.pack(">IHHH", 0xCAFEBABE, 0, 52, 5)
    path = folder / "nashorn" / f"{name}.class"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(head + pool + struct.pack(">HHHHHHH", 0x21, 1, 3, 0, 0, 0, 0))
    return folder / "nashorn"


def file_events(path: Path) -> Iterator[bytes]:
    """The events of a binlog file, each with its header and checksum."""
    content = path.read_bytes()
    at = FIRST_POS
    while at < len(content):
        size = int.from_bytes(content[at + 9 : at + 13], "little")
        yield content[at : at + size]
        at += size


def without_metadata(event: bytes) -> bytes:
    """A table map as with ``binlog_row_metadata=NO_LOG``: both judges fail at newer metadata. Other events stay."""
    if event[TYPE_AT] != TABLE_MAP:
        return event
    at = HEADER_BYTES + 8  # table id, flags
    for _ in range(2):  # database, table
        at += 1 + event[at] + 1
    columns, at = _packed(event, at)
    metadata, at = _packed(event, at + columns)
    end = at + metadata + (columns + 7) // 8
    size = (end + CHECKSUM_BYTES).to_bytes(4, "little")
    return event[:9] + size + event[13:end] + event[-CHECKSUM_BYTES:]


def _packed(event: bytes, at: int) -> tuple[int, int]:
    """A length of MySQL's protocol: (value, position after it)."""
    size = {0xFC: 2, 0xFD: 3, 0xFE: 8}.get(event[at], 0)
    if not size:
        return event[at], at + 1
    return int.from_bytes(event[at + 1 : at + 1 + size], "little"), at + 1 + size
