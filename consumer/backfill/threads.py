"""The parts that a later load needs from elsewhere."""

import threading
from collections.abc import Collection
from typing import Protocol

from millrace.consumer.target.loads import LoadStream
from millrace.consumer.target.progress import Owner
from millrace.consumer.turn.driver import RecordsLike
from millrace.drivers.mysql.catalog import TableKey
from millrace.schemas.stages import Loaded


class Loader(Protocol):
    """Copies tables from the source set to the target."""

    @property
    def shown(self) -> Loaded | None:
        """How much of the batch is copied; None while no copies are under way."""

    def tables(self) -> frozenset[TableKey]:
        """The tables of the source, by their names on the target."""

    def together(self, tables: Collection[TableKey]) -> frozenset[TableKey]:
        """These tables and those that must be loaded with them, because a foreign key relates them."""

    def load(self, owner: Owner, batch: int, stop: threading.Event) -> LoadStream | None:
        """Copy the tables in ``copies`` of a batch, until they are ``copied``; the range. None if ``stop`` was set.

        A table that the source no longer has is dropped on the target, and counts as copied: the stream has yet to pass
        its last rows. A table that is not in ``copies`` any more is left alone.

        ``owner``: of the side stream's fence, which each target transaction checks.

        The range begins after the call: it has every transaction that a member of the source had executed then.
        Called again with the same batch after an error or a restart, it copies the rest; the range begins where it did.
        """


class Turns(Protocol):
    """Executes turns of a side stream."""

    def records(self, end: int) -> RecordsLike:
        """The records of the topic below an offset, for one turn after the other."""

    def first_offset(self, offset: int) -> int:
        """``offset``, or the first one that retention has left above it."""

    def stop(self) -> None:
        """End the turn under way, whose call then raises."""
