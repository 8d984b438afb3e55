"""Which worker should own which task: a pure function, the same for the same input.

    tasks (capture)   a1(shop) a2(shop) b(crm)      unit = what moves together: the capture tasks of one set
    workers           w1 w2 (capture)               (they share one relay log), an apply task alone
    current           a1→w1 a2→w1 b→w1
    assign            a1→w1 a2→w1 b→w1              nothing is orphaned: nothing moves
    assign(rebalance) a1→w1 a2→w1 b→w2              two units and none differ by more than one: the surplus moves

Guarantees (each a property test)
- every task of a kind that has a living worker is assigned, to a worker of its kind; all tasks of a unit to one;
- a task whose worker lives stays, unless ``rebalance`` (or its unit was torn apart by hand);
- with ``rebalance`` the numbers of units of two workers of a kind differ by one at most, and no more move than must;
- assigning again changes nothing.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from schemas.documents import CaptureTask, TaskDocument, TaskKind


@dataclass(frozen=True, slots=True)
class Placeable:
    """A task as the placement sees it."""

    task: str
    kind: TaskKind
    unit: str


def placeable(task: TaskDocument) -> Placeable:
    """Capture tasks of one set go together; an apply task stands alone."""
    unit = f"set {task.set_name}" if isinstance(task, CaptureTask) else f"task {task.name}"
    return Placeable(task.name, task.kind, unit)


def assign(
    tasks: Collection[Placeable],
    workers: Mapping[str, TaskKind],
    current: Mapping[str, str],
    *,
    rebalance: bool,
) -> dict[str, str]:
    """Task → worker, for every task that can be placed; see the module for what holds."""
    assigned: dict[str, str] = {}
    for kind in TaskKind:
        names = sorted(name for name, its_kind in workers.items() if its_kind is kind)
        units: defaultdict[str, list[str]] = defaultdict(list)
        for task in tasks:
            if task.kind is kind:
                units[task.unit].append(task.task)
        if not names:
            continue
        for unit, worker in _place(units, names, current, rebalance=rebalance).items():
            assigned.update(dict.fromkeys(units[unit], worker))
    return assigned


def _place(
    units: Mapping[str, list[str]],
    workers: list[str],
    current: Mapping[str, str],
    *,
    rebalance: bool,
) -> dict[str, str]:
    """Unit → worker, for the units and workers of one kind."""
    placed: dict[str, str] = {}
    for unit, tasks in units.items():
        standing = Counter(current[task] for task in tasks if current.get(task) in workers)
        if standing:  # where most of its tasks are
            placed[unit] = min(standing, key=lambda worker: (-standing[worker], worker))
    load = Counter(dict.fromkeys(workers, 0))
    load.update(placed.values())
    for unit in sorted(units.keys() - placed.keys()):
        placed[unit] = _lightest(load)
        load[placed[unit]] += 1
    while rebalance:
        heavy = min(workers, key=lambda worker: (-load[worker], worker))
        light = _lightest(load)
        if load[heavy] - load[light] <= 1:
            break
        moved = min(unit for unit, worker in placed.items() if worker == heavy)
        placed[moved] = light
        load[heavy] -= 1
        load[light] += 1
    return placed


def _lightest(load: Mapping[str, int]) -> str:
    return min(load, key=lambda worker: (load[worker], worker))
