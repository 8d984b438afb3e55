"""The source transactions that a topic does not have, from its first control record."""

import pytest

from millrace.consumer.topic.beginning import topic_begin
from millrace.deploy.servers import KafkaServer
from millrace.errors import Retryable
from millrace.schemas.documents import Brokers, TopicAddress
from tests.kit.apply.tables import integer, table
from tests.kit.apply.topic import RecordStream, TopicWriter
from tests.kit.waiting import answered


def test_topic_without_records_is_waited_for(kafka: KafkaServer) -> None:
    """Then its first record shows where it begins."""
    stream = RecordStream()
    stream.last_number = 7
    writer = TopicWriter(kafka.bootstrap, stream)
    address = TopicAddress(topic=writer.topic, brokers=Brokers(writer.bootstrap))
    with pytest.raises(Retryable, match="has no record yet") as caught:
        topic_begin(address)
    assert caught.value.code == "MR-5096"
    stream.fence()
    stream.commit()
    writer.publish()
    begin = answered(
        lambda: topic_begin(address), Retryable
    )  # a broker ends a transaction a moment later
    assert str(begin).endswith(":1-7")


def test_topic_that_begins_inside_a_transaction_does_not_have_it(kafka: KafkaServer) -> None:
    """Retention has removed its first rows; a start must cover all of it."""
    stream = RecordStream()
    stream.last_number = 2
    made = table("begun", "t", integer("id"))
    writer = TopicWriter(kafka.bootstrap, stream)
    stream.insert(made, {"id": 1})
    stream.pause()
    stream.insert(made, {"id": 2})
    stream.commit()
    writer.publish()
    address = TopicAddress(topic=writer.topic, brokers=Brokers(writer.bootstrap))
    assert str(topic_begin(address)).endswith(":1-3")
