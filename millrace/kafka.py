"""Calling confluent_kafka: what a call ends with becomes an error of ours.

A caller gives ``explain(name, detail)``, which makes the error of its own codes. ``name`` is librdkafka's, such as
``_TRANSPORT``; a broker that takes a request and never answers is ``_TIMED_OUT``.
Not done here: clients, settings, retries.
"""

import logging
from collections.abc import Callable
from typing import TypeAlias, TypeVar

from confluent_kafka import KafkaException

from millrace.errors import MillraceError
from millrace.hidden_errors import reveal_hidden

T = TypeVar("T")
Settings: TypeAlias = dict[str, str | int | float]  # librdkafka's

SILENCE = "_TIMED_OUT"

# For clients whose own log lines are dropped: every failed call is reported anyway.
driver_log = logging.getLogger("librdkafka")
driver_log.addHandler(logging.NullHandler())
driver_log.propagate = False


def ask_kafka(ask: Callable[[], T], *, explain: Callable[[str, str], MillraceError]) -> T:
    """The result of ``ask``; raises what ``explain`` makes of a driver error or of silence."""
    try:
        with reveal_hidden(KafkaException):
            return ask()
    except KafkaException as failure:
        reported = failure.args[0]
        raise explain(reported.name(), reported.str()) from failure
    except TimeoutError as silence:  # a future's own
        raise explain(SILENCE, "no broker answered") from silence
