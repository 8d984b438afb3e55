"""Whether the named subscribers of topics read in time. Apart: one measurement is the source of all findings."""

import time
from collections.abc import Iterator, Sequence

from millrace.checks.requirement import Requirement, Subject
from millrace.schemas.documents import TaskDocument
from millrace.schemas.documents.subscriber import Subscriber
from millrace.schemas.stages import GroupState, SubscriberStage
from millrace.wording import counted


def check_subscribers(
    subject: Subject, task: TaskDocument, subscribers: Sequence[Subscriber], pause_s: float
) -> Iterator[Requirement]:
    """MR-4190 and MR-4191. Asks the task's brokers now."""
    from millrace.drivers.kafka.subscribers import SubscriberMeter

    now_ms = time.time_ns() // 1_000_000
    for stage in SubscriberMeter(task).measure(subscribers):
        yield judge_subscriber(subject, stage, now_ms=now_ms, pause_s=pause_s)


def judge_subscriber(
    subject: Subject, stage: SubscriberStage, *, now_ms: int, pause_s: float
) -> Requirement:
    """A group that the account may not see is no finding: to see it is no right that a task needs."""
    if stage.state is GroupState.UNKNOWN:
        return subject.ok(f"{stage.name} reads", f"unknown: {stage.why}")
    if stage.state in (GroupState.MISSING, GroupState.NEVER_READ):
        what = f"the consumer group of {stage.name} reads"
        found = f"{stage.group}: {stage.state.value}"
        return subject.warn("MR-4191", what, found=found, wanted="committed offsets")
    what, wanted = (
        f"records that {stage.name} has not read are kept",
        f"at least {pause_s / 3600:g} h (--pause-h)",
    )
    if stage.lost:
        found = f"{counted(stage.lost, 'record')} removed"
        return subject.warn("MR-4190", what, found=found, wanted=wanted)
    left_s = stage.time_to_loss_s(now_ms)
    if left_s is None:
        return subject.ok(what, f"unknown: {stage.why}" if stage.why else "forever")
    left = f"for {left_s / 3600:.1f} h more"
    is_late = bool(stage.lag) or stage.state is not GroupState.ACTIVE
    if is_late and left_s < pause_s:
        return subject.warn("MR-4190", what, found=left, wanted=wanted)
    return subject.ok(what, left)
