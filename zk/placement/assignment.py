"""Assigns tasks to workers: a pure, deterministic function.

A unit is a group of tasks that move together: a set's relay and capture tasks, which share a relay log, or one apply
task.

    tasks (capture)            a1(shop) a2(shop) b(crm)     two units: set shop, set crm
    workers                    w1 w2 (capture)
    current                    a1→w1 a2→w1 b→w1
    assign, w2 not settled     a1→w1 a2→w1 b→w1             every task has a live worker: nothing moves
    assign, both settled       a1→w1 a2→w1 b→w2             w1 has two units and w2 none: one moves

A worker is *settled* when it has been registered for a while (``zk.placement.settling``). Only settled workers receive
units, or, while none is settled, all. The *home* of a unit is the worker where it ran before its worker died or was
drained. It has the longest relay log, so the unit returns when its home is settled again. If balance moves a unit while
all workers are settled, the receiver becomes its home.

Guarantees (each a property test)
- A unit is on one live worker of its kind that has all its labels. If no worker may take it, the reason is given.
- No worker receives more units than its capacity. One that has more already keeps them until another has room.
- A drained worker receives nothing. It keeps a unit only while no other worker may take it.
- A unit whose worker may keep it stays, unless it moves for a wish, to its home, or for balance.
- Balance: if a unit may move from one settled worker to another, their counts differ by at most one. Without labels
  and capacities that holds for all settled workers of a kind, and no more units move than necessary.
- An orphan (a unit without a worker) goes to its home or to another worker with its relay log, within an even share.
- An operator's wish wins over balance and home, but not over labels, capacity, drain, or the wait until settled.
- A worker that leaves and returns moves no unit that is at home on another worker.
- At most ``moves_max`` units leave a live worker, apart from wishes. Orphans are all placed at once.
- Repeated without other changes, it ends in an assignment that it does not change.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from millrace.schemas.documents import Placement, Reader, TaskKind, Work

NO_WISHES: Mapping[str, str] = MappingProxyType({})
NO_LABELS: frozenset[str] = frozenset()
NAMES_MAX = 3  # workers named in a reason; the others are counted
UNITS = {TaskKind.CAPTURE: "sets", TaskKind.APPLY: "tasks"}  # what a capacity counts


@dataclass(frozen=True, slots=True)
class Placeable:
    """The part of a task that matters for its placement. ``kind``: of the workers that can run it."""

    task: str
    kind: TaskKind
    unit: str
    labels: frozenset[str] = NO_LABELS


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A live worker. ``capacity`` counts units, None is no limit. ``relays``: the units whose relay log it has."""

    kind: TaskKind
    labels: frozenset[str] = NO_LABELS
    capacity: int | None = None
    is_settled: bool = True
    is_drained: bool = False
    relays: frozenset[str] = frozenset()

    def has_room(self, load: int) -> bool:
        """Whether it may receive one more unit."""
        return self.capacity is None or load < self.capacity


@dataclass(frozen=True, slots=True)
class Assignment:
    """The worker that should own a task; "" while none may, and then ``why``. ``home`` is the home of its unit."""

    worker: str
    home: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True)
class Placed:
    """The result: every task of a kind that has a live worker, and how many units leave a live worker for balance."""

    assigned: Mapping[str, Assignment]
    moves: int


def placeable(task: Work, placement: Placement) -> Placeable:
    """``placement`` is that of the task's set for capture tasks and relays, and the own one of any other task."""
    return Placeable(task.name, task.kind.worker, unit_of(task), placement.labels)


def unit_of(task: Work) -> str:
    """The name of a task's unit. It is also the name of a node in ZooKeeper."""
    return f"task:{task.name}" if isinstance(task, Reader) else unit_of_set(task.set_name)


def unit_of_set(name: str) -> str:
    """The unit of a set's relay and of all its capture tasks."""
    return f"set:{name}"


def assign(
    tasks: Collection[Placeable],
    workers: Mapping[str, Candidate],
    current: Mapping[str, Assignment],
    *,
    wishes: Mapping[str, str] = NO_WISHES,
    moves_max: int,
) -> Placed:
    """Where each task should run. ``wishes``: unit → worker. Guarantees: see the module."""
    assigned: dict[str, Assignment] = {}
    moves = 0
    for kind in TaskKind:
        live = {name: worker for name, worker in sorted(workers.items()) if worker.kind is kind}
        if not live:
            continue
        units: defaultdict[str, list[Placeable]] = defaultdict(list)
        for task in sorted(tasks, key=lambda task: task.task):
            if task.kind is kind:
                units[task.unit].append(task)
        before = _Board(units, live, _homes(units, current))
        for unit, worker in _kept(units, live, current).items():
            before.put(unit, worker)
        aim = _aim(before, wishes)
        after, made = _paced(before, aim, wishes, moves_max - moves)
        moves += made
        for unit, members in units.items():
            worker, why = after.at.get(unit, ""), ""
            if not worker:
                why = why_no_worker(_labels(members), live, after.load)
            found = Assignment(worker, _home(unit, after, aim, wishes), why)
            assigned.update(dict.fromkeys((task.task for task in members), found))
    return Placed(assigned, moves)


