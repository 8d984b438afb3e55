"""Waiting until a task has reached what the primary had committed when asked.

    capture task   the primary of its set       → the task's reported gtid_set includes it
    apply task     the primary of the set that is captured to its topic    → the same

Guarantees: the primary is asked once, at the start; success means that the task's owner reported a position that
includes the primary's. A blocked task ends the wait at once, with its own code, and so does a paused one that has not
reached it. While a member can't be reached it is asked again until the time is over.
"""

import time
from dataclasses import dataclass

from millrace.cli.control import Control
from millrace.errors import Fatal, MillraceError, Retryable
from producer.source.connection import Login, SourceConnection
from producer.source.identity import ask_identity
from producer.source.inventory import ask_position
from schemas.documents import (
    ApplyTask,
    CaptureTask,
    SetDocument,
    TaskDocument,
    resolve_secret,
)
from schemas.gtid import Flavour, GtidPosition, parse_gtid_set
from schemas.status import TaskReport, TaskState
from zk.entries import TaskEntry
from zk.view import read_cluster, seen

POLL_S = 0.1
ASK_AGAIN_S = 0.5


@dataclass(frozen=True, slots=True)
class Arrival:
    """What was waited for, and how long."""

    wanted: GtidPosition
    waited_s: float


def wait_until_arrived(now: Control, name: str, *, timeout_s: float) -> Arrival:
    """See the module. Retryable MR-4201 when the time is over, Fatal MR-4202 when the task is blocked or paused."""
    start_s = time.monotonic()
    deadline_s = start_s + timeout_s
    task = now.store.task_entry(name).document
    wanted = _asked_until(deadline_s, now.store.set_entry(source_set_of(now, task)).document)
    while True:
        report = _report(now, name)
        if report.state is TaskState.BLOCKED:
            what = f"{name} is blocked: {report.code} {report.why}"
            raise Fatal("MR-4202", what, fix=report.fix)
        if parse_gtid_set(wanted.flavour, report.gtid_set).includes(wanted):
            return Arrival(wanted, time.monotonic() - start_s)
        if report.state is TaskState.PAUSED:
            raise Fatal("MR-4202", f"{name} is {report.why}", fix=f"`millrace task resume {name}`.")
        if time.monotonic() > deadline_s:
            stands = f"{name} is {report.state.value}" + (f" ({report.why})" if report.why else "")
            told = f"{stands}; it has {report.gtid_set or 'nothing'}, the primary {wanted}"
            raise Retryable("MR-4201", f"not within {timeout_s:g} s: {told}")
        time.sleep(POLL_S)


def source_set_of(now: Control, task: TaskDocument) -> str:
    """The set whose changes the task carries; Fatal MR-4203 when nothing here captures its topic."""
    return task.set_name if isinstance(task, CaptureTask) else capture_task_of(now, task).set_name


def capture_task_of(now: Control, task: ApplyTask) -> CaptureTask:
    """Which captures to the apply task's topic, by whatever address of the same brokers; Fatal MR-4203."""
    for entry in now.store.tasks().values():
        document = entry.document if isinstance(entry, TaskEntry) else None
        if isinstance(document, CaptureTask) and document.output.is_same_topic(task.source):
            return document
    raise Fatal("MR-4203", f"no task captures to the topic {task.source.topic}")


def primary_position(document: SetDocument) -> GtidPosition:
    """What the primary has committed now.

    Members that can't be asked do not matter while exactly one primary answers; else the first refusal is raised,
    or Retryable MR-4204.
    """
    account = document.account
    login = Login(user=account.user, password=resolve_secret(account.password), tls=document.tls)
    positions: list[GtidPosition] = []
    errors: list[MillraceError] = []
    for member in document.members:
        try:
            with SourceConnection.connect(member, login) as connection:
                position = _position_of_primary(connection)
        except MillraceError as error:
            errors.append(error)
            continue
        if position is not None:
            positions.append(position)
    if len(positions) == 1:
        return positions[0]
    for refusal in errors:
        if isinstance(refusal, Fatal):
            raise refusal
    found = "no member is a primary" if not positions else f"{len(positions)} members are primaries"
    raise Retryable("MR-4204", "; ".join([f"set {document.name}: {found}", *map(str, errors)]))


def _position_of_primary(connection: SourceConnection) -> GtidPosition | None:
    """``None`` from a replica: it reads from somebody."""
    flavour = ask_identity(connection).flavour
    ask_role = "SHOW ALL SLAVES STATUS" if flavour is Flavour.MARIADB else "SHOW REPLICA STATUS"
    return None if connection.query(ask_role) else ask_position(connection, flavour)


def _asked_until(deadline_s: float, document: SetDocument) -> GtidPosition:
    while True:
        try:
            return primary_position(document)
        except Retryable:
            if time.monotonic() + ASK_AGAIN_S > deadline_s:
                raise
            time.sleep(ASK_AGAIN_S)


def _report(now: Control, name: str) -> TaskReport:
    cluster = read_cluster(now.session, now.tree)
    entry = cluster.tasks.get(name)
    if entry is None:
        raise Fatal("MR-4104", f"task {name} was deleted while it was waited for")
    return seen(name, entry, cluster)
