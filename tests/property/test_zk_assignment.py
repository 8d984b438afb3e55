"""Placement keeps its guarantees for any tasks, workers, labels, capacities, wishes and history."""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from millrace.schemas.documents import TaskKind
from millrace.zk.placement.assignment import (
    NO_WISHES,
    Assignment,
    Candidate,
    Placeable,
    Placed,
    assign,
)
from tests.kit.examples import examples

MANY = 1000
NO_LABELS: frozenset[str] = frozenset()
ZONE_A, BIG_A = frozenset({"zone=a"}), frozenset({"zone=a", "disk=big"})
UNITS = st.sampled_from([f"set:s{n}" for n in range(6)])
NAMES = st.sampled_from([f"w{n}" for n in range(6)])
KINDS = st.sampled_from([TaskKind.CAPTURE] * 4 + [TaskKind.APPLY])  # most units are of one kind
PLAIN_WORKERS = st.dictionaries(
    NAMES, KINDS.map(lambda kind: Candidate(kind=kind)), min_size=1, max_size=6
)
WORKERS = st.dictionaries(
    NAMES,
    st.builds(
        Candidate,
        kind=KINDS,
        labels=st.sampled_from([ZONE_A, ZONE_A, BIG_A, NO_LABELS]),
        capacity=st.sampled_from([None, None, 0, 1, 2, 3]),
        is_settled=st.sampled_from([True, True, True, False]),
        is_drained=st.sampled_from([False, False, False, True]),
        relays=st.frozensets(UNITS, max_size=4),
    ),
    min_size=2,
    max_size=6,
)
CAPTURES = st.builds(
    Placeable, st.sampled_from([f"c{n}" for n in range(12)]), st.just(TaskKind.CAPTURE), UNITS
)
APPLIES = st.sampled_from([f"a{n}" for n in range(8)]).map(
    lambda name: Placeable(name, TaskKind.APPLY, f"task:{name}")
)
PLAIN_TASKS = st.lists(
    CAPTURES | CAPTURES | APPLIES, min_size=3, max_size=15, unique_by=lambda task: task.task
)


def _labelled(tasks: list[Placeable], labels: list[frozenset[str]]) -> list[Placeable]:
    """Give the tasks of a unit the same labels."""
    units = sorted({task.unit for task in tasks})
    return [replace(t, labels=labels[units.index(t.unit) % len(labels)]) for t in tasks]


TASKS = st.builds(
    _labelled,
    PLAIN_TASKS,
    st.lists(st.sampled_from([NO_LABELS, NO_LABELS, ZONE_A, BIG_A]), min_size=1, max_size=4),
)
CURRENT = st.dictionaries(
    st.sampled_from([f"{kind}{n}" for kind in "ca" for n in range(12)]),
    st.builds(
        Assignment,
        st.sampled_from([*(f"w{n}" for n in range(8)), ""]),
        st.sampled_from(["", *(f"w{n}" for n in range(8))]),
    ),
)
PLAIN_CURRENT = st.dictionaries(
    st.sampled_from([f"{kind}{n}" for kind in "ca" for n in range(12)]),
    st.sampled_from([f"w{n}" for n in range(8)]).map(Assignment),
)
WISHES = st.dictionaries(UNITS, NAMES, max_size=3)
many_examples = examples(300)
Tasks = list[Placeable]
Workers = dict[str, Candidate]
Current = Mapping[str, Assignment]


def _assign(
    tasks: Tasks,
    workers: Workers,
    current: Current,
    *,
    wishes: Mapping[str, str] = NO_WISHES,
    moves_max: int = MANY,
) -> Placed:
    return assign(tasks, workers, current, wishes=wishes, moves_max=moves_max)


def _ended(tasks: Tasks, workers: Workers, current: Current, wishes: Mapping[str, str]) -> Current:
    """Repeat with a small limit until nothing changes."""
    for _ in range(60):
        placed = _assign(tasks, workers, current, wishes=wishes, moves_max=2).assigned
        new = {**current, **placed}
        if new == current:
            return current
        current = new
    raise AssertionError("the rounds do not end")


def _units(tasks: Tasks, assigned: Current) -> dict[str, str]:
    return {task.unit: assigned[task.task].worker for task in tasks if task.task in assigned}


def _load(tasks: Tasks, assigned: Current) -> Counter[str]:
    return Counter(worker for worker in _units(tasks, assigned).values() if worker)


