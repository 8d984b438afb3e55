"""Calls confluent_kafka and turns its errors into Millrace errors.

The caller gives ``explain(name, detail)``, which returns the error with the caller's code. ``name`` is librdkafka's
name of the error, such as ``_TRANSPORT``. A broker that accepts a request and never answers is ``_TIMED_OUT``.
Not done here: clients, retries.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias, TypeVar

from confluent_kafka import KafkaException

from drivers.kafka.hidden_errors import reveal_hidden
from millrace.errors import MillraceError

T = TypeVar("T")
Settings: TypeAlias = dict[
    str, Any
]  # librdkafka's: texts, numbers, callbacks; each client declares other types

SILENCE = "_TIMED_OUT"
_DAMAGED = "_BAD_MSG"  # a batch whose checksum is wrong; the client continues after it
_DAMAGE_FIX = (
    "The bytes are not those that were written: check the disk and the memory of the partition's leader. If another"
    " replica has them, make it the leader, for example with `kafka-reassign-partitions.sh`."
)


def damage_fix(name: str) -> str:
    """The fix for librdkafka's error ``name`` if it means damaged bytes; "" for every other error."""
    return _DAMAGE_FIX if name == _DAMAGED else ""


class KafkaAccess(Protocol):
    """Where clients connect, and how (``schemas.documents.brokers``)."""

    @property
    def bootstrap(self) -> str:
        """host:port[,host:port], for messages too."""

    def settings(self) -> Settings:
        """librdkafka's settings of a new client."""


@dataclass(frozen=True, slots=True)
class GivenAccess:
    """The access of a program that brings librdkafka's settings itself."""

    bootstrap: str
    client: Mapping[str, str] = field(default_factory=dict, repr=False)

    def settings(self) -> Settings:
        """All settings; no client creates a topic by asking for it."""
        return {
            "allow.auto.create.topics": False,
            **self.client,
            "bootstrap.servers": self.bootstrap,
        }


FATAL, LOST = "_FATAL", "the client lost the text of a fatal error"
_CLEARED = "without setting an exception"

# For clients whose own log lines are dropped: every failed call is reported anyway.
driver_log = logging.getLogger("librdkafka")
driver_log.addHandler(logging.NullHandler())
driver_log.propagate = False


def ask_kafka(ask: Callable[[], T], *, explain: Callable[[str, str], MillraceError]) -> T:
    """The result of ``ask``. Raises the error that ``explain`` returns for a driver error or a missing answer."""
    try:
        with reveal_hidden(KafkaException):
            return ask()
    except KafkaException as failure:
        reported = failure.args[0]
        raise explain(reported.name(), reported.str()) from failure
    except SystemError as lost:
        # a log callback after a fatal error has cleared the exception; nothing else in a call ends so
        if _CLEARED not in str(lost):
            raise
        raise explain(FATAL, LOST) from lost
    except TimeoutError as silence:  # raised by a future
        raise explain(SILENCE, "no broker answered") from silence
