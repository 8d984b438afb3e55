"""A replication client of a few lines: asks a server, or a served relay log, for a dump and returns its packets."""

import socket
import struct
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

import pymysql

from millrace.producer.source.connection import Login, connect_member
from millrace.schemas.documents import Member, Tls, TlsMode

DUMP, DUMP_GTID = 0x12, 0x1E
NON_BLOCKING = 1
HEARTBEATS = (27, 41)


@dataclass(frozen=True, slots=True)
class Address:
    """A server's address over TCP, and a login."""

    port: int
    user: str
    password: str
    tls: TlsMode = TlsMode.DISABLED


@contextmanager
def connected(address: Address) -> Iterator[Any]:
    """A connection of PyMySQL, with TLS if the server offers it."""
    connection: Any = pymysql.connect(
        host="127.0.0.1",
        port=address.port,
        user=address.user,
        password=address.password,
        charset="utf8mb4",
        autocommit=True,
    )
    with closing(connection):
        yield connection


def dump_packets(
    address: Address,
    command: int,
    payload: bytes,
    *,
    settings: Sequence[str] = (),
    packets_max: int = 0,
) -> list[bytes]:
    """The packets of a dump that ends, without heartbeats. An error packet is the last one.

    ``packets_max``: no more than these.
    """
    found: list[bytes] = []
    login = Login(user=address.user, password=address.password, tls=Tls(address.tls))
    with connect_member(Member("127.0.0.1", address.port), login) as connection:
        for statement in settings:
            connection.query(statement)
        stream = connection.start_stream(command, payload)
        while True:
            packet = _packet(stream)
            if packet[:1] == b"\0" and packet[5] in HEARTBEATS:
                continue
            found.append(packet)
            if packet[:1] != b"\0" or len(found) == packets_max:
                return found


def dump_request(
    *, file: str, pos: int = 4, flags: int = NON_BLOCKING, server_id: int = 0
) -> bytes:
    """The body of COM_BINLOG_DUMP."""
    return struct.pack("<IHI", pos, flags, server_id) + file.encode()


def gtid_request(encoded: bytes, *, server_id: int = 0) -> bytes:
    """The body of COM_BINLOG_DUMP_GTID that ends; ``encoded``: the GTID set."""
    head = struct.pack("<HII", NON_BLOCKING, server_id, 0)
    return head + struct.pack("<QI", 4, len(encoded)) + encoded


def encoded_gtids(text: str) -> bytes:
    """MySQL's set without tags, such as ``uuid:1-5:8,uuid:3``, in the form of the protocol."""
    sets = [part.strip().split(":") for part in text.split(",") if part.strip()]
    out = struct.pack("<Q", len(sets))
    for uuid, *intervals in sets:
        out += bytes.fromhex(uuid.replace("-", "")) + struct.pack("<Q", len(intervals))
        for interval in intervals:
            first, _, last = interval.partition("-")
            out += struct.pack("<QQ", int(first), int(last or first) + 1)
    return out


def _packet(stream: socket.socket) -> bytes:
    """The payload of the next packets, joined."""
    whole = b""
    while True:
        length = int.from_bytes(_exactly(stream, 4)[:3], "little")
        whole += _exactly(stream, length)
        if length < 0xFFFFFF:
            return whole


def _exactly(stream: socket.socket, length: int) -> bytes:
    found = bytearray()
    while len(found) < length:
        piece = stream.recv(length - len(found))
        assert piece, "the connection ended"
        found += piece
    return bytes(found)