@many_examples
@given(TASKS, WORKERS, CURRENT, WISHES)
def test_every_task_has_a_fitting_worker_or_a_reason(
    tasks: Tasks, workers: Workers, current: Current, wishes: dict[str, str]
) -> None:
    """A unit is on one live worker of its kind with its labels, as long as one that is free takes it."""
    assigned = _assign(tasks, workers, current, wishes=wishes).assigned
    kinds = {worker.kind for worker in workers.values()}
    assert assigned.keys() == {task.task for task in tasks if task.kind in kinds}
    places = defaultdict(set)
    load = _load(tasks, assigned)
    for task in tasks:
        if task.task not in assigned:
            continue
        found = assigned[task.task]
        places[task.unit].add(found.worker)
        assert bool(found.worker) != bool(found.why)
        if found.worker:
            its = workers[found.worker]
            assert its.kind is task.kind
            assert task.labels <= its.labels
            continue
        for name, its in workers.items():
            fits = its.kind is task.kind and task.labels <= its.labels and not its.is_drained
            assert not (fits and its.has_room(load[name])), f"{name} could take {task}"
    assert all(len(place) == 1 for place in places.values())


@many_examples
@given(TASKS, WORKERS, CURRENT, WISHES, st.integers(0, 3))
def test_no_worker_receives_beyond_its_capacity_or_drained(
    tasks: Tasks, workers: Workers, current: Current, wishes: dict[str, str], moves_max: int
) -> None:
    """A worker has at most its capacity, or no unit that it did not have; a drained one never gets a new one."""
    assigned = _assign(tasks, workers, current, wishes=wishes, moves_max=moves_max).assigned
    had = defaultdict(set)
    for task in tasks:
        if task.task in current:
            had[current[task.task].worker].add(task.unit)
    has = defaultdict(set)
    for unit, worker in _units(tasks, assigned).items():
        has[worker].add(unit)
    for name, its in workers.items():
        if its.is_drained or (its.capacity is not None and len(has[name]) > its.capacity):
            assert has[name] <= had[name]


@many_examples
@given(TASKS, WORKERS, CURRENT, WISHES)
def test_rounds_end_in_a_lasting_assignment(
    tasks: Tasks, workers: Workers, current: Current, wishes: dict[str, str]
) -> None:
    """In any order of the tasks, and with any limit of moves."""
    end = _ended(tasks, workers, current, wishes)
    assert {**end, **_assign(tasks[::-1], workers, end, wishes=wishes).assigned} == end


@many_examples
@given(TASKS, WORKERS, CURRENT, WISHES, st.integers(0, 3))
def test_few_units_leave_a_live_worker_in_a_round(
    tasks: Tasks, workers: Workers, current: Current, wishes: dict[str, str], moves_max: int
) -> None:
    """Orphans and wishes do not count; labels are a reason to leave at once."""
    placed = _assign(tasks, workers, current, wishes=wishes, moves_max=moves_max)
    before = _assign(tasks, workers, current, wishes=wishes, moves_max=0)
    assert before.moves == 0
    old, new = _units(tasks, before.assigned), _units(tasks, placed.assigned)
    assert sum(old[unit] != new[unit] for unit in old) <= moves_max
    assert placed.moves <= moves_max


@many_examples
@given(TASKS, WORKERS, CURRENT, WISHES)
def test_settled_workers_with_equal_rights_are_balanced(
    tasks: Tasks, workers: Workers, current: Current, wishes: dict[str, str]
) -> None:
    """If a unit without a wish may move to another settled worker, that has at most one unit fewer."""
    assigned = _assign(tasks, workers, current, wishes=wishes).assigned
    load = _load(tasks, assigned)
    labels = {task.unit: task.labels for task in tasks}
    for unit, worker in _units(tasks, assigned).items():
        if unit in wishes or not worker or not workers[worker].is_settled:
            continue
        for name, its in workers.items():
            may = its.is_settled and not its.is_drained and its.has_room(load[name])
            if may and its.kind is workers[worker].kind and labels[unit] <= its.labels:
                assert not workers[worker].is_drained
                assert load[worker] - load[name] <= 1