@dataclass(slots=True)
class _Board:
    """The units of one kind, and where they are; filled step by step."""

    units: Mapping[str, list[Placeable]]
    workers: Mapping[str, Candidate]
    homes: Mapping[str, str]
    at: dict[str, str] = field(default_factory=dict)
    load: Counter[str] = field(default_factory=Counter)

    def put(self, unit: str, worker: str) -> None:
        if unit in self.at:
            self.load[self.at[unit]] -= 1
        self.at[unit] = worker
        self.load[worker] += 1

    def copy(self) -> "_Board":
        return _Board(self.units, self.workers, self.homes, dict(self.at), Counter(self.load))

    def fits(self, unit: str, worker: str) -> bool:
        """Whether the worker has the unit's labels."""
        return _labels(self.units[unit]) <= self.workers[worker].labels

    def may_receive(self, unit: str, worker: str) -> bool:
        """Whether it may receive the unit, settled or not."""
        its = self.workers[worker]
        has_room = its.has_room(self.load[worker])
        return not its.is_drained and has_room and self.fits(unit, worker)

    def receivers(self, unit: str) -> list[str]:
        """The settled workers that may receive the unit."""
        return [
            w for w, its in self.workers.items() if its.is_settled and self.may_receive(unit, w)
        ]

    def rank(self, unit: str, worker: str) -> int:
        """How well the worker suits the unit: 0 its home with its relay log, 1 has the log, 2 its home, 3 others."""
        is_home, has_log = self.homes.get(unit) == worker, unit in self.workers[worker].relays
        return (0 if is_home else 1) if has_log else (2 if is_home else 3)


def _homes(
    units: Mapping[str, list[Placeable]], current: Mapping[str, Assignment]
) -> dict[str, str]:
    """Unit → the home that most of its tasks name, or else the worker that most have."""
    homes = {}
    for unit, members in units.items():
        known = [current[task.task] for task in members if task.task in current]
        homes[unit] = _most([one.home or one.worker for one in known])
    return homes


def _kept(
    units: Mapping[str, list[Placeable]],
    workers: Mapping[str, Candidate],
    current: Mapping[str, Assignment],
) -> dict[str, str]:
    """Unit → the live worker with its labels that has most of its tasks."""
    placed = {}
    for unit, members in units.items():
        labels = _labels(members)
        known = [current[task.task].worker for task in members if task.task in current]
        if worker := _most([w for w in known if w in workers and labels <= workers[w].labels]):
            placed[unit] = worker
    return placed


def _labels(members: Collection[Placeable]) -> frozenset[str]:
    return NO_LABELS.union(*(task.labels for task in members))


def _most(names: Iterable[str]) -> str:
    counts = Counter(name for name in names if name)
    return min(counts, key=lambda name: (-counts[name], name), default="")


def _aim(before: _Board, wishes: Mapping[str, str]) -> _Board:
    """Where the units should be in the end, without a limit of moves."""
    board = before.copy()
    wished = set()
    for unit, worker in sorted(wishes.items()):
        if unit not in board.units or worker not in board.workers:
            continue
        if board.at.get(unit) != worker and worker in board.receivers(unit):
            board.put(unit, worker)
        if board.at.get(unit) == worker and not board.workers[worker].is_drained:
            wished.add(unit)
    _place_orphans(board)
    movable = [unit for unit in sorted(board.at) if unit not in wished]
    for unit in movable:
        home = board.homes[unit]
        is_away = board.at[unit] != home and home in board.workers
        if is_away and board.rank(unit, home) == 0 and home in board.receivers(unit):
            board.put(unit, home)
    for unit in movable:
        its = board.workers[board.at[unit]]
        is_too_full = its.capacity is not None and board.load[board.at[unit]] > its.capacity
        if (its.is_drained or is_too_full) and (free := board.receivers(unit)):
            board.put(unit, _best(board, unit, free))
    _even_out(board, before, movable)
    return board


