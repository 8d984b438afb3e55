"""Requests the binlog from a server: session variables, registration, and the dump request.

COM_REGISTER_SLAVE  0x15  4 server id, 3 times (1 length, text) host, user, password, 2 port, 4 rank, 4 master id
COM_BINLOG_DUMP     0x12  4 position, 2 flags, 4 server id, file name

A dump starts from a file and position, never from a GTID set, because only then the bytes are those of the file. User
variables configure the dump:

    MySQL    @source_binlog_checksum, @source_heartbeat_period (ns), @replica_uuid; and their old names
    MariaDB  @mariadb_slave_capability=4 (the client knows GTID events, so the server rewrites nothing),
             @master_binlog_checksum, @master_heartbeat_period; flag 2 includes annotate-rows events, whose bytes
             would be missing otherwise

A server allows one dump per server id (MySQL: per uuid); a newer dump evicts the older one. The server id and the uuid
are derived from the installation and the set's name. So a new reader evicts a stale reader of the same installation
and set, and no other. A server id that a replica uses is avoided, if the account may list the replicas.
"""

import socket
import struct
from collections.abc import Collection
from dataclasses import dataclass, replace
from uuid import NAMESPACE_URL, uuid5
from zlib import crc32

from millrace.drivers.mysql.connection import MySqlSession
from millrace.errors import Fatal
from millrace.schemas.gtid import Flavour
from millrace.schemas.server_version import ServerVersion

COM_BINLOG_DUMP = 0x12
COM_REGISTER_SLAVE = 0x15
SEND_ANNOTATE_ROWS = 2
POSITION_MAX = 2**32 - 1
SERVER_ID_MIN = 1 << 30  # above the ids that operators usually assign
NANOSECONDS = 1_000_000_000
HOST = "millrace"  # the host that the server lists among its replicas


@dataclass(frozen=True, slots=True)
class ReplicaIdentity:
    """The identity that a reader shows to the server. It is constant for an installation and set: see the module."""

    server_id: int
    uuid: str

    @classmethod
    def for_set(cls, set_name: str, *, installation: str = "") -> "ReplicaIdentity":
        """The identity for a set of an installation."""
        name = f"{installation}/{set_name}"
        server_id = SERVER_ID_MIN | crc32(name.encode()) & (SERVER_ID_MIN - 1)
        return cls(server_id, str(uuid5(NAMESPACE_URL, f"millrace:set:{name}")))

    def avoiding(self, taken: Collection[int]) -> "ReplicaIdentity":
        """This identity, with the next free server id if its own is ``taken``."""
        server_id = self.server_id
        while server_id in taken:
            server_id = SERVER_ID_MIN | (server_id + 1) & (SERVER_ID_MIN - 1)
        return replace(self, server_id=server_id)


def ask_replica_ids(connection: MySqlSession, server: ServerVersion) -> frozenset[int]:
    """The server ids of the replicas other than Millrace; empty if the privilege is missing (MariaDB)."""
    try:
        rows = connection.named(server.replicas)
    except Fatal as error:
        if error.code != "MR-1005":
            raise
        return frozenset()
    others = [row for row in rows if row["Host"] != HOST]
    return frozenset(int(row.get("Server_Id", row.get("Server_id")) or 0) for row in others)


def start_dump(
    connection: MySqlSession,
    *,
    replica: ReplicaIdentity,
    flavour: Flavour,
    file: str,
    pos: int,
    heartbeat_s: float,
) -> socket.socket:
    """Request ``file`` from ``pos`` (at most 2^32-1) on, then every later file, as an endless stream."""
    period = int(heartbeat_s * NANOSECONDS)
    if flavour is Flavour.MYSQL:
        connection.named(
            f"SET @source_binlog_checksum='CRC32', @master_binlog_checksum='CRC32',"
            f" @source_heartbeat_period={period}, @master_heartbeat_period={period},"
            f" @replica_uuid='{replica.uuid}', @slave_uuid='{replica.uuid}'"
        )
    else:
        connection.named(
            f"SET @mariadb_slave_capability=4, @master_binlog_checksum='CRC32', @master_heartbeat_period={period}"
        )
    connection.command(COM_REGISTER_SLAVE, register_payload(replica.server_id))
    flags = 0 if flavour is Flavour.MYSQL else SEND_ANNOTATE_ROWS
    return connection.start_stream(
        COM_BINLOG_DUMP, dump_payload(replica.server_id, file=file, pos=pos, flags=flags)
    )


def register_payload(server_id: int) -> bytes:
    """Body of COM_REGISTER_SLAVE, which makes SHOW REPLICAS list the reader."""
    host = HOST.encode()
    return struct.pack(f"<IB{len(host)}sBBHII", server_id, len(host), host, 0, 0, 0, 0, 0)


def dump_payload(server_id: int, *, file: str, pos: int, flags: int) -> bytes:
    return struct.pack("<IHI", pos, flags, server_id) + file.encode()