@many_examples
@given(PLAIN_TASKS, PLAIN_WORKERS, PLAIN_CURRENT)
def test_balance_moves_only_the_units_it_must(
    tasks: Tasks, workers: Workers, current: Current
) -> None:
    """Workers of a kind differ by at most one unit, and only units above the even share move."""
    fresh = {name: replace(worker, is_settled=False) for name, worker in workers.items()}
    before = _assign(tasks, fresh, current).assigned
    after = _assign(tasks, workers, before).assigned
    for kind in {worker.kind for worker in workers.values()}:
        names = [name for name, worker in workers.items() if worker.kind is kind]
        own = [task for task in tasks if task.kind is kind]
        old, new = _units(own, before), _units(own, after)
        load = Counter(dict.fromkeys(names, 0) | _load(own, after))
        assert max(load.values()) - min(load.values()) <= 1
        moved = sum(old[unit] != new[unit] for unit in old)
        share, larger = divmod(len(old), len(names))
        counts = sorted(Counter(old.values()).values(), reverse=True)
        must = sum(max(0, c - share - (1 if at < larger else 0)) for at, c in enumerate(counts))
        assert moved == must


@many_examples
@given(PLAIN_TASKS, PLAIN_WORKERS, PLAIN_CURRENT)
def test_worker_that_comes_and_goes_disturbs_no_other(
    tasks: Tasks, workers: Workers, current: Current
) -> None:
    """From any state at rest, no unit of another worker moves: not when it leaves, not when it is back and settled.

    An apply task that is not at home may move once more when the worker is settled.
    """
    rest = _with_logs(tasks, workers, _ended(tasks, workers, current, {}))
    home = _ended(tasks, rest, current, {})
    sets = {task.task for task in tasks if task.kind is TaskKind.CAPTURE}
    for name in workers:
        others = {other: worker for other, worker in rest.items() if other != name}
        away = {**home, **_assign(tasks, others, home).assigned}
        back = _with_logs(tasks, rest, away)
        waiting = {**back, name: replace(back[name], is_settled=False)}
        waited = {**away, **_assign(tasks, waiting, away).assigned}
        at_end = _ended(tasks, back, waited, {})
        for task, found in home.items():
            if found.worker != name and found.worker in workers:
                assert {away[task].worker, waited[task].worker} == {found.worker}
                if task in sets or found.home == found.worker:
                    assert at_end[task].worker == found.worker


def _with_logs(tasks: Tasks, workers: Workers, assigned: Current) -> Workers:
    """Add the relay logs of the sets that the workers run."""
    has = defaultdict(set)
    for task in tasks:
        if task.kind is TaskKind.CAPTURE and task.task in assigned:
            has[assigned[task.task].worker].add(task.unit)
    return {name: replace(its, relays=its.relays | has[name]) for name, its in workers.items()}


@many_examples
@given(TASKS, WORKERS, CURRENT, WISHES)
def test_unstable_worker_receives_nothing_from_settled_ones(
    tasks: Tasks, workers: Workers, current: Current, wishes: dict[str, str]
) -> None:
    """A unit is on a worker that is not settled only if it was there, or if no settled one takes it."""
    assigned = _assign(tasks, workers, current, wishes=wishes).assigned
    load = _load(tasks, assigned)
    for task in tasks:
        worker = assigned[task.task].worker if task.task in assigned else ""
        if not worker or workers[worker].is_settled:
            continue
        had = {current[t.task].worker for t in tasks if t.unit == task.unit and t.task in current}
        takers = [
            name
            for name, its in workers.items()
            if its.kind is task.kind and its.is_settled and not its.is_drained
            if task.labels <= its.labels and its.has_room(load[name])
        ]
        assert worker in had or not takers


@many_examples
@given(PLAIN_TASKS, PLAIN_WORKERS, PLAIN_CURRENT, WISHES)
def test_wish_wins_over_balance_but_not_over_drain(
    tasks: Tasks, workers: Workers, current: Current, wishes: dict[str, str]
) -> None:
    """A wished unit is there whatever the others do; on a drained worker it is not."""
    for name in ("", *workers):
        drained = {**workers, **({name: replace(workers[name], is_drained=True)} if name else {})}
        assigned = _assign(tasks, drained, current, wishes=wishes, moves_max=0).assigned
        for task in tasks:
            worker = wishes.get(task.unit, "")
            if worker in workers and workers[worker].kind is task.kind and worker != name:
                assert assigned[task.task] == Assignment(worker, worker)
        for task in tasks:
            others = {w for w, its in drained.items() if its.kind is task.kind} - {name}
            if name and others:
                assert (
                    _assign(tasks, drained, current, wishes=wishes).assigned[task.task].worker
                    != name
                )


