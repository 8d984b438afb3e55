"""The version of a server, and the statements that this version supports. Pure.

    SHOW REPLICA STATUS      MySQL 8.0.22 and later     before: SHOW SLAVE STATUS
    SHOW BINARY LOG STATUS   MySQL 8.2 and later        before: SHOW MASTER STATUS
    STOP REPLICA, …          MySQL 8.0.22 and later     before: STOP SLAVE
    SHOW REPLICAS            MySQL 8.0.22 and later     before: SHOW SLAVE HOSTS
    replica_… variables      MySQL 8.0.26 and later     before: slave_…
    transaction_isolation    MySQL, MariaDB 11.1.1      before: tx_isolation

Otherwise MariaDB keeps the older names in every version; all its connections are shown by SHOW ALL SLAVES STATUS.
Sources: the release notes of MySQL 8.0.22, 8.0.26 and 8.2.0, and the manual of 8.4; MariaDB's documentation.
"""

import re
from dataclasses import dataclass
from typing import Self

from millrace.schemas.gtid import Flavour

# The first release whose table maps can hold column names (binlog_row_metadata).
_OLDEST = {Flavour.MYSQL: (8, 0, 11), Flavour.MARIADB: (10, 5, 0)}
NO_NUMBERS = (0, 0, 0)  # a version that is not known
_NUMBERS = re.compile(r"(\d+)\.(\d+)(?:\.(\d+))?")


@dataclass(frozen=True, slots=True)
class ServerVersion:
    """The result of VERSION(); ``numbers`` is NO_NUMBERS for a text of another form."""

    flavour: Flavour
    numbers: tuple[int, int, int]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a text like ``8.0.36-0ubuntu0.22.04.1`` or ``10.11.19-MariaDB-0+deb12u1-log``."""
        flavour = Flavour.MARIADB if "mariadb" in text.lower() else Flavour.MYSQL
        # a handshake prefixes MariaDB's version with 5.5.5-
        found = _NUMBERS.match(text.removeprefix("5.5.5-"))
        major, minor, patch = found.groups(default="0") if found else ("0", "0", "0")
        return cls(flavour, (int(major), int(minor), int(patch)))

    @property
    def is_known(self) -> bool:
        """Whether the version could be read."""
        return self.numbers != NO_NUMBERS

    def is_before(self, numbers: tuple[int, int, int]) -> bool:
        """Whether it is older; False for a version that can not be read."""
        return self.is_known and self.numbers < numbers

    @property
    def is_supported(self) -> bool:
        """Whether its binlog can describe its own rows; True for a version that can not be read."""
        return not self.is_before(_OLDEST[self.flavour])

    @property
    def oldest_supported(self) -> str:
        """For messages, such as ``10.5.0``."""
        return ".".join(map(str, _OLDEST[self.flavour]))

    @property
    def replica_status(self) -> str:
        """The statement that shows each connection to a primary; no row: it replicates from no server."""
        if self.flavour is Flavour.MARIADB:
            return "SHOW ALL SLAVES STATUS"
        return f"SHOW {self.replica} STATUS"

    @property
    def binlog_status(self) -> str:
        """The statement that shows binlog_do_db and binlog_ignore_db."""
        return "SHOW BINARY LOG STATUS" if self._is_mysql_from(8, 2, 0) else "SHOW MASTER STATUS"

    @property
    def replicas(self) -> str:
        """The statement that shows every reader of the binlog that registered itself."""
        return "SHOW REPLICAS" if self._is_mysql_from(8, 0, 22) else "SHOW SLAVE HOSTS"

    @property
    def replica(self) -> str:
        """The word in STOP and START: REPLICA or SLAVE."""
        return "REPLICA" if self._is_mysql_from(8, 0, 22) else "SLAVE"

    def variable(self, name: str) -> str:
        """How this server calls the setting ``replica_…``, ``log_replica_updates`` or ``transaction_isolation``."""
        if name == "transaction_isolation":
            is_old = self.flavour is Flavour.MARIADB and self.numbers < (11, 1, 1)
            return "tx_isolation" if is_old else name
        return name if self._is_mysql_from(8, 0, 26) else name.replace("replica", "slave")

    def _is_mysql_from(self, major: int, minor: int, patch: int) -> bool:
        return self.flavour is Flavour.MYSQL and not self.is_before((major, minor, patch))
