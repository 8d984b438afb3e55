"""The system variables that the served relay log answers with.

| from                                        | variables                                                              |
|---------------------------------------------|------------------------------------------------------------------------|
| the newest file's format description        | version, server_id (of its event)                                      |
| the name of the newest sub-directory        | server_uuid; MariaDB: gtid_domain_id and server_id                     |
| the files                                   | gtid_executed, gtid_purged; MariaDB: gtid_binlog_pos, gtid_current_pos |
|                                             | gtid_slave_pos, gtid_binlog_state                                      |
| ``relay.source``, which the worker writes   | lower_case_table_names                                                 |
| what Millrace demands of every source       | binlog_format, binlog_row_image, gtid_mode, …                          |
| nothing but the need of clients for answers | sql_mode, time_zone, wait_timeout, …                                   |

So a client sees the member whose binlog is served, and notices a switch to another member as it would notice that of
a virtual address.
"""

from collections.abc import Mapping

from millrace.producer.binlog import events as t
from millrace.producer.relay.notes import read_source_note
from millrace.producer.relay.stored_file import open_stored, read_stored
from millrace.producer.serve.catalogue import Catalogue, ServedFile
from millrace.producer.serve.wire import Value
from millrace.schemas.gtid import Flavour, GtidPosition, MariadbGtidSet
from millrace.schemas.gtid.binary import decode_binlog_state

_VERSION_AT = t.HEADER_BYTES + 2
_VERSION_BYTES = 50
_SERVER_ID_AT = 5

# What ``drivers.mysql.preflight`` demands, so what a relayed source has.
_DEMANDED: Mapping[str, Value] = {
    "log_bin": "ON",
    "binlog_format": "ROW",
    "binlog_row_image": "FULL",
    "binlog_row_metadata": "FULL",
    "binlog_checksum": "CRC32",
}
_DEMANDED_OF: Mapping[Flavour, Mapping[str, Value]] = {
    Flavour.MYSQL: {
        "binlog_row_value_options": "",
        "gtid_mode": "ON",
        "enforce_gtid_consistency": "ON",
        "log_replica_updates": "ON",
        "log_slave_updates": "ON",
    },
    Flavour.MARIADB: {"gtid_strict_mode": "ON", "log_slave_updates": "ON"},
}
# Drivers ask for these when they connect. They have no effect.
_NEUTRAL: Mapping[str, Value] = {
    "auto_increment_increment": 1,
    "autocommit": 1,
    "binlog_transaction_compression": 0,
    "character_set_client": "utf8mb4",
    "character_set_connection": "utf8mb4",
    "character_set_database": "utf8mb4",
    "character_set_results": "utf8mb4",
    "character_set_server": "utf8mb4",
    "character_set_system": "utf8mb3",
    "collation_connection": "utf8mb4_general_ci",
    "collation_database": "utf8mb4_general_ci",
    "collation_server": "utf8mb4_general_ci",
    "have_ssl": "YES",
    "init_connect": "",
    "interactive_timeout": 28800,
    "license": "Apache-2.0",
    "max_allowed_packet": 1 << 30,
    "net_buffer_length": 16384,
    "net_read_timeout": 30,
    "net_write_timeout": 60,
    "performance_schema": 0,
    "pseudo_thread_id": 0,
    "query_cache_size": 0,
    "query_cache_type": "OFF",
    "read_only": "ON",
    "sql_mode": "",
    "system_time_zone": "UTC",
    "time_zone": "SYSTEM",
    "tx_isolation": "REPEATABLE-READ",
    "transaction_isolation": "REPEATABLE-READ",
    "tx_read_only": 0,
    "transaction_read_only": 0,
    "version_comment": "Millrace relay log",
    "version_compile_os": "Linux",
    "version_compile_machine": "x86_64",
    "wait_timeout": 28800,
}
_MYSQL_ONLY = frozenset({"transaction_isolation", "transaction_read_only", "super_read_only"})


def source_version(catalogue: Catalogue) -> str:
    """The version of the server whose binlog is served."""
    newest = catalogue.served.newest
    head = _head(catalogue, newest) if newest is not None else b""
    return head[_VERSION_AT : _VERSION_AT + _VERSION_BYTES].rstrip(b"\0").decode("ascii", "replace")