def _sets(count: int) -> list[Placeable]:
    return [Placeable(f"c{n:03}", TaskKind.CAPTURE, f"set:s{n:03}") for n in range(count)]


def _fleet(names: Collection[str], **others: Collection[str]) -> dict[str, Candidate]:
    """Return capture workers, with the relay logs of these sets."""
    return {
        name: Candidate(kind=TaskKind.CAPTURE, relays=frozenset(others.get(name, ())))
        for name in names
    }


def test_orphan_goes_to_a_worker_with_its_relay_log() -> None:
    """The worker must have less than its even share."""
    fleet = _fleet(("w1", "w2", "w3"), w3=("set:s000", "set:s001", "set:s002"))
    placed = _units(_sets(4), _assign(_sets(4), fleet, {}).assigned)
    assert (placed["set:s000"], placed["set:s001"]) == ("w3", "w3")
    assert {placed["set:s002"], placed["set:s003"]} == {"w1", "w2"}


def test_task_without_a_fitting_worker_names_the_reason() -> None:
    """The missing label, or each worker that is full or drained."""
    one = [Placeable("c", TaskKind.CAPTURE, "set:s", frozenset({"zone=a"}))]
    capture = Candidate(kind=TaskKind.CAPTURE)
    in_a = replace(capture, labels=frozenset({"zone=a"}))
    two = [replace(one[0], labels=frozenset({"zone=a", "disk=big"}))]
    big = replace(capture, labels=frozenset({"disk=big"}))
    cases: list[tuple[Tasks, Workers, str]] = [
        (one, {"w1": capture}, "no capture worker has the label zone=a"),
        (two, {"w1": in_a, "w2": big}, "no capture worker has all the labels disk=big, zone=a"),
        (
            one,
            {"w1": replace(in_a, capacity=0), "w2": replace(in_a, is_drained=True), "w3": capture},
            "no capture worker with zone=a has room: w1 is full (0 of 0 sets); w2 is drained",
        ),
        (
            _sets(1),
            {f"w{n}": replace(capture, is_drained=True) for n in range(9)},
            "no capture worker has room: w0 is drained; w1 is drained; w2 is drained and 6 more",
        ),
    ]
    for tasks, workers, why in cases:
        assert {found.why for found in _assign(tasks, workers, {}).assigned.values()} == {why}


def test_unit_leaves_a_worker_without_its_label_at_once() -> None:
    """Its data may have to stay in a zone: without a worker there, it runs nowhere and keeps its home."""
    capture = Candidate(kind=TaskKind.CAPTURE)
    one = [Placeable("c", TaskKind.CAPTURE, "set:s", frozenset({"zone=a"}))]
    here = {"c": Assignment("w1")}
    assert _assign(one, {"w1": capture}, here).assigned["c"].worker == ""
    in_a = replace(capture, labels=frozenset({"zone=a"}), is_settled=False)
    placed = _assign(one, {"w1": capture, "w2": in_a}, here, moves_max=0)
    assert placed.assigned["c"].worker == "w2"


def test_unit_waits_for_room_that_another_unit_leaves() -> None:
    """Where one unit must leave first, the limit of moves is not spent on the other."""
    capture = Candidate(kind=TaskKind.CAPTURE)
    in_a = replace(capture, labels=frozenset({"zone=a"}))
    tasks = [
        Placeable("a", TaskKind.CAPTURE, "set:a", in_a.labels),
        Placeable("b", TaskKind.CAPTURE, "set:b"),
    ]
    workers = {
        "w1": replace(in_a, capacity=1),
        "w2": replace(capture, relays=frozenset({"set:b"})),
        "w3": replace(in_a, is_drained=True),
    }
    current = {"a": Assignment("w3", "w3"), "b": Assignment("w1", "w2")}
    first = _assign(tasks, workers, current, moves_max=1).assigned
    assert _units(tasks, first) == {"set:a": "w3", "set:b": "w2"}
    assert _units(tasks, _assign(tasks, workers, first, moves_max=1).assigned)["set:a"] == "w1"


def test_unit_whose_home_is_full_stays_where_it_is() -> None:
    """It is not sent on to a third worker that is as good."""
    fleet = _fleet(("w1", "w2", "w3"), w1=("set:s002",))
    current = {f"c{n:03}": Assignment(w) for n, w in enumerate(("w1", "w1", "w3", "w3", "w2"))}
    current["c002"] = Assignment("w3", "w1")
    placed = _assign(_sets(5), fleet, current)
    assert placed.moves == 0
