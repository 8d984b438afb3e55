"""A replica becomes the primary."""

from collections.abc import Callable
from contextlib import closing

from millrace.deploy.servers import Account as Login
from millrace.deploy.servers import DatabaseServer, DatabaseSet, sql
from millrace.schemas.gtid import Flavour

LINK = Login("link", "link-secret")


def promote(new: DatabaseServer, other: DatabaseServer) -> None:
    """``new`` becomes the primary, ``other`` follows it by GTID."""
    word = "SLAVE" if new.flavour is Flavour.MARIADB else "REPLICA"
    service = new.account
    new.execute(f"STOP {word}")
    new.execute(f"RESET {word} ALL")
    new.execute("SET GLOBAL read_only = OFF")
    new.is_replica = False
    if not new.execute("SELECT 1 FROM mysql.user WHERE user = %s", (LINK.user,)):
        new.create_account(LINK, "REPLICATION SLAVE")
    new.account = service
    other.execute(f"STOP {word}")
    other.follow(new.port, LINK)


def fail_over(
    source: DatabaseSet, new: DatabaseServer, *, on_promoted: Callable[[DatabaseSet], None]
) -> None:
    """The primary of a set with two replicas is killed under load, ``new`` takes over, and the old one follows it.

    No commit is lost, as with semi-synchronous replication: before the kill, a lock blocks every commit until both
    replicas have the earlier ones. No DDL may run meanwhile. ``on_promoted`` gets the new set before the old primary
    is back.
    """
    old = source.primary
    (other,) = (replica for replica in source.replicas if replica is not new)
    with closing(sql.open_root(old.socket)) as session:
        session.cursor().execute("FLUSH TABLES WITH READ LOCK")
        source.wait_for_replicas()
        executed = old.gtid_position()
        old.kill()
    promote(new, other)
    on_promoted(DatabaseSet(new, (other, old)))
    old.is_replica = True
    old.start()
    restarted = old.gtid_position()
    assert restarted == executed, f"killed at {executed}, restarted with {restarted}"
    if old.flavour is Flavour.MARIADB:
        old.execute("SET GLOBAL gtid_slave_pos = %s", (executed,))
    old.follow(new.port, LINK)
