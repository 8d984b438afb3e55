"""The documents of `millrace check` and `millrace grants print`, from files and from ZooKeeper.

Writes nothing. A document of a file takes the place of the one of its name in ZooKeeper. Without ZooKeeper the files
are enough, if they have every set that their tasks name.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace

from millrace.cli.documents.files import read_documents, refusal
from millrace.drivers.mysql.grants import (
    EVERY_DATABASE,
    Grant,
    Role,
    as_grant_pattern,
    needed_grants,
)
from millrace.errors import Fatal, MillraceError
from millrace.schemas.documents import (
    ApplyTask,
    CaptureTask,
    Directives,
    PublishTask,
    Reader,
    SetDocument,
    TaskDocument,
    address_of,
    set_of,
)
from millrace.schemas.documents.subscriber import Subscriber
from millrace.schemas.gtid import Flavour
from millrace.zk.ensemble import Ensemble
from millrace.zk.tree.entries import SetEntry, TaskEntry
from millrace.zk.tree.store import Store
from millrace.zk.tree.subscribers import Subscribers, subscribers_of
from millrace.zk.view import read_cluster, views


@dataclass(frozen=True, slots=True)
class Known:
    """All documents that are known. ``positions``: by set, where each of its capture tasks continues.

    ``losses``: by task that is late, the time in seconds until its topic may remove what it has not read.
    ``subscribers``: by task, the named readers of the topics that it writes.
    """

    sets: Mapping[str, SetDocument] = field(default_factory=dict)
    tasks: Mapping[str, TaskDocument] = field(default_factory=dict)
    positions: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    directives: Mapping[str, Directives] = field(default_factory=dict)
    losses: Mapping[str, float] = field(default_factory=dict)
    subscribers: Mapping[str, tuple[Subscriber, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Scope:
    """``tasks`` and ``sets`` are to be checked; ``known`` may have more, which use the same sets.

    ``stored``: what ZooKeeper has.
    """

    known: Known
    stored: Known
    tasks: Sequence[TaskDocument]
    sets: Sequence[str]

    def users(self, set_name: str) -> list[CaptureTask | ApplyTask]:
        return [
            task
            for task in self.known.tasks.values()
            if isinstance(task, CaptureTask | ApplyTask) and set_of(task) == set_name
        ]

    def captures(self, set_name: str) -> list[CaptureTask]:
        return [task for task in self.users(set_name) if isinstance(task, CaptureTask)]

    def applies(self, set_name: str) -> list[ApplyTask]:
        return [task for task in self.users(set_name) if isinstance(task, ApplyTask)]

    def feeds(self, task: Reader) -> list[CaptureTask]:
        return [
            other
            for other in self.known.tasks.values()
            if isinstance(other, CaptureTask) and other.output.is_same_topic(task.source)
        ]

    def is_source(self, set_name: str) -> bool:
        """Whether the set is read; also one that no task uses."""
        return bool(self.captures(set_name)) or not self.users(set_name)

    def is_loaded(self, set_name: str) -> bool:
        """Whether a known apply task starts with a load of the set's rows."""
        return any(task.start.is_load for task in self._readers(set_name))

    def is_compared(self, set_name: str) -> bool:
        """Whether a known apply task compares the set's rows with its target's."""
        return any(task.rules.compare.every_h for task in self._readers(set_name))

    def asked_for(self, set_name: str) -> tuple[str, ...]:
        """The patterns of the set's tables with whose rows known publish tasks start."""
        patterns = (
            task.snapshot_tables
            for task in self.known.tasks.values()
            if isinstance(task, PublishTask)
            and task.start.is_snapshot
            and any(capture.set_name == set_name for capture in self.feeds(task))
        )
        return tuple(dict.fromkeys(name for each in patterns for name in each))

    def _readers(self, set_name: str) -> list[ApplyTask]:
        """Every known apply task whose topic comes from the set."""
        return [
            task
            for task in self.known.tasks.values()
            if isinstance(task, ApplyTask)
            and any(capture.set_name == set_name for capture in self.feeds(task))
        ]

    def position_of(self, task: CaptureTask) -> str:
        """Where the task continues: what its topic has, or its start if a file gives it another topic or set."""
        before = self.stored.tasks.get(task.name)
        is_same = (
            before is not None
            and set_of(before) == task.set_name
            and address_of(before).is_same_topic(task.output)
        )
        reported = self.stored.positions.get(task.set_name, {}) if is_same else {}
        return reported.get(task.name, "") or task.start.gtid_set

    def roles(self, set_name: str) -> tuple[Role, ...]:
        """The roles that the set's tasks need; a set without tasks is taken as a source."""
        captures = self.captures(set_name)
        needed = {
            Role.SOURCE: self.is_source(set_name),
            Role.HEARTBEAT: self.is_source(set_name) and self.databases(set_name, Role.HEARTBEAT),
            Role.LOAD: self.is_source(set_name) and self.is_loaded(set_name),
            Role.COMPARE: self.is_source(set_name) and self.is_compared(set_name),
            Role.SNAPSHOT: any(task.begins_with_rows for task in captures)
            or bool(self.asked_for(set_name)),
            Role.TARGET: self.applies(set_name),
        }
        return tuple(role for role, is_needed in needed.items() if is_needed)

    def databases(self, set_name: str, role: Role) -> tuple[str, ...]:
        """The databases on which a role needs grants, as patterns of GRANT; empty if the tasks name none."""
        if role is Role.HEARTBEAT:
            name = self.known.sets[set_name].heartbeat.database
            return (as_grant_pattern(name),) if name else ()
        if role is Role.TARGET:
            applies = self.applies(set_name)
            feeds = [capture for task in applies for capture in self.feeds(task)]
            written = [pattern for task in applies for pattern in task.view.target_patterns]
            return _databases(written) or databases_of(feeds)
        return databases_of(self.captures(set_name)) or databases_of(self.users(set_name))

    def grants_besides(self, set_name: str, role: Role, flavour: Flavour) -> tuple[Grant, ...]:
        """The grants of its account for other roles, on every database if the tasks name none."""
        return tuple(
            grant
            for other in self.roles(set_name)
            if other is not role
            for grant in needed_grants(
                other, flavour, self.databases(set_name, other) or (EVERY_DATABASE,)
            )
        )


