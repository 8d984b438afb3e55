"""The registry's errors of Kafka: Retryable MR-3001 and MR-6020, Fenced MR-6023, Fatal MR-6022, or a refusal (MR-70xx).

The log lines of the Kafka client are passed on at a limited rate.
"""

import logging
import time

from millrace.drivers.kafka.access import Settings
from millrace.drivers.kafka.errors import Errors, Kind
from millrace.errors import Retryable
from millrace.log import get_logger

_LINE_EVERY_S = 10.0  # at most one line of the Kafka client is logged in this time; it repeats a line 20 times a second

log = get_logger("registry.kafka")

AWAY_FIX = (
    "Check the address in --kafka or MILLRACE_KAFKA, and that a broker runs there."
    " Then start the registry again."
)
ERRORS = Errors(
    code="MR-6022",
    codes={
        Kind.FENCED: "MR-6023",
        Kind.AWAY: "MR-3001",
        **dict.fromkeys(
            (Kind.SPOILED, Kind.TOPIC_MISSING, Kind.TOPIC_REPLACED, Kind.GROUP),
            "MR-6020",
        ),
    },
    # it is a member of a group (``ownership``), and joins again
    branches={Kind.GROUP: Retryable},
    away_fix=AWAY_FIX,
)


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


_driver_log = logging.getLogger("librdkafka.registry")
_driver_log.addHandler(_Driver())
_driver_log.propagate = False
CLIENT: Settings = {"client.id": "millrace-registry", "logger": _driver_log}
