"""Finds the rest of a planned load, and the tables that were changed since it was planned.

The structure of each table on the source is compared with the stored one. A table that was altered or dropped there
waits for a later load, with all that foreign keys link with it. A copy that fails because of a DDL statement asks for
the same (``let_changed_wait``), so the other tables are copied without a pause.

The tables of a first load that are missing on the target are created. A table whose read in one snapshot was
interrupted is emptied.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from millrace.consumer.copy import TablePair
from millrace.consumer.load.copies import Group
from millrace.consumer.load.copy_order import CopyTable
from millrace.consumer.load.linked_tables import let_apart_wait, let_linked_wait
from millrace.consumer.load.plan import (
    Ends,
    Sides,
    check_structure,
    creation_of,
    definition_of,
    read_sides,
    table_sizes,
)
from millrace.consumer.load.prepare import create_tables, empty_table
from millrace.consumer.load.structure import is_as, is_stored
from millrace.consumer.load.tables import CASCADES, Admission, SourceTable, groups, missing_on
from millrace.consumer.target import loads
from millrace.consumer.target.loads import COPIES, WAITS, LoadTable, Reach
from millrace.drivers.mysql.catalog import TableKey
from millrace.drivers.mysql.chunks.key import chunk_key
from millrace.errors import Fatal
from millrace.schemas.documents import LoadRules

_LINKED = "it is linked with a table that was changed during the load"
_DROPPED, _ALTERED = "it was dropped during its load", "it was altered during its load"


def groups_left(ends: Ends, admission: Admission, rules: LoadRules, batch: int) -> list[Group]:
    """The tables of a batch that are not copied yet, those that are read in one snapshot first."""
    wanted = _copied_now(ends, batch)
    if not wanted:
        return []
    if batch == loads.FIRST:
        _create_missing(ends, admission, wanted)
    sides = read_sides(ends, admission)
    there = {table.key: table for table in sides.tables}
    waiting = _let_wait(ends, sides, wanted)
    if batch != loads.FIRST:
        left = wanted.keys() - waiting
        waiting |= let_apart_wait(ends, sides, batch, left, sides.target_keys)
    kept = [_as_planned(there[key], wanted[key]) for key in wanted if key not in waiting]
    for table in kept:  # the target may have changed it as it created it, or had it before
        if batch == loads.FIRST or table.viewed is not None:
            check_structure(table, sides)
    structures = {key: table.structure for key, table in wanted.items()}
    sizes = table_sizes(ends.source)
    found = [_group(members, sides, sizes, structures, rules) for members in groups(kept)]
    for group in found:
        if group.is_snapshot:
            _start_over(ends, group, wanted)
    return sorted(found, key=lambda group: not group.is_snapshot)


def let_changed_wait(ends: Ends, admission: Admission, batch: int) -> frozenset[TableKey]:
    """Let the tables of a batch that were changed meanwhile wait: all that wait now, of any batch."""
    if wanted := _copied_now(ends, batch):
        _let_wait(ends, read_sides(ends, admission), wanted)
    return frozenset(key for key, table in ends.stored().items() if table.state == WAITS)


def _copied_now(ends: Ends, batch: int) -> dict[TableKey, LoadTable]:
    return {
        key: table
        for key, table in ends.stored().items()
        if (table.batch, table.state) == (batch, COPIES)
    }


def _let_wait(
    ends: Ends, sides: Sides, wanted: Mapping[TableKey, LoadTable]
) -> frozenset[TableKey]:
    """Let changed tables wait, and those that are linked with them; all of these."""
    there = {table.key: table for table in sides.tables}
    changed: dict[TableKey, str] = {}
    for key, planned in wanted.items():
        table = there.get(key)
        present = sides.target.tables.get(key if table is None else table.place)
        why = _why_changed(ends, table, planned)
        if present is None:
            why = _DROPPED
        elif table is not None and not why and not _fits(table, planned, sides):
            why = _ALTERED
        if why:
            changed[key] = why
    if not changed:
        return frozenset()
    return let_linked_wait(ends, sides, changed, ends.stored().keys(), linked=_LINKED)


def _why_changed(ends: Ends, table: SourceTable | None, planned: LoadTable) -> str:
    """The reason if a table of the source was changed since it was planned; else ""."""
    if table is None:
        return _DROPPED
    try:
        is_same = is_as(ends.source, table.table, planned.structure)
    except Fatal as exc:
        if exc.code != "MR-5012":  # since the structure of all tables was read
            raise
        return _DROPPED
    if (
        planned.chunk_key
    ):  # an earlier version may have divided it by another key, or in another order
        key = chunk_key(table.table.columns, table.table.unique_keys)
        is_same &= key is not None and key.order_name == planned.chunk_key
    return "" if is_same else _ALTERED


def _fits(table: SourceTable, planned: LoadTable, sides: Sides) -> bool:
    """Whether the source's columns can be copied: it may have been altered between two looks of a plan.

    Under a view the target's table may have been altered, too, so that it must be read in one snapshot now.
    """
    if table.viewed is not None and planned.chunk_key and table.why_snapshot not in ("", CASCADES):
        return False
    try:
        _pair_of(table, sides)
    except Fatal as exc:
        if exc.code != "MR-5013":
            raise
        return False
    return True


def _create_missing(ends: Ends, admission: Admission, wanted: Mapping[TableKey, LoadTable]) -> None:
    """Create the tables that the target does not have, and that have no row yet. Fatal MR-5094."""
    sides = read_sides(ends, admission)
    found = []
    for table in missing_on(sides.target, sides.tables):
        planned = wanted.get(table.key)
        if planned is None or planned.done.rows or _why_changed(ends, table, planned):
            continue
        found.append((table, definition_of(ends, table)))
    same = [
        (table, creation_of(table, text, sides))
        for table, text in found
        if is_stored(text, wanted[table.key].structure)
    ]
    create_tables(ends.source, ends.target, ends.owner, same)


def _as_planned(table: SourceTable, planned: LoadTable) -> SourceTable:
    """Read as it was planned, regardless of later changes on the target."""
    if planned.chunk_key:
        return replace(table, why_snapshot="", family=())
    return replace(table, why_snapshot=table.why_snapshot or planned.detail or "planned")


def _group(
    members: Sequence[SourceTable],
    sides: Sides,
    sizes: Mapping[TableKey, tuple[int, int]],
    structures: Mapping[TableKey, str],
    rules: LoadRules,
) -> Group:
    copies = tuple(
        CopyTable(table.key, _pair(table, sides), rules.chunk_rows, structures[table.key])
        for table in members
    )
    sizes_of = [sizes.get(t.table.key, (0, 0))[1] for t in members]
    return Group(tuple(members), copies, max(sizes_of))


def _pair_of(table: SourceTable, sides: Sides) -> TablePair:
    target = sides.target.tables[table.place]
    if (viewed := table.viewed) is None:
        return TablePair.of(table.table, target, sides.target)
    return TablePair.under(table.table, viewed.schema, viewed.view, target, sides.target)


def _pair(table: SourceTable, sides: Sides) -> TablePair:
    """Rows of chunks may have been moved meanwhile: of two with a value of a unique key, the last one is kept.

    The other one was changed after the load began, so the topic brings it back. Under a view, the only key of the
    target may be another one than that of the chunks.
    """
    pair = _pair_of(table, sides)
    if table.chunk_key is None:
        return pair
    keys = pair.target.unique_keys
    return pair.replacing() if len(keys) > 1 or table.viewed is not None else pair


def _start_over(ends: Ends, group: Group, stored: Mapping[TableKey, LoadTable]) -> None:
    """Empty all tables of a snapshot that was read in part."""
    planned = [stored[table.key] for table in group.tables]
    if not any(table.done.rows or table.reach.exact for table in planned):
        return
    for source, table in zip(group.tables, planned, strict=True):
        if not source.table.is_sequence:
            empty_table(
                ends.target,
                ends.owner,
                source.place,
                is_versioned=source.table.is_versioned,
                is_viewed=source.viewed is not None,
            )
        loads.reset(ends.target, ends.owner, replace(table, reach=Reach(table.reach.begin)))
