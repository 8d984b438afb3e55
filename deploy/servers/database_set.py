"""A set: a primary and its replicas, replicating by GTID from the first binlog on.

Guarantees: server ids are unique within the set; replicas log what they apply and are read-only; the accounts are on
each server and in no binlog, so a fresh set has executed nothing.
"""

import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from deploy.servers import sql
from deploy.servers.database import Account, DatabaseServer, ServerOptions
from deploy.servers.process import POLL_S
from millrace.errors import Fatal
from schemas.gtid import Flavour

CATCH_UP_S = 30.0


@dataclass(frozen=True, slots=True)
class DatabaseSet:
    """One primary, any number of replicas. ``account`` is the service's login on every member."""

    primary: DatabaseServer
    replicas: tuple[DatabaseServer, ...]

    @property
    def flavour(self) -> Flavour:
        """Which kind of servers these are."""
        return self.primary.flavour

    @property
    def members(self) -> tuple[DatabaseServer, ...]:
        """Primary first."""
        return (self.primary, *self.replicas)

    @property
    def user(self) -> str:
        """The service's login."""
        return self.primary.user

    @property
    def password(self) -> str:
        """Its password."""
        return self.primary.password

    def execute(
        self, statement: str, args: sql.Arguments = None, db: str | None = None
    ) -> list[sql.Row]:
        """On the primary, as root."""
        return self.primary.execute(statement, args, db)

    def wait_for_replicas(self, *, timeout_s: float = CATCH_UP_S) -> None:
        """Until every replica has executed what the primary has now; Fatal MR-8007 names the one that has not."""
        position = self.primary.gtid_position()
        deadline = time.monotonic() + timeout_s
        for replica in self.replicas:
            left_s = max(deadline - time.monotonic(), 0.0)
            if position and not replica.wait_for_position(position, timeout_s=left_s):
                raise Fatal("MR-8007", f"replica {replica.server_id} did not reach {position}")

    def stop(self) -> None:
        """A clean shutdown of all, at the same time."""
        for member in self.members:
            member.process.terminate()
        for member in self.members:
            member.stop()

    def discard(self) -> None:
        """The quick end, when nobody needs the data any more."""
        for member in self.members:
            member.discard()


def start_set(
    folder: Path,
    *,
    flavour: Flavour | str,
    replica_count: int = 2,
    account: Account | None = None,
    privileges: str = "",
    options: ServerOptions | None = None,
) -> DatabaseSet:
    """Start a set below ``folder``. ``privileges`` of the account default to what capture needs, no more."""
    base = options or ServerOptions()
    make = DatabaseServer.mariadb if flavour == Flavour.MARIADB else DatabaseServer.mysql
    ids = range(base.server_id, base.server_id + 1 + replica_count)
    members = [make(folder / f"server-{n}", replace(base, server_id=n)) for n in ids]
    for member in members:
        member.launch()
    for member in members:
        member.wait_ready()
    link = Account("replication", secrets.token_hex(12))
    for member in members:
        member.create_account(link, "REPLICATION SLAVE")
        login = account or Account("millrace", "millrace")
        member.create_account(login, privileges or member.dialect.source_privileges)
    primary, *replicas = members
    _replicate(primary, replicas, link)
    return DatabaseSet(primary, tuple(replicas))


def _replicate(primary: DatabaseServer, replicas: Sequence[DatabaseServer], link: Account) -> None:
    for replica in replicas:
        for statement in replica.dialect.follow(port=primary.port, account=link):
            replica.execute(statement)
        replica.execute("SET GLOBAL read_only = ON")
        _wait_connected(replica)


def _wait_connected(replica: DatabaseServer) -> None:
    """Until both replication threads run; Fatal MR-8007 with the replica's own last error."""
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
