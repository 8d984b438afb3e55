"""A replica becomes the primary."""

from deploy.servers import Account as Login
from deploy.servers import DatabaseServer
from schemas.gtid import Flavour

LINK = Login("link", "link-secret")


def promote(new: DatabaseServer, other: DatabaseServer) -> None:
    """``new`` becomes the primary, ``other`` follows it by GTID."""
    word = "SLAVE" if new.flavour is Flavour.MARIADB else "REPLICA"
    service = new.account
    new.execute(f"STOP {word}")
    new.execute(f"RESET {word} ALL")
    new.execute("SET GLOBAL read_only = OFF")
    new.is_replica = False
    new.create_account(LINK, "REPLICATION SLAVE")
    new.account = service
    other.execute(f"STOP {word}")
    other.follow(new.port, LINK)
