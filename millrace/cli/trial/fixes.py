"""The fixes of errors of ``millrace try``, where no set, task or relay log exists.

The fixes of the catalogue are for tasks. Here are those of the errors that a look can end with, if the catalogue's
needs a task. A fix of the occurrence, such as the GRANT that is missing, comes first.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType

from millrace.errors import MillraceError
from millrace.schemas.gtid import NO_SERVER, parse_any_gtid_set, unite

NEEDS_A_TASK = re.compile(
    r"millrace (?!try\b)[a-z]|\btasks?\b|\bset document|\brelay|\bworker|\bby itself|\bthe stream\b|Nothing to do"
    r"|`tls|\btls_ca\b"
)
_TLS = (
    "Add `?tls=verify-ca&ca=FILE` with the server's CA to the URL; other modes are verify-identity,"
    " require-unverified and disabled."
)
_KAFKA_LOGIN = "Give a listener without TLS and login: --to-kafka has no options for them."
_OTHER = "Report the message with the server's version."
_AGAIN = "Repeat the command. If the error repeats, check the network and proxies to the server."
_DAMAGED = "Check the file with `mysqlbinlog --verify-binlog-checksum`."
_PURGED = "Begin with `--from first`, or without --from. Keep binlogs for longer."
_LEAVE_OUT = "Name other tables in the URL, such as `/database.table`."
FIXES: Mapping[str, str] = MappingProxyType(
    {
        "MR-1001": "Check host and port of the URL, and that the server runs.",
        "MR-1002": "Correct user and password of the URL (in a URL, @ is %40 and / is %2F). If the server allows no"
        " login from this host, let it: `CREATE USER 'user'@'host'`.",
        "MR-1003": _TLS,
        "MR-1004": "Add `?tls=disabled` to the URL: user name and rows then pass as plain text.",
        "MR-1005": "GRANT REPLICATION SLAVE, REPLICATION CLIENT (MariaDB also: SLAVE MONITOR) ON *.* TO the user.",
        "MR-1006": _AGAIN,
        "MR-1008": _TLS,
        "MR-1018": "Name another member in the URL, or remove the filter that the message names.",
        "MR-1020": "Name only members of one replication set in the URL.",
        "MR-1023": "Upgrade the server, or name another member in the URL.",
        "MR-1030": "Fix the first reason that the message lists.",
        "MR-1031": _PURGED,
        "MR-1033": "The server does not have what --from names. Begin with `--from first`, or without --from.",
        "MR-1036": "Repeat the command when the member has caught up, or begin without --from.",
        "MR-1040": _PURGED,
        "MR-1041": f"Repeat the command. {_DAMAGED}",
        "MR-1042": "Repeat the command: it then has another server id.",
        "MR-1043": f"{_DAMAGED} Name another member in the URL, or begin without --from.",
        "MR-1045": "Read the server's message and its error log.",
        "MR-1046": _AGAIN,
        "MR-2005": _AGAIN,
        "MR-2006": f"Repeat the command. {_DAMAGED}",
        "MR-2009": "`SET GLOBAL binlog_checksum = 'CRC32'; FLUSH BINARY LOGS`. Then begin without --from.",
        "MR-3001": "Check HOST:PORT of --to-kafka, and that the broker runs.",
        "MR-3002": "Repeat the command. If the error repeats, read the broker's log.",
        "MR-3003": "Repeat the command.",
        "MR-3004": "Raise max.message.bytes of the topic, or name other tables in the URL.",
        "MR-3005": _KAFKA_LOGIN,
        "MR-3006": "Change the setting that the message names on the brokers, or give another --topic.",
        "MR-3007": "Create the topic of --topic with one partition, or give the name of one that exists.",
        "MR-3008": "Read the broker's log.",
        "MR-3009": "Give another --topic.",
        "MR-3010": "Repeat the command.",
        "MR-3016": "Repeat the command. If the error repeats, check the brokers' load.",
        "MR-6003": _DAMAGED,
        "MR-6004": "`SET GLOBAL binlog_row_metadata=FULL`. What is in the binlog does not change.",
        "MR-6005": _LEAVE_OUT,
        "MR-6006": f"{_LEAVE_OUT} Report the collation with the server's version.",
        "MR-6501": "`SET GLOBAL binlog_format=ROW`, for sessions from then on.",
        "MR-6502": _OTHER,
        "MR-6503": "Set `gtid_mode` step by step to `ON`. Then `FLUSH BINARY LOGS`, and begin without --from.",
        "MR-6504": "`SET GLOBAL binlog_row_image=FULL`, for sessions from then on. If MariaDB left out a generated"
        " column, add a plain TEXT column to the table, which may stay NULL.",
        "MR-6505": "`SET GLOBAL binlog_row_value_options=''`, for sessions from then on.",
        "MR-6506": "Check the file with `mysqlbinlog`.",
        "MR-6507": "Don't create or drop temporary tables in large transactions with savepoints.",
        "MR-6508": "Begin without --from.",
        "MR-6509": "Name a member with `encrypt_binlog=OFF` in the URL.",
        "MR-6510": "The server lost changes here. Its error log has the reason.",
        "MR-6511": "Begin with `--from first`.",
        "MR-6512": _LEAVE_OUT,
        "MR-6513": "`SET GLOBAL binlog_alter_two_phase=OFF`.",
        "MR-7001": _KAFKA_LOGIN,
        "MR-7002": _KAFKA_LOGIN,
        "MR-7004": _KAFKA_LOGIN,
        "MR-7005": _KAFKA_LOGIN,
        "MR-7006": _KAFKA_LOGIN,
        "MR-7010": "Allow the topic of --topic to clients without a login, with `kafka-acls.sh`.",
        "MR-7011": "Allow transactional ids that begin with `millrace-try/`, with `kafka-acls.sh`.",
    }
)


def fix_of(error: MillraceError) -> str:
    """The fix of an error. It needs nothing but the server and this command."""
    if error.own_fix and not NEEDS_A_TASK.search(error.own_fix):
        return error.own_fix
    if error.code in FIXES:
        return FIXES[error.code]
    return _OTHER if NEEDS_A_TASK.search(error.fix) else error.fix


def continuation(error: MillraceError, position: str) -> str:
    """How to see what follows the error, of which all before is shown.

    It leaves out the source transaction that can't be shown, if the error is about one.
    """
    after = position
    if gtid := error.context.get("gtid", ""):
        failed = parse_any_gtid_set(gtid)
        after = str(unite(parse_any_gtid_set(position), failed) if position else failed)
    if not after or NO_SERVER in after:
        return ""
    what = "leaves this source transaction out" if gtid else "continues there"
    return f"All before the error is shown; the same command with `--from {after!r}` {what}."
