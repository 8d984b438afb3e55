"""One chunk of a comparison as an order to an executor, and how the executor executes it.

The sessions are opened for the order and closed after it, so nothing is left open between comparisons. All values here
are sent by Spark.
"""

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from millrace.consumer.compare.sides import Ends, Sides
from millrace.consumer.turn.order import Answer, guarded


@dataclass(frozen=True, slots=True)
class CompareOrder:
    """``work`` is called with sessions to ``ends`` and with ``given``."""

    ends: Ends
    work: Callable[[Sides, Any], Any]
    given: Any


def execute_compare(order: CompareOrder) -> Answer[Any]:
    """Work in an executor. An error of Millrace is returned as a value."""
    return guarded(order.ends.task, lambda: _work(order))


def _work(order: CompareOrder) -> Any:
    with closing(Sides(order.ends)) as sides:
        return order.work(sides, order.given)
