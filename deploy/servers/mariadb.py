"""The MariaDB 11.4 dialect."""

import os
import subprocess
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

from deploy.servers.dialect import Account
from deploy.servers.process import last_lines
from deploy.servers.programs import mariadb_folder
from millrace.errors import Fatal
from schemas.gtid import Flavour

# Without the help tables: two megabytes of text that no test reads.
_SYSTEM_TABLES = (
    "mariadb_system_tables.sql",
    "mariadb_performance_tables.sql",
    "mariadb_system_tables_data.sql",
    "mariadb_sys_schema.sql",
)
# The scripts create a root without a password for TCP too: any user of this machine could log in.
_NO_OTHERS = b"DELETE FROM mysql.global_priv WHERE host <> 'localhost' OR user NOT IN ('root', 'mariadb.sys');"


class MariadbDialect:
    """See ``deploy.servers.dialect.Dialect``."""

    flavour = Flavour.MARIADB
    # SLAVE MONITOR is what MySQL's REPLICATION CLIENT gives for SHOW SLAVE STATUS
    source_privileges = "REPLICATION SLAVE, REPLICATION CLIENT, SLAVE MONITOR, SELECT"

    def command(self) -> Sequence[str]:
        """GTIDs are strictly in sequence, as Millrace requires of every source."""
        return (
            *_program(),
            "--gtid-strict-mode=ON",
            "--log-slave-updates=ON",
            "--slave-net-timeout=10",
            "--innodb-log-file-size=32M",
            "--key-buffer-size=8M",
            "--aria-pagecache-buffer-size=8M",
            "--query-cache-type=OFF",
            "--log-warnings=1",
        )

    def initialize(self, data_dir: Path, log: Path) -> None:
        """Run ``mariadbd --bootstrap`` with the server's own scripts."""
        share = mariadb_folder() / "share"
        scripts = [(share / name).read_bytes() for name in _SYSTEM_TABLES]
        text = b"\n".join([b"create database mysql;", b"use mysql;", *scripts, _NO_OTHERS])
        user = ("--user=root",) if os.geteuid() == 0 else ()
        options = (
            f"--datadir={data_dir}",
            f"--tmpdir={data_dir}",
            "--innodb-log-file-size=32M",
            "--innodb-buffer-pool-size=64M",
        )
        command = [*_program(), "--bootstrap", *user, *options]
        with log.open("wb") as output:
            done = subprocess.run(
                command, input=text, stdout=output, stderr=subprocess.STDOUT, check=False
            )
        if done.returncode != 0:
            raise Fatal("MR-8004", f"mariadbd --bootstrap failed; its log ends:\n{last_lines(log)}")

    def stamp(self) -> str:
        """A digest of the jar's name and of our changes to its system tables."""
        jar = (mariadb_folder() / "stamp").read_bytes()
        return sha256(jar + _NO_OTHERS).hexdigest()[:12]

    def follow(self, *, port: int, account: Account) -> Sequence[str]:
        """With an empty ``gtid_slave_pos``, replication starts at the first binlog."""
        return (
            f"CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT={port}, MASTER_USER='{account.user}', "
            f"MASTER_PASSWORD='{account.password}', MASTER_USE_GTID=slave_pos, MASTER_CONNECT_RETRY=1, "
            "MASTER_SSL_VERIFY_SERVER_CERT=0",
            "START SLAVE",
        )

    def position_query(self) -> str:
        """The query for the executed GTIDs, of the server's own and of replicated transactions."""
        return "SELECT @@global.gtid_current_pos"

    def wait_query(self) -> str:
        """0 if the position is executed, -1 if time is up."""
        return "SELECT MASTER_GTID_WAIT(%s, %s)"


def _program() -> Sequence[str]:
    folder = mariadb_folder()
    share = folder / "share"
    return (
        str(folder / "bin" / "mariadbd"),
        "--no-defaults",
        f"--lc-messages-dir={share}",
        f"--character-sets-dir={share / 'charsets'}",
    )
