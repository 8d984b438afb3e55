"""Makes Kafka topics that answer.

A broker lists a topic before it leads its partitions. Until then it refuses questions about them.
"""

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    NewTopic,
    OffsetSpec,
)

from tests.kit.waiting import answered, eventually

ANSWER_S = 60.0  # for an answer of a running broker
ASK_S = 15.0  # for one request that is repeated: a client sometimes waits for a broker that it has just lost


def make_topic(
    admin: AdminClient,
    name: str,
    *,
    partition_count: int = 1,
    config: dict[str, str] | None = None,
    replaces: bool = False,
) -> None:
    """Create a topic with one replica, and return when all its partitions have leaders; KafkaException if it exists.

    ``replaces``: the broker may not have removed a deleted topic of this name; waits for it.
    """
    topic = NewTopic(name, partition_count, 1, config=config or {})

    def is_made() -> bool:
        try:
            admin.create_topics([topic])[name].result(ANSWER_S)
        except KafkaException as refused:
            if not replaces or refused.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
            return False
        return True

    eventually(is_made, what=f"the former topic {name} is gone")
    for partition in range(partition_count):
        log_end(admin, name, partition)


def log_end(admin: AdminClient, name: str, partition: int = 0) -> int:
    """The end of a partition's log, open transactions included; asks until a broker leads the partition."""
    wanted = TopicPartition(name, partition)

    def ask() -> int:
        latest = {wanted: OffsetSpec.latest()}  # type: ignore[no-untyped-call]
        end: int = (
            admin.list_offsets(latest, request_timeout=ASK_S)[wanted].result(2 * ASK_S).offset
        )
        if end < 0:  # so the client answers after its own timeout
            raise TimeoutError(f"no end of {name}")
        return end

    return answered(ask, KafkaException, TimeoutError)
