"""The differences between a MySQL and a MariaDB server: to initialize, start, make a replica of, and query one."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from millrace.schemas.gtid import Flavour


@dataclass(frozen=True, slots=True)
class Account:
    user: str
    password: str


class Dialect(Protocol):
    """The differences between the two servers. It has no state."""

    flavour: Flavour
    source_privileges: str

    def command(self) -> Sequence[str]: ...

    def initialize(self, data_dir: Path, log: Path) -> None:
        """Turn an empty folder into a fresh data directory."""

    def stamp(self) -> str:
        """Identifies the program's version: a template is used only by the version that made it."""

    def follow(
        self, *, port: int, account: Account, authority: Path | None = None
    ) -> Sequence[str]:
        """The statements that make a fresh server replicate from 127.0.0.1:port by GTID.

        With an ``authority``, over TLS, and the source's certificate is verified.
        """

    def position_query(self) -> str: ...

    def wait_query(self) -> str:
        """A query with parameters (position, seconds) that waits for a position. It returns 0 on success."""
