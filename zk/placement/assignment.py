"""Assigns tasks to workers: a pure, deterministic function.

A unit is a group of tasks that move together: a set's relay and capture tasks, which share a relay log, or one apply
task.

    tasks (capture)            a1(shop) a2(shop) b(crm)     two units: set shop, set crm
    workers                    w1 w2 (capture)
    current                    a1→w1 a2→w1 b→w1
    assign                     a1→w1 a2→w1 b→w1             every task has a live worker: nothing moves
    assign(settled w1, w2)     a1→w1 a2→w1 b→w2             w1 has two units and w2 none: one moves

``settled`` workers have been registered for a while. Units move for balance only between settled workers, and orphans
(units without a live worker) go to settled ones if there are any. So a worker that keeps restarting receives no units
that it would lose again. ``holders`` names the workers that have a relay log of a unit's set: they need not read it
from the source again.

Guarantees (each a property test)
- Every task of a kind that has a live worker is assigned to a worker of that kind; all tasks of a unit to the same one.
- A task whose worker is alive stays there, unless it moves for balance or its unit was split by manual edits.
- The unit counts of two settled workers of a kind differ by at most one, and no more units move than necessary.
- An orphan goes to a holder that has less than an even share. Units that the receiver holds move first.
- Assigning again changes nothing.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

from schemas.documents import ApplyTask, TaskKind, Work

NO_HOLDERS: Mapping[str, Collection[str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Placeable:
    """The part of a task that matters for its placement."""

    task: str
    kind: TaskKind
    unit: str


def placeable(task: Work) -> Placeable:
    """Capture tasks of one set share a unit, with the set's relay; each apply task is a separate unit."""
    unit = f"task {task.name}" if isinstance(task, ApplyTask) else unit_of_set(task.set_name)
    return Placeable(task.name, task.kind, unit)


def unit_of_set(name: str) -> str:
    """The unit of a set's relay and of all its capture tasks."""
    return f"set {name}"


def assign(
    tasks: Collection[Placeable],
    workers: Mapping[str, TaskKind],
    current: Mapping[str, str],
    *,
    settled: Collection[str],
    holders: Mapping[str, Collection[str]] = NO_HOLDERS,
) -> dict[str, str]:
    """Task → worker, for every task of a kind that has a live worker. Guarantees: see the module."""
    assigned: dict[str, str] = {}
    for kind in TaskKind:
        names = sorted(name for name, its_kind in workers.items() if its_kind is kind)
        units: defaultdict[str, list[str]] = defaultdict(list)
        for task in tasks:
            if task.kind is kind:
                units[task.unit].append(task.task)
        if not names:
            continue
        settled_names = [name for name in names if name in settled]
        placed = _kept(units, names, current)
        load = Counter(dict.fromkeys(names, 0))
        load.update(placed.values())
        _place_orphans(
            units.keys() - placed.keys(), placed, load, (settled_names or names, holders)
        )
        _even_out(placed, load, (settled_names, holders))
        for unit, worker in placed.items():
            assigned.update(dict.fromkeys(units[unit], worker))
    return assigned


# the workers that may receive units, and unit → the workers that have its relay log
_Candidates: TypeAlias = tuple[list[str], Mapping[str, Collection[str]]]


def _kept(
    units: Mapping[str, list[str]], workers: list[str], current: Mapping[str, str]
) -> dict[str, str]:
    """Unit → the live worker that has most of its tasks."""
    placed: dict[str, str] = {}
    for unit, tasks in units.items():
        counts = Counter(current[task] for task in tasks if current.get(task) in workers)
        if counts:
            placed[unit] = min(counts, key=lambda worker: (-counts[worker], worker))
    return placed


def _place_orphans(
    orphans: Collection[str], placed: dict[str, str], load: Counter[str], candidates: _Candidates
) -> None:
    """Give each orphan to its least loaded holder below an even share, or to the least loaded worker."""
    workers, holders = candidates
    share = -(-(len(placed) + len(orphans)) // len(workers))
    without_holder = []
    for unit in sorted(orphans):
        free_holders = [w for w in workers if w in holders.get(unit, ()) and load[w] < share]
        if free_holders:
            placed[unit] = _least_loaded(free_holders, load)
            load[placed[unit]] += 1
        else:
            without_holder.append(unit)
    for unit in without_holder:
        placed[unit] = _least_loaded(workers, load)
        load[placed[unit]] += 1


def _even_out(placed: dict[str, str], load: Counter[str], candidates: _Candidates) -> None:
    """Move units from the workers with the most to those with the fewest; first units that the receiver holds."""
    workers, holders = candidates
    while workers:
        most, least = max(load[w] for w in workers), min(load[w] for w in workers)
        if most - least <= 1:
            return
        receivers = [w for w in workers if load[w] == least]
        unit, receiver = min(
            (
                (unit, receiver)
                for unit, worker in placed.items()
                if worker in workers and load[worker] == most
                for receiver in receivers
            ),
            key=lambda move: (move[1] not in holders.get(move[0], ()), placed[move[0]], *move),
        )
        load[placed[unit]] -= 1
        load[receiver] += 1
        placed[unit] = receiver


def _least_loaded(workers: Collection[str], load: Mapping[str, int]) -> str:
    return min(workers, key=lambda worker: (load[worker], worker))
