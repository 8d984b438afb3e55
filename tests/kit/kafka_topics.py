"""Makes Kafka topics that answer.

A broker lists a topic before it leads its partitions. Until then it refuses questions about them, and librdkafka keeps
its answer: a client that has seen a partition without a leader says "No leaders found" without asking again
(rd_kafka_topic_partition_list_get_leaders), until another request for metadata brings a newer one.
"""

from collections.abc import Callable
from typing import TypeVar

from confluent_kafka import OFFSET_END, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    NewTopic,
    OffsetSpec,
)

from tests.kit.waiting import answered, eventually

T = TypeVar("T")

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

    has_asked = False

    def is_made() -> bool:
        nonlocal has_asked
        try:
            admin.create_topics([topic], request_timeout=ASK_S)[name].result(2 * ASK_S)
        except (KafkaException, TimeoutError) as refused:
            code = refused.args[0].code() if isinstance(refused, KafkaException) else None
            if code == KafkaError.TOPIC_ALREADY_EXISTS and (has_asked or replaces):
                return has_asked  # by the request before, whose answer was lost
            if replaces or code not in (None, KafkaError._TIMED_OUT, KafkaError._TRANSPORT):
                raise
            has_asked = True
            return False
        return True

    eventually(is_made, what=f"topic {name} is made")
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

    return _of_leader(admin, name, ask)


def remove_records_before(admin: AdminClient, name: str, offset: int = OFFSET_END) -> int:
    """`kafka-delete-records` in partition 0 up to ``offset``, or all records; the first offset that is kept."""
    cut = TopicPartition(name, 0, offset)

    def ask() -> int:
        low: int = (
            admin.delete_records([cut], request_timeout=ASK_S)[cut].result(2 * ASK_S).low_watermark
        )
        return low

    return _of_leader(admin, name, ask)


def _of_leader(admin: AdminClient, name: str, ask: Callable[[], T]) -> T:
    """The first answer of a partition's leader; before it asks again, the client learns who leads."""
    is_first = True

    def ask_leader() -> T:
        nonlocal is_first
        if not is_first:
            admin.list_topics(name, timeout=ASK_S)
        is_first = False
        return ask()

    return answered(ask_leader, KafkaException, TimeoutError)
