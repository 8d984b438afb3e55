"""The rows of SHOW BINLOG EVENTS, as far as clients read them: heads, and the GTIDs in Info.

Previous_gtids   the GTID set                  Gtid_list   [0-1-5,0-2-7]
Gtid (MySQL)     SET @@SESSION.GTID_NEXT= …    Gtid (MariaDB)   BEGIN GTID 0-1-6, GTID 0-1-6 outside BEGIN
"""

from collections.abc import Iterator, Sequence

import numpy as np

from millrace.producer.binlog import events as t
from millrace.producer.binlog.gtid_events import STANDALONE_FLAG
from millrace.producer.binlog.gtid_runs import read_gtid
from millrace.producer.relay.stored_file import StoredFile, open_stored, read_stored
from millrace.producer.serve.catalogue import Catalogue, ServedFile
from millrace.producer.serve.variables import printed
from millrace.producer.serve.wire import Refusal, Value
from millrace.schemas.gtid.binary import decode_binlog_state, decode_previous_gtids

COLUMNS = ("Log_name", "Pos", "Event_type", "Server_id", "End_log_pos", "Info")
ROWS_MAX = 100_000  # of a statement without LIMIT
BODY_BYTES_MAX = 64 << 20  # of an event whose body is read
_FLAGS_AT = 12  # in the body of MariaDB's GTID
_NAMES = {
    t.FORMAT_DESCRIPTION: "Format_desc",
    t.PREVIOUS_GTIDS: "Previous_gtids",
    t.MARIADB_GTID_LIST: "Gtid_list",
    t.GTID: "Gtid",
    t.GTID_TAGGED: "Gtid_tagged",
    t.MARIADB_GTID: "Gtid",
    t.ROTATE: "Rotate",
    t.STOP: "Stop",
    t.QUERY: "Query",
    t.XID: "Xid",
    t.TABLE_MAP: "Table_map",
    t.MARIADB_BINLOG_CHECKPOINT: "Binlog_checkpoint",
    t.MARIADB_START_ENCRYPTION: "Start_encryption",
}
_WITH_INFO = (t.PREVIOUS_GTIDS, t.MARIADB_GTID_LIST, t.GTID, t.GTID_TAGGED, t.MARIADB_GTID)


def binlog_events(
    catalogue: Catalogue, file: ServedFile, *, begin: int, end: int, limit: int | None
) -> Iterator[Sequence[Value]]:
    """The rows of the events from ``begin`` on, before ``end``. Refusal 1220 if no event begins there."""
    stored = open_stored(catalogue.path(file), catalogue.disk)
    try:
        pos = begin
        for _ in range(ROWS_MAX if limit is None else limit):
            if pos >= end:
                return
            head = read_stored(stored, pos, pos + t.HEADER_BYTES)
            size = int.from_bytes(head[9:13], "little")
            following = int.from_bytes(head[13:17], "little")
            if len(head) < t.HEADER_BYTES or size < t.EVENT_BYTES_MIN or pos + size > end:
                text = "Error when executing command SHOW BINLOG EVENTS: Wrong offset or I/O error"
                raise Refusal(1220, "HY000", text)
            kind, server_id = head[4], int.from_bytes(head[5:9], "little")
            info = _info(stored, kind, pos, size) if kind in _WITH_INFO else ""
            name = _NAMES.get(kind, f"Type_{kind}")
            yield [file.served_name, pos, name, server_id, following, info]
            pos += size
    finally:
        stored.close()


def _info(stored: StoredFile, kind: int, pos: int, size: int) -> str:
    if size > BODY_BYTES_MAX:
        return ""
    event = read_stored(stored, pos, pos + size - t.CHECKSUM_BYTES)
    body = event[t.HEADER_BYTES :]
    if kind == t.PREVIOUS_GTIDS:
        return printed(decode_previous_gtids(body))
    if kind == t.MARIADB_GTID_LIST:
        return f"[{','.join(map(str, decode_binlog_state(body)))}]"
    gtid = read_gtid(np.frombuffer(bytearray(event), np.uint8))
    if gtid is None:
        return ""
    if kind != t.MARIADB_GTID:
        return f"SET @@SESSION.GTID_NEXT= '{gtid}'"
    return f"GTID {gtid}" if body[_FLAGS_AT] & STANDALONE_FLAG else f"BEGIN GTID {gtid}"
