"""Classifies the errors with which a server ends a dump, by text: error 1236 alone has at least eight causes.

The texts are those of MySQL 8.0 to 9.7 and MariaDB 10.6 to 11.8. Words that changed between versions (master, source;
slave, replica) are not compared. An unknown text is Retryable MR-1045 with the server's text.
"""

import struct

from millrace.drivers.mysql.grants import privilege_fix
from millrace.errors import Fatal, Fenced, MillraceError, Retryable
from millrace.schemas.documents.model import Member

_KILLED = frozenset(
    {1053, 1077, 1078, 1079, 1152, 1158, 1159, 1160, 1161, 1184, 1317, 1927, 3169, 4031}
)

# (part of the text, class, code); the first match counts
_TEXTS: tuple[tuple[str, type[MillraceError], str], ...] = (
    ("same server_uuid/server_id", Fenced, "MR-1042"),
    ("could not find first log file name", Retryable, "MR-1040"),
    ("could not find next log", Retryable, "MR-1040"),
    ("could not find target log", Retryable, "MR-1040"),
    ("could not open log file", Retryable, "MR-1040"),
    ("> file size", Retryable, "MR-1041"),
    ("position < 4", Retryable, "MR-1041"),
    ("max_allowed_packet", Fatal, "MR-1044"),
    # SHOW BINLOG EVENTS on an event over the limit, or on a file with a transient problem
    ("wrong offset or i/o error", Retryable, "MR-1044"),
    ("purged", Fatal, "MR-1031"),
    ("can not handle replication events with the checksum", Fatal, "MR-1019"),
    ("bogus data in log event", Retryable, "MR-1041"),
    ("truncated in the middle of event", Fatal, "MR-1043"),
    ("did not pass c", Fatal, "MR-1043"),
    ("corrupt", Fatal, "MR-1043"),
    ("i/o error reading log event", Fatal, "MR-1043"),
    ("binary log is not open", Fatal, "MR-1010"),
)


def decode_error_packet(payload: bytes, member: Member) -> MillraceError:
    """Decode a packet of type 0xFF or 0xFE into an error.

    0xFF is an error: 2 number, ``#``, 5 SQL state, text. 0xFE with at most 8 bytes is the end of the stream.
    """
    if payload[:1] == b"\xfe":
        return Retryable("MR-1006", f"{member} ended the dump", member=member)
    if payload[:1] != b"\xff" or len(payload) < 3:
        return Retryable(
            "MR-2005", f"{member} sent a packet of unknown type {payload[:1].hex()}", member=member
        )
    (number,) = struct.unpack_from("<H", payload, 1)
    at = 9 if payload[3:4] == b"#" else 3
    return explain_dump_error(number, payload[at:].decode("utf-8", "replace"), member)


def explain_dump_error(number: int, text: str, member: Member) -> MillraceError:
    """Classify a server's error number and text for a dump or SHOW BINLOG EVENTS."""
    message = f"{member} answers {number}: {text}"
    if number in {1227, 1045, 1044}:
        return Fatal("MR-1005", message, fix=privilege_fix("MR-1005", text), member=member)
    if number in _KILLED:
        return Retryable("MR-1006", message, member=member)
    if number == 1373:  # target log not found in binlog index
        return Retryable("MR-1040", message, member=member)
    lowered = text.lower()
    for part, kind, code in _TEXTS:
        if part in lowered:
            return kind(code, message, member=member)
    return Retryable("MR-1045", message, member=member)
