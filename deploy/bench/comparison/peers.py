"""Peers of a comparison of equal tables: the server's CHECKSUM TABLE, and pt-table-checksum of the Percona Toolkit.

pt-table-checksum compares a source with its replicas: it sums on the source, and each replica repeats the statement. So
both servers work as much as in a comparison. Here it runs on each of them. Its sum is a CRC32 of each row.
"""

import os
import shutil
import subprocess
from collections.abc import Callable
from functools import partial

from deploy.bench.comparison.scene import ACCOUNT, DATABASE, Scene, Table, say
from deploy.servers import DatabaseServer
from millrace.errors import Fatal

CHECKSUM_TABLE = "CHECKSUM TABLE on both servers"
PERCONA = "pt-table-checksum on both servers"
TIMEOUT_S = 3_600.0


def peers() -> dict[str, Callable[[Scene, Table], None]]:
    """Each sums a table on both servers at the same time. Without the Percona Toolkit, one of them is missing."""
    found: dict[str, Callable[[Scene, Table], None]] = {CHECKSUM_TABLE: _checksum_table}
    if program := shutil.which("pt-table-checksum"):
        found[PERCONA] = partial(_percona, program)
    else:
        say("no peer pt-table-checksum: Debian's package percona-toolkit is not installed")
    return found


def _checksum_table(scene: Scene, table: Table) -> None:
    scene.at_once(lambda server: server.execute(f"CHECKSUM TABLE {DATABASE}.{table.name}"))


def _percona(program: str, scene: Scene, table: Table) -> None:
    running = [_started(program, server, table) for server in scene.servers]
    for process in running:
        printed, _ = process.communicate(timeout=TIMEOUT_S)
        counts = [line.split() for line in printed.splitlines() if line.endswith(f".{table.name}")]
        if process.returncode or [int(one[3]) for one in counts] != [scene.rows[table.name]]:
            raise Fatal("MR-8004", f"pt-table-checksum failed: {printed[-500:]}")


def _started(program: str, server: DatabaseServer, table: Table) -> "subprocess.Popen[str]":
    command = (
        program,
        "--no-version-check",
        f"--host={server.host}",
        f"--port={server.port}",
        f"--user={ACCOUNT.user}",
        f"--password={ACCOUNT.password}",
        f"--tables={DATABASE}.{table.name}",
        "--recursion-method=none",
        "--no-check-binlog-format",
        "--set-vars=sql_log_bin=0",  # so that the source keeps the position that the target has
    )
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "HOME": str(server.folder)},  # without an option file of the user
    )
