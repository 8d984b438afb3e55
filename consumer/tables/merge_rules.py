"""Which changes of one row may become one net change, by table, and the net changes of a lane's records.

Merging must leave the same rows as the changes one by one, in every order that the levels allow. A change may be left
out only if nothing else depends on the state that it leaves. These depend on states between:

    a further unique key     another row may take or free a value between two changes
    a foreign key            a child needs its parent, and a parent must outlive its children
    a cascade                it changes rows without a record
    a trigger                it runs once per change
    a table without a key    its changes do not name a row
    system versioning        the server keeps each state

So a table has one of these modes (``consumer.kernel.merge`` lists what each one merges):

    KEEP     no identity, or one that the target generates; a trigger; system versioning; a table that a cascade
             reaches; a column FTS_DOC_ID, whose numbers must grow; a further unique key or foreign key with an
             expression or with a column that is not written; a table of the target with rows of two schemas in this
             call whose identities can be equal, because their chains would not meet. Those of two tables that a view
             merges can't, if their constants are in the identity and differ
    FREE     other tables with a further unique key or a foreign key. Their columns are watched: an UPDATE of other
             columns holds no key but its row's, so no record between it and its neighbor in the chain depends on it
    NET      tables with only an identity that a collation compares. Different bytes may be one row there, so only
             causality keys order its changes
    EXACT    tables with only an identity of integers

What a conflict check still sees. Statements count rows, so a missing row of a merged UPDATE or DELETE, and an existing
row of a merged INSERT, are refused. ABSENT is a DELETE that must match nothing, so an existing row of an INSERT that a
DELETE follows is refused, too. The caller then rolls back and applies the original records one by one.

What it no longer sees: the target's refusal of a value that a later change in the same call replaces (too long, a CHECK
constraint). The rows are then those of the source, so this is no difference. An INSERT that a DELETE follows does not
advance the target's AUTO_INCREMENT counter.

Not done here: triggers that the account can not see. Reading them needs the TRIGGER privilege.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from millrace.consumer.kernel import merge
from millrace.consumer.records.numbers import Ints, RecordNumbers
from millrace.consumer.records.rows import Rows
from millrace.consumer.tables.table_plan import TablePlan, record_indexes
from millrace.drivers.mysql.catalog import ForeignKey, Inventory, TableKey
from millrace.schemas.table.structure import INTEGER_CODES

_INTEGERS = {"tinyint", "smallint", "mediumint", "int", "bigint"}


@dataclass(frozen=True, slots=True)
class MergeRule:
    """The mode of one table, and columns of its record: those of the identity, and the watched ones."""

    mode: int
    identity: tuple[int, ...] = ()
    watched: tuple[int, ...] = ()
    covers: bool = False

    def kept(self) -> "MergeRule":
        """The rule without merging."""
        return MergeRule(merge.KEEP, self.identity)


@dataclass(frozen=True, slots=True)
class MergeRules:
    """The input of ``kernel.merge`` for all slots."""

    rules: Ints
    parts: Ints


def make_merge_rules(rules_by_slot: Iterable[MergeRule]) -> MergeRules:
    """The rules of all slots as arrays."""
    lines, parts = [], list[int]()
    for rule in rules_by_slot:
        counts = (len(rule.identity), len(rule.watched))
        lines.append((rule.mode, len(parts), *counts, int(rule.covers)))
        parts += (*rule.identity, *rule.watched)
    return MergeRules(
        np.array(lines, np.int64).reshape(-1, merge.RULE_WIDTH), np.array(parts, np.int64)
    )


def merge_rule(table_plan: TablePlan, inventory: Inventory) -> MergeRule:
    """The rule of one table."""
    target, identity = table_plan.target, table_plan.identity
    place = target.key
    kept = MergeRule(merge.KEEP, identity)
    if not identity or table_plan.is_identity_generated or target.is_versioned:
        return kept
    if target.has_document_ids:
        return kept
    if place in inventory.triggers or place in cascaded(inventory.foreign_keys):
        return kept
    own = _folded(table_plan.layout.table.columns[index].name for index in identity)
    keys = [key.columns for key in target.unique_keys if _folded(key.columns) != own]
    for foreign in inventory.foreign_keys:
        keys += [foreign.columns] if place == foreign.child else []
        keys += [foreign.parent_columns] if place == foreign.parent else []
    written = {index for index, _ in table_plan.columns}
    watched: set[int] = set()
    for key in keys:
        indexes = record_indexes(table_plan.layout, key)
        if indexes is None or not written.issuperset(indexes):
            return kept
        watched.update(indexes)
    if keys:
        return MergeRule(merge.FREE, identity, tuple(sorted(watched - set(identity))))
    pairs = ((table_plan.layout.table.columns[index], column) for index, column in table_plan.named)
    if not all(
        source.type.code in INTEGER_CODES and column.base_type in _INTEGERS
        for source, column in pairs
    ):
        return MergeRule(merge.NET, identity)
    filled = [column for column in target.columns.values() if not column.generated]
    return MergeRule(merge.EXACT, identity, covers=len(filled) == len(written))


def cascaded(foreign_keys: Sequence[ForeignKey]) -> set[TableKey]:
    """The tables that a change of another row can change without a record, and their children."""
    reached: set[TableKey] = set()
    found = {foreign.child for foreign in foreign_keys if foreign.cascades}
    while found - reached:
        reached |= found
        found = {foreign.child for foreign in foreign_keys if foreign.parent in reached}
    return reached


def _folded(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(map(str.casefold, names))


def net_changes(rows: Rows, numbers: RecordNumbers, rules: MergeRules) -> Ints:
    """The net changes of these records (in seq order), as lines of ``kernel.merge``, sorted by their place."""
    found: Ints = merge.merge(
        rows.values.payload,
        rows.records,
        numbers,
        rows.cells,
        rows.programs.widths,
        rules.rules,
        rules.parts,
        -1,
    )
    return found
