"""Checks that a topic can carry a set and matches the task document, and warns if it can lose acknowledged
records.

| finding                                                                      | code    | what happens    |
|------------------------------------------------------------------------------|---------|-----------------|
| several partitions, cleanup.policy other than delete, records too small,     | MR-3009 | the task stops  |
| min.insync.replicas above the number of replicas                             |         |                 |
| another value than the document's ``topic_settings``                         | MR-3020 | the task stops  |
| one replica, or min.insync.replicas 1, and the document does not ask for it  | MR-3021 | a warning       |

Pure. Not done here: asking the broker, creating the topic (``drivers.kafka.topic``).
"""

from millrace.drivers.kafka.topic import TopicSettings
from millrace.errors import Fatal
from millrace.producer.publish.config import PublisherConfig
from millrace.wording import counted

# Below this, not even the columns of one table map fit; Kafka's own default is 1,048,588.
RECORD_BYTES_MIN = 512 * 1024


def check_topic(settings: TopicSettings, config: PublisherConfig) -> None:
    """Raise Fatal MR-3009 or MR-3020 if the topic does not fit."""
    replicas, in_sync = settings.replication_factor, settings.min_insync_replicas
    faults = {
        f"it has {counted(settings.partition_count, 'partition')} and must have 1": settings.partition_count
        != 1,
        f"its cleanup.policy is {settings.cleanup_policy} and must be delete": (
            settings.cleanup_policy != "delete"
        ),
        f"its max.message.bytes is {settings.record_bytes_max}, below {RECORD_BYTES_MIN}": (
            settings.record_bytes_max < RECORD_BYTES_MIN
        ),
        f"its min.insync.replicas is {in_sync} and it has {counted(replicas, 'replica')}": in_sync
        > replicas,
    }
    if found := [text for text, is_so in faults.items() if is_so]:
        raise Fatal("MR-3009", f"the topic {config.topic} is not usable: {'; '.join(found)}")
    options = config.options
    compared = (
        ("replication_factor", settings.replication_factor, options.replication_factor),
        ("min_insync_replicas", settings.min_insync_replicas, options.min_insync_replicas),
        ("retention_ms", settings.retention_ms, options.retention_ms),
    )
    if others := [
        f"{name} is {found}, but topic_settings require {wanted}"
        for name, found, wanted in compared
        if wanted not in (None, found)
    ]:
        raise Fatal("MR-3020", f"the topic {config.topic}: {'; '.join(others)}", topic=config.topic)


def durability_warning(settings: TopicSettings, config: PublisherConfig) -> Fatal | None:
    """MR-3021 to show, not to raise: the operator decides whether the topic is safe enough."""
    options = config.options
    weak = []
    if settings.replication_factor < 2 and options.replication_factor is None:
        weak.append("it has one replica")
    if settings.min_insync_replicas < 2 and options.min_insync_replicas is None:
        weak.append("its min.insync.replicas is 1")
    if not weak:
        return None
    return Fatal("MR-3021", f"the topic {config.topic}: {' and '.join(weak)}")
