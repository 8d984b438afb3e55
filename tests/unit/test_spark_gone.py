"""What a driver says whose JVM was killed."""

import subprocess
import threading
from typing import Any, cast

import pytest
from py4j.protocol import Py4JNetworkError

from consumer import spark
from consumer.jvm import Jvm
from consumer.spark import Records, SparkDriver
from millrace.errors import Retryable
from schemas.documents import TopicAddress
from tests.waiting import eventually


@pytest.mark.parametrize(
    "failure", [Py4JNetworkError("Answer from Java side is empty"), ConnectionRefusedError()]
)
def test_a_query_without_a_jvm_is_tried_again_and_blocks_nothing(
    monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    """A new process of the driver has a JVM again; a blocked task would wait for an operator even then."""

    def gone(*_: object, **__: object) -> None:
        raise failure

    monkeypatch.setattr(spark, "TopicQuery", gone)
    driver = SparkDriver.__new__(SparkDriver)
    address = TopicAddress(topic="shop", bootstrap="k1:9092")
    with pytest.raises(Retryable) as raised:
        driver.query("t", address, offset=0, process=lambda _: None)
    assert raised.value.code == "MR-5050"


@pytest.mark.parametrize("call", ["sole", "plan", "lanes", "release"])
def test_work_without_a_jvm_is_tried_again_and_blocks_nothing(call: str) -> None:
    """The socket's own word, too: a call that finds nobody there."""

    class Gone:
        def __getattr__(self, name: str) -> None:
            raise ConnectionRefusedError

    gone = cast(Any, Gone())
    records = Records(gone, gone, first=0, end=1)
    if call == "release":
        records._is_kept = True
    given = {"sole": 3, "plan": 3, "lanes": 3, "release": 0}[call]
    named = {"offsets": gone, "lanes": gone} if call == "lanes" else {}
    with pytest.raises(Retryable) as raised:
        getattr(records, call)(*[gone] * given, **named)
    assert raised.value.code == "MR-5050"


@pytest.mark.parametrize("is_wanted", [False, True])
def test_a_jvm_that_ends_unwanted_is_told_with_its_code(is_wanted: bool) -> None:
    """The driver's process has to end with it; where the end was wanted there is nothing to tell."""
    told: list[Retryable] = []
    with subprocess.Popen(["sleep", "60"]) as process:
        jvm = Jvm(process)
        jvm.watch(told.append)
        if is_wanted:
            jvm.release()
        process.kill()
    eventually(lambda: "jvm" not in [thread.name for thread in threading.enumerate()])
    assert jvm.is_lost is not is_wanted
    assert [error.code for error in told] == ([] if is_wanted else ["MR-5053"])
