"""Peers of the copy of a table: the servers' own dump program, and mydumper with myloader.

mydumper writes files, which myloader then reads. Both use 2 threads and TLS. As
with the others, the target writes its binlog, and a chunk has as many rows as in our copy.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from deploy.bench.copy.scene import DATABASE, TABLE, Scene, say
from deploy.servers import DatabaseServer
from deploy.servers.client import client_command, dump_command
from millrace.errors import Fatal

DUMP = "mysqldump | mysql"
MYDUMPER = "mydumper, myloader"
TIMEOUT_S = 3_600.0
_THREADS = 2


def peers(chunk_rows: int) -> dict[str, Callable[[Scene], None]]:
    """Each fills the empty table. Without mydumper, one of them is missing."""
    found: dict[str, Callable[[Scene], None]] = {DUMP: _dump}
    if all(map(shutil.which, ("mydumper", "myloader"))):
        found[MYDUMPER] = partial(_mydumper, chunk_rows)
    else:
        say("no peer mydumper: Debian's package mydumper is not installed")
    return found


def _dump(scene: Scene) -> None:
    programs = [Path(server.dialect.command()[0]) for server in (scene.source, scene.target)]
    source, target = scene.source, scene.target
    read = dump_command(programs[0], source.host, source.port, user=source.user)
    write = client_command(programs[1], target.host, target.port, user=target.user)
    with subprocess.Popen(
        (*read, DATABASE, TABLE),
        stdout=subprocess.PIPE,
        env=os.environ | {"MYSQL_PWD": source.password},
    ) as dump:
        subprocess.run(
            (*write, DATABASE),
            stdin=dump.stdout,
            env=os.environ | {"MYSQL_PWD": target.password},
            check=True,
        )
    if dump.returncode:
        raise Fatal("MR-8004", f"{read[0]} ended with status {dump.returncode}")


def _mydumper(chunk_rows: int, scene: Scene) -> None:
    with tempfile.TemporaryDirectory(dir=scene.source.folder) as folder:
        dump = ("--no-schemas", "--no-locks", "--trx-consistency-only", f"--rows={chunk_rows}")
        only = (f"--tables-list={TABLE}", f"--outputdir={folder}")
        _run("mydumper", scene.source, (*dump, *only))
        _run("myloader", scene.target, (f"--directory={folder}", "--enable-binlog"))


def _run(program: str, server: DatabaseServer, options: Sequence[str]) -> None:
    command = (
        program,
        f"--host={server.host}",
        f"--port={server.port}",
        f"--user={server.user}",
        f"--password={server.password}",
        f"--database={DATABASE}",
        f"--threads={_THREADS}",
        "--ssl",
    )
    done = subprocess.run(
        (*command, *options), capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    if done.returncode:
        raise Fatal("MR-8004", f"{program} failed: {done.stderr[-500:]}")
