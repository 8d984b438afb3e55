"""The tables whose delivered rows differ under another view. Apart: `plan` asks, and no task.

Pure functions:

    differences(old, new, tables)    the tables, by their structures
    changed_patterns(old, new)       the patterns of rules that may decide differently, if no structure is known

Guarantees: a table that is in no result gets the same rows, names, columns and values under both views. Rules that are
written differently but make the same of a table are equal in ``differences``; ``changed_patterns`` compares the rules.
"""

from collections.abc import Iterable

from millrace.schemas.table.structure import TableSchema
from millrace.schemas.view.table_view import RuleProblem, TableView, apply_view
from millrace.schemas.view.view import TableRule, View


def differences(old: View, new: View, tables: Iterable[TableSchema]) -> tuple[tuple[str, str], ...]:
    """Database and table, in order. Views that do not suit a table are equal if the same rule refuses it."""
    return tuple(
        sorted(
            (table.database, table.table)
            for table in tables
            if _delivered(old, table) != _delivered(new, table)
        )
    )


def _delivered(view: View, table: TableSchema) -> TableView | TableRule | None:
    try:
        return apply_view(view, table)
    except RuleProblem:  # or a condition that needs weights, which no document has
        match = view.match(table.database, table.table)
        return match.rule if match is not None else None


def changed_patterns(old: View, new: View) -> tuple[str, ...]:
    """``from`` of the rules that are in one view alone, or that come in another order. () for equal views."""
    before, after = old.rules, new.rules
    kept_before = [rule for rule in before if rule in after]
    kept_after = [rule for rule in after if rule in before]
    moved = kept_before if kept_before != kept_after else []
    changed = [*moved, *_others(before, after), *_others(after, before)]
    return tuple(dict.fromkeys(rule.source for rule in changed))


def _others(rules: tuple[TableRule, ...], known: tuple[TableRule, ...]) -> list[TableRule]:
    return [rule for rule in rules if rule not in known]
