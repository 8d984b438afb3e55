"""Lost answers of a Spark job: PySpark treats a broken result socket as the end of the results."""

import io
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.serializers import AutoBatchedSerializer, CPickleSerializer

from millrace.consumer.spark.session import Records, SparkDriver
from millrace.consumer.tables.table_plans import Notes
from millrace.consumer.target.progress import Mark, MarkTopic, Owner
from millrace.consumer.turn.order import (
    Assignment,
    Counts,
    Failure,
    Outcome,
    Rules,
    TurnOrder,
    guarded,
)
from millrace.consumer.write.incidents import Tally
from millrace.drivers.mysql.connection import Endpoint
from millrace.errors import Fatal, Fenced, MillraceError, Retryable
from millrace.schemas.documents import Brokers, ConflictPolicy, TopicAddress

_ORDER = TurnOrder(
    owner=Owner("task", 1, 1),
    assignment=Assignment(
        endpoint=Endpoint("", 0, "", ""),
        source=TopicAddress(topic="shop", brokers=Brokers("k1:9092")),
        rules=Rules(policy=ConflictPolicy.STOP, lane_count=4),
    ),
)
_OUTCOME = Outcome(
    owner=Owner("task", 1, 2),
    mark=Mark(4, 4, topic=MarkTopic("shop")),
    counts=Counts(rows=4),
    notes=Notes(triggers=("shop.t.audit",)),
)

# PySpark's own format of an RDD's elements
_PENDING = Tally()  # of the executor
_RESULTS: Any = cast(Any, AutoBatchedSerializer)(CPickleSerializer())


class _Job:
    """A job whose results PySpark's own code reads from ``stream``."""

    def __init__(self, stream: bytes) -> None:
        self._stream = stream

    def parallelize(self, given: list[TurnOrder], count: int) -> "_Job":
        assert (given, count) == ([_ORDER], 1)
        return self

    def map(self, _: object) -> "_Job":
        return self

    def collect(self) -> list[Any]:
        return list(_RESULTS.load_stream(io.BytesIO(self._stream)))


def _stream(*work: Callable[[], Outcome]) -> bytes:
    """Return the bytes of Spark's result server after executors returned these answers."""
    sent = io.BytesIO()
    _RESULTS.dump_stream([guarded("t", one, _PENDING) for one in work], sent)
    return sent.getvalue()


def _applied(stream: bytes, tally: Tally | None = None) -> Outcome:
    session = SimpleNamespace(sparkContext=_Job(stream))
    driver = cast(SparkDriver, SimpleNamespace(session=session, tally=tally or Tally()))
    return Records(driver, end=4).apply(_ORDER)


def _done() -> Outcome:
    return _OUTCOME


def test_outcome_arrives_as_it_was_sent() -> None:
    """The driver continues with the owner and the mark of the executor."""
    assert _applied(_stream(_done)) == _OUTCOME


def test_result_socket_broken_at_any_byte_is_retried() -> None:
    """The turn may have applied rows and taken the fence: the next run reads both on the target."""
    stream = _stream(_done)
    for cut in range(len(stream)):
        with pytest.raises(Retryable) as caught:
            _applied(stream[:cut])
        assert caught.value.code == "MR-5050"
        assert caught.value.message


@pytest.mark.parametrize("count", [0, 2])
def test_one_order_has_one_answer(count: int) -> None:
    """No answer is not an empty turn, and of two answers only one can have held the fence."""
    with pytest.raises(Retryable, match=f"executors gave {count} answers to 1 orders") as caught:
        _applied(_stream(*[_done] * count))
    assert caught.value.code == "MR-5050"


@pytest.mark.parametrize("kind", [Retryable, Fenced, Fatal])
def test_error_of_an_executor_keeps_its_branch(kind: type[MillraceError]) -> None:
    """The branch decides what happens next, and the operator reads code, fix and context."""
    sent = kind("MR-5010", "no such row", fix="Find it.", table="shop.t", seq=7)

    def fails() -> Outcome:
        raise sent

    with pytest.raises(kind, match="no such row") as caught:
        _applied(_stream(fails))
    assert type(caught.value) is kind
    assert str(caught.value) == str(sent)
    assert (caught.value.fix, dict(caught.value.context)) == (sent.fix, dict(sent.context))


@pytest.mark.parametrize("fails", [False, True])
def test_incidents_arrive_once_with_the_next_answer(*, fails: bool) -> None:
    """Also those of a turn that failed: a conflict that blocks the task is its last one."""

    def meets() -> Outcome:
        _PENDING.retried("t", "1213")
        _PENDING.retried("t", "1213")
        _PENDING.conflicted("t", ["update-missing", "insert-exists", "update-missing"])
        if fails:
            raise Fatal("MR-5010", "x")
        return _OUTCOME

    tally = Tally()
    for _ in range(2):
        stream = _stream(meets)
        if fails:
            with pytest.raises(Fatal):
                _applied(stream, tally)
        else:
            _applied(stream, tally)
    _applied(_stream(_done), tally)
    assert tally.of("t").retries == {"1213": 4}
    assert tally.of("t").conflicts == {"update-missing": 4, "insert-exists": 2}
    assert tally.of("another").retries == {}


def test_unexpected_error_is_no_answer() -> None:
    """An error that is not Millrace's ends the Spark task, so a defect is not taken for an outcome."""

    def fails() -> Outcome:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        guarded("t", fails)
    failed = guarded("t", lambda: _raised(Fatal("MR-5010", "x")))
    assert isinstance(failed.result, Failure)


def _raised(error: MillraceError) -> Outcome:
    raise error
