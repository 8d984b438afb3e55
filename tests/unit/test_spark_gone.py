"""The errors of a driver whose JVM was killed."""

import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from pickle import PicklingError
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

import pytest
from py4j.protocol import Py4JJavaError, Py4JNetworkError

from millrace.consumer.spark import session as driver
from millrace.consumer.spark.jvm import Jvm
from millrace.consumer.spark.session import Records, SparkDriver, TopicQuery
from millrace.errors import Retryable
from millrace.schemas.documents import Brokers, TopicAddress
from tests.kit.waiting import eventually

SHOP = TopicAddress(topic="shop", brokers=Brokers("k1:9092"))


@pytest.mark.parametrize(
    "failure", [Py4JNetworkError("Answer from Java side is empty"), ConnectionRefusedError()]
)
def test_query_without_a_jvm_is_retried(
    monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    """A new driver process has a JVM again; a blocked task would still wait for an operator."""

    def gone(*_: object, **__: object) -> None:
        raise failure

    monkeypatch.setattr(driver, "TopicQuery", gone)
    gone_driver = SparkDriver.__new__(SparkDriver)
    with pytest.raises(Retryable) as raised:
        gone_driver.query("t", SHOP, offset=0, process=lambda _: None)
    assert raised.value.code == "MR-5050"


class _Context:
    """A SparkContext whose call of this name raises the error."""

    def __init__(self, call: str, failure: Exception) -> None:
        self._call, self._failure = call, failure

    def __getattr__(self, name: str) -> Callable[..., "_Context"]:
        def called(*_: object) -> "_Context":
            if name == self._call:
                raise self._failure
            return self

        return called


_FAILED_CALLS = (
    ConnectionRefusedError(),
    OSError(28, "No space left on device"),
    PicklingError("Could not serialize the order"),
)
_FAILED_RESULTS = (
    UnboundLocalError("cannot access local variable 'sockfile'"),
    EOFError(),
    RuntimeError(),
)


@pytest.mark.parametrize(
    ("call", "failure"),
    [
        *(("parallelize", failure) for failure in _FAILED_CALLS),
        *(("collect", failure) for failure in (*_FAILED_CALLS, *_FAILED_RESULTS)),
    ],
    ids=lambda given: given if isinstance(given, str) else type(given).__name__,
)
def test_turn_without_a_jvm_is_retried(call: str, failure: Exception) -> None:
    """The order goes through a file, the outcome through a socket, whose code raises arbitrary errors."""
    session = SimpleNamespace(sparkContext=_Context(call, failure))
    records = Records(cast(SparkDriver, SimpleNamespace(session=session)), end=1)
    with pytest.raises(Retryable, match=type(failure).__name__) as raised:
        records.apply(cast(Any, None))
    assert raised.value.code == "MR-5050"


def test_error_of_a_dead_jvm_is_reported_without_its_text(tmp_path: Path) -> None:
    """The text is in the JVM: reading it would raise another error."""

    class GoneClient:
        def send_command(self, _: str) -> str:
            raise Py4JNetworkError("Answer from Java side is empty")

    failure = Py4JJavaError(
        "An error occurred", SimpleNamespace(_target_id="o1", _gateway_client=GoneClient())
    )

    class Query:
        def __getattr__(self, name: str) -> None:
            raise failure

    session = mock.MagicMock()
    writer = session.readStream.format().options().load().select().writeStream.foreachBatch()
    writer.option().start.return_value = Query()
    driver = cast(SparkDriver, SimpleNamespace(session=session, scratch=lambda _: tmp_path))
    query = TopicQuery(driver, "t", SHOP, offset=0, process=lambda _: None)
    with pytest.raises(Retryable, match="Py4JJavaError") as raised:
        query.wait(1.0)
    assert raised.value.code == "MR-5050"


@pytest.mark.parametrize("is_wanted", [False, True])
def test_unexpected_jvm_exit_is_reported_with_its_code(is_wanted: bool) -> None:
    """The driver's process must end with it; a requested end is not reported."""
    reported: list[Retryable] = []
    with subprocess.Popen(["sleep", "60"]) as process:
        jvm = Jvm(process)
        jvm.watch(reported.append)
        if is_wanted:
            jvm.release()
        process.kill()
    eventually(lambda: "jvm" not in [thread.name for thread in threading.enumerate()])
    assert jvm.is_lost is not is_wanted
    assert [error.code for error in reported] == ([] if is_wanted else ["MR-5053"])
