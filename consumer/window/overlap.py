"""The rows of a window that the range of a load covers: which are left to apply, and how (``target.load_range``).

Rows of another table in ``end``: the load did not find the table, so it existed only for a while. Its DROP is in the
range, too. If it was created in the range, its CREATE made it wait for a load (``consumer.write.ddl_scope``).

Rows in ``end`` that do not fit the copied table are from before a statement that the load has seen: the structure is
from after it. Such a table is set aside at once, because no row may be applied; its statement is met later.

Rows of a table that the target does not have, without a CREATE before them: the topic has them because capture takes
the table since then. If the task loads such tables, they are set aside (``missing``).

Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from millrace.consumer.kernel import walk
from millrace.consumer.records.numbers import Ints, RecordNumbers, Slots
from millrace.consumer.tables.related import with_related
from millrace.consumer.tables.table_plans import TablePlans, slots_of
from millrace.consumer.target.load_range import Fate, LoadRange
from millrace.consumer.target.progress import Mark
from millrace.consumer.window.safe_mode import (
    SafeMode,
    mark_safe,
    prepare_snapshot_rows,
    refusal,
)
from millrace.consumer.window.unlogged_cascades import leave_unchecked
from millrace.consumer.window.window import Window
from millrace.drivers.mysql.catalog import TableKey
from millrace.errors import Fatal
from millrace.schemas.gtid import parse_gtid


@dataclass(frozen=True, slots=True)
class Entered:
    """A window with the rows that are left to apply.

    ``unfit`` and ``missing``: tables to set aside, whose rows are not left. Those that are missing may be on the target
    since the inventory was read.
    """

    window: Window[TablePlans]
    unfit: Mapping[TableKey, str] = field(default_factory=dict)
    missing: frozenset[TableKey] = frozenset()


@dataclass(frozen=True, slots=True)
class Overlap:
    """The range of a load and the safe mode of the task's document: rows that the target may already have.

    ``loads_missing``: whether tables that the target does not have are set aside.
    """

    safe_mode: SafeMode | None = None
    range: LoadRange | None = None
    loads_missing: bool = False

    def entered(self, window: Window[TablePlans], seen: Mark) -> tuple["Overlap", Entered]:
        """The window, with rows of snapshots and of safe mode prepared. Fatal MR-5024.

        ``seen`` is the mark before the window. The overlap is without what is over there.
        """
        range_, safe_mode = self.range, self.safe_mode
        if range_ is not None and range_.is_over(seen):
            range_ = None
        entered = Entered(window) if range_ is None else _entered(range_, window)
        if self.loads_missing:
            entered = _without_missing(entered)
        prepare_snapshot_rows(entered.window)
        if safe_mode is not None:
            safe_mode = safe_mode.mark_rows(entered.window, seen)
        return replace(self, safe_mode=safe_mode, range=range_), entered


NO_OVERLAP = Overlap()


def _entered(range_: LoadRange, window: Window[TablePlans]) -> Entered:
    """Without the rows that are skipped and those of unfit tables; the others are marked if they are repeated."""
    rows, plans, waiting = window.rows, window.plans, window.waiting
    slots = rows.slots(waiting)
    fates, is_inside = _fates(range_, window)
    unfit: dict[TableKey, str] = {}
    left = fates != Fate.SKIPPED
    for slot in slots_of(Slots(slots[left & is_inside])):
        is_repeated = bool((fates[slots == slot] == Fate.REPEATED).any())
        if why := _why_unfit(plans, slot, is_repeated=is_repeated):
            unfit[plans.state_name(slot)] = why
    unfit = with_related(unfit, plans.foreign_keys, plans.route)
    for slot in slots_of(slots) if unfit else ():
        if plans.state_name(slot) in unfit:
            left &= slots != slot
    mark_safe(window, RecordNumbers(waiting[left & (fates == Fate.REPEATED)]))
    unchecked = waiting[left & is_inside & (fates == Fate.APPLIED)]
    leave_unchecked(rows, RecordNumbers(unchecked), plans)
    return Entered(replace(window, waiting=RecordNumbers(waiting[left])), unfit)


def missing_tables(window: Window[TablePlans]) -> frozenset[TableKey]:
    """The tables of waiting rows that the target does not have."""
    plans = window.plans
    slots = slots_of(window.rows.slots(window.waiting)) if len(window.waiting) else []
    return frozenset(plans.state_name(slot) for slot in slots if not plans.has_table(slot))


def _without_missing(entered: Entered) -> Entered:
    missing = missing_tables(entered.window)
    if not missing:
        return entered
    window = entered.window
    plans, slots = window.plans, window.rows.slots(window.waiting)
    left = np.ones(len(slots), np.bool_)
    for slot in slots_of(slots):
        if plans.state_name(slot) in missing:
            left &= slots != slot
    waiting = RecordNumbers(window.waiting[left])
    return replace(entered, window=replace(window, waiting=waiting), missing=missing)


def _fates(range_: LoadRange, window: Window[TablePlans]) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """The fate of each waiting row, and whether its source transaction is in the range."""
    rows, plans, waiting = window.rows, window.plans, window.waiting
    flavour = range_.end.flavour
    known: dict[tuple[int, str], tuple[Fate, bool]] = {}
    fates, is_inside = np.empty(len(waiting), np.int64), np.empty(len(waiting), np.bool_)
    for place, number in enumerate(map(int, waiting)):
        at = (int(rows.records[number, walk.SLOT]), rows.gtid(number))
        if at not in known:
            gtid = parse_gtid(flavour, at[1])
            fate = range_.fate(plans.state_name(at[0]), gtid)
            known[at] = fate, range_.end.covers(gtid)
        fates[place], is_inside[place] = known[at]
    return fates, is_inside


def _why_unfit(plans: TablePlans, slot: int, *, is_repeated: bool) -> str:
    """Why rows of this table can't be applied to its copy; "" if they can."""
    try:
        table_plan = plans.table_plan(slot)
    except Fatal as exc:
        return exc.message
    return refusal(table_plan, plans.inventory) if is_repeated else ""