def source_server_id(catalogue: Catalogue) -> int:
    """Its server id."""
    newest = catalogue.served.newest
    head = _head(catalogue, newest) if newest is not None else bytes(t.HEADER_BYTES)
    return int.from_bytes(head[_SERVER_ID_AT : _SERVER_ID_AT + 4], "little")


def system_variables(catalogue: Catalogue, *, port: int) -> dict[str, Value]:
    """All variables but those of GTIDs, in lower case."""
    newest = catalogue.served.newest
    server = newest.subdir.server if newest is not None else ""
    found: dict[str, Value] = {**_NEUTRAL, **_DEMANDED, **_DEMANDED_OF[catalogue.flavour]}
    found["port"] = port
    found["version"] = source_version(catalogue)
    found["server_id"] = source_server_id(catalogue)
    found["lower_case_table_names"] = read_source_note(catalogue.root, catalogue.disk)
    if catalogue.flavour is Flavour.MYSQL:
        found["server_uuid"] = server
        found["super_read_only"] = "ON"
    else:
        domain, _, server_id = server.partition("-")
        found["gtid_domain_id"], found["server_id"] = int(domain or 0), int(server_id or 0)
        found = {name: value for name, value in found.items() if name not in _MYSQL_ONLY}
    return found


GTID_VARIABLES = {
    Flavour.MYSQL: ("gtid_executed", "gtid_purged"),
    Flavour.MARIADB: (
        "gtid_binlog_pos", "gtid_binlog_state", "gtid_current_pos", "gtid_slave_pos",
    ),
}  # fmt: skip


def gtid_variable(catalogue: Catalogue, name: str) -> str:
    """One of ``GTID_VARIABLES``. FileNotFoundError; Fatal MR-2004."""
    served = catalogue.served
    if name == "gtid_purged":
        return printed(served.files[served.chain].before) if served.files else ""
    walk = catalogue.reached()
    if walk is None:
        return ""
    if name == "gtid_binlog_state":
        assert served.newest is not None
        lasts = dict(_listed_state(catalogue, served.newest)) | walk.lasts
        return ",".join(f"{domain}-{server}-{last}" for (domain, server), last in lasts.items())
    if name == "gtid_slave_pos":
        before = _unlogged(catalogue, served.newest)
        return str(before)
    return printed(walk.position)


def printed(position: GtidPosition) -> str:
    """As the server prints it: MySQL begins a line for each source."""
    text = str(position)
    return text.replace(",", ",\n") if position.flavour is Flavour.MYSQL else text


def _unlogged(catalogue: Catalogue, newest: ServedFile | None) -> MariadbGtidSet:
    """The GTIDs that the server executed before its first file, from relay.before."""
    found = catalogue.noted_before(newest.subdir) if newest is not None else None
    return found if isinstance(found, MariadbGtidSet) else MariadbGtidSet()


def _listed_state(catalogue: Catalogue, file: ServedFile) -> Mapping[tuple[int, int], int]:
    """MariaDB's last sequence by domain and server, from the GTID list of a file."""
    head = _head(catalogue, file, bytes_max=1 << 20)
    at = 0
    while at + t.HEADER_BYTES <= len(head):
        size = int.from_bytes(head[at + 9 : at + 13], "little")
        if head[at + 4] == t.MARIADB_GTID_LIST:
            body = head[at + t.HEADER_BYTES : at + size - t.CHECKSUM_BYTES]
            return {(gtid.domain, gtid.server): gtid.sequence for gtid in decode_binlog_state(body)}
        at += max(size, t.EVENT_BYTES_MIN)
    return {}


def _head(catalogue: Catalogue, file: ServedFile, *, bytes_max: int = 1024) -> bytes:
    """The first bytes after the magic."""
    stored = open_stored(catalogue.path(file), catalogue.disk)
    try:
        return read_stored(stored, t.MAGIC_BYTES, t.MAGIC_BYTES + bytes_max)
    finally:
        stored.close()
