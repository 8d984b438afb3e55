"""A MySQL or MariaDB server of our own, with what differs between the two in a ``Dialect``.

    server = DatabaseServer.mariadb(folder)
    server.start(); server.execute("CREATE DATABASE shop"); server.stop()

    <folder>/data/     the data directory; binlog files are <folder>/data/mysql-bin.NNNNNN
    <folder>/log       the server's error log
    <folder>/s         its socket: root, without a password, for us alone

Guarantees: loopback only; row format, full images, full metadata, GTIDs, replicated changes logged; a fresh data
directory holds no account but root over the socket, and no binlog entry that a client did not cause. After ``kill`` or
``stop``, ``start`` goes on with the same data, port and server id. Durability against a crash of the *machine* is
given up for speed unless ``durable`` is asked for; a killed server loses nothing.
"""

import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Self

from deploy.servers import sql
from deploy.servers.dialect import Account, Dialect
from deploy.servers.mariadb import MariadbDialect
from deploy.servers.mysql import MysqlDialect
from deploy.servers.process import ProcessSpec, free_port
from deploy.servers.server import Server
from deploy.servers.templates import database_template
from deploy.servers.tls import TlsFiles, tls_files
from schemas.gtid import Flavour

START_S = 180.0
SOCKET_PATH_BYTES_MAX = 100  # sun_path has 108
BINLOG_NAME = "mysql-bin"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """How a server is started. ``extra`` are further options of the server, the last word."""

    server_id: int = 1
    port: int = 0
    durable: bool = False
    dies_with_parent: bool = True
    extra: tuple[str, ...] = ()


class DatabaseServer(Server):
    """One server. ``user`` and ``password`` are those of the last ``create_account``."""

    host = "127.0.0.1"

    def __init__(self, dialect: Dialect, folder: Path, options: ServerOptions) -> None:
        super().__init__(folder, dies_with_parent=options.dies_with_parent)
        self.dialect = dialect
        self.options = options
        self.port = options.port or free_port()
        self.account = Account("root", "")
        self.is_replica = False

    @classmethod
    def of(cls, flavour: Flavour | str, folder: Path, options: ServerOptions | None = None) -> Self:
        """A server of this flavour, not started."""
        make = cls.mariadb if Flavour(flavour) is Flavour.MARIADB else cls.mysql
        return make(folder, options)

    @classmethod
    def mariadb(cls, folder: Path, options: ServerOptions | None = None) -> Self:
        """A MariaDB from the cache."""
        return cls(MariadbDialect(), folder, options or ServerOptions())

    @classmethod
    def mysql(cls, folder: Path, options: ServerOptions | None = None) -> Self:
        """A MySQL from MILLRACE_MYSQLD or the cache."""
        return cls(MysqlDialect(), folder, options or ServerOptions())

    @property
    def flavour(self) -> Flavour:
        """Which of the two it is."""
        return self.dialect.flavour

    @property
    def server_id(self) -> int:
        """The server's ``server_id``."""
        return self.options.server_id

    @property
    def user(self) -> str:
        """Whom to log in as over TCP."""
        return self.account.user

    @property
    def password(self) -> str:
        """The password of ``user``."""
        return self.account.password

    @property
    def data_dir(self) -> Path:
        """Where the server keeps its data."""
        return self.folder / "data"

    @property
    def binlog_dir(self) -> Path:
        """Where its binlog files lie."""
        return self.data_dir

    @cached_property
    def socket(self) -> Path:
        """Its socket file; elsewhere when the folder's path is too long for one."""
        beside = self.folder / "s"
        if len(os.fsencode(beside)) <= SOCKET_PATH_BYTES_MAX:
            return beside
        return Path(tempfile.mkdtemp(prefix="millrace-")) / "s"

    @cached_property
    def tls(self) -> TlsFiles | None:
        """What it shows to TLS clients and what they verify it with; None where it made its own."""
        return tls_files()

    def launch(self) -> None:
        """Start the process and return at once; the first time with a copy of the cached fresh data directory."""
        if not self.data_dir.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            shutil.copytree(database_template(self.dialect), self.data_dir)
        (self.folder / "tmp").mkdir(exist_ok=True)
        command = (*self.dialect.command(), *self._arguments(), *self.options.extra)
        name = f"{self.flavour} {self.server_id} on port {self.port}"
        spec = ProcessSpec(name, command, self.folder / "log")
        self._launch(spec)

    def wait_ready(self) -> None:
        """Until it takes statements; Fatal MR-8004 with its log's end."""
        self.process.wait_ready(lambda: sql.answers(self.socket), timeout_s=START_S)

    def discard(self) -> None:
        """The quick end, when nobody needs the data any more: SIGKILL, and the folder is removed."""
        super().discard()
        if self.socket.parent != self.folder:
            shutil.rmtree(self.socket.parent, ignore_errors=True)

    def execute(
        self, statement: str, args: sql.Arguments = None, db: str | None = None
    ) -> list[sql.Row]:
        """Run one statement as root (autocommit); all rows. The driver's error is raised as it is."""
        return sql.execute(self.socket, statement, args, database=db)

    def create_account(self, account: Account, privileges: str) -> None:
        """Create a login for TCP from loopback, not in the binlog; it becomes ``user`` and ``password``."""
        name = f"'{account.user}'@'%'"
        statements = [
            f"CREATE USER {name} IDENTIFIED BY '{account.password}'",
            f"GRANT {privileges} ON *.* TO {name}",
        ]
        sql.execute_unlogged(self.socket, statements)
        self.account = account

    def follow(self, primary_port: int, link: Account) -> None:
        """Become a read-only replica, also after a restart."""
        for statement in self.dialect.follow(port=primary_port, account=link):
            self.execute(statement)
        self.execute("SET GLOBAL read_only = ON")
        self.is_replica = True

    def gtid_position(self) -> str:
        """What it has executed, as its flavour writes it."""
        return str(self.execute(self.dialect.position_query())[0][0]).replace("\n", "")

    def wait_for_position(self, position: str, *, timeout_s: float) -> bool:
        """Wait until ``position`` has been executed here; False when time is up."""
        return self.execute(self.dialect.wait_query(), (position, timeout_s))[0][0] == 0

    def _arguments(self) -> Sequence[str]:
        """What both flavours understand."""
        user = ("--user=root",) if os.geteuid() == 0 else ()
        return (
            *user,
            *(self.tls.options() if self.tls else ()),
            f"--read-only={'ON' if self.is_replica else 'OFF'}",
            f"--datadir={self.data_dir}",
            # of its own: a starting MariaDB removes the temporary tables of whoever shares it
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
            f"--innodb-flush-log-at-trx-commit={1 if self.options.durable else 2}",
            f"--sync-binlog={1 if self.options.durable else 0}",
            "--max-connections=200",
            "--table-open-cache=400",
        )
