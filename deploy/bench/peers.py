"""The peers: other programs that process the same binlog on the same machine, in the same run.

decode    python-mysql-replication reads the source's binlog and decodes every row, without output. It begins at
          ``beginning``, the source's GTID position before the load, so earlier transactions cost it nothing
replica   a fresh server of the same flavour replicates the source with 4 workers
"""

import secrets
import subprocess
import sys
from pathlib import Path
from typing import Self

from millrace.deploy.servers import Account, DatabaseServer, ServerOptions
from millrace.errors import Fatal
from millrace.schemas.gtid import Flavour

REPLICA_WORKERS = 4
REPLICA_TIMEOUT_S = 1_800.0
DECODE_TIMEOUT_S = 1_800.0
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
    decoded, seconds = done.stdout.split()[-2:]
    if int(decoded) != rows:
        raise Fatal("MR-8004", f"python-mysql-replication decoded {decoded} rows, not {rows}")
    return rows / float(seconds)


class NativeReplica:
    """A fresh server of the source's flavour that replicates it with ``REPLICA_WORKERS`` workers, when it is asked to.

    Its settings are those of a stack's target. It begins with the source's first binlog, so use it on a fresh source.
    """

    def __init__(self, source: DatabaseServer, account: Account, folder: Path) -> None:
        self._source = source
        self._account = account
        option = "slave-parallel-threads" if self._is_mariadb() else "replica-parallel-workers"
        options = ServerOptions(server_id=301, extra=(f"--{option}={REPLICA_WORKERS}",))
        self.server = DatabaseServer.of(source.flavour, folder, options)

    def __enter__(self) -> Self:
        try:
            self.server.start()
            self.server.follow(self._source.port, self._account)
            self.stop()
        except BaseException:
            self.server.discard()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.server.discard()

    def catch_up(self) -> None:
        """Replicate until it has all that the source has now, then stop. Fatal MR-8004 after ``REPLICA_TIMEOUT_S``."""
        position = self._source.gtid_position()
        self.server.execute("START REPLICA")
        if not self.server.wait_for_position(position, timeout_s=REPLICA_TIMEOUT_S):
            raise Fatal("MR-8004", f"the native replica did not reach {position}")
        self.stop()

    def stop(self) -> None:
        self.server.execute("STOP REPLICA")

    def _is_mariadb(self) -> bool:
        return self._source.flavour is Flavour.MARIADB
