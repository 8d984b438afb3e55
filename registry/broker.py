"""Calls of the registry to Kafka. Errors become Retryable MR-6020, Fenced MR-6023, or a refusal (MR-70xx).

The log lines of the Kafka client are passed on at a limited rate.
"""

import logging
import time
from collections.abc import Callable
from typing import TypeVar

from drivers.kafka.access import ask_kafka, damage_fix
from drivers.kafka.refusals import refusal_of
from millrace.errors import Fenced, MillraceError, Retryable
from millrace.log import get_logger

T = TypeVar("T")

_LINE_EVERY_S = 10.0  # at most one line of the Kafka client is logged in this time; it repeats a line 20 times a second
_FIX = "Check --kafka and that the broker runs there, then start the registry again."
_FENCED = frozenset({"_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"})

log = get_logger("registry.kafka")


class _Driver(logging.Handler):
    """Passes librdkafka's log lines on at a limited rate."""

    def __init__(self) -> None:
        super().__init__()
        self._logged_at_s = float("-inf")

    def emit(self, record: logging.LogRecord) -> None:
        """Log the line, or drop it."""
        now_s = time.monotonic()
        if now_s - self._logged_at_s >= _LINE_EVERY_S:
            self._logged_at_s = now_s
            log.warning("message from the Kafka client", line=record.getMessage()[:500])


driver_log = logging.getLogger("librdkafka.registry")
driver_log.addHandler(_Driver())
driver_log.propagate = False


def call_kafka(what: str, ask: Callable[[], T]) -> T:
    """The result of ``ask``. An error or a timeout is raised as ours; ``what`` is the part that failed."""
    return ask_kafka(ask, explain=lambda name, detail: kafka_error(name, f"{what}: {detail}"))


def kafka_error(name: str, message: str) -> MillraceError:
    """The error for librdkafka's error ``name``."""
    if name in _FENCED:
        return Fenced("MR-6023", f"{message}: another registry has started on the same topic")
    return refusal_of(name, message) or Retryable("MR-6020", message, fix=damage_fix(name) or _FIX)
