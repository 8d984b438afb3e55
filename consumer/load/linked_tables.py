"""Tables of a later load that foreign keys link with others outside it: all of these wait for another load.

Otherwise two streams would apply the linked tables (``consumer.tables.related``). A batch begins with all that is
linked (``consumer.backfill.backfill``), but a source may get a foreign key at any time:

    before a table is created    by the keys of both servers, because its definition may have one
    before its first row         by the keys of the target: its definition is read after the keys, and main may have
                                 executed an ADD FOREIGN KEY until the batch began

After this no key comes between two streams: each sets aside a statement that refers to a table of another one
(``consumer.write.ddl_scope``). Main leaves the other tables from its next turn on. Until then it may apply them: the
table that is linked with them has no row that a cascade could reach, and no stream writes it.
"""

from collections.abc import Collection, Iterable, Mapping

from millrace.consumer.load.plan import Ends, Sides
from millrace.consumer.load.tables import families, with_linked
from millrace.consumer.target import loads
from millrace.consumer.target.loads import COPIED, COPIES
from millrace.drivers.mysql.catalog import ForeignKey, TableKey

_APART = "a foreign key links it with a table that was not in its load, or one of that load with it"


def linked_apart(
    tables: Collection[TableKey],
    inside: Collection[TableKey],
    known: frozenset[TableKey],
    foreign_keys: Iterable[ForeignKey],
) -> frozenset[TableKey]:
    """Those of ``tables`` that are linked with a table that is not ``inside``, and all that are linked with them.

    ``known``: the tables of the task.
    """
    linked = [known.intersection(family) for family in families(foreign_keys)]
    return frozenset().union(
        *(each for each in linked if not each.isdisjoint(tables) and not each <= set(inside))
    )


def let_linked_wait(
    ends: Ends,
    sides: Sides,
    reasons: Mapping[TableKey, str],
    among: Collection[TableKey],
    *,
    linked: str,
) -> frozenset[TableKey]:
    """Let these tables wait, and those that foreign keys link with them; all of these that are in ``among``.

    ``linked``: the reason of a table that is only linked.
    """
    waiting = with_linked(reasons, sides.foreign_keys).intersection(among)
    for key in sorted(waiting):
        loads.let_wait(ends.target, ends.owner, key, reasons.get(key, linked))
    return waiting


def let_apart_wait(
    ends: Ends,
    sides: Sides,
    batch: int,
    tables: Collection[TableKey],
    foreign_keys: Iterable[ForeignKey],
) -> frozenset[TableKey]:
    """Let those of ``tables``, which are of this batch, wait that must not be loaded in it; all that wait now."""
    stored = ends.stored().items()
    inside = {key for key, one in stored if one.batch == batch and one.state in (COPIES, COPIED)}
    waiting = linked_apart(tables, inside, sides.known, foreign_keys)
    for key in sorted(waiting):
        loads.let_wait(ends.target, ends.owner, key, _APART)
    return waiting
