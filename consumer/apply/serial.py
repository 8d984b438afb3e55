"""The serial lane of a micro-batch: a Spark task applies up to a barrier, then the driver applies the read-ahead.

Both use the same function under the same fence and mark, so the target does not depend on which one applies a record.
"""

from collections.abc import Callable
from dataclasses import replace

from consumer.apply.executor import Order, Outcome, apply_serial
from consumer.apply.read_ahead import ReadAhead
from consumer.row_schemas import Ints
from consumer.sql.table_plans import Catalogue
from consumer.window import LookUp
from millrace.errors import MillraceError, Retryable

SparkTask = Callable[[Order, Catalogue, Ints], Outcome]


class SerialLane:
    """Each call begins at the mark that the previous call left, moved over its barrier."""

    def __init__(self, spark_task: SparkTask, look_up_at: Callable[[str], LookUp]) -> None:
        self._spark_task = spark_task
        self._look_up_at = look_up_at
        self._ahead: ReadAhead | None = None

    def __call__(self, order: Order, catalogue: Catalogue, applied: Ints) -> Outcome:
        """Apply up to the next barrier. ``is_cut``: the read-ahead ended before the micro-batch did."""
        if self._ahead is None or not self._ahead.reaches(order.mark.next_offset):
            outcome = self._spark_task(order, catalogue, applied)
            self._ahead = outcome.ahead
            return outcome
        try:
            outcome = apply_serial(
                iter([self._ahead.batch]),
                order=order,
                catalogue=catalogue,
                applied=applied,
                look_up=self._look_up_at(order.registry),
            )
        except MillraceError:
            raise
        except Exception as exc:
            raise Retryable("MR-5050", f"{type(exc).__name__}: {exc}") from exc
        if outcome.barrier is not None or outcome.is_cut or self._ahead.is_all:
            return outcome
        self._ahead = None
        return replace(outcome, is_cut=True)
