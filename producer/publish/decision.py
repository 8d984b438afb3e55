"""The result of an operator's decision, or the reason why it is refused. Pure.

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
"""

from collections.abc import Mapping

from millrace.errors import Fatal
from millrace.wording import counted
from producer.publish.topic_progress import TopicLook
from schemas.gtid import (
    AnyGtid,
    GtidPosition,
    History,
    MariadbGtid,
    has_same_sequence_from_other_server,
    missing,
)
from schemas.progress import Progress
from schemas.requests.decision import is_forward


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
