"""A local MySQL or MariaDB server. A ``Dialect`` holds the differences between the two.

    server = DatabaseServer.mariadb(folder)
    server.start(); server.execute("CREATE DATABASE shop"); server.stop()

    <folder>/data/     the data directory; binlog files are <folder>/data/mysql-bin.NNNNNN
    <folder>/log       the server's error log
    <folder>/s         its socket: root without a password, for its owner alone

Guarantees: loopback only. Row format, full images, full metadata, GTIDs; replicated changes are logged. A fresh data
directory has one account, root over the socket, and its binlog holds only what clients do. After ``kill`` or ``stop``,
``start`` continues with the same data, port and server id. A killed server loses nothing. A crash of the *machine* may
lose transactions, for speed, unless ``durable`` is set.
"""

import os
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Self

from millrace.deploy.servers import sql
from millrace.deploy.servers.dialect import Account, Dialect
from millrace.deploy.servers.mariadb import MariadbDialect
from millrace.deploy.servers.mysql import MysqlDialect
from millrace.deploy.servers.process import ProcessSpec, free_port
from millrace.deploy.servers.server import Server
from millrace.deploy.servers.templates import database_template
from millrace.deploy.servers.tls import TlsFiles, tls_files
from millrace.drivers.mysql.grants import Grant
from millrace.schemas.gtid import Flavour

START_S = 180.0
SOCKET_PATH_BYTES_MAX = 100  # sun_path has 108
BINLOG_NAME = "mysql-bin"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """How a server is started. ``extra`` holds further server options, which override ours.

    ``release``: of MariaDB, one of ``programs.MARIADB_SUITES``; else the usual one.
    """

    server_id: int = 1
    port: int = 0
    durable: bool = False
    dies_with_parent: bool = True
    extra: tuple[str, ...] = ()
    release: str = ""


