"""Which tables an operator asks to load, by the tables that both servers have. Pure.

    the table                                            asked by its name                    with --all
    is on the source, and the topic has it               loaded                               loaded, if on the target
    is left out by a filter of the task or of capture    MR-4236, MR-4211                     no
    is a view                                            MR-4210                              no
    has an engine without transactions on the source     MR-5095                              no
    is only on the target                                dropped there, as the source has     no
    is on neither side                                   MR-4209 with names that are near     -

A name is that of the source's table. Under a view that changes it, the target's may be another one (``place``), and a
table that the source does not have can't be asked for.

Names are compared as the servers do: if the source or the target stores them in lower case, the case does not matter.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

from millrace.consumer.load.tables import Admission, check_engine
from millrace.consumer.tables.filter import Route
from millrace.drivers.mysql.catalog import CatalogTable, Inventory, TableKey
from millrace.errors import Fatal
from millrace.schemas.documents import TableFilter
from millrace.wording import near_names

_NO_PATTERN = "Name each table, separated by commas. `millrace task load TASK --all --dry-run` lists them all."


@dataclass(frozen=True)
class Known:
    """The tables and views of both servers. ``views`` have the names that the target has, or would have."""

    source: Inventory
    target: Inventory
    admission: Admission
    views: frozenset[TableKey] = field(default_factory=frozenset)

    @cached_property
    def on_source(self) -> dict[TableKey, CatalogTable]:
        """The tables of the source by their names on the target."""
        return {self.target.key(*key): table for key, table in self.source.tables.items()}

    @cached_property
    def admitted(self) -> frozenset[TableKey]:
        """The tables of both sides that the task admits."""
        there = {*self.on_source, *filter(self._keeps, self.target.tables)}
        return frozenset(name for name in there if self.admits(name))

    @cached_property
    def _route(self) -> Route:
        return Route(self.admission.applied, self.target.folds_names)

    def _keeps(self, name: TableKey) -> bool:
        """Whether a name on the target can only be that of the source's table, or of none in the view."""
        return self._route.only_chooses or self._route.keeps(*name)

    def place(self, name: TableKey) -> TableKey:
        """The table on the target."""
        found = self._route.target_of(
            *(self.on_source[name].key if name in self.on_source else name)
        )
        return name if found is None else self.target.key(*found)

    def admits(self, name: TableKey) -> bool:
        """Whether the task admits a table of this name. No task admits one of a system database."""
        return TableFilter().admits(*name) and self._route.chooses(*name)

    def has(self, name: TableKey) -> bool:
        """Whether one of the servers has this table."""
        return name in self.on_source or (name in self.target.tables and self._keeps(name))

    def is_captured(self, name: TableKey) -> bool:
        """Whether the topic has the rows of this table of the source."""
        table = self.on_source[name]
        admits = self.admission.admits(self.source, self.target)
        return admits(table.key)

    def key(self, database: str, table: str) -> TableKey:
        """The table that is meant, as the target stores its name."""
        given = self.target.key(database, table)
        if self.has(given) or not self.source.folds_names:
            return given
        return self.target.key(*self.source.key(database, table))


def chosen(names: Iterable[str], known: Known) -> frozenset[TableKey]:
    """The tables of these names. Fatal MR-4209, MR-4210, MR-4211, MR-4236, MR-5095."""
    found = set()
    for name in names:
        database, dot, table = name.partition(".")
        if not dot or not database or not table:
            raise Fatal("MR-4236", f"{name!r} is not DATABASE.TABLE", table=name)
        key = known.key(database, table)
        if not known.has(key) and ("*" in name or "?" in name):
            what = f"{name} is a pattern, and a load takes none"
            raise Fatal("MR-4236", what, fix=_NO_PATTERN, table=name)
        if not known.admits(key):
            raise Fatal("MR-4236", f"the task leaves {name} out", table=name)
        _check(name, key, known)
        found.add(key)
    return frozenset(found)


def _check(name: str, key: TableKey, known: Known) -> None:
    table = known.on_source.get(key)
    if table is None:
        if key in known.views:
            raise Fatal("MR-4210", f"{name} is a view", table=name)
        if not known.has(key):
            raise _no_table(name, known)
        return
    if not known.is_captured(key):
        raise Fatal("MR-4211", f"the topic does not have {name}", table=name)
    check_engine(name, table)


def _no_table(name: str, known: Known) -> Fatal:
    near = near_names(name, map(".".join, known.admitted))
    return Fatal("MR-4209", f"neither the source nor the target has {name}{near}", table=name)


def every(known: Known) -> frozenset[TableKey]:
    """All tables of the target that the task admits and that the topic has."""
    return frozenset(
        name
        for name in known.admitted & known.on_source.keys()
        if known.place(name) in known.target.tables
        and known.is_captured(name)
        and known.on_source[name].takes_rows
    )
