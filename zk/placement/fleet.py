"""All workers as an operator sees them, and the checks of an operator's wishes: drain a worker, move a task.

``read_fleet`` reads the nodes once; everything else is pure.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from millrace.errors import Fatal
from millrace.zk.client.session import Node, Session
from millrace.zk.lease.election import leader_version, unsettled_of
from millrace.zk.lease.lease import holder_of
from millrace.zk.lease.membership import Registered, registered
from millrace.zk.placement.assignment import UNITS, Placeable, listed
from millrace.zk.placement.nodes import workers_of
from millrace.zk.placement.scheduler import Snapshot, placeables
from millrace.zk.tree.entries import WORK_FOLDERS, work_entries
from millrace.zk.tree.paths import Tree

BEFORE_VERSIONS = "< 0.2.0"  # of a process that does not name its version


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """The workers, and what each should run and runs. ``unsettled``: None while no scheduler leads."""

    workers: Mapping[str, Registered]
    drained: Collection[str]
    tasks: Mapping[str, Placeable]
    assigned: Mapping[str, str]
    owners: Mapping[str, str]
    unsettled: Collection[str] | None

    def tasks_of(self, worker: str) -> list[str]:
        """The tasks that are assigned to the worker or that it owns."""
        names = self.assigned.keys() | self.owners.keys()
        both = (self.assigned, self.owners)
        return sorted(name for name in names if worker in [of.get(name) for of in both])

    def units_of(self, worker: str) -> set[str]:
        """The units that are assigned to the worker."""
        return {task.unit for name, task in self.tasks.items() if self.assigned.get(name) == worker}

    def tasks_of_unit(self, unit: str) -> list[str]:
        """All tasks that move together."""
        return sorted(name for name, task in self.tasks.items() if task.unit == unit)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerView:
    """One worker in `millrace worker list`. A drained worker that is away has no registration."""

    name: str
    worker: Registered | None
    units: int
    tasks: int
    is_drained: bool
    is_settled: bool | None


def read_fleet(session: Session, tree: Tree) -> Fleet:
    """Reads each node once. The nodes may be from slightly different moments."""
    folders = (*WORK_FOLDERS, "workers", "drained", "assignments", "owners")
    nodes: dict[str, dict[str, Node]] = {
        folder: session.folder(tree.folder(folder)) for folder in folders
    }
    snapshot = Snapshot(work_entries(nodes), nodes)
    return Fleet(
        workers=registered(nodes["workers"]),
        drained=nodes["drained"].keys(),
        tasks={task.task: task for task in placeables(snapshot)},
        assigned=workers_of(nodes["assignments"]),
        owners={task: holder_of(node, f"owners/{task}") for task, node in nodes["owners"].items()},
        unsettled=unsettled_of(session, tree),
    )


def read_versions(session: Session, tree: Tree) -> dict[str, str]:
    """The versions of the workers, apply drivers and the leading scheduler by name; "" before 0.2.0."""
    leader = leader_version(session, tree)
    versions = dict([leader] if leader else [])
    workers = registered(session.folder(tree.folder("workers")))
    return versions | {name: worker.version for name, worker in workers.items()}


def worker_views(fleet: Fleet) -> list[WorkerView]:
    """Every live or drained worker, sorted by name."""
    units: defaultdict[str, set[str]] = defaultdict(set)
    for name, task in fleet.tasks.items():
        units[fleet.assigned.get(name, "")].add(task.unit)
    tasks = list(fleet.assigned.values())
    return [
        WorkerView(
            name=name,
            worker=fleet.workers.get(name),
            units=len(units[name]),
            tasks=tasks.count(name),
            is_drained=name in fleet.drained,
            is_settled=_is_settled(fleet, name),
        )
        for name in sorted({*fleet.workers, *fleet.drained})
    ]


def _is_settled(fleet: Fleet, name: str) -> bool | None:
    """None while it does not run, or no scheduler leads."""
    if fleet.unsettled is None or name not in fleet.workers:
        return None
    return name not in fleet.unsettled


def check_drain(fleet: Fleet, name: str) -> None:
    """Fatal MR-4121 when there is no such worker, MR-4122 when no other worker of its kind takes tasks."""
    kind = worker_named(fleet, name).kind
    others = fleet.workers.keys() - fleet.drained - {name}
    if not any(fleet.workers[other].kind is kind for other in others):
        alike = [other for other, its in fleet.workers.items() if its.kind is kind]
        undrain = [
            f"`millrace worker undrain {other}`"
            for other in sorted(alike)
            if other in fleet.drained
        ]
        fix = (
            f"{' or '.join(undrain)}, or start another worker first. To stop the tasks, pause them."
        )
        raise Fatal(
            "MR-4122",
            f"{name} is the last {kind} worker that takes {UNITS[kind]}",
            fix=fix if undrain else "",
        )


def check_move(fleet: Fleet, task: str, to: str) -> Placeable:
    """The task; Fatal MR-4121 when there is no such worker, MR-4123 when it can't take the task's unit."""
    worker, its = worker_named(fleet, to), fleet.tasks.get(task)
    if its is None:
        raise Fatal("MR-4123", f"{task} is not placed: see `millrace status`")
    missing = sorted(its.labels - worker.labels)
    has = fleet.units_of(to)
    why = ""
    if worker.kind is not its.kind:
        why = f"{to} runs {worker.kind} tasks, {task} is one of kind {its.kind}"
    elif missing:
        why = f"{to} does not have the label {' and '.join(missing)}"
    elif to in fleet.drained:
        why = f"{to} is drained"
    elif worker.capacity is not None and its.unit not in has and len(has) >= worker.capacity:
        why = f"{to} is full ({len(has)} of {worker.capacity} {UNITS[worker.kind]})"
    if why:
        raise Fatal("MR-4123", why)
    return its


def worker_named(fleet: Fleet, name: str) -> Registered:
    """The live worker; Fatal MR-4121."""
    worker = fleet.workers.get(name)
    if worker is None:
        nearest = get_close_matches(name, fleet.workers, n=1)
        known = f"did you mean {nearest[0]!r}?" if nearest else f"the workers are: {_known(fleet)}"
        raise Fatal("MR-4121", f"there is no worker {name[:60]!r}; {known}")
    return worker


def _known(fleet: Fleet) -> str:
    return listed(sorted(fleet.workers)) or "none"