class DatabaseServer(Server):
    """One server. ``user`` and ``password`` belong to the last account created."""

    host = "127.0.0.1"

    def __init__(self, dialect: Dialect, folder: Path, options: ServerOptions) -> None:
        super().__init__(folder, dies_with_parent=options.dies_with_parent)
        self.dialect = dialect
        self.options = options
        self.port = options.port or free_port()
        self.account = Account("root", "")
        self.is_replica = False
        self._requires_tls = False

    @classmethod
    def of(cls, flavour: Flavour | str, folder: Path, options: ServerOptions | None = None) -> Self:
        """A server of this flavour, not yet started."""
        make = cls.mariadb if Flavour(flavour) is Flavour.MARIADB else cls.mysql
        return make(folder, options)

    @classmethod
    def mariadb(cls, folder: Path, options: ServerOptions | None = None) -> Self:
        options = options or ServerOptions()
        return cls(MariadbDialect(options.release), folder, options)

    @classmethod
    def mysql(cls, folder: Path, options: ServerOptions | None = None) -> Self:
        """A MySQL server from MILLRACE_MYSQLD or the home folder."""
        return cls(MysqlDialect(), folder, options or ServerOptions())

    @property
    def flavour(self) -> Flavour:
        return self.dialect.flavour

    @property
    def server_id(self) -> int:
        return self.options.server_id

    @property
    def user(self) -> str:
        return self.account.user

    @property
    def password(self) -> str:
        """The password of ``user``."""
        return self.account.password

    @property
    def data_dir(self) -> Path:
        """The data directory."""
        return self.folder / "data"

    @property
    def binlog_dir(self) -> Path:
        """The folder of the binlog files."""
        return self.data_dir

    @cached_property
    def socket(self) -> Path:
        """The socket file. It is outside ``folder`` if that path is too long for a socket."""
        beside = self.folder / "s"
        if len(os.fsencode(beside)) <= SOCKET_PATH_BYTES_MAX:
            return beside
        return Path(tempfile.mkdtemp(prefix="millrace-")) / "s"

    @cached_property
    def tls(self) -> TlsFiles | None:
        """The server's certificate and its authority. None if the server made its own certificate."""
        return tls_files()

    def require_tls(self, files: TlsFiles) -> None:
        """Use this certificate and refuse logins in plain text over TCP, from the next start on."""
        self.tls = files
        self._requires_tls = True

    def launch(self) -> None:
        """Start the process and return at once. The first start copies a prepared data directory."""
        if not self.data_dir.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            shutil.copytree(database_template(self.dialect), self.data_dir)
        (self.folder / "tmp").mkdir(exist_ok=True)
        command = (*self.dialect.command(), *self._arguments(), *self.options.extra)
        name = f"{self.flavour} {self.server_id} on port {self.port}"
        spec = ProcessSpec(name, command, self.folder / "log")
        self._launch(spec)

    def wait_ready(self) -> None:
        """Wait until the server executes statements. Fatal MR-8004 with the end of its log."""
        self.process.wait_ready(lambda: sql.answers(self.socket), timeout_s=START_S)

    def discard(self) -> None:
        super().discard()
        if self.socket.parent != self.folder:
            shutil.rmtree(self.socket.parent, ignore_errors=True)

    def execute(
        self, statement: str, args: sql.Arguments = None, db: str | None = None
    ) -> list[sql.Row]:
        """Run one statement as root (autocommit) and return all rows. Raises the driver's own error."""
        return sql.execute(self.socket, statement, args, database=db)

    def create_account(self, account: Account, privileges: str, *, can_grant: bool = False) -> None:
        """Create a login over TCP without logging it. It becomes ``user`` and ``password`` of this server."""
        name = f"'{account.user}'@'%'"
        statements = [
            f"CREATE USER {name} IDENTIFIED BY '{account.password}'",
            f"GRANT {privileges} ON *.* TO {name}" + (" WITH GRANT OPTION" if can_grant else ""),
        ]
        sql.execute_unlogged(self.socket, statements)
        self.account = account

    def create_least_account(self, account: Account, grants: Iterable[Grant]) -> None:
        """Create a login with these grants alone, likewise."""
        self.create_account(account, "USAGE")
        sql.execute_unlogged(self.socket, [grant.sql(f"'{account.user}'@'%'") for grant in grants])

    def follow(self, primary_port: int, link: Account) -> None:
        """Become a read-only replica of the primary. This outlives a restart."""
        authority = self.tls.authority if self.tls and self._requires_tls else None
        statements = self.dialect.follow(port=primary_port, account=link, authority=authority)
        for statement in statements:
            self.execute(statement)
        self.execute("SET GLOBAL read_only = ON")
        self.is_replica = True

    def gtid_position(self) -> str:
        """The executed GTIDs, in the flavour's notation."""
        return str(self.execute(self.dialect.position_query())[0][0]).replace("\n", "")

    def wait_for_position(self, position: str, *, timeout_s: float) -> bool:
        """Wait until this server has executed ``position``. False if time is up."""
        return self.execute(self.dialect.wait_query(), (position, timeout_s))[0][0] == 0

    def _arguments(self) -> Sequence[str]:
        """The options that both flavours understand."""
        user = ("--user=root",) if os.geteuid() == 0 else ()
        return (
            *user,
            *(self.tls.options() if self.tls else ()),
            *(("--require-secure-transport=ON",) if self._requires_tls else ()),
            f"--read-only={'ON' if self.is_replica else 'OFF'}",
            f"--datadir={self.data_dir}",
            # not shared: at its start MariaDB removes the temporary tables of other servers in it
            f"--tmpdir={self.folder / 'tmp'}",
            f"--socket={self.socket}",
            f"--pid-file={self.folder / 'pid'}",
            f"--port={self.port}",
            "--bind-address=127.0.0.1",
            f"--server-id={self.server_id}",
            f"--log-bin={BINLOG_NAME}",
            "--relay-log=relay-bin",
            "--binlog-format=ROW",
            "--binlog-row-image=FULL",
            "--binlog-row-metadata=FULL",
            "--skip-name-resolve",
            "--character-set-server=utf8mb4",
            "--local-infile=ON",
            "--secure-file-priv=",
            "--performance-schema=OFF",
            "--innodb-buffer-pool-size=64M",
            # the kernel's limit of asynchronous requests (fs.aio-max-nr) would be reached by thirty servers
            "--innodb-use-native-aio=OFF",
            f"--innodb-flush-log-at-trx-commit={1 if self.options.durable else 2}",
            f"--sync-binlog={1 if self.options.durable else 0}",
            "--max-connections=200",
            "--table-open-cache=400",
        )
