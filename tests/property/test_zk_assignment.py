"""Placement keeps its guarantees for any tasks, workers and history."""

from collections import Counter, defaultdict

from hypothesis import given
from hypothesis import strategies as st

from schemas.documents import TaskKind
from zk.placement.assignment import Placeable, assign

WORKERS = st.dictionaries(
    st.sampled_from([f"w{n}" for n in range(6)]), st.sampled_from(TaskKind), max_size=6
)
CAPTURES = st.builds(
    Placeable,
    st.sampled_from([f"c{n}" for n in range(12)]),
    st.just(TaskKind.CAPTURE),
    st.sampled_from([f"set s{n}" for n in range(5)]),
)
APPLIES = st.sampled_from([f"a{n}" for n in range(8)]).map(
    lambda name: Placeable(name, TaskKind.APPLY, f"task {name}")
)
TASKS = st.lists(CAPTURES | APPLIES, max_size=15, unique_by=lambda task: task.task)
CURRENT = st.dictionaries(
    st.sampled_from([f"{kind}{n}" for kind in "ca" for n in range(12)]),
    st.sampled_from([f"w{n}" for n in range(8)]),
)
BOOLEANS = st.booleans()


@given(TASKS, WORKERS, CURRENT, BOOLEANS)
def test_every_placeable_task_is_placed_correctly(
    tasks: list[Placeable], workers: dict[str, TaskKind], current: dict[str, str], rebalance: bool
) -> None:
    """A unit is on one living worker of its kind; tasks without one are unassigned."""
    assigned = assign(tasks, workers, current, settled=workers if rebalance else ())
    kinds = set(workers.values())
    assert assigned.keys() == {task.task for task in tasks if task.kind in kinds}
    homes = defaultdict(set)
    for task in tasks:
        if task.task in assigned:
            assert workers[assigned[task.task]] is task.kind
            homes[task.unit].add(assigned[task.task])
    assert all(len(home) == 1 for home in homes.values())


@given(TASKS, WORKERS, CURRENT, BOOLEANS)
def test_assigning_again_changes_nothing(
    tasks: list[Placeable], workers: dict[str, TaskKind], current: dict[str, str], rebalance: bool
) -> None:
    """Decisions persist, in any order of the tasks."""
    once = assign(tasks, workers, current, settled=workers if rebalance else ())
    assert assign(tasks, workers, once, settled=workers if rebalance else ()) == once
    assert assign(tasks[::-1], workers, current, settled=workers if rebalance else ()) == once
    assert assign(tasks, workers, once, settled=()) == once


@given(TASKS, WORKERS, CURRENT)
def test_without_rebalancing_no_task_leaves_a_live_worker(
    tasks: list[Placeable], workers: dict[str, TaskKind], current: dict[str, str]
) -> None:
    """From any settled state, a lost worker moves only its own units, and a new worker moves none."""
    settled = assign(tasks, workers, current, settled=workers)
    for name in workers:
        rest = {other: kind for other, kind in workers.items() if other != name}
        after = assign(tasks, rest, settled, settled=())
        stayed = {task: worker for task, worker in settled.items() if worker != name}
        assert {task: after[task] for task in stayed} == stayed
    more = {**workers, "new1": TaskKind.CAPTURE, "new2": TaskKind.APPLY}
    grown = assign(tasks, more, settled, settled=())
    assert {task: grown[task] for task in settled} == settled


@given(TASKS, WORKERS, CURRENT)
def test_rebalancing_moves_only_the_units_it_must(
    tasks: list[Placeable], workers: dict[str, TaskKind], current: dict[str, str]
) -> None:
    """Workers of a kind differ by at most one unit, and only units above the even share move."""
    before = assign(tasks, workers, current, settled=())
    after = assign(tasks, workers, current, settled=workers)
    for kind in set(workers.values()):
        names = [name for name, its_kind in workers.items() if its_kind is kind]
        old = {t.unit: before[t.task] for t in tasks if t.kind is kind}
        new = {t.unit: after[t.task] for t in tasks if t.kind is kind}
        load = Counter(dict.fromkeys(names, 0))
        load.update(new.values())
        assert max(load.values()) - min(load.values()) <= 1
        moved = sum(old[unit] != new[unit] for unit in old)
        share, larger = divmod(len(old), len(names))
        counts = sorted(Counter(old.values()).values(), reverse=True)
        must = sum(max(0, c - share - (1 if at < larger else 0)) for at, c in enumerate(counts))
        assert moved == must


HOLDERS = st.dictionaries(
    st.sampled_from([f"set s{n}" for n in range(5)]),
    st.sets(st.sampled_from([f"w{n}" for n in range(8)])),
)


@given(TASKS, WORKERS, CURRENT, st.sets(st.sampled_from([f"w{n}" for n in range(6)])), HOLDERS)
def test_unstable_worker_does_not_disturb_settled_workers(
    tasks: list[Placeable],
    workers: dict[str, TaskKind],
    current: dict[str, str],
    settled: set[str],
    holders: dict[str, set[str]],
) -> None:
    """Settled workers stay balanced among themselves; other workers do not affect them."""
    after = assign(tasks, workers, current, settled=settled, holders=holders)
    assert assign(tasks, workers, after, settled=settled, holders=holders) == after
    for kind in set(workers.values()):
        steady = [name for name in settled if workers.get(name) is kind]
        units = {task.unit: after[task.task] for task in tasks if task.kind is kind}
        load = Counter(units.values())
        if not steady:
            continue
        assert max(load[name] for name in steady) - min(load[name] for name in steady) <= 1
        for unit, worker in units.items():
            had = {current.get(task.task) for task in tasks if task.unit == unit}
            assert worker in settled or worker in had


def _sets(count: int) -> list[Placeable]:
    return [Placeable(f"c{n}", TaskKind.CAPTURE, f"set s{n}") for n in range(count)]


def test_orphan_goes_to_a_worker_with_its_relay_log() -> None:
    """The worker must have less than its even share."""
    workers = dict.fromkeys(("w1", "w2", "w3"), TaskKind.CAPTURE)
    holders = {"set s0": {"w3"}, "set s1": {"w3"}, "set s2": {"w3"}, "set s3": {"w9"}}
    placed = assign(_sets(4), workers, {}, settled=(), holders=holders)
    assert (placed["c0"], placed["c1"]) == ("w3", "w3")
    assert {placed["c2"], placed["c3"]} == {"w1", "w2"}


def test_rolling_restart_returns_each_set_to_its_relay_log() -> None:
    """20 workers with 200 sets: each worker leaves, its sets move, it returns and settles."""
    tasks = _sets(200)
    names = [f"w{n:02}" for n in range(20)]
    workers = dict.fromkeys(names, TaskKind.CAPTURE)
    home = {task.task: names[at % 20] for at, task in enumerate(tasks)}
    holders = {task.unit: {home[task.task]} for task in tasks}
    now = dict(home)
    for name in names:
        rest = {other: kind for other, kind in workers.items() if other != name}
        now = assign(tasks, rest, now, settled=rest, holders=holders)
        now = assign(tasks, workers, now, settled=workers, holders=holders)
    assert sum(now[task] != home[task] for task in home) == 0
