"""Errors of a C extension that calls back into Python.

confluent_kafka raises librdkafka's fatal error by setting a ``KafkaException`` in the middle of serving callbacks. If
a line for the logger is served behind it, CPython finds an exception set where a call returned a value: it raises
SystemError, with what was set as its cause. The caller then knows neither the error nor what to do about it.
"""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def unhidden(kind: type[Exception]) -> Iterator[None]:
    """Raise the ``kind`` that a SystemError hides, however many callbacks came behind it; other errors pass."""
    try:
        yield
    except SystemError as hiding:
        cause = hiding.__cause__
        while isinstance(cause, SystemError):
            cause = cause.__cause__
        if not isinstance(cause, kind):
            raise
        # it becomes the context of what it hid: no circle
        hiding.__cause__ = hiding.__context__ = None
        raise cause from None
