"""Who should own what: the placement's guarantees for any tasks, workers and past."""

from collections import Counter, defaultdict

from hypothesis import given
from hypothesis import strategies as st

from schemas.documents import TaskKind
from zk.assignment import Placeable, assign

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
def test_every_task_that_can_be_placed_is_placed_rightly(
    tasks: list[Placeable], workers: dict[str, TaskKind], current: dict[str, str], rebalance: bool
) -> None:
    """On a living worker of its kind, a unit on one worker; tasks without such a worker nowhere."""
    assigned = assign(tasks, workers, current, rebalance=rebalance)
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
    """What was decided stands, also against the order in which tasks are given."""
    once = assign(tasks, workers, current, rebalance=rebalance)
    assert assign(tasks, workers, once, rebalance=rebalance) == once
    assert assign(tasks[::-1], workers, current, rebalance=rebalance) == once
    assert assign(tasks, workers, once, rebalance=False) == once


@given(TASKS, WORKERS, CURRENT)
def test_without_rebalancing_no_task_leaves_a_living_worker(
    tasks: list[Placeable], workers: dict[str, TaskKind], current: dict[str, str]
) -> None:
    """From any settled state, a worker's end moves its own units only, and a worker's coming moves none."""
    settled = assign(tasks, workers, current, rebalance=True)
    for name in workers:
        rest = {other: kind for other, kind in workers.items() if other != name}
        after = assign(tasks, rest, settled, rebalance=False)
        stayed = {task: worker for task, worker in settled.items() if worker != name}
        assert {task: after[task] for task in stayed} == stayed
    more = {**workers, "new1": TaskKind.CAPTURE, "new2": TaskKind.APPLY}
    grown = assign(tasks, more, settled, rebalance=False)
    assert {task: grown[task] for task in settled} == settled


@given(TASKS, WORKERS, CURRENT)
def test_rebalancing_evens_units_out_and_moves_no_more_than_it_must(
    tasks: list[Placeable], workers: dict[str, TaskKind], current: dict[str, str]
) -> None:
    """Two workers of a kind differ by one unit at most; as many units move as stood above the even share."""
    before = assign(tasks, workers, current, rebalance=False)
    after = assign(tasks, workers, current, rebalance=True)
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
