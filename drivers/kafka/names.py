"""The names that Millrace uses on a Kafka cluster beside topics: transactional IDs and consumer groups."""


def transactional_id(topic: str, partition: int = 0) -> str:
    """The one transactional ID of a partition, for any task, cluster or worker that writes it.

    Kafka fences by it. With the task's name in it, two tasks could write at the same time where no check finds the
    conflict in advance: in two clusters, or with two addresses of one broker.
    """
    return f"millrace/{topic}/{partition}"


def transactional_ids(topic: str) -> str:
    """The first part of the transactional IDs of all partitions of a topic, and of their dry run."""
    return f"millrace/{topic}/"


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
