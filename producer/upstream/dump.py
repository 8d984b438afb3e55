"""Asking a server for its binlog: the session variables, the registration, and the dump request.

COM_REGISTER_SLAVE  0x15  4 server id, 3 times (1 length, text) host, user, password, 2 port, 4 rank, 4 master id
COM_BINLOG_DUMP     0x12  4 position, 2 flags, 4 server id, file name

A dump goes by file and position, never by GTID: only so the bytes are those of the file. What a server must know
of us beforehand is in user variables:

    MySQL    @source_binlog_checksum, @source_heartbeat_period (ns), @replica_uuid; and their old names
    MariaDB  @mariadb_slave_capability=4 (we know GTID events, so nothing is rewritten), @master_binlog_checksum,
             @master_heartbeat_period; flag 2: annotate-rows events too, else they are left out and bytes are missing

A server keeps one dump for each server id (MySQL: uuid): the newer evicts the older. Both are made from the
installation and the set's name, so a stale reader of ours is evicted by its successor, which is wanted, and another
installation's is not. An id that a replica of the server has is left to it, where the account may see the replicas.
"""

import socket
import struct
from collections.abc import Collection
from dataclasses import dataclass, replace
from uuid import NAMESPACE_URL, uuid5
from zlib import crc32

from millrace.errors import Fatal
from producer.upstream.connection import SourceConnection
from schemas.gtid import Flavour
from schemas.server_version import ServerVersion

COM_BINLOG_DUMP = 0x12
COM_REGISTER_SLAVE = 0x15
SEND_ANNOTATE_ROWS = 2
POSITION_MAX = 2**32 - 1
SERVER_ID_MIN = 1 << 30  # ours lie above what people usually give to servers
NANOSECONDS = 1_000_000_000
HOST = "millrace"  # as a server lists us among its replicas


@dataclass(frozen=True, slots=True)
class ReplicaIdentity:
    """Who we are to the server: as stable as installation and set, so that a successor evicts us."""

    server_id: int
    uuid: str

    @classmethod
    def for_set(cls, set_name: str, *, installation: str = "") -> "ReplicaIdentity":
        """The reader of a set of an installation."""
        name = f"{installation}/{set_name}"
        server_id = SERVER_ID_MIN | crc32(name.encode()) & (SERVER_ID_MIN - 1)
        return cls(server_id, str(uuid5(NAMESPACE_URL, f"millrace:set:{name}")))

    def avoiding(self, taken: Collection[int]) -> "ReplicaIdentity":
        """This reader, or the same with the next server id that is not ``taken``."""
        server_id = self.server_id
        while server_id in taken:
            server_id = SERVER_ID_MIN | (server_id + 1) & (SERVER_ID_MIN - 1)
        return replace(self, server_id=server_id)


def ask_replica_ids(connection: SourceConnection, server: ServerVersion) -> frozenset[int]:
    """The server ids of the server's replicas, ours left out; empty where the account may not ask (MariaDB)."""
    try:
        rows = connection.query(server.replicas)
    except Fatal as error:
        if error.code != "MR-1005":
            raise
        return frozenset()
    others = [row for row in rows if row["Host"] != HOST]
    return frozenset(int(row.get("Server_Id", row.get("Server_id")) or 0) for row in others)


def start_dump(
    connection: SourceConnection,
    *,
    replica: ReplicaIdentity,
    flavour: Flavour,
    file: str,
    pos: int,
    heartbeat_s: float,
) -> socket.socket:
    """Ask for ``file`` from ``pos`` on, then every file after it, for ever. ``pos`` at most 2^32-1."""
    period = int(heartbeat_s * NANOSECONDS)
    if flavour is Flavour.MYSQL:
        connection.query(
            f"SET @source_binlog_checksum='CRC32', @master_binlog_checksum='CRC32',"
            f" @source_heartbeat_period={period}, @master_heartbeat_period={period},"
            f" @replica_uuid='{replica.uuid}', @slave_uuid='{replica.uuid}'"
        )
    else:
        connection.query(
            f"SET @mariadb_slave_capability=4, @master_binlog_checksum='CRC32', @master_heartbeat_period={period}"
        )
    connection.command(COM_REGISTER_SLAVE, register_payload(replica.server_id))
    flags = 0 if flavour is Flavour.MYSQL else SEND_ANNOTATE_ROWS
    return connection.start_stream(
        COM_BINLOG_DUMP, dump_payload(replica.server_id, file=file, pos=pos, flags=flags)
    )


def register_payload(server_id: int) -> bytes:
    """Body of COM_REGISTER_SLAVE; what it is for is that SHOW REPLICAS names us."""
    host = HOST.encode()
    return struct.pack(f"<IB{len(host)}sBBHII", server_id, len(host), host, 0, 0, 0, 0, 0)


def dump_payload(server_id: int, *, file: str, pos: int, flags: int) -> bytes:
    """Body of COM_BINLOG_DUMP."""
    return struct.pack("<IHI", pos, flags, server_id) + file.encode()
