"""Late, lost and reordered watches, and schedulers that die or overtake each other, on a model.

``ModelTree`` is a tree of nodes in memory with the ensemble's rules (versions, all or nothing, a watch fires once). The
test chooses when a fired watch is delivered.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar, cast

from hypothesis import example, given
from hypothesis import strategies as st

from millrace.errors import Fenced, Retryable
from millrace.schemas.documents import TaskKind
from millrace.zk.client.mirror import REFRESH_S, Mirror
from millrace.zk.client.session import Change, Check, Create, Delete, Node, Put, Session, Watch
from millrace.zk.lease.election import LeaderTerm
from millrace.zk.placement.assignment import assign
from millrace.zk.placement.nodes import assignments_of, workers_of
from millrace.zk.placement.scheduler import Snapshot, candidates, placeables, plan
from millrace.zk.tree.entries import Desired, task_content, task_entries
from millrace.zk.tree.paths import Tree, encode
from tests.kit.control.control import a_capture
from tests.kit.examples import examples

FOLDER = "/f"
NAMES = ("a", "b", "c")
Answer = TypeVar("Answer")


@dataclass
class ModelTree:
    """A session to a tree in memory; ``fired`` holds the watches that are not delivered yet."""

    nodes: dict[str, Node] = field(default_factory=dict)
    fired: list[Watch] = field(default_factory=list)
    is_away: bool = False
    races: list[Callable[[], None]] = field(
        default_factory=list
    )  # changes made while the next read is answered
    _zxid: int = 0
    _watches: dict[str, list[Watch]] = field(
        default_factory=dict
    )  # by path, or by "path/" for its children

    def get(self, path: str, *, watch: Watch | None = None) -> Node | None:
        """Act as ``Session.get``."""
        self._ask(path, watch)
        return self._answered(self.nodes.get(path))

    def get_each(self, paths: list[str], *, watches: list[Watch]) -> list[Node | None]:
        """Act as ``Session.get_each``."""
        return [self.get(path, watch=watch) for path, watch in zip(paths, watches, strict=True)]

    def children(self, path: str, *, watch: Watch | None = None) -> tuple[str, ...]:
        """Act as ``Session.children``."""
        self._ask(f"{path}/", watch)
        found = sorted(n.removeprefix(f"{path}/") for n in self.nodes if n.startswith(f"{path}/"))
        return self._answered(tuple(found))

    def commit(self, *changes: Change) -> None:
        """Act as ``Session.commit``."""
        after = dict(self.nodes)
        for change in changes:
            standing = after.get(change.path)
            is_refused = (
                standing is not None
                if isinstance(change, Create)
                else standing is None or change.version not in (-1, standing.version)
            )
            if is_refused:
                raise Retryable("MR-4007", f"{change.path} disagrees")
            match change:
                case Create(path, content):
                    after[path] = self._node(content)
                case Put(path, content):
                    assert standing is not None
                    version = standing.version + 1
                    after[path] = replace(standing, content=content, version=version)
                case Delete(path):
                    del after[path]
                case Check():
                    pass
        for change in changes:
            if isinstance(change, Create | Delete):
                self._fire(change.path.rpartition("/")[0] + "/")
            if not isinstance(change, Check):
                self._fire(change.path)
        self.nodes = after

    def set(self, path: str, content: bytes | None) -> None:
        """Create, write or remove a node, whether or not it exists."""
        standing = self.nodes.get(path)
        if content is None:
            if standing is not None:
                self.commit(Delete(path, -1))
        else:
            self.commit(Create(path, content) if standing is None else Put(path, content, -1))

    def break_connection(self) -> None:
        """All watches fire, as in kazoo."""
        for path in tuple(self._watches):
            self._fire(path)

    def _ask(self, key: str, watch: Watch | None) -> None:
        if self.is_away:
            raise Retryable("MR-4001", "away")
        if watch is not None:
            self._watches.setdefault(key, []).append(watch)

    def _answered(self, answer: Answer) -> Answer:
        if self.races:
            self.races.pop(0)()
        return answer

    def _fire(self, key: str) -> None:
        self.fired += self._watches.pop(key, [])

    def _node(self, content: bytes) -> Node:
        self._zxid += 1
        return Node(content, 0, self._zxid, self._zxid, 0, 0)


# ---- a mirror ----------------------------------------------------------------------------------

STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["set", "race"]), st.sampled_from(NAMES), st.integers(0, 3)),
        st.tuples(st.just("deliver"), st.integers(0, 20), st.just(0)),
        st.tuples(st.just("lose"), st.integers(0, 20), st.just(0)),
        st.tuples(st.sampled_from(["look", "away", "back", "break"]), st.just(0), st.just(0)),
    ),
    max_size=40,
)


@examples(300)
@given(STEPS)
@example([("race", "a", 1), ("look", 0, 0)])  # the list changes while it is read
@example([("set", "a", 1), ("race", "b", 1), ("race", "a", 2), ("look", 0, 0)])  # and the node
def test_mirror_converges_for_any_order_of_watches(
    steps: list[tuple[str, str | int, int]],
) -> None:
    """No node goes back in time; lost watches cost only a refresh; each change wakes its reader."""
    tree, woken = ModelTree(), []
    now_s = 0.0
    mirror = Mirror(cast(Session, tree), FOLDER, lambda: woken.append(1), clock=lambda: now_s)
    shown: dict[str, tuple[int, int]] = {}
    is_lossy = False

    def look() -> Mapping[str, Node]:
        found = mirror.snapshot()
        for name, node in found.items():
            assert (node.czxid, node.version) >= shown.get(name, (0, 0))
            shown[name] = (node.czxid, node.version)
        return found

    for what, which, value in steps:
        if what == "set":
            tree.set(f"{FOLDER}/{which}", str(value).encode() if value else None)
        elif what == "race":
            tree.races.append(partial(_change_and_tell, tree, str(which), value))
        elif what in ("deliver", "lose") and tree.fired:
            watch = tree.fired.pop(int(which) % len(tree.fired))
            if what == "deliver":
                before = len(woken)
                watch()
                assert len(woken) == before + 1
            else:
                is_lossy = True
        elif what == "break":
            tree.break_connection()
        elif what in ("away", "back"):
            tree.is_away = what == "away"
        elif what == "look":
            try:
                look()
            except Retryable:
                assert tree.is_away
    tree.is_away = False
    tree.races.clear()
    while tree.fired:
        tree.fired.pop()()
    if is_lossy:
        now_s += REFRESH_S + 1
    truth = {path.removeprefix(f"{FOLDER}/"): node for path, node in tree.nodes.items()}
    assert dict(look()) == truth


def _change_and_tell(tree: ModelTree, name: str, value: int) -> None:
    """Make a change and deliver its watches before the reader gets its answer."""
    tree.set(f"{FOLDER}/{name}", str(value).encode() if value else None)
    while tree.fired:
        tree.fired.pop()()


# ---- schedulers --------------------------------------------------------------------------------

TREE = Tree("c")
TASKS = {f"t{n}": a_capture(f"t{n}", of=f"s{n // 2}") for n in range(6)}  # three units of two


@dataclass
class ModelScheduler:
    """One candidate in steps: ``lead``, ``look``, then single ``commit`` steps; it may stop forever after each."""

    tree: ModelTree
    workers: set[str]
    term: LeaderTerm | None = None
    groups: list[list[Change]] = field(default_factory=list)

    def lead(self) -> None:
        """Steps 1 and 2 of ``zk.lease.election`` without the leader's node: another may still believe that it leads."""
        node = self.tree.nodes[TREE.reign]
        self.tree.commit(Put(TREE.reign, b"", node.version))
        session = cast(Session, _WithoutEnd(self.tree))
        self.term = LeaderTerm(session, TREE, version=node.version + 1, incarnation=0)
        self.groups = []

    def look(self, *, rebalance: bool) -> None:
        """Take a snapshot and its plan."""
        snapshot = snapshot_of(self.tree, self.workers)
        settled = self.workers if rebalance else set()
        current = assignments_of(snapshot.assignments)
        placed = assign(
            placeables(snapshot), candidates(snapshot, settled), current, moves_max=len(TASKS)
        )
        self.groups = plan(snapshot, placed.assigned, TREE)

    def commit(self) -> None:
        """Commit the next group; a conflicting plan is dropped, an overtaken term ends."""
        if self.term is None or not self.groups:
            return
        before = dict(self.tree.nodes)
        try:
            self.term.commit(self.groups.pop(0))
        except Fenced:
            self.term, self.groups = None, []
            assert self.tree.nodes == before
        except Retryable:
            self.groups = []
            assert self.tree.nodes == before


