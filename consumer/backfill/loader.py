"""A later load of a task: tables that an operator or a statement lets wait are loaded while its stream continues.

    1  range    the load begins when the chosen member has everything that any member had at the call
    2  prepare  a table that the source has not is dropped on the target. A table of another structure is created again,
                any other is emptied (``consumer.load.prepare_again``)
    3  copy     as in a first load

The fence is that of the side stream, and so are range and statements. A load that is repeated with the same batch
continues with the tables that are not copied; each was prepared if its range begins where that of the load does.
"""

import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass

from millrace.consumer.load.copies import Copier
from millrace.consumer.load.load import Destination, Load, RowSource
from millrace.consumer.load.plan import Ends, Sides, read_sides
from millrace.consumer.load.prepare_again import prepare_again
from millrace.consumer.load.source import SourceMember
from millrace.consumer.load.tables import with_linked
from millrace.consumer.target import loads
from millrace.consumer.target.loads import LoadStream
from millrace.consumer.target.progress import Owner
from millrace.drivers.mysql.catalog import TableKey
from millrace.drivers.mysql.connection import Endpoint, MySqlSession, connect
from millrace.drivers.mysql.snapshot_position import executed, read_begin
from millrace.errors import Retryable
from millrace.schemas.documents import ApplyTask
from millrace.schemas.gtid import GtidPosition, beyond, shortened
from millrace.schemas.stages import Loaded

REACH_S = 60.0  # until a lagging member has what the others had
LOOK_S = 0.5


@dataclass(slots=True)
class LaterLoad:
    """Implements ``consumer.backfill.threads.Loader``. ``shown``: see there."""

    task: ApplyTask
    find_origin: Callable[[], RowSource]
    target: Endpoint
    copier: Copier
    shown: Loaded | None = None

    def tables(self) -> frozenset[TableKey]:
        """The tables of the source that the topic has and the task admits."""
        return frozenset(table.key for table in self._sides().tables)

    def together(self, tables: Collection[TableKey]) -> frozenset[TableKey]:
        """These tables and those of the task that foreign keys of the source or the target link with them."""
        if not tables:
            return frozenset()
        sides = self._sides()
        return frozenset(tables) | (with_linked(tables, sides.foreign_keys) & sides.known)

    def _sides(self) -> Sides:
        origin = self.find_origin()
        member = origin.choose(from_primary=self.task.rules.load.from_primary)
        with connect(member.endpoint) as source, connect(self.target) as target:
            writer = Owner(self.task.name, 0, 0)
            return read_sides(Ends(source, target, writer), self._load(origin).admission)

    def load(self, owner: Owner, batch: int, stop: threading.Event) -> LoadStream | None:
        """See ``Loader``."""
        origin = self.find_origin()
        target = connect(self.target)
        try:
            stream = loads.read_stream(target, owner.task)
            target.rollback()
            load = self._load(origin, owner, batch)
            member = load.choose(stream)
            with connect(member.endpoint) as source:
                ends = Ends(source, target, owner)
                if stream is None:
                    stream = _begun(ends, member, stop)
                    if stream is None:
                        return None
                    loads.store_stream(target, owner, stream, batch)
                prepare_again(ends, load.admission, stream, batch)
                return load.copied(member, ends, stream, stop)
        finally:
            target.close()
            self.shown = None

    def _load(
        self, origin: RowSource, owner: Owner | None = None, batch: int = loads.FIRST
    ) -> Load:
        destination = Destination(self.target, owner or Owner(self.task.name, 0, 0))
        return Load(self.task, origin, destination, self.copier, self._show, batch)

    def _show(self, loaded: Loaded) -> None:
        self.shown = loaded


def _begun(ends: Ends, member: SourceMember, stop: threading.Event) -> LoadStream | None:
    """The range, once the member has what the others had; None if ``stop`` was set. Retryable MR-5090 after a while."""
    waited_s = 0.0
    while absent := beyond(member.newest, _visible(ends.source)):
        if stop.wait(LOOK_S):
            return None
        waited_s += LOOK_S
        if waited_s > REACH_S:
            what = f"{member.name} does not have {shortened(absent)} after {REACH_S:g} s"
            raise Retryable("MR-5090", what)
    begin = read_begin(ends.source)
    return LoadStream(str(begin), "", begin.flavour)


def _visible(source: MySqlSession) -> GtidPosition:
    position = executed(source)
    source.rollback()
    return position
