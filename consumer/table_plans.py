"""Everything that is made of schemas and inventory, once for each: programs, table plans, templates, key programs.

A ``Catalogue`` is what the driver sends; a ``TablePlans`` is what a process makes of it, lazily, and keeps while the
catalogue stays the same. A schema whose table the target no longer has does no harm until a row of it is to be
applied.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from consumer.causality import KeyLine, KeyPrograms, key_lines, make_key_programs
from consumer.row_schemas import RowSchemas, make_programs
from consumer.rows import Template
from consumer.table_plan import TablePlan, plan_table
from consumer.target.inventory import Inventory
from consumer.templates import delete_template, find_template, insert_template, update_template


@dataclass(frozen=True, slots=True)
class Catalogue:
    """What is known where a window of records begins. ``version`` names it: equal versions, equal contents."""

    version: str
    schemas: RowSchemas = field(default_factory=RowSchemas)
    inventory: Inventory = field(default_factory=Inventory)


class TablePlans:
    """What a process makes of a catalogue."""

    def __init__(self, catalogue: Catalogue) -> None:
        self.inventory = catalogue.inventory
        self.schemas = catalogue.schemas
        self._table_plans: dict[str, TablePlan] = {}
        self._key_lines: dict[str, tuple[KeyLine, ...]] = {}
        self._templates: dict[tuple[str, str], Template] = {}
        self._asked: set[int] = set()  # slots whose keys were asked for: those in ``_key_programs``
        self._key_programs: KeyPrograms | None = None
        self.programs = make_programs(self.schemas)

    def learn(self, schemas: RowSchemas) -> None:
        """Go on with a larger schemas."""
        self.schemas = schemas
        self._asked.clear()
        self._key_programs = None
        self.programs = make_programs(schemas)

    def table_plan(self, slot: int) -> TablePlan:
        """The schema of a slot on the target; Fatal MR-5012, MR-5013."""
        text = self._text(slot)
        if text not in self._table_plans:
            self._table_plans[text] = plan_table(self.programs.layouts[slot], self.inventory)
        return self._table_plans[text]

    def _text(self, slot: int) -> str:
        return self.schemas.texts[int(self.programs.ids[slot])]

    def template(self, slot: int, which: str) -> Template:
        """``insert``, ``replace``, ``update``, ``delete`` or ``find`` of one row."""
        place = (self._text(slot), which)
        if place not in self._templates:
            table_plan, flavour = self.table_plan(slot), self.inventory.flavour
            if (make := _MAKERS.get(which)) is not None:
                self._templates[place] = make(table_plan, flavour)
            else:
                self._templates[place] = insert_template(table_plan, replace=which == "replace")
        return self._templates[place]

    def key_programs(self, slots: Iterable[int]) -> KeyPrograms:
        """The keys of these slots, and of those that were asked for before; all others have none.

        One set of programs is kept: one for each combination of tables would fill the memory.
        """
        wanted = self._asked.union(slots)
        if self._key_programs is None or wanted != self._asked:
            self._key_programs = make_key_programs(
                self._lines(slot) if slot in wanted else ()
                for slot in range(len(self.programs.ids))
            )
            self._asked = wanted
        return self._key_programs

    def _lines(self, slot: int) -> tuple[KeyLine, ...]:
        text = self._text(slot)
        if text not in self._key_lines:
            self._key_lines[text] = key_lines(self.table_plan(slot), self.inventory)
        return self._key_lines[text]


_MAKERS = {"update": update_template, "delete": delete_template, "find": find_template}


def slots_of(column: "np.ndarray[tuple[int], np.dtype[np.int64]]") -> list[int]:
    """The slots that occur."""
    return [int(slot) for slot in np.unique(column)]
