"""The sole lane of a micro-batch: a Spark task as far as a barrier, then the driver, with what the task brought along.

Which of them applies a record makes no difference to the target: the function is the same, and so are fence and mark.
"""

from collections.abc import Callable
from dataclasses import replace

from consumer.book import Ints
from consumer.executor import Order, Outcome, apply_sole
from consumer.held import Held
from consumer.window import LookUp
from consumer.workshop import Catalogue
from millrace.errors import MillraceError, Retryable

SparkTask = Callable[[Order, Catalogue, Ints], Outcome]


class SoleLane:
    """Calls go on at the mark that the last one left, moved over its barrier."""

    def __init__(self, spark_task: SparkTask, look_up_at: Callable[[str], LookUp]) -> None:
        self._spark_task = spark_task
        self._look_up_at = look_up_at
        self._held: Held | None = None

    def __call__(self, order: Order, catalogue: Catalogue, applied: Ints) -> Outcome:
        """Apply up to the next barrier; ``is_cut`` where what is held ends."""
        if self._held is None or not self._held.reaches(order.mark.next_offset):
            outcome = self._spark_task(order, catalogue, applied)
            self._held = outcome.held
            return outcome
        try:
            outcome = apply_sole(
                iter([self._held.batch]),
                order=order,
                catalogue=catalogue,
                applied=applied,
                look_up=self._look_up_at(order.registry),
            )
        except MillraceError:
            raise
        except Exception as exc:
            raise Retryable("MR-5050", f"{type(exc).__name__}: {exc}") from exc
        if outcome.barrier is not None or outcome.is_cut or self._held.is_all:
            return outcome
        self._held = None
        return replace(outcome, is_cut=True)