@dataclass
class _WithoutEnd:
    """The model as a session that never ends."""

    tree: ModelTree
    incarnation: int = 0

    def __getattr__(self, name: str) -> Callable[..., object]:
        found: Callable[..., object] = getattr(self.tree, name)
        return found


A_WORKER = Node(encode({"kind": TaskKind.CAPTURE.value}), 0, 1, 1, 0, 1)


def snapshot_of(tree: ModelTree, workers: set[str]) -> Snapshot:
    """Return the snapshot that the scheduler reads."""

    def folder(name: str) -> dict[str, Node]:
        path = TREE.folder(name) + "/"
        return {p.removeprefix(path): n for p, n in tree.nodes.items() if p.startswith(path)}

    return Snapshot(
        tasks=task_entries(folder("tasks")),
        nodes={
            "sets": {},
            "workers": dict.fromkeys(sorted(workers), A_WORKER),
            "drained": {},
            "wishes": {},
            "assignments": folder("assignments"),
        },
    )


ACTS = st.lists(
    st.tuples(
        st.sampled_from(
            ["lead", "look", "rebalance", "commit", "commit", "task", "untask", "join", "leave"]
        ),
        st.integers(0, 1),
        st.integers(0, 5),
    ),
    max_size=60,
)


# a worker leaves, and the scheduler that moves the two tasks of its unit dies after the first commit
TORN = [
    *(("task", 0, number) for number in (0, 1)),
    ("lead", 0, 0),
    ("look", 0, 0),
    ("commit", 0, 0),
    ("commit", 0, 0),
    ("join", 0, 1),
    ("leave", 0, 0),
    ("look", 0, 0),
    ("commit", 0, 0),
]


