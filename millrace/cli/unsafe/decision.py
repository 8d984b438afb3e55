"""Collects what an operator needs to know before a decision about a capture task, and prints it.

Guarantees: nothing is written. The task is stopped (paused or blocked, no owner), so the topic does not move.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from uuid import uuid4

from millrace.cli.control import Control, operator
from millrace.drivers.mysql.members import MemberFacts
from millrace.errors import Fatal, MillraceError
from millrace.producer.publish.config import publisher_config
from millrace.producer.publish.decision import TopicLook, look_at_topic
from millrace.producer.publish.kafka import KafkaDriver
from millrace.producer.source.choose.chooser import ask_flavour, ask_members
from millrace.producer.source.set_stream import resolve_login
from millrace.producer.task.capture import tail_hint
from millrace.schemas.documents import (
    ApplyTask,
    CaptureTask,
    PublishTask,
    Reader,
    SetDocument,
    address_of,
)
from millrace.schemas.gtid import Flavour, GtidPosition
from millrace.schemas.progress import Progress
from millrace.schemas.requests.decision import (
    REASON_CHARACTERS_MAX,
    Approval,
    Decision,
    DecisionKind,
)
from millrace.schemas.status import TaskReport, TaskState
from millrace.wording import counted
from millrace.zk.tree.entries import TaskEntry
from millrace.zk.view import read_cluster, status_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """A stopped capture task, its source and its topic."""

    entry: TaskEntry
    task: CaptureTask
    source: SetDocument
    flavour: Flavour
    look: TopicLook
    last_report: TaskReport | None

    @property
    def reported(self) -> Progress | None:
        hint = tail_hint(self.last_report, self.task.output.topic, flavour=self.flavour)
        return hint.progress if hint is not None else None

    @property
    def needless(self) -> str:
        """A note for a task that is only paused, whose topic can be read: it needs no decision; else ""."""
        report, look = self.last_report, self.look
        is_stopped_by_error = report is not None and bool(report.code)
        if not self.entry.paused_by or is_stopped_by_error:
            return ""
        if look.unreadable is not None or look.progress is None:
            return ""
        return (
            f"{self.task.name} is paused, and no error is known that stops it. `millrace task resume {self.task.name}`"
            " loses nothing. There is nothing to decide unless the task is blocked after that."
        )

    @property
    def progress(self) -> Progress:
        """The topic's; Fatal MR-4183 if it has none."""
        if self.look.unreadable is not None:
            raise Fatal("MR-4183", f"the end of the topic can't be read: {self.look.unreadable}")
        if self.look.progress is None:
            what = "has no record" if self.look.exists else "does not exist"
            raise Fatal("MR-4183", f"the topic {self.task.output.topic} {what}")
        return self.look.progress


def look_at(now: Control, name: str) -> Situation:
    """The task and everything a decision depends on. Fatal MR-4180, MR-4182, MR-4183."""
    entry = stopped_entry(now, name)
    task = entry.document
    if not isinstance(task, CaptureTask):
        raise Fatal("MR-4183", f"{name} is not a capture task")
    if (waiting := entry.desired.decision) is not None:
        approval = waiting.approval
        what = f"{waiting.kind} by {approval.operator} waits for the task {name} already"
        raise Fatal("MR-4180", what, reason=approval.reason)
    source = now.store.set_entry(task.set_name).document
    flavour = ask_flavour(source.members, resolve_login(source))
    config = publisher_config(task, flavour=flavour, epoch=0, worker="operator")
    return Situation(
        entry=entry,
        task=task,
        source=source,
        flavour=flavour,
        look=look_at_topic(KafkaDriver(config), config),
        last_report=now.store.last_report(task),
    )


def stopped_entry(now: Control, name: str) -> TaskEntry:
    """The task; Fatal MR-4182 unless it is paused or blocked and has no owner."""
    entry = now.store.task_entry(name)
    state = status_of(name, entry, read_cluster(now.session, now.tree)).state
    if state not in (TaskState.PAUSED, TaskState.BLOCKED):
        raise Fatal(
            "MR-4182",
            f"{name} is {state.value}: it loses nothing, and there is nothing to decide",
            task=name,
        )
    if now.session.get(now.tree.owner(name)) is not None:
        raise Fatal("MR-4182", f"a worker still owns {name}", task=name)
    return entry


def refusals(situation: Situation, wanted: GtidPosition) -> Mapping[str, str]:
    """By member, why it can't be read from ``wanted`` on; "" if it can."""
    facts = ask_members(situation.source.members, resolve_login(situation.source), wanted=wanted)
    return {str(fact.member): _refusal(fact) for fact in facts}


