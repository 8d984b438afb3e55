"""The layout of a table's records under a view: names and types of the view, at the places of the record.

    RowLayout of the record     id   name   note
    {rename: {name: full},      id   full   (note)     hidden: the place of note
     drop: [note]}

Cells keep their numbers, so a row costs nothing more. The plan of a target's table, its keys and its statements are
made from this layout as from that of a record. Pure.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from millrace.consumer.view.program import view_of
from millrace.drivers.mysql.catalog import HIDDEN_PERIOD
from millrace.errors import Fatal
from millrace.schemas.record.avro_schema import column_branches
from millrace.schemas.record.names import escape_name
from millrace.schemas.record.row_layout import RowLayout
from millrace.schemas.table.structure import Column, TableSchema
from millrace.schemas.table.table_filter import SYSTEM_DATABASES
from millrace.schemas.view.view import View

NAME_CHARACTERS_MAX = 64  # of a database or table, as MySQL's


@dataclass(frozen=True, slots=True)
class ViewedTable:
    """One table in one structure. ``source``: as the record has it; ``layout``: as the view has it.

    They are equal if the view only admits the table.
    """

    source: TableSchema
    layout: RowLayout

    @classmethod
    def of(cls, layout: RowLayout) -> "ViewedTable":
        """A table that no view changes."""
        return cls(layout.table, layout)

    @property
    def is_changed(self) -> bool:
        """Whether the view changes it."""
        return self.layout.table is not self.source

    @property
    def shown(self) -> str:
        """Its name for an operator: the source's, and the view's if that is another one."""
        name, viewed = self.source.full_name, self.layout.table.full_name
        return name if name == viewed else f"{name} ({viewed})"


def viewed_table(view: View, layout: RowLayout, *, folds: bool = False) -> ViewedTable | None:
    """None if the table is not in the view. ``folds`` as in ``View.match``. Fatal MR-5201, MR-5206."""
    source = layout.table
    match = view.match(source.database, source.table, folds=folds)
    if match is None:
        return None
    if match.rule.only_admits:
        return ViewedTable.of(layout)
    found = view_of(view, layout, folds=folds)
    assert found is not None  # a rule matches
    _check_name(found.name, source)
    hidden = frozenset(range(len(source.columns))) - {column.source for column in found.columns}
    for place in hidden:
        if source.columns[place].name.lower() in HIDDEN_PERIOD:
            what = f"{source.full_name} is system-versioned, and the view leaves out {source.columns[place].name}"
            raise Fatal("MR-5206", what, fix=_ALL_OF_PERIOD, table=source.full_name)
    columns = list(source.columns)
    branches = list(layout.branches)
    for column in found.columns:
        columns[column.source] = column.column
        if column.mask is not None:
            branches[column.source] = column_branches(column.column)
    table = replace(
        source,
        database=found.name[0],
        table=found.name[1],
        columns=tuple(columns),
        omitted=tuple(_omitted(view, source, folds=folds)),
    )
    fields = tuple(escape_name(column.name) for column in columns)
    return ViewedTable(source, RowLayout(layout.set_name, table, fields, tuple(branches), hidden))


_ALL_OF_PERIOD = "A row that is deleted on the source is an update of its period's end, so the view needs both columns."


def _check_name(name: tuple[str, str], source: TableSchema) -> None:
    """Fatal MR-5206 for a name that no table of a target may have."""
    database, table = name
    why = ""
    if database.lower() in SYSTEM_DATABASES:
        why = f"{database} is a database of the system"
    elif not all(0 < len(part) <= NAME_CHARACTERS_MAX for part in name):
        why = f"a name has 1 to {NAME_CHARACTERS_MAX} characters"
    if why:
        what = f"the view names {source.full_name} {database}.{table}; {why}"
        raise Fatal("MR-5206", what, table=source.full_name)


def _omitted(view: View, source: TableSchema, *, folds: bool) -> Iterator[str]:
    """The names in the view of columns whose values the source does not log."""
    match = view.match(source.database, source.table, folds=folds)
    assert match is not None
    rule = match.rule
    keep, drop = (set(map(str.lower, names)) for names in (rule.keep, rule.drop))
    renamed = {old.lower(): new for old, new in rule.rename}
    for name in source.omitted:
        folded = name.lower()
        if folded not in drop and (not keep or folded in keep):
            yield renamed.get(folded, name)


def visible_table(layout: RowLayout) -> TableSchema:
    """The table without its hidden columns: the structure of a record that has only what the view has."""
    places = [at for at in range(len(layout.table.columns)) if at not in layout.hidden]
    columns: tuple[Column, ...] = tuple(layout.table.columns[at] for at in places)
    key = tuple(places.index(at) for at in layout.table.primary_key)
    return replace(layout.table, columns=columns, primary_key=key)
