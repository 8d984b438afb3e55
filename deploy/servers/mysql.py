"""The dialect of MySQL 9.7 and later."""

import os
import subprocess
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

from millrace.deploy.servers.dialect import Account
from millrace.deploy.servers.process import last_lines
from millrace.deploy.servers.programs import MYSQLD_ENVIRONMENT, MysqlPrograms, mysql_programs
from millrace.drivers.mysql.grants import SOURCE_PRIVILEGES
from millrace.errors import Fatal
from millrace.schemas.gtid import Flavour


class MysqlDialect:
    flavour = Flavour.MYSQL
    source_privileges = ", ".join((*SOURCE_PRIVILEGES[flavour], "SELECT"))

    def command(self) -> Sequence[str]:
        """Without InnoDB's log writer threads, which would spin on two cores."""
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

    def initialize(self, data_dir: Path, log: Path) -> None:
        """Run ``mysqld --initialize-insecure``, 1 to 10 s. ``auto.cnf`` is removed, so each copy gets its own uuid."""
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
        """A digest of the version that the program prints."""
        printed = subprocess.run([_programs().mysqld, "--version"], capture_output=True, check=True)
        version = printed.stdout.partition(b" Ver ")[2]  # after the program's path
        return sha256(version or printed.stdout).hexdigest()[:12]

    def follow(
        self, *, port: int, account: Account, authority: Path | None = None
    ) -> Sequence[str]:
        """Requests the source's public key: caching_sha2_password needs it without TLS."""
        verified = f"SOURCE_SSL=1, SOURCE_SSL_CA='{authority}', SOURCE_SSL_VERIFY_SERVER_CERT=1"
        return (
            f"CHANGE REPLICATION SOURCE TO SOURCE_HOST='127.0.0.1', SOURCE_PORT={port}, "
            f"SOURCE_USER='{account.user}', SOURCE_PASSWORD='{account.password}', SOURCE_AUTO_POSITION=1, "
            f"{verified if authority else 'GET_SOURCE_PUBLIC_KEY=1'}, "
            "SOURCE_CONNECT_RETRY=1, SOURCE_RETRY_COUNT=100000",
            "START REPLICA",
        )

    def position_query(self) -> str:
        return "SELECT @@global.gtid_executed"

    def wait_query(self) -> str:
        """0 if the set is executed, 1 if time is up."""
        return "SELECT WAIT_FOR_EXECUTED_GTID_SET(%s, %s)"


def _programs() -> MysqlPrograms:
    found = mysql_programs()
    if found is None:
        raise Fatal(
            "MR-8005", f"MySQL is not in the home folder, and {MYSQLD_ENVIRONMENT} is not set"
        )
    return found
