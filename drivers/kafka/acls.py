"""The least rights on Kafka that each part of Millrace needs, as values and as ``kafka-acls.sh`` commands.

Kafka grants Describe with Read and Write, so it is not listed beside them. A test removes each right.
"""

import shlex
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby

from millrace.codes import CATALOGUE
from millrace.drivers.kafka.names import (
    PUBLISHER_GROUP,
    READER_GROUP,
    check_id,
    registry_id,
    transactional_id,
    transactional_ids,
)
from millrace.drivers.kafka.wire import find_refusal
from millrace.errors import MillraceError
from millrace.schemas.documents import Brokers, CaptureTask, PublishTask, TaskDocument
from millrace.schemas.documents.subscriber import Subscriber, topic_ranges

UNKNOWN_PRINCIPAL = "User:NAME"


class Resource(StrEnum):
    """A kind of resource, as the option of ``kafka-acls.sh``."""

    TOPIC = "--topic"
    TRANSACTIONAL_ID = "--transactional-id"
    GROUP = "--group"


@dataclass(frozen=True, slots=True)
class Acl:
    """One operation on one resource; ``operation`` in the words of ``kafka-acls.sh``.

    ``is_prefix``: on every resource whose name begins with ``name``.
    """

    resource: Resource
    name: str
    operation: str
    is_prefix: bool = False


def capture_acls(topic: str) -> tuple[Acl, ...]:
    """A capture task needs these. Create is used once, if Millrace creates the topic."""
    operations = ("Create", "DescribeConfigs", "Read", "Write")
    return (
        *(Acl(Resource.TOPIC, topic, operation) for operation in operations),
        Acl(Resource.TRANSACTIONAL_ID, transactional_id(topic), "Write"),
        Acl(Resource.GROUP, PUBLISHER_GROUP, "Describe"),
    )


def check_acls(topic: str) -> tuple[Acl, ...]:
    """`millrace check` needs these for a capture task: those of the task, and a separate ID for a dry run."""
    return (*capture_acls(topic), Acl(Resource.TRANSACTIONAL_ID, check_id(topic), "Write"))


def apply_acls(topic: str) -> tuple[Acl, ...]:
    """An apply task needs these, with Spark's own reader."""
    return subscriber_acls(topic)


def subscriber_acls(topic: str) -> tuple[Acl, ...]:
    """A program that only reads the topic needs these: `millrace topic`, ``millrace.client``."""
    return (
        Acl(Resource.TOPIC, topic, "Read"),
        Acl(Resource.GROUP, READER_GROUP, "Describe"),
    )


def group_acls(subscriber: Subscriber, task: TaskDocument) -> tuple[Acl, ...]:
    """A subscriber that reads topics of this task in a consumer group needs these. Fatal MR-4114."""
    ranges = topic_ranges(subscriber, task)
    return (
        *(Acl(Resource.TOPIC, one.name, "Read", one.is_prefix) for one in ranges),
        Acl(Resource.GROUP, subscriber.group, "Read"),
    )


def watch_acls(subscriber: Subscriber) -> tuple[Acl, ...]:
    """A task needs these to measure how far a subscriber is. It runs without them, too."""
    return (Acl(Resource.GROUP, subscriber.group, "Describe"),)


def publish_acls(task: PublishTask) -> tuple[Acl, ...]:
    """A publish task needs these: on topics that begin with the pattern's fixed part, and without one on all topics.

    Alter is used once, if `partitions` is raised.
    """
    operations = ("Alter", "Create", "DescribeConfigs", "Read", "Write")
    prefix = task.topics.prefix(task.name)
    is_one = prefix == task.topics.pattern_of(task.name)
    topics = [(prefix or "*", bool(prefix) and not is_one), (task.progress_topic, False)]
    topics += ((name, False) for name in task.other_topics.values())
    return (
        *subscriber_acls(task.source.topic),
        *(
            Acl(Resource.TOPIC, name, operation, is_prefix)
            for name, is_prefix in topics
            for operation in operations
        ),
        Acl(
            Resource.TRANSACTIONAL_ID,
            transactional_ids(task.progress_topic),
            "Write",
            is_prefix=True,
        ),
        Acl(Resource.GROUP, PUBLISHER_GROUP, "Describe"),
    )