@examples(300)
@given(ACTS)
@example(TORN)
@example([*TORN[:4], ("lead", 1, 0), ("commit", 0, 0)])  # overtaken between its look and its commit
def test_units_stay_whole_when_schedulers_die_or_are_overtaken(
    acts: list[tuple[str, int, int]],
) -> None:
    """Tasks of one set are never on two workers; an overtaken leader changes nothing; the last one finishes."""
    tree, workers = ModelTree(), {"w0"}
    tree.commit(Create(TREE.reign, b""))
    both = [ModelScheduler(tree, workers), ModelScheduler(tree, workers)]
    leads = 0
    for what, which, number in acts:
        one, task = both[which], f"t{number}"
        match what:
            case "lead":
                one.lead()
                leads = which
            case "look" | "rebalance":
                one.look(rebalance=what == "rebalance")
            case "commit":
                before = dict(tree.nodes)
                one.commit()
                is_fenced = which == leads or tree.nodes == before
                assert is_fenced, "an overtaken leader changed assignments"
            case "task":
                tree.set(TREE.task(task), task_content(Desired(TASKS[task])))
            case "untask":
                tree.set(TREE.task(task), None)
            case "join":
                workers.add(f"w{number}")
            case "leave" if len(workers) > 1:
                workers.discard(f"w{number}")
        assert_whole_units(tree)
    last = both[0]
    last.lead()
    for rebalance in (False, True):
        last.look(rebalance=rebalance)
        while last.groups:
            last.commit()
            assert_whole_units(tree)
    last.look(rebalance=True)
    assert last.groups == []
    snapshot = snapshot_of(tree, workers)
    assert workers_of(snapshot.assignments).keys() == snapshot.tasks.keys()
    assert set(workers_of(snapshot.assignments).values()) <= workers


def assert_whole_units(tree: ModelTree) -> None:
    """Assert that all assigned tasks of a set are on one worker."""
    assigned = workers_of(snapshot_of(tree, set()).assignments)
    homes: dict[str, set[str]] = {}
    for task, worker in assigned.items():
        homes.setdefault(TASKS[task].set_name, set()).add(worker)
    assert all(len(home) == 1 for home in homes.values()), homes