def _refusal(fact: MemberFacts) -> str:
    error: MillraceError | None = fact.error
    if error is None and fact.binlog is None:
        return "it writes no binlog"
    if error is None and fact.binlog is not None:
        error = fact.binlog.wanted_error
    return "" if error is None else f"{error.code} {error.message}"


def decision_on(
    situation: Situation, kind: DecisionKind, before: Progress, after: GtidPosition, *, reason: str
) -> Decision:
    """The decision of this operator, now."""
    words = " ".join(reason.split())[:REASON_CHARACTERS_MAX]
    return Decision(
        id=uuid4().hex,
        kind=kind,
        task=situation.task.name,
        before=before,
        after=after,
        approval=Approval(operator(), words, time.time_ns() // 1_000_000),
    )


def consequences(
    now: Control, situation: Situation, decision: Decision, kept: Mapping[str, str]
) -> dict[str, object]:
    """The changes that the decision makes, for programs. ``kept``: as ``refusals``, from the present progress on."""
    before, result = decision.before, decision.result
    readers = [
        entry.document
        for entry in now.store.tasks().values()
        if isinstance(entry, TaskEntry)
        and isinstance(entry.document, Reader)
        and address_of(entry.document).is_same_topic(situation.task.output)
    ]
    return {
        "task": decision.task,
        "decision": decision.kind.value,
        "topic": situation.task.output.topic,
        "now": _progress(before),
        "then": _progress(result),
        "missing": decision.missing,
        "members": {member: why or "still has everything" for member, why in kept.items()},
        "gap_seq": result.seq,
        "apply_tasks": [task.name for task in readers if isinstance(task, ApplyTask)],
        "publish_tasks": [task.name for task in readers if isinstance(task, PublishTask)],
    }


def _progress(progress: Progress) -> dict[str, object]:
    opened = progress.open
    return {
        "gtid_set": str(progress.gtid_set),
        "open": f"{counted(opened.rows, 'row')} of {opened.gtid}" if opened else "",
        "seq": progress.seq,
    }


def lost(decision: Decision) -> str:
    """The loss, in one sentence."""
    if decision.kind is DecisionKind.ADOPT_TOPIC:
        return (
            "Records that the topic has lost stay lost: what a reader has not read of them is missing there. Rows of a"
            " source transaction that was published in part come again."
        )
    opened = decision.before.open
    part = f" (of {opened.gtid} all but its first {counted(opened.rows, 'row')})" if opened else ""
    return f"The topic will never have the changes of {decision.missing}{part}."


def text_of(plain: Mapping[str, object], decision: Decision) -> str:
    """The same as lines for people."""
    lines = [f"{decision.kind} on the task {decision.task}, topic {plain['topic']}"]
    for name, progress in (("now", decision.before), ("then", decision.result)):
        opened = (
            f", {counted(progress.open.rows, 'row')} of {progress.open.gtid}"
            if progress.open
            else ""
        )
        lines.append(
            f"  {name:<9}seq {progress.seq} after {progress.gtid_set or 'the beginning'}{opened}"
        )
    lines.append(f"  {'missing':<9}{decision.missing or 'nothing more than the topic has lost'}")
    members = plain["members"]
    assert isinstance(members, Mapping)
    lines += [f"  {'member':<9}{member}: {why}" for member, why in members.items()]
    lines.append(
        f"  {'readers':<9}get a `ddl` record of the kind `gap` with seq {decision.result.seq}"
    )
    readers = plain["apply_tasks"]
    assert isinstance(readers, list)
    lines += [f"  {'apply':<9}{name} {_stop_of(name, decision)}" for name in readers]
    publishing = plain["publish_tasks"]
    assert isinstance(publishing, list)
    seq = decision.result.seq
    stops = f"stops at seq {seq} (MR-5204) until `accept_ddl` in its document has {seq}"
    lines += [f"  {'publish':<9}{name} {stops}" for name in publishing]
    return "\n".join(lines)


def _stop_of(apply_task: str, decision: Decision) -> str:
    """How an apply task of the topic stops at the gap, and the next steps of its operator."""
    seq = decision.result.seq
    steps = (
        f"repair its target, then `millrace ddl skip {apply_task} {seq}` and"
        f" `millrace task resume {apply_task}`"
    )
    if decision.kind is not DecisionKind.ADOPT_TOPIC:
        return f"stops at seq {seq} (MR-5042): {steps}"
    return (
        "continues by itself if the topic was deleted and its target has everything before the gap; else it stops with"
        f" MR-5070. In the same topic it stops after seq {seq - 1} with MR-5042: {steps}"
    )
