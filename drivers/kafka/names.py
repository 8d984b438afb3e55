"""The names that Millrace uses on a Kafka cluster beside topics: transactional IDs and consumer groups."""


def transactional_id(topic: str, partition: int = 0) -> str:
    """The one transactional ID of a partition, for any task, cluster or worker that writes it.

    Kafka fences by it. With the task's name in it, two tasks could write at the same time where no check finds the
    conflict in advance: in two clusters, or with two addresses of one broker.
    """
    return f"millrace/{topic}/{partition}"


def publish_ids(namespace: str, task: str) -> str:
    """The first part of the transactional IDs of a publish task. ``namespace``: of its cluster (`MILLRACE_CLUSTER`)."""
    return f"millrace/{namespace}/{task}/"


def publish_id(namespace: str, task: str, slot: int) -> str:
    """The one transactional ID of a slot of a publish task, for any worker that runs it."""
    return f"{publish_ids(namespace, task)}{slot}"


def check_id(topic: str) -> str:
    """The transactional ID of the dry run of `millrace check`, which fences no task."""
    return f"millrace/{topic}/check"


def registry_id(topic: str) -> str:
    """The transactional ID, and the consumer group, of the registry that stores its schemas in ``topic``."""
    return f"registry/{topic}"


REGISTRY_TOPIC = "_millrace_schemas"
# clients require a group; none is joined, no offset committed
PUBLISHER_GROUP = "millrace-publisher"
READER_GROUP = "millrace-topic"
