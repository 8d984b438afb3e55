"""The dialect of MariaDB 11.4 and of the releases in ``MARIADB_SUITES``."""

import os
import subprocess
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

from millrace.deploy.servers.dialect import Account
from millrace.deploy.servers.process import last_lines
from millrace.deploy.servers.programs import MariadbPrograms, mariadb_programs
from millrace.drivers.mysql.grants import SOURCE_PRIVILEGES
from millrace.errors import Fatal
from millrace.schemas.gtid import Flavour

# Scripts without the help tables, which are two megabytes of text that no test reads. MariaDB 10 names them mysql_….
_SYSTEM_TABLES = (
    "system_tables.sql",
    "performance_tables.sql",
    "system_tables_data.sql",
    "sys_schema.sql",
)
# The scripts create a root without a password for TCP too: any user of this machine could log in.
_NO_OTHERS = b"DELETE FROM mysql.global_priv WHERE host <> 'localhost' OR user NOT IN ('root', 'mariadb.sys');"


class MariadbDialect:
    """See ``deploy.servers.dialect.Dialect``. ``release``: see ``mariadb_programs``."""

    flavour = Flavour.MARIADB
    source_privileges = ", ".join((*SOURCE_PRIVILEGES[flavour], "SELECT"))

    def __init__(self, release: str = "") -> None:
        self._release = release

    def command(self) -> Sequence[str]:
        """GTIDs are strictly in sequence, as Millrace requires of every source."""
        return (
            *_program(self._programs),
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
        programs = self._programs
        is_new = (programs.share / "mariadb_system_tables.sql").is_file()
        prefix = "mariadb" if is_new else "mysql"
        scripts = [(programs.share / f"{prefix}_{name}").read_bytes() for name in _SYSTEM_TABLES]
        text = b"\n".join([b"create database mysql;", b"use mysql;", *scripts, _NO_OTHERS])
        user = ("--user=root",) if os.geteuid() == 0 else ()
        options = (
            f"--datadir={data_dir}",
            f"--tmpdir={data_dir}",
            "--innodb-log-file-size=32M",
            "--innodb-buffer-pool-size=64M",
        )
        command = [*_program(programs), "--bootstrap", *user, *options]
        with log.open("wb") as output:
            done = subprocess.run(
                command, input=text, stdout=output, stderr=subprocess.STDOUT, check=False
            )
        if done.returncode != 0:
            raise Fatal("MR-8004", f"mariadbd --bootstrap failed; its log ends:\n{last_lines(log)}")

    def stamp(self) -> str:
        """A digest of the version and of our changes to its system tables."""
        return sha256(self._programs.stamp.encode() + _NO_OTHERS).hexdigest()[:12]

    def follow(
        self, *, port: int, account: Account, authority: Path | None = None
    ) -> Sequence[str]:
        """With an empty ``gtid_slave_pos``, replication starts at the first binlog."""
        verified = f"MASTER_SSL=1, MASTER_SSL_CA='{authority}', MASTER_SSL_VERIFY_SERVER_CERT=1"
        return (
            f"CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT={port}, MASTER_USER='{account.user}', "
            f"MASTER_PASSWORD='{account.password}', MASTER_USE_GTID=slave_pos, MASTER_CONNECT_RETRY=1, "
            + (verified if authority else "MASTER_SSL_VERIFY_SERVER_CERT=0"),
            "START SLAVE",
        )

    def position_query(self) -> str:
        """The query for the executed GTIDs, of the server's own and of replicated transactions."""
        return "SELECT @@global.gtid_current_pos"

    def wait_query(self) -> str:
        """0 if the position is executed, -1 if time is up."""
        return "SELECT MASTER_GTID_WAIT(%s, %s)"

    @property
    def _programs(self) -> MariadbPrograms:
        return mariadb_programs(self._release)


def _program(programs: MariadbPrograms) -> Sequence[str]:
    return (
        str(programs.mariadbd),
        "--no-defaults",
        f"--lc-messages-dir={programs.share}",
        f"--character-sets-dir={programs.share / 'charsets'}",
    )
