"""``millrace unsafe follow-topic``: an apply task continues in a topic that capture created again.

Unlike the decisions about a capture task it is executed at once, on the target, in one target transaction
(``consumer.task.follow_topic``). The task must be stopped.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

from millrace.cli.control import Control, operator
from millrace.cli.unsafe.decision import stopped_entry
from millrace.consumer.target.progress import Owner, add_missing_columns
from millrace.consumer.target.sessions import open_session
from millrace.consumer.task.follow_topic import NewTopic, find_new_topic, follow_decided
from millrace.drivers.kafka.reader import TopicIdentity
from millrace.drivers.mysql.connection import MySqlSession
from millrace.drivers.mysql.primary import primary_member
from millrace.errors import Fatal
from millrace.schemas.documents import ApplyTask
from millrace.zk.tree.entries import TaskEntry


@dataclass(frozen=True, slots=True)
class Following:
    """A stopped apply task with a session on its target, and the topic that it can follow into."""

    entry: TaskEntry
    task: ApplyTask
    session: MySqlSession
    found: NewTopic


@contextmanager
def following(now: Control, name: str) -> Iterator[Following]:
    """Fatal MR-4182 if the task is not stopped, MR-5073 if there is no new topic."""
    entry = stopped_entry(now, name)
    task = entry.document
    if not isinstance(task, ApplyTask):
        raise Fatal("MR-5073", f"{name} is not an apply task")
    identity = TopicIdentity(task.source.brokers, task.source.topic)
    topic_id = identity.ask()
    endpoint = primary_member(now.store.set_entry(task.target).document)
    with open_session(endpoint, Owner(name, 0, 0)) as session:
        add_missing_columns(session)
        found = find_new_topic(session, name, source=task.source, topic_id=topic_id)
        session.rollback()
        if found is None:
            what = f"{task.source} is the topic that {name} has applied, or was not adopted"
            raise Fatal("MR-5073", what)
        yield Following(entry, task, session, found)


def consequences(of: Following) -> dict[str, object]:
    """The changes that the decision makes, for programs."""
    mark, found = of.found.mark, of.found.continuation
    return {
        "task": of.task.name,
        "decision": "follow-topic",
        "topic": of.task.source.topic,
        "now": {"gtid_set": mark.gtid_set, "seq": max(mark.seq, 0)},
        "then": {"gtid_set": found.after.gtid_set, "seq": found.after.seq},
        "missing": found.missing,
        "in_doubt": found.in_doubt,
    }


def text_of(plain: Mapping[str, object]) -> str:
    """The same as lines for people."""
    lines = [f"{plain['decision']} on the task {plain['task']}, topic {plain['topic']}"]
    for name in ("now", "then"):
        place = plain[name]
        assert isinstance(place, Mapping)
        lines.append(f"  {name:<9}seq {place['seq']} after {place['gtid_set'] or 'the beginning'}")
    lines.append(f"  {'missing':<9}{plain['missing'] or 'nothing'}")
    if plain["in_doubt"]:
        lines.append(
            f"  {'in doubt':<9}{plain['in_doubt']}: rows of a source transaction come again"
        )
    return "\n".join(lines)


def lost(plain: Mapping[str, object]) -> str:
    """The loss, in one sentence."""
    if plain["missing"]:
        return f"The task will not apply the changes of {plain['missing']}."
    return "The task applies the changes that come again in the new topic."


def decide(of: Following, *, reason: str) -> None:
    """Execute it. The record of it is in ``millrace.left_out`` on the target."""
    plain = consequences(of)
    lines = {
        "millrace": "follow-topic",
        "missing": plain["missing"] or "nothing",
        "in doubt": plain["in_doubt"] or "nothing",
        "reason": reason,
        "operator": operator(),
        "decided": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    text = "\n".join(f"-- {name}: {' '.join(str(value).split())}" for name, value in lines.items())
    follow_decided(of.session, of.task.name, of.found, text=text)
