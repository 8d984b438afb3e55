"""What both flavours' positions have in common: the words that the rest of the project uses.

A position says which source transactions are behind us. Everything that reads, converts, publishes or applies
holds a ``GtidPosition`` and never asks which flavour it is. Import these names from ``schemas.gtid``.
"""

from enum import StrEnum
from typing import Protocol, Self


class Flavour(StrEnum):
    """Whose server it is; also the ``connector`` of a record."""

    MYSQL = "mysql"
    MARIADB = "mariadb"


class AnyGtid(Protocol):
    """One source transaction; ``str`` is the text of the record's ``source.gtid``."""

    def __str__(self) -> str: ...


class GtidPosition(Protocol):
    """Which source transactions are behind us. ``GtidSet``, ``MariadbGtidSet``."""

    @property
    def flavour(self) -> Flavour:
        """Whose position it is; positions of two flavours are never compared."""
        ...

    @property
    def is_empty(self) -> bool:
        """True if nothing is behind us."""
        ...

    def covers(self, gtid: AnyGtid) -> bool:
        """True if this transaction is behind us."""
        ...

    def advanced(self, gtid: AnyGtid) -> Self:
        """This position and one transaction more."""
        ...

    def includes(self, other: "GtidPosition") -> bool:
        """True if everything behind ``other`` is behind us (reflexive)."""
        ...

    def __str__(self) -> str: ...
