"""Prepares the tables of a later load, which may have rows and another structure on the target.

Each is empty then and has the source's structure, or waits for another load: because of foreign keys
(``consumer.load.linked_tables``), or because the target refuses its definition. The others of the batch do not wait for
it. ``consumer.load.remaining`` finds what is left to copy.

Under a view that changes a table, the target's table may be an operator's: it is never dropped. It is emptied if it
takes the rows of the view (``check_viewed``), and waits with the reason if not.
"""

from collections.abc import Mapping

from millrace.consumer.load.linked_tables import let_apart_wait, let_linked_wait
from millrace.consumer.load.plan import (
    Ends,
    Sides,
    check_rights,
    creation_of,
    definition_of,
    planned,
    read_sides,
    table_sizes,
)
from millrace.consumer.load.prepare import create_tables, drop_table, empty_table
from millrace.consumer.load.structure import structure_of, without_rows
from millrace.consumer.load.tables import Admission, SourceTable, check_viewed, differences
from millrace.consumer.target import loads
from millrace.consumer.target.loads import COPIED, COPIES, LoadStream
from millrace.drivers.mysql.catalog import CatalogTable, TableKey
from millrace.errors import Fatal

_LINKED = "linked with a table that the target refuses"


def prepare_again(ends: Ends, admission: Admission, stream: LoadStream, batch: int) -> None:
    """Prepare the tables of a later load that are not prepared yet: each is empty and has the source's structure.

    Fatal MR-5094 if the target refuses to create a table, and the batch has no other one.
    """
    left = [
        table
        for table in ends.stored().values()
        if (table.batch, table.state) == (batch, COPIES) and not table.structure
    ]
    if not left:
        return
    check_rights(ends.source, admission)
    sides, sizes = read_sides(ends, admission), table_sizes(ends.source)
    waiting = let_apart_wait(ends, sides, batch, [one.key for one in left], sides.foreign_keys)
    left = [table for table in left if table.key not in waiting]
    there = {table.key: table for table in sides.tables}
    only_there = sides.known - {sides.target.key(*key) for key in sides.source.tables}
    present = dict(sides.target.tables)
    found: dict[TableKey, tuple[SourceTable, str]] = {}
    # all, before one is created: a foreign key may refer to one of another structure
    for table in left:
        if table.key in there:
            found[table.key] = wanted = there[table.key], definition_of(ends, there[table.key])
            old = present.get(wanted[0].place)
            is_other = wanted[0].viewed is None and old is not None
            is_other = is_other and _differs(ends, sides, wanted, present[table.key])
        else:
            old = present.get(table.key)
            is_other = table.key in only_there
        if old is not None and is_other:
            drop_table(ends.target, ends.owner, old)
            del present[table.key]
    refused: dict[TableKey, Fatal] = {}
    for table in left:
        if table.key not in found:
            _empty_gone(ends, sides, table.key)
            loads.finish_tables(ends.target, ends.owner, [table.key])
            continue
        source, text = found[table.key]
        try:
            if (old := present.get(source.place)) is None:
                created = creation_of(source, text, sides)
                create_tables(ends.source, ends.target, ends.owner, [(source, created)])
            elif not old.is_sequence:
                if source.viewed is not None:
                    check_viewed(source, sides.target)
                is_viewed = source.viewed is not None
                versioned = old.is_versioned
                empty_table(
                    ends.target,
                    ends.owner,
                    source.place,
                    is_versioned=versioned,
                    is_viewed=is_viewed,
                )
        except Fatal as exc:
            if exc.code != "MR-5094" and source.viewed is None:
                raise
            refused[table.key] = exc
            continue
        loads.reset(ends.target, ends.owner, planned(source, text, stream, sizes))
    if refused:
        _let_refused_wait(ends, sides, batch, refused)


def _let_refused_wait(
    ends: Ends, sides: Sides, batch: int, refused: Mapping[TableKey, Fatal]
) -> None:
    """Let these tables wait, and those that foreign keys link with them."""
    stored = ends.stored()
    of_batch = {key for key, table in stored.items() if table.batch == batch}
    reasons = {key: f"{exc.code} {exc.message}" for key, exc in refused.items()}
    waiting = let_linked_wait(ends, sides, reasons, of_batch, linked=_LINKED)
    if not any(stored[key].state in (COPIES, COPIED) for key in of_batch - waiting):
        raise next(iter(refused.values()))


def _empty_gone(ends: Ends, sides: Sides, key: TableKey) -> None:
    """Empty the target's table of a viewed one that the source does not have any more."""
    route = sides.route
    if route.only_chooses or not route.view.changes(*key, folds=route.folds_names):
        return
    name = route.target_of(*key)
    if name is None:
        return
    place = sides.target.key(*name)
    if place not in sides.target.tables or any(one.place == place for one in sides.tables):
        return
    is_versioned = sides.target.tables[place].is_versioned
    empty_table(ends.target, ends.owner, place, is_versioned=is_versioned, is_viewed=True)


def _differs(
    ends: Ends, sides: Sides, wanted: tuple[SourceTable, str], present: CatalogTable
) -> bool:
    """Whether the target's table has another definition: a statement about it may have been passed or set aside.

    Definitions of two flavours are not compared as texts.
    """
    table, text = wanted
    if sides.source.flavour is sides.target.flavour:
        return structure_of(ends.target, present) != without_rows(text)
    return bool(differences(table.table, present, is_same_flavour=False))
