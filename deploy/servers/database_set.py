"""A set: a primary and its replicas, which replicate by GTID from the first binlog on.

Guarantees: server ids are unique in the set. Replicas log what they apply and are read-only. The accounts exist on each
server and are in no binlog, so a fresh set has executed nothing.
"""

import secrets
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from millrace.deploy.servers import sql
from millrace.deploy.servers.database import DatabaseServer, ServerOptions
from millrace.deploy.servers.dialect import Account
from millrace.deploy.servers.process import POLL_S
from millrace.errors import Fatal
from millrace.schemas.gtid import Flavour

CATCH_UP_S = 120.0


@dataclass(frozen=True, slots=True)
class DatabaseSet:
    """A primary and any number of replicas. ``user`` and ``password`` are Millrace's login on every member."""

    primary: DatabaseServer
    replicas: tuple[DatabaseServer, ...]

    @classmethod
    def of(
        cls, flavour: Flavour | str, folder: Path, *, replica_count: int, options: ServerOptions
    ) -> Self:
        """A set in ``folder``, not yet started. Server ids count up from the primary's, ``options.server_id``."""
        ids = range(options.server_id, options.server_id + 1 + replica_count)
        members = [
            DatabaseServer.of(
                flavour, folder / f"server-{number}", replace(options, server_id=number)
            )
            for number in ids
        ]
        return cls(members[0], tuple(members[1:]))

    @property
    def flavour(self) -> Flavour:
        return self.primary.flavour

    @property
    def members(self) -> tuple[DatabaseServer, ...]:
        return (self.primary, *self.replicas)

    @property
    def user(self) -> str:
        return self.primary.user

    @property
    def password(self) -> str:
        return self.primary.password

    def execute(
        self, statement: str, args: sql.Arguments = None, db: str | None = None
    ) -> list[sql.Row]:
        """Run one statement on the primary, as root."""
        return self.primary.execute(statement, args, db)

    def launch(self) -> None:
        """Start all processes and return at once."""
        for member in self.members:
            member.launch()

    def wait_ready(self) -> None:
        for member in self.members:
            member.wait_ready()

    def create_account(self, account: Account, privileges: str = "") -> None:
        """Create a login on every member without logging it. By default it gets exactly what capture needs."""
        for member in self.members:
            member.create_account(account, privileges or member.dialect.source_privileges)

    def replicate(self) -> None:
        """Make the replicas follow the primary. Call it once, when all members are ready."""
        link = Account("replication", secrets.token_hex(12))
        self.primary.create_account(link, "REPLICATION SLAVE")
        for replica in self.replicas:
            replica.follow(self.primary.port, link)
        for replica in self.replicas:
            _wait_connected(replica)

    def wait_for_replicas(self, *, timeout_s: float = CATCH_UP_S) -> None:
        """Wait until every replica has executed what the primary has now. Fatal MR-8007 names the one that has not."""
        position = self.primary.gtid_position()
        deadline = time.monotonic() + timeout_s
        for replica in self.replicas:
            left_s = max(deadline - time.monotonic(), 0.0)
            if position and not replica.wait_for_position(position, timeout_s=left_s):
                raise Fatal("MR-8007", f"replica {replica.server_id} did not reach {position}")

    def stop(self) -> None:
        for member in self.members:
            member.process.terminate()
        for member in self.members:
            member.stop()

    def discard(self) -> None:
        for member in self.members:
            member.discard()


def start_set(
    folder: Path,
    *,
    flavour: Flavour | str,
    replica_count: int = 2,
    account: Account | None = None,
    options: ServerOptions | None = None,
) -> DatabaseSet:
    """A running set in ``folder``, replicating, with Millrace's account on every member."""
    started = DatabaseSet.of(
        flavour, folder, replica_count=replica_count, options=options or ServerOptions()
    )
    try:
        started.launch()
        started.wait_ready()
        started.replicate()
        started.create_account(account or Account("millrace", "millrace"))
    except BaseException:
        started.discard()
        raise
    return started


def _wait_connected(replica: DatabaseServer) -> None:
    """Wait until both replication threads run. Fatal MR-8007 with the replica's last error."""
    query = "SHOW SLAVE STATUS" if replica.flavour == Flavour.MARIADB else "SHOW REPLICA STATUS"
    deadline = time.monotonic() + CATCH_UP_S
    while True:
        (status,) = sql.execute_named(replica.socket, query)
        running = [
            value for name, value in status.items() if name.endswith(("IO_Running", "SQL_Running"))
        ]
        if running == ["Yes", "Yes"]:
            return
        if time.monotonic() > deadline:
            why = status.get("Last_IO_Error") or status.get("Last_SQL_Error")
            raise Fatal("MR-8007", f"replica {replica.server_id} does not replicate: {why}")
        time.sleep(POLL_S)
