"""MySQL 9.7 and later: how it is initialised, started and made to follow."""

import os
import subprocess
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

from deploy.servers.dialect import Account
from deploy.servers.process import last_lines
from deploy.servers.programs import MYSQLD_ENVIRONMENT, MysqlPrograms, mysql_programs
from millrace.errors import Fatal
from schemas.gtid import Flavour


class MysqlDialect:
    """See ``deploy.servers.dialect.Dialect``."""

    flavour = Flavour.MYSQL
    source_privileges = "REPLICATION SLAVE, REPLICATION CLIENT, SELECT"

    def command(self) -> Sequence[str]:
        """``performance_schema`` is off for memory; the log writer threads would spin on two cores."""
        return (
            str(_programs().mysqld),
            "--no-defaults",
            "--mysqlx=OFF",
            "--gtid-mode=ON",
            "--enforce-gtid-consistency=ON",
            "--log-replica-updates=ON",
            "--innodb-redo-log-capacity=64M",
            "--innodb-log-writer-threads=OFF",
            "--skip-replica-start=OFF",
            "--replica-parallel-workers=2",
            "--log-error-verbosity=2",
        )

    def initialise(self, data_dir: Path, log: Path) -> None:
        """A second or ten; the server's uuid is left out, so that each copy gets its own."""
        user = ("--user=root",) if os.geteuid() == 0 else ()
        command = (str(_programs().mysqld), "--no-defaults", "--initialize-insecure", *user)
        options = (
            f"--datadir={data_dir}",
            f"--tmpdir={data_dir}",
            "--innodb-redo-log-capacity=64M",
            "--innodb-buffer-pool-size=64M",
        )
        with log.open("wb") as output:
            done = subprocess.run(
                [*command, *options], stdout=output, stderr=subprocess.STDOUT, check=False
            )
        if done.returncode != 0:
            raise Fatal(
                "MR-8004", f"mysqld --initialize-insecure failed; its log ends:\n{last_lines(log)}"
            )
        (data_dir / "auto.cnf").unlink(missing_ok=True)

    def stamp(self) -> str:
        """The version it prints."""
        printed = subprocess.run([_programs().mysqld, "--version"], capture_output=True, check=True)
        return sha256(printed.stdout).hexdigest()[:12]

    def follow(self, *, port: int, account: Account) -> Sequence[str]:
        """The source's public key is asked for: caching_sha2_password without TLS."""
        return (
            f"CHANGE REPLICATION SOURCE TO SOURCE_HOST='127.0.0.1', SOURCE_PORT={port}, "
            f"SOURCE_USER='{account.user}', SOURCE_PASSWORD='{account.password}', SOURCE_AUTO_POSITION=1, "
            "GET_SOURCE_PUBLIC_KEY=1, SOURCE_CONNECT_RETRY=1, SOURCE_RETRY_COUNT=100000",
            "START REPLICA",
        )

    def position_query(self) -> str:
        """The executed set."""
        return "SELECT @@global.gtid_executed"

    def wait_query(self) -> str:
        """0 when executed, 1 when time is up."""
        return "SELECT WAIT_FOR_EXECUTED_GTID_SET(%s, %s)"


def _programs() -> MysqlPrograms:
    found = mysql_programs()
    if found is None:
        raise Fatal("MR-8005", f"no MySQL in the cache, and {MYSQLD_ENVIRONMENT} is not set")
    return found
