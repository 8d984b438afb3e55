"""The peers: other programs that process the same binlog on the same machine, in the same run.

decode    python-mysql-replication reads the source's binlog and decodes every row, without output
replica   a fresh server of the same flavour replicates the source with 4 workers

Both begin at ``beginning``, the source's GTID position before the load, as Millrace does. Earlier transactions cost
them nothing.
"""

import secrets
import subprocess
import sys
import time
from pathlib import Path

from deploy.servers import Account, DatabaseServer, ServerOptions
from millrace.errors import Fatal
from schemas.gtid import Flavour

REPLICA_WORKERS = 4
REPLICA_TIMEOUT_S = 300.0
DECODE_TIMEOUT_S = 300.0
_DECODE = """
import sys, time
from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.row_event import DeleteRowsEvent, UpdateRowsEvent, WriteRowsEvent
host, port, user, password, schema, is_mariadb, beginning = sys.argv[1:]
stream = BinLogStreamReader(
    connection_settings={"host": host, "port": int(port), "user": user, "passwd": password},
    server_id=987654, blocking=False, only_schemas=[schema], is_mariadb=is_mariadb == "1",
    only_events=[DeleteRowsEvent, UpdateRowsEvent, WriteRowsEvent],
    auto_position=beginning,
)
begin = time.monotonic()
rows = sum(len(event.rows) for event in stream)
print(rows, time.monotonic() - begin)
"""


def make_account(source: DatabaseServer) -> Account:
    """Create a login for the peers."""
    account = Account("peer", secrets.token_hex(12))
    source.create_account(account, "SELECT, REPLICATION SLAVE, REPLICATION CLIENT")
    return account


def decode_rate(
    source: DatabaseServer, account: Account, beginning: str, *, database: str, rows: int
) -> float:
    """Rows per second of python-mysql-replication. Fatal MR-8004 unless it decodes exactly ``rows`` rows."""
    is_mariadb = "1" if source.flavour is Flavour.MARIADB else "0"
    done = subprocess.run(
        (
            sys.executable,
            "-W",
            "ignore",
            "-c",
            _DECODE,
            source.host,
            str(source.port),
            account.user,
            account.password,
            database,
            is_mariadb,
            beginning,
        ),
        capture_output=True,
        text=True,
        timeout=DECODE_TIMEOUT_S,
        check=True,
    )
    found, seconds = done.stdout.split()[-2:]
    if int(found) != rows:
        raise Fatal("MR-8004", f"python-mysql-replication decoded {found} rows, not {rows}")
    return rows / float(seconds)


def replica_rate(
    source: DatabaseServer, account: Account, beginning: str, folder: Path, *, rows: int
) -> float:
    """Rows per second of a native replica that applies ``rows`` rows: everything after ``beginning``."""
    workers = (
        f"--slave-parallel-threads={REPLICA_WORKERS}"
        if source.flavour is Flavour.MARIADB
        else f"--replica-parallel-workers={REPLICA_WORKERS}"
    )
    options = ServerOptions(server_id=301, extra=(workers,))
    replica = DatabaseServer.of(source.flavour, folder, options)
    replica.start()
    try:
        variable = "gtid_slave_pos" if source.flavour is Flavour.MARIADB else "gtid_purged"
        replica.execute(f"SET GLOBAL {variable} = %s", (beginning,))
        position = source.gtid_position()
        begin = time.monotonic()
        replica.follow(source.port, account)
        if not replica.wait_for_position(position, timeout_s=REPLICA_TIMEOUT_S):
            raise TimeoutError(f"the replica did not reach {position}")
        return rows / (time.monotonic() - begin)
    finally:
        replica.discard()
