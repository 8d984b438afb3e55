"""Which of a server's binlog files to begin with, so that nothing wanted is missed and little is read in vain.

A file's first events say what was executed before it. The newest file whose "before" holds nothing that we still want
is the one that holds the first wanted transaction: everything in older files is behind us.

Guarantees: never a file that begins later than what is wanted; Fatal MR-1031 names what was purged instead.
Not done here: reading the file. Asking needs REPLICATION SLAVE (MariaDB: and BINLOG MONITOR), some milliseconds a file.
"""

import re

from millrace.errors import Fatal, Retryable
from producer.source.connection import SourceConnection
from schemas.gtid import Flavour, GtidPosition, GtidSet, MariadbGtid, MariadbGtidSet

PRELUDE_EVENTS = 4  # format description, previous GTIDs; MariaDB may log its encryption between

_MARIADB_GTID = re.compile(r"[0-9]+-[0-9]+-[0-9]+", re.ASCII)


def list_binlog_files(connection: SourceConnection) -> dict[str, int]:
    """Name -> bytes, oldest first; empty when the server writes none."""
    return {
        str(row["Log_name"]): int(row["File_size"] or 0)
        for row in connection.query("SHOW BINARY LOGS")
    }


def find_file(
    connection: SourceConnection, *, flavour: Flavour, wanted: GtidPosition | None
) -> str:
    """The file to begin with so that everything behind ``wanted`` is read (None: everything there is)."""
    files = list(list_binlog_files(connection))
    if not files:
        raise Fatal("MR-1010", f"{connection.member} has no binlog files", member=connection.member)
    if wanted is None:
        return files[0]
    before: GtidPosition | None = None
    for file in reversed(files):
        before = previous_gtids(connection, flavour=flavour, file=file)
        if wanted.includes(before):
            return file
    raise Fatal(
        "MR-1031",
        f"{connection.member} purged {_missing(wanted, before)}, which comes after what is done",
        member=connection.member,
        oldest_file=files[0],
    )


def previous_gtids(connection: SourceConnection, *, flavour: Flavour, file: str) -> GtidPosition:
    """What was executed before ``file`` was begun, as the file itself says."""
    kind = "Previous_gtids" if flavour is Flavour.MYSQL else "Gtid_list"
    quoted = file.replace("\\", "\\\\").replace("'", "''")
    for row in connection.query(f"SHOW BINLOG EVENTS IN '{quoted}' LIMIT {PRELUDE_EVENTS}"):
        if row["Event_type"] == kind:
            text = str(row["Info"] or "")
            return GtidSet.parse(text) if flavour is Flavour.MYSQL else parse_gtid_list(text)
    raise Retryable(
        "MR-1040",
        f"{connection.member}: {file} does not say what came before it",
        member=connection.member,
    )


def parse_gtid_list(text: str) -> MariadbGtidSet:
    """``[0-1-5,\\n0-2-7,…]`` as SHOW BINLOG EVENTS prints it; the last GTID of each domain counts."""
    found = (MariadbGtid.parse(item) for item in _MARIADB_GTID.findall(text))
    return MariadbGtidSet.of({gtid.domain: gtid for gtid in found}.values())


def _missing(wanted: GtidPosition, before: GtidPosition | None) -> str:
    if isinstance(wanted, GtidSet) and isinstance(before, GtidSet):
        return str(before - wanted)
    if isinstance(wanted, MariadbGtidSet) and isinstance(before, MariadbGtidSet):
        behind = [gtid for gtid in before.gtids() if not wanted.covers(gtid)]
        return ", ".join(
            f"{wanted.last(gtid.domain) or 'the beginning'} to {gtid}" for gtid in behind
        )
    return "what is wanted"
