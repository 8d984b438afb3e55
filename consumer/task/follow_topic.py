"""Lets a task follow into a topic that was created again: the mark moves over the new topic's beginning.

    by itself       at the start of a run, if nothing is missing and nothing is in doubt (``consumer.topic.adoption``)
    by an operator  ``millrace unsafe follow-topic``: the task must be stopped. The fence is raised in the same target
                    transaction, so a run that has already read the progress writes nothing

Both write the topic's gap record, and an operator's also the decision, into ``millrace.left_out``, in the target
transaction that moves the mark:

    killed before the commit    the target has neither: the next start, or the repeated command, decides again
    killed after it             the target has both: the repeated command reports that there is no new topic (MR-5073)
"""

from dataclasses import dataclass

from millrace.consumer.target.progress import DATABASE, Mark, Owner, move_mark, read_position
from millrace.consumer.topic.adoption import Beginning, Continuation, continuation, read_beginning
from millrace.consumer.write.resolve_conflict import lock_fence
from millrace.consumer.write.target_transaction import MarkClaim, move_over
from millrace.drivers.mysql.connection import MySqlSession
from millrace.errors import Fatal
from millrace.faults import fault_point, register
from millrace.log import get_logger
from millrace.schemas.documents import TopicAddress
from millrace.schemas.record.gap import GAP_KIND

BEFORE_COMMIT = register("follow.before_commit")
AFTER_COMMIT = register("follow.after_commit")

_log = get_logger("apply.follow")


@dataclass(frozen=True, slots=True)
class FollowClaim:
    """The mark moves into the new topic, and ``left_out`` names the reason."""

    claim: MarkClaim
    text: str

    def make(self, connection: MySqlSession, owner: Owner) -> None:
        """Retryable MR-5021 if the mark is elsewhere."""
        self.claim.make(connection, owner)
        store_reason(connection, owner.task, self.claim.after.seq, self.text)


def store_reason(connection: MySqlSession, task: str, seq: int, text: str) -> None:
    """The audit record. Does not commit."""
    connection.query(
        f"REPLACE INTO {DATABASE}.left_out VALUES (%s, %s, %s, %s)", (task, seq, GAP_KIND, text)
    )


def follow(
    session: MySqlSession, owner: Owner, mark: Mark, *, source: TopicAddress, topic_id: str
) -> Mark:
    """The mark in the topic with this id: moved, if the topic is another one than the mark's and was adopted.

    Fatal MR-5070 and MR-5071 if an operator must decide. Unchanged if the topic was not adopted.
    """
    if not mark.topic.id or not topic_id or mark.topic.id == topic_id:
        return mark
    found = find_new_topic(session, owner.task, source=source, topic_id=topic_id)
    if found is None:
        return mark
    if (refusal := found.continuation.refusal) is not None:
        raise refusal
    after = found.continuation.after
    claim = FollowClaim(MarkClaim(mark, after, {}), found.beginning.text)
    move_over(session, owner, claim, through=0)
    _log.info("follows into the new topic", task=owner.task, seq=after.seq, id=topic_id)
    return after


@dataclass(frozen=True, slots=True)
class NewTopic:
    """The mark of a task, an adopted topic that has another id, and how the task can continue in it."""

    mark: Mark
    beginning: Beginning
    continuation: Continuation


def find_new_topic(
    session: MySqlSession, task: str, *, source: TopicAddress, topic_id: str
) -> NewTopic | None:
    """From the progress on the target; None if the topic is the mark's or was not adopted. Fatal MR-5022.

    The transaction stays open.
    """
    mark, applied = read_position(session, task)
    if mark is None:
        raise Fatal("MR-5022", f"{task} has no progress on this target", task=task)
    if mark.topic.id in ("", topic_id) or not topic_id:
        return None
    beginning = read_beginning(source.brokers, source.topic)
    if beginning is None:
        return None
    found = continuation(mark, beginning, topic_id=topic_id, has_bitmaps=len(applied) > 0)
    return NewTopic(mark, beginning, found)


def follow_decided(session: MySqlSession, task: str, found: NewTopic, *, text: str) -> None:
    """Move the mark as an operator has decided. Retryable MR-5021 if the task has moved since ``found``.

    Rows above the mark that are applied come again: a bitmap counts the numbers of the old topic.
    """
    run = lock_fence(session, task)
    after = found.continuation.after
    move_mark(session, task, before=found.mark, after=after)
    session.query(f"DELETE FROM {DATABASE}.applied WHERE task = %s", (task,))
    session.query(f"UPDATE {DATABASE}.fence SET run = %s WHERE task = %s", (run + 1, task))
    store_reason(session, task, after.seq, f"{found.beginning.text}\n{text}")
    fault_point(BEFORE_COMMIT)
    session.commit()
    fault_point(AFTER_COMMIT)