def registry_acls(topic: str) -> tuple[Acl, ...]:
    """The built-in registry needs these. It stores its schemas in ``topic``."""
    name = registry_id(topic)
    operations = ("Create", "DescribeConfigs", "Read", "Write")
    return (
        *(Acl(Resource.TOPIC, topic, operation) for operation in operations),
        Acl(Resource.TRANSACTIONAL_ID, name, "Write"),
        Acl(Resource.GROUP, name, "Read"),
    )


def task_acls(task: TaskDocument) -> tuple[Acl, ...]:
    """A task of any kind needs these."""
    if isinstance(task, CaptureTask):
        return capture_acls(task.output.topic)
    if isinstance(task, PublishTask):
        return publish_acls(task)
    return apply_acls(task.source.topic)


def principal_of(brokers: Brokers) -> str:
    """Kafka's name of the user that logs in; ``UNKNOWN_PRINCIPAL`` if the brokers derive it from something else."""
    is_named = brokers.sasl is not None and brokers.sasl.user
    return f"User:{brokers.sasl.user}" if brokers.sasl and is_named else UNKNOWN_PRINCIPAL


def commands(
    acls: Iterable[Acl], *, principal: str, bootstrap: str, is_removal: bool = False
) -> list[str]:
    """One command for each resource. A command that is repeated changes nothing.

    ``is_removal``: the commands that take these rights away, without a question.
    """
    action = ["--remove", "--force"] if is_removal else ["--add"]
    lines = []
    of_one = groupby(acls, lambda acl: (acl.resource, acl.name, acl.is_prefix))
    for (resource, name, is_prefix), rights in of_one:
        operations = [part for acl in rights for part in ("--operation", acl.operation)]
        words = ["kafka-acls.sh", "--bootstrap-server", bootstrap, *action]
        words += ["--allow-principal", principal, *operations, resource.value, name]
        words += ["--resource-pattern-type", "prefixed"] if is_prefix else []
        lines.append(shlex.join(words))
    return lines


_RESOURCES = {
    "MR-7010": Resource.TOPIC,
    "MR-7011": Resource.TRANSACTIONAL_ID,
    "MR-7013": Resource.GROUP,
}
# Codes of clients and Spark that a refused connection can hide behind.
_UNCLEAR = frozenset(
    f"MR-{number}"
    for number in (3001, 3002, 3005, 3006, 3016, 3501, 5050, 5052, 6020, 7001, 7002, 7006)
)


@dataclass(frozen=True, slots=True)
class Grants:
    """The rights of one user on one cluster, for the fix of an error."""

    brokers: Brokers
    acls: Sequence[Acl]

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Errors leave the block with the command that grants the missing right, or the cause that the brokers give.

        Clients report most refused connections as silence, so the brokers are asked (``drivers.kafka.wire``).
        """
        try:
            yield
        except MillraceError as error:
            if command := self.fix(error.code):
                fix = f"{command} (In all: {CATALOGUE[error.code].fix})"
                raise type(error)(error.code, error.message, fix=fix, **error.context) from error
            if error.code in _UNCLEAR:
                writes = any(acl.resource is Resource.TRANSACTIONAL_ID for acl in self.acls)
                refusal = find_refusal(self.brokers, needs_transactions=writes)
                if refusal is not None:
                    raise refusal from error
            raise

    def fix(self, code: str) -> str:
        """The command that grants what the error ``code`` misses; "" for another error."""
        missing = [acl for acl in self.acls if acl.resource is _RESOURCES.get(code)]
        principal = principal_of(self.brokers)
        return "; ".join(commands(missing, principal=principal, bootstrap=self.brokers.bootstrap))
