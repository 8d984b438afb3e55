"""What differs between MySQL and MariaDB as servers: how one is initialised, started, made to follow and asked."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from schemas.gtid import Flavour


@dataclass(frozen=True, slots=True)
class Account:
    """A login over TCP from loopback."""

    user: str
    password: str


class Dialect(Protocol):
    """What differs between the two servers; no state."""

    flavour: Flavour
    source_privileges: str

    def command(self) -> Sequence[str]:
        """The program with what this flavour needs; the common options are added."""

    def initialise(self, data_dir: Path, log: Path) -> None:
        """Make an empty data directory a fresh one."""

    def stamp(self) -> str:
        """Names the program's version: a template of another one is not used."""

    def follow(self, *, port: int, account: Account) -> Sequence[str]:
        """Statements that make a fresh server replicate by GTID from 127.0.0.1:port."""

    def position_query(self) -> str:
        """A query for the GTID position that has been executed."""

    def wait_query(self) -> str:
        """A query with (position, seconds) that waits until it is executed; 0 when it is."""