def _place_orphans(board: _Board) -> None:
    """Each orphan goes to its home or a worker with its relay log, within an even share; else to the least loaded."""
    orphans = sorted(board.units.keys() - board.at.keys())
    settled = [w for w, its in board.workers.items() if its.is_settled and not its.is_drained]
    share = -(-len(board.units) // (len(settled) or len(board.workers)))
    others = []
    for unit in orphans:
        known = [w for w in _takers(board, unit) if board.load[w] < share]
        known = [w for w in known if board.rank(unit, w) < 3]
        if known:
            board.put(unit, _best(board, unit, known))
        else:
            others.append(unit)
    for unit in others:
        if takers := _takers(board, unit):
            board.put(unit, min(takers, key=lambda w: (board.load[w], w)))


def _takers(board: _Board, unit: str) -> list[str]:
    """The workers that may receive an orphan: the settled ones, if there are any."""
    return board.receivers(unit) or [w for w in board.workers if board.may_receive(unit, w)]


def _best(board: _Board, unit: str, workers: Collection[str]) -> str:
    return min(workers, key=lambda w: (board.rank(unit, w), board.load[w], w))


def _even_out(board: _Board, before: _Board, movable: Collection[str]) -> None:
    """Move units from workers with more to those with fewer, while that makes two counts more equal.

    First between the workers that differ most; then the units that are not moved by this; then those that the receiver
    suits, and last those that are at home.
    """
    steady = [w for w, its in board.workers.items() if its.is_settled and not its.is_drained]
    while len({board.load[w] for w in steady}) > 1:
        moves = [
            (
                board.load[worker] - board.load[unit_at],
                before.at.get(unit) != worker,
                before.at.get(unit) == unit_at,
                board.rank(unit, worker),
                -board.rank(unit, unit_at),
                unit_at,
                unit,
                worker,
            )
            for unit in movable
            if (unit_at := board.at[unit]) in steady
            for worker in steady
            if board.load[unit_at] - board.load[worker] > 1 and board.may_receive(unit, worker)
        ]
        if not moves:
            return
        *_, unit, receiver = min(moves)
        board.put(unit, receiver)


def _paced(
    before: _Board, aim: _Board, wishes: Mapping[str, str], moves_max: int
) -> tuple[_Board, int]:
    """``before`` with all orphans and wishes at their aim, and at most ``moves_max`` of the other units.

    A unit for which there is no room yet waits for the units that leave its worker.
    """
    board, moves = before.copy(), 0
    changed = [unit for unit, worker in sorted(aim.at.items()) if before.at.get(unit) != worker]
    free = [u for u in changed if u not in before.at or wishes.get(u) == aim.at[u]]
    for waiting, is_counted in ((free, False), ([u for u in changed if u not in free], True)):
        has_moved = True
        while has_moved:
            has_moved = False
            for unit in tuple(waiting):
                if is_counted and moves >= moves_max:
                    break
                receiver = aim.at[unit]
                if board.workers[receiver].has_room(board.load[receiver]):
                    board.put(unit, receiver)
                    waiting.remove(unit)
                    moves += is_counted
                    has_moved = True
    return board, moves


def _home(unit: str, after: _Board, aim: _Board, wishes: Mapping[str, str]) -> str:
    """The unit's home after this round.

    It stays while its worker is away, and while any worker is not settled or is drained: then places are temporary.
    """
    home, worker = after.homes[unit], after.at.get(unit, "")
    if worker and (not home or wishes.get(unit) == worker):
        return worker
    is_calm = all(its.is_settled and not its.is_drained for its in after.workers.values())
    is_for_good = home in after.workers and worker == aim.at.get(unit)
    return worker if worker and is_calm and is_for_good else home


def why_no_worker(
    labels: frozenset[str], workers: Mapping[str, Candidate], load: Mapping[str, int]
) -> str:
    """Why no worker may take a unit: the missing label, or those that are full or drained.

    ``workers``: those of the unit's kind.
    """
    kind = next(iter(workers.values())).kind
    missing = sorted(labels - {label for its in workers.values() for label in its.labels})
    if missing:
        return f"no {kind} worker has the label {' or '.join(missing)}"
    fitting = {name: its for name, its in workers.items() if labels <= its.labels}
    if not fitting:
        return f"no {kind} worker has all the labels {', '.join(sorted(labels))}"
    states = [
        f"{name} is drained"
        if its.is_drained
        else f"{name} is full ({load[name]} of {its.capacity} {UNITS[kind]})"
        for name, its in sorted(fitting.items())
    ]
    having = f" with {', '.join(sorted(labels))}" if labels else ""
    return f"no {kind} worker{having} has room: {listed(states, separator='; ')}"


def listed(names: Collection[str], *, separator: str = ", ") -> str:
    """The first ``NAMES_MAX`` names and the number of the others."""
    shown = list(names)[:NAMES_MAX]
    hidden = len(names) - len(shown)
    return separator.join(shown) + (f" and {hidden} more" if hidden else "")
