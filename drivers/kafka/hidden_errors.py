"""Finds the error that a SystemError of CPython hides.

confluent_kafka reports a fatal error of librdkafka by setting a ``KafkaException`` while it serves callbacks. If it
then serves a log callback, CPython finds an exception set although the call returned a value. CPython raises
SystemError, with the original as its cause, and the caller would know neither the error nor the fix.
"""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def reveal_hidden(kind: type[Exception]) -> Iterator[None]:
    """Raise the ``kind`` that a chain of SystemErrors hides; every other error passes unchanged."""
    try:
        yield
    except SystemError as hiding:
        cause = hiding.__cause__
        while isinstance(cause, SystemError):
            cause = cause.__cause__
        if not isinstance(cause, kind):
            raise
        # raising makes `hiding` the cause's context: cut the link back, or the chain is a circle
        hiding.__cause__ = hiding.__context__ = None
        raise cause from None
