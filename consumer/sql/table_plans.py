"""Programs, table plans, templates and key programs, derived from row schemas and the inventory.

The driver sends a ``Catalogue``. Each process derives ``TablePlans`` from it when needed, and keeps them while the
catalogue is the same. A schema without a table on the target is an error only when a row of it must be applied.
"""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np

from consumer.plan.collation import Codes
from consumer.plan.keys import (
    KeyLine,
    KeyPrograms,
    fold_table,
    key_lines,
    make_key_programs,
    ordered_tables,
)
from consumer.route import Route
from consumer.row_schemas import RowSchemas, make_programs
from consumer.rows import Template
from consumer.sql.table_plan import TablePlan, plan_table
from consumer.sql.templates import delete_template, find_template, insert_template, update_template
from consumer.target.inventory import Inventory
from millrace.errors import Fatal


@dataclass(frozen=True, slots=True)
class Catalogue:
    """The row schemas, inventory and route at the start of a window. Equal ``version`` means equal contents."""

    version: str
    schemas: RowSchemas = field(default_factory=RowSchemas)
    inventory: Inventory = field(default_factory=Inventory)
    route: Route = field(default_factory=Route)


class TablePlans:
    """The plans of a catalogue in this process."""

    def __init__(self, catalogue: Catalogue) -> None:
        self.inventory = catalogue.inventory
        self.schemas = catalogue.schemas
        self.route = catalogue.route
        self._table_plans: dict[str, TablePlan] = {}
        self._key_lines: dict[str, tuple[KeyLine, ...]] = {}
        self._templates: dict[tuple[str, str], Template] = {}
        self._asked: set[int] = set()  # slots in ``_key_programs``
        self._key_programs: KeyPrograms | None = None
        self._folds: Codes | None = None
        self.programs = make_programs(self.schemas)

    def learn(self, schemas: RowSchemas) -> None:
        """Replace the row schemas by a larger set."""
        self.schemas = schemas
        self._asked.clear()
        self._key_programs = None
        self.programs = make_programs(schemas)

    def table_plan(self, slot: int) -> TablePlan:
        """The plan of a slot's table; Fatal MR-5012, MR-5013, MR-5015."""
        text = self._text(slot)
        if text not in self._table_plans:
            self._table_plans[text] = plan_table(self.programs.layouts[slot], self.inventory)
        return self._table_plans[text]

    def admits(self, slot: int) -> bool:
        """Whether rows of a slot's table are applied."""
        table = self.programs.layouts[slot].table
        return self.route.admits(table.database, table.table)

    def _text(self, slot: int) -> str:
        return self.schemas.texts[int(self.programs.ids[slot])]

    def template(self, slot: int, which: str) -> Template:
        """The statement ``insert``, ``replace``, ``update``, ``delete`` or ``find`` for one row."""
        place = (self._text(slot), which)
        if place not in self._templates:
            table_plan, flavour = self.table_plan(slot), self.inventory.flavour
            if (make := _MAKERS.get(which)) is not None:
                self._templates[place] = make(table_plan, flavour)
            else:
                self._templates[place] = insert_template(table_plan, replace=which == "replace")
        return self._templates[place]

    def key_programs(self, slots: Iterable[int]) -> KeyPrograms:
        """The key programs of these slots and of all slots of earlier calls; other slots have none.

        Only one set of programs is kept. One per combination of tables would fill the memory.
        """
        wanted = self._asked.union(slots)
        if self._key_programs is None or wanted != self._asked:
            if self._folds is None:
                self._folds = fold_table(self.inventory)
            lines = (
                self._lines(slot) if slot in wanted else ()
                for slot in range(len(self.programs.ids))
            )
            self._key_programs = make_key_programs(lines, self._folds)
            self._asked = wanted
        return self._key_programs

    def tables_in_order(self) -> tuple[tuple[str, str], ...]:
        """The tables with changes that only one lane at a time applies, each with the reasons."""
        found = []
        for slot in filter(self.admits, range(len(self.programs.ids))):
            with suppress(Fatal):  # such as a table that the target does not have
                found.append((self.programs.layouts[slot].table.full_name, self._lines(slot)))
        return ordered_tables(found)

    def _lines(self, slot: int) -> tuple[KeyLine, ...]:
        text = self._text(slot)
        if text not in self._key_lines:
            self._key_lines[text] = key_lines(self.table_plan(slot), self.inventory)
        return self._key_lines[text]


_MAKERS = {"update": update_template, "delete": delete_template, "find": find_template}


def slots_of(column: "np.ndarray[tuple[int], np.dtype[np.int64]]") -> list[int]:
    """The distinct slots in a column."""
    return [int(slot) for slot in np.unique(column)]
