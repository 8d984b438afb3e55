"""What a driver says whose JVM was killed."""

import pytest
from py4j.protocol import Py4JNetworkError

from consumer import spark
from consumer.spark import SparkDriver
from millrace.errors import Retryable
from schemas.documents import TopicAddress


def test_a_query_without_a_jvm_is_tried_again_and_blocks_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A new process of the driver has a JVM again; a blocked task would wait for an operator even then."""

    def gone(*_: object, **__: object) -> None:
        raise Py4JNetworkError("Answer from Java side is empty")

    monkeypatch.setattr(spark, "TopicQuery", gone)
    driver = SparkDriver.__new__(SparkDriver)
    address = TopicAddress(topic="shop", bootstrap="k1:9092")
    with pytest.raises(Retryable) as raised:
        driver.query("t", address, offset=0, process=lambda _: None)
    assert raised.value.code == "MR-5050"