def read_known(ensemble: Ensemble, *, connect_timeout_s: float) -> Known:
    """All readable documents in ZooKeeper. Creates no node."""
    with closing(ensemble.open(connect_timeout_s=connect_timeout_s)) as session:
        store = Store(session, ensemble.tree)
        sets = {n: e.document for n, e in store.sets().items() if isinstance(e, SetEntry)}
        tasks = {n: e.document for n, e in store.tasks().items() if isinstance(e, TaskEntry)}
        named = Subscribers(session, ensemble.tree).all()
        return Known(
            sets,
            tasks,
            {name: store.positions_of(name) for name in sets},
            {name: _directives(store, name) for name in sets},
            {
                view.name: view.time_to_loss_s
                for view in views(read_cluster(session, ensemble.tree))
                if view.time_to_loss_s is not None and view.is_late
            },
            {name: subscribers_of(named, name) for name in tasks},
        )


def _directives(store: Store, set_name: str) -> Directives:
    """None if they can't be read, which the check of ZooKeeper reports."""
    try:
        return store.directives(set_name)
    except Fatal:
        return Directives()


def parse_files(places: Sequence[str]) -> Known:
    """The documents of files and folders. Fatal MR-4141 with every problem, or if a place has no document."""
    reading = read_documents(*places)
    if reading.problems:
        raise refusal(places, reading.problems)
    found = list(reading.documents.values())
    return Known(
        {one.name: one for one in found if isinstance(one, SetDocument)},
        {one.name: one for one in found if not isinstance(one, SetDocument)},
    )


def scope_of(stored: Known, files: Known, names: Sequence[str]) -> Scope:
    """The documents to check: those of the files and ``names``, or all. Fatal MR-4104 for an unknown name."""
    known = replace(
        stored, sets={**stored.sets, **files.sets}, tasks={**stored.tasks, **files.tasks}
    )
    if not (files.sets or files.tasks or names):
        return Scope(known, stored, list(known.tasks.values()), list(known.sets))
    tasks, sets = dict(files.tasks), dict.fromkeys(files.sets)
    for name in names:
        if name not in known.tasks and name not in known.sets:
            raise Fatal("MR-4104", f"there is no set or task {name}")
        if name in known.tasks:
            tasks[name] = known.tasks[name]
        if name in known.sets:
            sets[name] = None
    sets |= dict.fromkeys(set_of(task) for task in tasks.values() if set_of(task))
    return Scope(known, stored, list(tasks.values()), list(sets))


def stored_documents(
    *, connect_timeout_s: float
) -> tuple[Known, Ensemble | None, MillraceError | None]:
    """The documents in ZooKeeper, the ensemble, and why one of them is missing."""
    ensemble = None
    try:
        ensemble = Ensemble.from_environment()
        return read_known(ensemble, connect_timeout_s=connect_timeout_s), ensemble, None
    except MillraceError as error:
        return Known(), ensemble, error


def databases_of(tasks: Iterable[CaptureTask | ApplyTask]) -> tuple[str, ...]:
    """The databases that the tasks include, as patterns of GRANT. Empty if a task includes all."""
    return _databases(pattern for task in tasks for pattern in _patterns(task))


def _databases(patterns: Iterable[str]) -> tuple[str, ...]:
    names = [pattern.partition(".")[0] for pattern in patterns]
    if "*" in names:
        return ()
    return tuple(dict.fromkeys(map(as_grant_pattern, names)))


def _patterns(task: CaptureTask | ApplyTask) -> tuple[str, ...]:
    return task.tables.include if isinstance(task, CaptureTask) else task.view.patterns
