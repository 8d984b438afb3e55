"""The errors of a driver whose JVM was killed."""

import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from pickle import PicklingError
from types import SimpleNamespace
from typing import Any, Self, cast
from unittest import mock

import pytest
from py4j.protocol import Py4JJavaError, Py4JNetworkError

from consumer.spark import driver
from consumer.spark.driver import Records, SparkDriver, TopicQuery
from consumer.spark.jvm import Jvm
from millrace.errors import Retryable
from schemas.documents import TopicAddress
from tests.kit.waiting import eventually

SHOP = TopicAddress(topic="shop", bootstrap="k1:9092")


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


def _driver(**methods: Callable[[object], object]) -> SparkDriver:
    """Return a driver that has only these methods."""
    return cast(SparkDriver, SimpleNamespace(**methods))


@pytest.mark.parametrize("call", ["serial", "plan", "lanes", "release"])
def test_work_without_a_jvm_is_retried(call: str) -> None:
    """The socket's own error, for a call without a peer, is covered too."""

    class Gone:
        def persist(self, _: object) -> Self:
            return self

        def __getattr__(self, name: str) -> None:
            raise ConnectionRefusedError

    gone = cast(Any, Gone())
    records = Records(gone, gone, first=0, end=1)
    if call == "release":  # records that a plan has kept
        with pytest.raises(Retryable):
            records.plan(gone, gone, gone)
    given = {"serial": 3, "plan": 3, "lanes": 3, "release": 0}[call]
    named = {"offsets": gone, "lanes": gone} if call == "lanes" else {}
    with pytest.raises(Retryable) as raised:
        getattr(records, call)(*[gone] * given, **named)
    assert raised.value.code == "MR-5050"


@pytest.mark.parametrize(
    "failure",
    [
        UnboundLocalError("cannot access local variable 'sockfile'"),
        EOFError(),
        OSError(28, "No space left on device"),
        PicklingError("Could not serialize broadcast"),
        RuntimeError(),
    ],
    ids=lambda failure: type(failure).__name__,
)
def test_result_that_pyspark_cannot_fetch_is_retried(failure: Exception) -> None:
    """PySpark's code around the socket raises arbitrary errors; the operator reads the cause."""

    class Frame:
        def __getattr__(self, name: str) -> Callable[..., "Frame"]:
            return lambda *_, **__: self

        def collect(self) -> None:
            raise failure

    records = Records(_driver(share=lambda _: None), cast(Any, Frame()), first=0, end=1)
    order = SimpleNamespace(mark=SimpleNamespace(next_offset=0), registry="")
    with pytest.raises(Retryable, match=type(failure).__name__) as raised:
        records.plan(cast(Any, order), cast(Any, None), cast(Any, None))
    assert raised.value.code == "MR-5050"


@pytest.mark.parametrize(
    "failure", [OSError(28, "No space left on device"), PicklingError("of a broadcast")]
)
def test_catalogue_that_cannot_be_sent_is_retried(failure: Exception) -> None:
    """PySpark writes it into a file first: memory may be full or its folder deleted."""

    def fails(*_: object) -> None:
        raise failure

    gone = cast(Any, None)
    with pytest.raises(Retryable, match=type(failure).__name__) as raised:
        Records(_driver(share=fails), gone, first=0, end=1).serial(gone, gone, gone)
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
