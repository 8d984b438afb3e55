"""The common part of the positions of both flavours.

A position states which source transactions are done. Code that reads, converts, publishes or applies holds a
``GtidPosition`` and does not depend on its flavour. Import these names from ``schemas.gtid``.
"""

from enum import StrEnum
from typing import Protocol, Self


class Flavour(StrEnum):
    """The kind of server; also the ``connector`` of a record."""

    MYSQL = "mysql"
    MARIADB = "mariadb"


class AnyGtid(Protocol):
    """One source transaction; ``str`` is the text of the record's ``source.gtid``."""

    def __str__(self) -> str: ...


class GtidPosition(Protocol):
    """Which source transactions are done: ``GtidSet`` or ``MariadbGtidSet``."""

    @property
    def flavour(self) -> Flavour:
        """The kind of server; positions of different flavours are never compared."""
        ...

    @property
    def is_empty(self) -> bool:
        """True if no transaction is done."""
        ...

    def covers(self, gtid: AnyGtid) -> bool:
        """True if this transaction is done."""
        ...

    def advanced(self, gtid: AnyGtid) -> Self:
        """This position plus one transaction."""
        ...

    def includes(self, other: "GtidPosition") -> bool:
        """True if every transaction in ``other`` is in this position; a position includes itself."""
        ...

    def __str__(self) -> str: ...
