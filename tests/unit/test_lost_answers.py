"""Lost answers of Spark tasks: PySpark treats a broken result socket as the end of the results."""

import io
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

import numpy as np
import pytest
from pyspark.serializers import BatchedSerializer, CPickleSerializer

from consumer.apply import batch
from consumer.apply.batch import Assignment, BatchApplier
from consumer.apply.executor import Order, Outcome, Plan, guarded
from consumer.row_schemas import Ints, RowSchemas
from consumer.rows import KeyEntries
from consumer.spark import driver as spark_driver
from consumer.spark.driver import Records, SparkDriver
from consumer.sql.table_plans import Catalogue
from consumer.target.connection import Endpoint
from consumer.target.inventory import Inventory
from consumer.target.progress import Mark, Owner, SavedProgress
from millrace.errors import Fatal, Retryable
from schemas.documents import ConflictPolicy

_NOTHING: Ints = np.empty(0, np.int64)
_LANES: Ints = np.array([0, 1, 2, 2])
_OWNER = Owner("task", 1, 1)
_TARGET = Endpoint("", 0, "", "")
_ORDER = Order(_OWNER, _TARGET, ConflictPolicy.STOP, Mark(0, 0), 1)
_PLAN = Plan(
    Outcome(Mark(4, 4)),
    np.arange(4),
    np.ones(4, np.int64),
    KeyEntries(np.arange(4), np.arange(4, dtype=np.uint64), np.full(4, 1, np.uint8)),
)


# PySpark's own format: one row per batch, with the first bytes that its JVM sends
_ROWS: Any = cast(Any, BatchedSerializer)(CPickleSerializer(), 1)


class _Frame:
    """A DataFrame whose collected rows PySpark's own code reads from ``stream``."""

    def __init__(self, stream: bytes) -> None:
        self._stream = stream

    def __getattr__(self, _: str) -> Callable[..., "_Frame"]:
        return lambda *_, **__: self

    def collect(self) -> list[Any]:
        return list(_ROWS.load_stream(io.BytesIO(self._stream)))


def _stream(*work: Callable[[], Outcome | Plan]) -> bytes:
    """Return the bytes of Spark's result server after Spark tasks returned these answers."""
    sent = io.BytesIO()
    _ROWS.dump_stream([(guarded(one),) for one in work], sent)
    return sent.getvalue()


def _lane(number: int) -> Callable[[], Outcome]:
    return lambda: Outcome(lane=number, rows=1)


def _asked(call: str, stream: bytes) -> list[Outcome]:
    frame = cast(Any, _Frame(stream))
    driver = cast(SparkDriver, SimpleNamespace(share=lambda _: None))
    records = Records(driver, frame, first=0, end=4)
    given = (_ORDER, Catalogue("none"), _NOTHING)
    with pytest.MonkeyPatch.context() as patch:  # replaces objects that need a JVM
        patch.setattr(spark_driver, "F", mock.MagicMock())
        if call == "lanes":
            return records.lanes(*given, offsets=np.arange(4), lanes=_LANES)
        done = getattr(records, call)(*given)
    return [done.outcome if isinstance(done, Plan) else done]


@pytest.mark.parametrize(
    ("call", "stream", "count"),
    [
        ("serial", _stream(lambda: Outcome(Mark(4, 4), rows=4)), 1),
        ("plan", _stream(lambda: _PLAN), 1),
        ("lanes", _stream(_lane(0), _lane(1), _lane(2)), 3),
    ],
    ids=["serial", "plan", "lanes"],
)
def test_result_socket_broken_at_any_byte_is_retried(call: str, stream: bytes, count: int) -> None:
    """A lost answer may be an error: the mark would pass rows that no lane applied."""
    assert len(_asked(call, stream)) == count
    for cut in range(len(stream)):
        with pytest.raises(Retryable) as caught:
            _asked(call, stream[:cut])
        assert caught.value.code == "MR-5050"
        assert caught.value.message


@pytest.mark.parametrize("lanes", [(0, 1), (0, 2), (0, 1, 1), (0, 1, 3), (0, 1, 2, 2)])
def test_each_lane_answers_once(lanes: tuple[int, ...]) -> None:
    """The number of answers does not show which lanes sent them."""
    with pytest.raises(Retryable, match="of 3 lanes") as caught:
        _asked("lanes", _stream(*map(_lane, lanes)))
    assert caught.value.code == "MR-5050"


def test_lane_error_is_raised_when_other_answers_are_lost() -> None:
    """A blocking error blocks the task now, not after a retry."""

    def fails() -> Outcome:
        raise Fatal("MR-5010", "no such row")

    with pytest.raises(Fatal, match="no such row"):
        _asked("lanes", _stream(_lane(0), fails))


@pytest.mark.parametrize("rows", [(1, 1), (1, 1, 1), ()])
def test_mark_stays_if_lanes_applied_less_than_planned(rows: tuple[int, ...]) -> None:
    """An answer may be lost, or records on their way to a lane."""
    assert _moves(1, 1, 2) == [Mark(4, 4)]
    with pytest.raises(Retryable, match="of 4 planned rows") as caught:
        _moves(*rows)
    assert caught.value.code == "MR-5050"


def _moves(*rows: int) -> list[Mark]:
    """Return the mark's moves if the lanes report these numbers of applied rows."""
    moved: list[Mark] = []
    records = SimpleNamespace(
        span=1 << 20,
        plan=lambda *_: _PLAN,
        lanes=lambda *_, **__: [Outcome(lane=lane, rows=count) for lane, count in enumerate(rows)],
        release=lambda: None,
    )
    given = Assignment(_OWNER, _TARGET, ConflictPolicy.STOP, 3)
    saved = SavedProgress(Mark(0, 0), _NOTHING, RowSchemas({}))
    applier = BatchApplier.at(given, saved, Inventory(), Mark(0, 0))
    with pytest.MonkeyPatch.context() as patch:
        for name in ("check_fence", "save_schemas", "delete_applied"):
            patch.setattr(batch, name, lambda *_, **__: None)
        patch.setattr(batch, "move_mark", lambda *_, after, **__: moved.append(after))
        session = SimpleNamespace(query=lambda _: [], rollback=lambda: None, commit=lambda: None)
        patch.setattr(batch, "session_for", lambda *_: session)
        applier.process(records, lambda _: None)
    return moved
