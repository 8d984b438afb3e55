"""The end of an apply run: what a micro-batch raised is heard, whatever becomes of the query's thread."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from consumer.apply import _Run
from consumer.batch import BatchApplier, Figures
from consumer.spark import FIRST_OFFSET, SparkDriver
from consumer.target.progress import Mark
from millrace.errors import Retryable
from schemas.documents import ApplyTask
from tests.starved import no_thread_left

LONG = "a cause of a cause | " * 10_000


@dataclass
class _SilentQuery:
    """A query whose thread has died without a word: it neither runs nor ends."""

    stopped: bool = False

    def wait(self, timeout_s: float) -> bool:
        threading.Event().wait(min(timeout_s, 0.01))
        return False

    def stop(self) -> None:
        self.stopped = True


@dataclass
class _Driver:
    made: _SilentQuery = field(default_factory=_SilentQuery)
    process: Callable[[object], None] = print

    def query(self, *_: object, process: Callable[[object], None], **__: object) -> _SilentQuery:
        self.process = process
        return self.made


@dataclass
class _FailingApplier:
    error: BaseException
    mark: Mark = field(default_factory=lambda: Mark(0, FIRST_OFFSET))
    figures: Figures = field(default_factory=Figures)

    def process(self, *_: object) -> None:
        raise self.error

    def close(self) -> None:
        """Nothing is open."""


@pytest.mark.parametrize("error", [Retryable("MR-5050", LONG), ZeroDivisionError(LONG)])
def test_a_failed_micro_batch_ends_the_run_with_its_own_error(error: Exception) -> None:
    """Spark is told in a few words; the run raises the cause, although the query never says that it ended."""
    driver = _Driver()
    run = _Run(
        cast(SparkDriver, driver),
        cast(ApplyTask, _Named()),
        cast(BatchApplier, _FailingApplier(error)),
        _nobody,
    )
    with pytest.raises(Retryable) as told:
        driver.process(object())
    assert len(str(told.value)) < 200
    assert told.value.__cause__ is None
    assert told.value.__context__ is None
    with pytest.raises(type(error)) as raised:
        run.until(threading.Event())
    assert raised.value is error
    run.end()
    assert driver.made.stopped


def test_a_run_ends_its_query_also_where_there_is_no_thread_to_cut_what_waits() -> None:
    """A query that went on would read beside the next run's, for nobody."""
    driver = _Driver()
    run = _Run(
        cast(SparkDriver, driver),
        cast(ApplyTask, _Named()),
        cast(BatchApplier, _FailingApplier(Retryable("MR-5050", "x"))),
        _nobody,
    )
    with no_thread_left():
        run.end()
    assert driver.made.stopped


@dataclass(frozen=True)
class _Named:
    name: str = "shop-to-warehouse"
    source: Any = None


def _nobody(_report: object) -> None:
    """Nobody listens."""
