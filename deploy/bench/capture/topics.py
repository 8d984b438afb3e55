"""Topics of the peers: one partition, one copy, records of any size."""

from millrace.drivers.kafka.names import transactional_id
from millrace.producer.publish.config import PublisherConfig
from millrace.producer.publish.kafka import KafkaDriver
from millrace.schemas.documents import Brokers, TopicOptions
from millrace.schemas.gtid import Flavour

RECORD_BYTES_MAX = 64 << 20


def topic_driver(bootstrap: str, topic: str) -> KafkaDriver:
    """The clients of a topic with the settings of capture's own."""
    config = PublisherConfig(
        brokers=Brokers(bootstrap),
        topic=topic,
        transactional_id=transactional_id(topic),
        epoch=1,
        worker="bench",
        set="bench",
        flavour=Flavour.MYSQL,
        options=TopicOptions(replication_factor=1, min_insync_replicas=1),
    )
    return KafkaDriver(config)


def create_topic(bootstrap: str, topic: str) -> KafkaDriver:
    """Create the topic; returns its clients."""
    driver = topic_driver(bootstrap, topic)
    driver.admin().create(RECORD_BYTES_MAX)
    return driver
