"""Programs, table plans, templates, key programs and merge rules, derived from row schemas and the inventory.

The driver sends a ``Catalogue``. Each process derives ``TablePlans`` from it when needed, and keeps them while the
catalogue is the same. A schema without a table on the target is an error only when a row of it must be applied.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from millrace.consumer.kernel.merge import KEEP
from millrace.consumer.records.numbers import Ints, RecordNumbers, Slots
from millrace.consumer.records.row_schemas import (
    NOTHING_ADDED,
    RowSchemas,
    layout_of,
    make_programs,
)
from millrace.consumer.records.rows import Rows, Template
from millrace.consumer.tables.causality_keys import (
    KeyLine,
    KeyPrograms,
    key_lines,
    make_key_programs,
    ordered_tables,
)
from millrace.consumer.tables.filter import Route
from millrace.consumer.tables.load_data import load_statement
from millrace.consumer.tables.merge_rules import MergeRule, MergeRules, make_merge_rules, merge_rule
from millrace.consumer.tables.merged_sources import ConstantMarks, Source, check_merged
from millrace.consumer.tables.related import by_sources
from millrace.consumer.tables.row_statements import (
    delete_template,
    each_verified_template,
    find_computed_template,
    find_history_template,
    find_template,
    find_verified_history_template,
    find_verified_template,
    insert_template,
    is_set_template,
    setval_template,
    update_other_template,
    update_template,
    verifying_pieces,
)
from millrace.consumer.tables.table_plan import BEFORE, Pieces, TablePlan, plan_table
from millrace.consumer.view.layout import Constant, ViewedTable, viewed_table
from millrace.consumer.view.mask_keys import MaskKeys
from millrace.consumer.view.rows import through_view
from millrace.drivers.mysql.catalog import CatalogTable, ForeignKey, Inventory, TableKey
from millrace.drivers.mysql.collation import make_table
from millrace.errors import Fatal
from millrace.schemas.gtid import Flavour


@dataclass(frozen=True, slots=True)
class Catalogue:
    """The row schemas, inventory and route at the start of a window. Equal ``version`` means equal contents."""

    version: str
    schemas: RowSchemas = field(default_factory=RowSchemas)
    inventory: Inventory = field(default_factory=Inventory)
    route: Route = field(default_factory=Route)


@dataclass(frozen=True, slots=True)
class Notes:
    """Facts for a task's status. ``triggers``: those on tables that the topic writes.

    ``in_order``: tables that one lane applies, and why. ``only_left_out``: see ``TablePlans``. ``shown``: while the
    task waits for its start, the GTID set of the last control record; "" if there was none. ``kept``: rows aside.
    """

    triggers: tuple[str, ...] = ()
    in_order: tuple[tuple[str, str], ...] = ()
    only_left_out: str = ""
    shown: str = ""
    kept: int = 0


class TablePlans:
    """The plans of a catalogue in this process. Lanes share them, so schemas are never added in place."""

    def __init__(self, catalogue: Catalogue) -> None:
        self.inventory = catalogue.inventory
        self.schemas = catalogue.schemas
        self.route = catalogue.route
        self._viewed: dict[str, ViewedTable] = {}
        self._table_plans: dict[str, TablePlan] = {}
        self._key_lines: dict[str, tuple[KeyLine, ...]] = {}
        self._templates: dict[tuple[str, str], Template] = {}
        self._loads: dict[str, bytes | None] = {}
        self._verifying: dict[str, Pieces | None] = {}
        # each with the slots that it has; replaced as a whole, because several threads use the plans
        self._key_programs: tuple[frozenset[int], KeyPrograms] | None = None
        self._merge_rules: tuple[frozenset[int], tuple[MergeRule, ...], MergeRules] | None = None
        self._marks: ConstantMarks | None = None
        # the source's tables by the names that the view gives them
        self._sources: dict[TableKey, dict[TableKey, Source]] | None = None
        # the first slot of those with equal statements, and the constants in a slot's identity
        self._first_slots: dict[tuple[object, ...], int] = {}
        self._groups: dict[int, int] = {}
        self._parted: dict[int, object] = {}
        self._stored: set[str] = set()
        self._keys = MaskKeys()
        self.programs = make_programs(self.schemas, self._added())

    def _added(self) -> Mapping[int, int]:
        """How many columns the view adds to the rows of each schema."""
        view, folds = self.route.view, self.route.folds_names
        if not any(rule.add for rule in view.rules):
            return NOTHING_ADDED
        found = {}
        for number, text in self.schemas.texts.items():
            table = layout_of(text).table
            match = view.match(table.database, table.table, folds=folds)
            found[number] = 0 if match is None else len(match.added)
        return found

    def learned(self, texts: Mapping[int, str]) -> "TablePlans":
        """These plans with more row schemas, by ID; the same object if all are known."""
        schemas = self.schemas
        for number, text in texts.items():
            schemas = schemas.learned(number, text)
        if schemas is self.schemas:
            return self
        return self._like(schemas, self.route)

    def routed(self, route: Route) -> "TablePlans":
        """These plans for other tables; the same object for the same route."""
        return self if route == self.route else self._like(self.schemas, route)

    def _like(self, schemas: RowSchemas, route: Route) -> "TablePlans":
        made = TablePlans(Catalogue("", schemas, self.inventory, route))
        assert route.view == self.route.view  # what is known of a schema depends on it
        made._viewed, made._keys = self._viewed, self._keys
        made._table_plans, made._key_lines = self._table_plans, self._key_lines
        made._templates, made._loads, made._marks = self._templates, self._loads, self._marks
        made._verifying, made._stored = self._verifying, self._stored
        return made

    def table_plan(self, slot: int) -> TablePlan:
        """The plan of a slot's table; Fatal MR-5012, MR-5013, MR-5015, MR-5201, MR-5206 to MR-5208."""
        text = self._text(slot)
        if text not in self._table_plans:
            viewed = self._viewed_table(slot)
            others = self._others(slot, viewed)
            plan = plan_table(viewed, self.inventory)
            if viewed.merges:
                check_merged(plan, viewed, others, self._constant_marks)
            self._table_plans[text] = plan
        return self._table_plans[text]

    def through_view(self, rows: Rows, numbers: RecordNumbers) -> tuple[Rows, RecordNumbers]:
        """The rows as the view of the task has them, and the numbers of those that are in it."""
        if self.route.only_chooses or not len(numbers):
            return rows, numbers
        tables = {slot: self._viewed_table(slot) for slot in slots_of(rows.slots(numbers))}
        if all(table.program is None and not table.constants for table in tables.values()):
            return rows, numbers
        return through_view(rows, numbers, tables)

    def _viewed_table(self, slot: int) -> ViewedTable:
        """The table of a slot that the task admits, under its view. Fatal MR-5201, MR-5206."""
        text, route = self._text(slot), self.route
        if text not in self._viewed:
            layout = self.programs.layouts[slot]
            viewed = viewed_table(route.view, layout, folds=route.folds_names, keys=self._keys)
            self._viewed[text] = viewed if viewed is not None else ViewedTable.of(layout)
        return self._viewed[text]

    def _others(self, slot: int, viewed: ViewedTable) -> list[Source]:
        """The other tables of the topic of this name in the view; Fatal MR-5207 if their rules do not merge them."""
        if self.route.only_chooses:
            return []
        if self._sources is None:
            sources: dict[TableKey, dict[TableKey, Source]] = {}
            for each in range(len(self.programs.ids)):
                if (found := self._source(each)) is not None:
                    target, source = found
                    sources.setdefault(target, {})[source.name] = source
            self._sources = sources
        own = self._source(slot)
        assert own is not None  # the task admits it
        known = self._sources.get(own[0], {})
        others = [source for name, source in sorted(known.items()) if name != own[1].name]
        if others and not (viewed.merges and all(other.merges for other in others)):
            named = ", ".join(".".join(other.name) for other in others)
            what = (
                f"the view names {viewed.source.full_name} {'.'.join(own[0])}, as it names {named}"
            )
            raise Fatal("MR-5207", what, table=viewed.source.full_name)
        return others

    def merged_source(self, slot: int) -> Source | None:
        """The source of a slot's rows, if others may have the same table of the target."""
        found = None if self.route.only_chooses else self._source(slot)
        return found[1] if found is not None and found[1].merges else None

    def is_stored(self, slot: int) -> bool:
        """Whether ``note_stored`` was called for the table of a slot."""
        return self._text(slot) in self._stored

    def note_stored(self, slot: int) -> None:
        """The target has the source of a slot's rows, or needs none (``consumer.write.merging``)."""
        self._stored.add(self._text(slot))

    def check_apart(self, slot: int, others: Sequence[Source]) -> None:
        """Fatal MR-5208 if rows of a slot could meet those of these sources of other tasks."""
        plan, viewed = self.table_plan(slot), self._viewed_table(slot)
        check_merged(plan, viewed, others, self._constant_marks)

    def _source(self, slot: int) -> tuple[TableKey, Source] | None:
        """The name of a slot's table in the view, and the table; None if the view does not have it."""
        table, route = self.programs.layouts[slot].table, self.route
        match = route.view.match(table.database, table.table, folds=route.folds_names)
        if match is None:
            return None
        constants = {name.lower(): Constant.of(value) for name, value in match.added}
        # constants may have the name with its case
        name = (table.database, table.table) if match.rule.merge else self.state_name(slot)
        return self.inventory.key(*match.name), Source(name, constants, match.rule.merge)

    @property
    def _constant_marks(self) -> ConstantMarks:
        if self._marks is None:
            folds = self.inventory.folds
            codes = make_table(folds[name] for name in sorted(folds))
            self._marks = ConstantMarks(self.inventory, codes)
        return self._marks

    def grouped(self, slots: Slots) -> Ints:
        """For the slot of each record, the first one whose rows have equal statements: others that the view merges."""
        if self.route.only_chooses:
            return slots
        groups = np.arange(len(self.programs.ids))
        for slot in slots_of(slots):
            if slot not in self._groups:
                layout = self._viewed_table(slot).layout
                alike = (layout.table, layout.branches, layout.hidden)
                self._groups[slot] = self._first_slots.setdefault(alike, slot)
            groups[slot] = self._groups[slot]
        found: Ints = groups[slots]
        return found

    def has_table(self, slot: int) -> bool:
        """Whether the target has the table of a slot."""
        return self._target_name(slot) in self.inventory.tables

    def _target_name(self, slot: int) -> TableKey | None:
        """The name of a slot's table on the target; None if the document leaves the table out."""
        table = self.programs.layouts[slot].table
        name = self.route.target_of(table.database, table.table)
        return None if name is None else self.inventory.key(*name)

    @property
    def foreign_keys(self) -> tuple[ForeignKey, ...]:
        """Those of the target, by the source's names of their tables, for states of loads."""
        route, inventory = self.route, self.inventory
        if route.only_chooses or not inventory.foreign_keys:
            return inventory.foreign_keys
        tables = {(each.table.database, each.table.table) for each in self.programs.layouts}
        tables |= route.elsewhere | (route.only or frozenset())
        named = ((key, route.target_of(*key)) for key in tables)
        places = {
            inventory.key(*key): inventory.key(*name) for key, name in named if name is not None
        }
        return by_sources(inventory.foreign_keys, places, route)

    @property
    def admits_all(self) -> bool:
        """Whether no table can be left out."""
        return self.route.admits_all

    def admits(self, slot: int) -> bool:
        """Whether rows of a slot's table are applied."""
        table = self.programs.layouts[slot].table
        return self.route.admits(table.database, table.table)

    def state_name(self, slot: int) -> TableKey:
        """The source's name of a slot's table, in the case of the target: states of loads have it."""
        table = self.programs.layouts[slot].table
        return self.inventory.key(table.database, table.table)

    def _text(self, slot: int) -> str:
        return self.schemas.texts[int(self.programs.ids[slot])]

    def template(self, slot: int, which: str) -> Template:
        """A statement for one row (``_MAKERS``, ``_INSERT_MAKERS``)."""
        place = (self._text(slot), which)
        if place not in self._templates:
            table_plan, flavour = self.table_plan(slot), self.inventory.flavour
            if make_insert := _INSERT_MAKERS.get(which):
                self._templates[place] = make_insert(table_plan)
            else:
                self._templates[place] = _MAKERS[which](table_plan, flavour)
        return self._templates[place]

    def verifying(self, slot: int) -> Pieces | None:
        """The statement that verifies rows of this table (``templates.verifying_pieces``)."""
        text = self._text(slot)
        if text not in self._verifying:
            made = verifying_pieces(self.table_plan(slot), self.inventory.flavour)
            self._verifying[text] = made
        return self._verifying[text]

    def load_statement(self, slot: int) -> bytes | None:
        """LOAD DATA for rows of this table; None if it takes INSERT."""
        text = self._text(slot)
        if text not in self._loads:
            self._loads[text] = load_statement(self.table_plan(slot), self.inventory)
        return self._loads[text]

    def refuse_load(self, slot: int) -> None:
        """From now on the table takes INSERT."""
        self._loads[self._text(slot)] = None

    def key_programs(self, slots: Collection[int]) -> KeyPrograms:
        """The key programs of these slots and of all slots of earlier calls; other slots have none.

        Only one set of programs is kept. One per combination of tables would fill the memory.
        """
        known = self._key_programs
        if known is None or not known[0].issuperset(slots):
            wanted = frozenset(slots).union(known[0] if known else ())
            lines = (
                self._lines(slot) if slot in wanted else ()
                for slot in range(len(self.programs.ids))
            )
            self._key_programs = known = (
                wanted,
                make_key_programs(lines, self._constant_marks.folds),
            )
        return known[1]

    def merge_rules(self, slots: Sequence[int]) -> MergeRules:
        """The rules by which changes of these slots merge. Other slots may have another rule than theirs."""
        known = self._merge_rules
        if known is None or not known[0].issuperset(slots):
            wanted = frozenset(slots).union(known[0] if known else ())
            rules = tuple(
                merge_rule(self.table_plan(slot), self.inventory)
                if slot in wanted
                else MergeRule(KEEP)
                for slot in range(len(self.programs.ids))
            )
            self._merge_rules = known = (wanted, rules, make_merge_rules(rules))
        tables = [(self._target(slot).key, self._parting(slot)) for slot in slots]
        if len(set(tables)) == len(tables):
            return known[2]
        counts = Counter(tables)
        twice = {slot for slot, table in zip(slots, tables, strict=True) if counts[table] > 1}
        return make_merge_rules(
            rule.kept() if slot in twice else rule for slot, rule in enumerate(known[1])
        )

    def _parting(self, slot: int) -> object:
        """Differs between slots of one table of the target if no row of theirs can have an equal identity."""
        if self.route.only_chooses:
            return None
        if slot not in self._parted:
            viewed = self._viewed_table(slot)
            marks = (
                self._constant_marks.of_identity(self.table_plan(slot), viewed)
                if viewed.constants
                else {}
            )
            self._parted[slot] = tuple(sorted(marks.items()))
        return self._parted[slot]

    def _target(self, slot: int) -> CatalogTable:
        return self.table_plan(slot).target

    def notes(self, shown: str = "") -> Notes:
        """The facts about these tables for a status."""
        return Notes(self.triggers(), self.tables_in_order(), self.only_left_out(), shown)

    def tables_in_order(self) -> tuple[tuple[str, str], ...]:
        """The tables with changes that only one lane at a time applies, each with the reasons."""
        found = []
        for slot in filter(self.admits, range(len(self.programs.ids))):
            with suppress(Fatal):  # such as a table that the target does not have
                found.append((self.programs.layouts[slot].table.full_name, self._lines(slot)))
        return ordered_tables(found)

    def triggers(self) -> tuple[str, ...]:
        """The triggers on tables that the topic has rows of."""
        inventory = self.inventory
        if not inventory.triggers:
            return ()
        names = map(self._target_name, filter(self.admits, range(len(self.programs.ids))))
        written = {name for name in names if name is not None}
        return tuple(
            ".".join((*key, name))
            for key in sorted(written)
            for name in inventory.triggers.get(key, ())
        )

    def only_left_out(self) -> str:
        """A table that the topic has rows of, if the task leaves out all of them; "" otherwise."""
        shown = [layout.table for layout in self.programs.layouts]
        chosen = (self.route.chooses(table.database, table.table) for table in shown)
        if self.route.chooses_all or not shown or any(chosen):
            return ""
        return self.programs.layouts[0].table.full_name

    def _lines(self, slot: int) -> tuple[KeyLine, ...]:
        text = self._text(slot)
        if text not in self._key_lines:
            self._key_lines[text] = key_lines(self.table_plan(slot), self.inventory)
        return self._key_lines[text]


_MAKERS: dict[str, Callable[[TablePlan, Flavour], Template]] = {
    "update": update_template,
    "update_other": update_other_template,
    "delete": delete_template,
    "find": find_template,
    "find_computed": find_computed_template,
    "find_verified": find_verified_template,
    "find_verified_history": find_verified_history_template,
    "each_verified": each_verified_template,
    "find_history": find_history_template,
}
_INSERT_MAKERS: dict[str, Callable[[TablePlan], Template]] = {
    "insert": insert_template,
    "replace": partial(insert_template, replace=True),
    "restore": partial(insert_template, replace=True, image=BEFORE),
    "insert_version": partial(insert_template, period=1),
    "insert_history": partial(insert_template, period=2),
    "setval": setval_template,
    "is_set": is_set_template,
}


def slots_of(slots: Slots) -> list[int]:
    """The distinct slots of these records."""
    distinct: list[int] = np.flatnonzero(np.bincount(slots)).tolist()
    return distinct
