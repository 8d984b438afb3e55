"""An operator's decision: its result or why it is refused, and whether a start must execute it.

Only ``look_at_topic`` asks a broker; nothing here writes.

The values are in ``schemas.requests.decision``.

    decision         accepted only if
    skip-gtid        the transaction is not delivered, and the primary has executed it. MariaDB: it is the next one of
                     its domain in the binlog, because the position counts everything up to it as done.
    reset-position   the GTID set has everything that is delivered, the primary has executed all of it, and a member can
                     be read from there
    adopt-topic      the topic is missing or has no record, and the progress is known

Both of the first count transactions as done that are not in the topic. A transaction that the source commits later must
never be among them: no reader would see that it is missing.

If a source transaction is published in part, the decision must count it as done: the gap record ends it.

The decision waits in ZooKeeper until its gap record is in the topic. Owners may die at any point in between:

    the topic's progress                    is                              and the start
    ``before`` of the decision              not executed yet                executes it with its fence
    ``result``, and its gap record is the   executed by an owner that died  continues
    last row or statement                   before it removed the decision
    any other                               made on another progress        Fatal MR-3022; nothing is written

An owner publishes nothing else before it has removed the decision. So the topic has the gap record exactly once, and
while the decision waits, no row follows the record.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from millrace.errors import Fatal
from millrace.producer.publish.codec import RecordCodec
from millrace.producer.publish.config import PublisherConfig
from millrace.producer.publish.driver import Driver
from millrace.producer.publish.tail import read_tail
from millrace.schemas.gtid import (
    AnyGtid,
    GtidPosition,
    History,
    MariadbGtid,
    has_same_sequence_from_other_server,
    missing,
)
from millrace.schemas.progress import Progress
from millrace.schemas.requests.decision import Decision, DecisionKind, is_forward
from millrace.wording import counted


@dataclass(frozen=True, slots=True)
class TopicLook:
    """A topic: ``progress`` is None if it has no committed record, or with ``unreadable``: MR-3011, MR-3012."""

    exists: bool
    progress: Progress | None = None
    unreadable: Fatal | None = None


def look_at_topic(driver: Driver, config: PublisherConfig) -> TopicLook:
    """The topic's state, as a start would read it. It is final only while no task writes the topic."""
    if driver.admin().settings() is None:
        return TopicLook(exists=False)
    partition = driver.partition()
    try:
        tail = read_tail(partition, partition.all_ends(), RecordCodec(config, {}))
    except Fatal as error:
        if error.code not in ("MR-3011", "MR-3012"):
            raise
        return TopicLook(exists=True, unreadable=error)
    finally:
        partition.close()
    return TopicLook(exists=True, progress=tail.progress if tail is not None else None)


def skip(
    progress: Progress, gtid: AnyGtid, *, history: History, following: AnyGtid | None
) -> GtidPosition:
    """The GTID set after ``gtid`` is skipped. Fatal MR-4184.

    ``following``: of MariaDB, the next transaction of the domain in the binlog. ``history``: the primary's.
    """
    opened = progress.open
    if opened is not None and opened.gtid != str(gtid):
        raise Fatal(
            "MR-4184",
            f"{counted(opened.rows, 'row')} of {opened.gtid} published: only it can be skipped now",
        )
    if opened is None and progress.gtid_set.is_empty:
        raise Fatal("MR-4184", "nothing is delivered yet: give reset-position the whole GTID set")
    if progress.gtid_set.covers(gtid):
        raise Fatal("MR-4184", f"{gtid} is delivered: the topic is after {progress.gtid_set}")
    if isinstance(gtid, MariadbGtid):
        if following != gtid:
            what = following or "nothing yet"
            raise Fatal("MR-4184", f"the next transaction of domain {gtid.domain} is {what}")
    elif not history.position.covers(gtid):
        raise Fatal("MR-4184", f"the primary has not executed {gtid}")
    return progress.gtid_set.advanced(gtid)


def reset(
    progress: Progress,
    wanted: GtidPosition,
    *,
    history: History,
    refusals: Mapping[str, str],
) -> GtidPosition:
    """``wanted``, if the task can continue there. Fatal MR-4185.

    ``refusals``: by member, why it can't be read from there; "" if it can. ``history``: the primary's.
    """
    if not is_forward(progress, wanted) or has_same_sequence_from_other_server(
        progress.gtid_set, wanted
    ):
        delivered = f"{progress.gtid_set or 'the beginning'}"
        if progress.open is not None:
            delivered += f" and {counted(progress.open.rows, 'row')} of {progress.open.gtid}"
        raise Fatal("MR-4185", f"{wanted} goes back: the topic has {delivered}")
    if wanted == progress.gtid_set:
        raise Fatal("MR-4185", f"the topic is at {wanted} already")
    if absent := missing(wanted, history.position, history):
        raise Fatal("MR-4185", f"the primary has not executed {absent}")
    if all(refusals.values()):
        raise Fatal(
            "MR-4185",
            "; ".join(f"{member}: {why}" for member, why in refusals.items()),
        )
    return wanted


def adopt(look: TopicLook, *, reported: Progress | None, given: Progress | None) -> Progress:
    """The progress with which a topic without records is adopted. Fatal MR-4186.

    ``reported``: of the task's status. ``given``: by the operator, used only if the status has none.
    """
    if look.unreadable is not None:
        raise Fatal("MR-4186", f"the topic has records: {look.unreadable}")
    if look.progress is not None:
        raise Fatal("MR-4186", f"the topic has records, up to seq {look.progress.seq}")
    if reported is not None and given not in (None, reported):
        raise Fatal(
            "MR-4186",
            f"the task's status reports another progress: seq {reported.seq} after {reported.gtid_set}",
        )
    progress = reported or given
    if progress is None:
        raise Fatal("MR-4186", "the task's status has no progress, and none is given")
    if progress.gtid_set.is_empty or not progress.seq:
        raise Fatal("MR-4186", "the task has published no whole source transaction")
    return progress


def adopted_progress(decision: Decision | None, *, reported: Progress | None) -> Progress | None:
    """The progress with which an operator adopts a topic without records; None if there is no such decision.

    It must be the one that the task's status reports, if there is one: only then is it what the operator has seen.
    """
    if decision is None or decision.kind is not DecisionKind.ADOPT_TOPIC:
        return None
    return decision.before if reported in (None, decision.before) else None


def must_execute(
    decision: Decision, progress: Progress, *, last_decision: Callable[[], str]
) -> bool:
    """Whether ``decision`` is still to be executed on a topic with ``progress``; Fatal MR-3022 if it does not fit.

    ``last_decision`` returns the ID of the decision whose gap record is the topic's last row or statement.
    """
    if progress == decision.before:
        return True
    if progress == decision.result and last_decision() == decision.id:
        return False
    raise Fatal(
        "MR-3022",
        f"{decision.kind} was decided at seq {decision.before.seq} after {decision.before.gtid_set or 'the beginning'},"
        f" and the topic is at seq {progress.seq} after {progress.gtid_set or 'the beginning'}",
        decision=decision.id,
        operator=decision.approval.operator,
    )
