"""Which cascades that the source did not log safe mode repeats exactly, by the foreign keys on the target. Pure.

    a parent row is deleted       exact, if the cascade ends at its child rows: no cascade follows the rows that it
                                  deletes, or the columns that it sets to NULL
    the key of a parent changes   exact, if no foreign key acts on it

All else is refused. If a repeated deletion removes a child row of a later state, a later record writes the row again.
But no record writes the rows that follow its removal. ``docs/decisions/apply.md`` has the argument.
"""

from collections.abc import Iterable, Sequence

from millrace.drivers.mysql.actions import Action
from millrace.drivers.mysql.catalog import ForeignKey, TableKey


def followers(foreign_keys: Iterable[ForeignKey], parent: TableKey) -> list[ForeignKey]:
    """The foreign keys by which rows follow those of this table, if they are deleted or their key changes."""
    return [foreign for foreign in foreign_keys if foreign.cascades and foreign.parent == parent]


def why_deletion_is_inexact(foreign_keys: Sequence[ForeignKey], parent: TableKey) -> str:
    """Why the deletion of a row of this table can't be repeated; "" if it can."""
    for foreign in followers(foreign_keys, parent):
        if foreign.actions.on_delete is Action.UNKNOWN:
            return f"{_shown(foreign)} has {Action.UNKNOWN}"
        for further in followers(foreign_keys, foreign.child):
            if _goes_on(foreign, further):
                return f"a deletion cascades by {_shown(foreign)}, and on by {_shown(further)}"
    return ""


def _goes_on(foreign: ForeignKey, further: ForeignKey) -> bool:
    """Whether rows follow the child rows that a deletion changes."""
    if foreign.actions.on_delete is Action.CASCADE:
        return further.actions.on_delete is not Action.NO_ACTION
    if foreign.actions.on_delete is Action.SET_NULL:
        is_same = not _folded(foreign.columns).isdisjoint(_folded(further.parent_columns))
        return is_same and further.actions.on_update is not Action.NO_ACTION
    return False


def why_change_is_inexact(foreign: ForeignKey) -> str:
    """Why a change of the key that this foreign key refers to can't be repeated; "" if it can."""
    if foreign.actions.on_update is Action.NO_ACTION:
        return ""
    return f"an UPDATE changes the key of {_shown(foreign)}, ON UPDATE {foreign.actions.on_update}"


def inexact(foreign_keys: Sequence[ForeignKey], parents: Iterable[TableKey]) -> list[str]:
    """All that safe mode can't repeat in these tables, if the source does not log it."""
    found = []
    for parent in parents:
        why = [why_deletion_is_inexact(foreign_keys, parent)]
        why += map(why_change_is_inexact, followers(foreign_keys, parent))
        found += [f"{'.'.join(parent)}: {each}" for each in why if each]
    return found


def _shown(foreign: ForeignKey) -> str:
    return f"constraint {foreign.name} of {'.'.join(foreign.child)}"


def _folded(names: Iterable[str]) -> set[str]:
    return {name.casefold() for name in names}
