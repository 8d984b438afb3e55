"""The identity of a server: its flavour, and its name in the relay directory."""

from dataclasses import dataclass

from millrace.errors import Fatal
from producer.source.connection import SourceConnection
from schemas.gtid import Flavour
from schemas.server_version import ServerVersion


@dataclass(frozen=True, slots=True)
class Identity:
    """``server`` is MySQL's server_uuid, or MariaDB's ``<gtid_domain_id>-<server_id>``."""

    flavour: Flavour
    server: str
    version: str  # the result of VERSION()

    @property
    def dialect(self) -> ServerVersion:
        """The statements that this version supports."""
        return ServerVersion.parse(self.version)


def ask_identity(connection: SourceConnection) -> Identity:
    """Query a server's identity. Fatal MR-1020 if it is neither MySQL nor MariaDB."""
    version = str(connection.query("SELECT VERSION() AS version")[0]["version"])
    if "mariadb" in version.lower():
        row = connection.query("SELECT @@gtid_domain_id AS domain, @@server_id AS server")[0]
        return Identity(Flavour.MARIADB, f"{row['domain']!s}-{row['server']!s}", version)
    rows = connection.query("SHOW GLOBAL VARIABLES LIKE 'server_uuid'")
    if not rows:
        raise Fatal(
            "MR-1020",
            f"{connection.member} ({version}) has no server_uuid",
            member=connection.member,
        )
    return Identity(Flavour.MYSQL, str(rows[0]["Value"]).lower(), version)
