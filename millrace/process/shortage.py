"""Recognizes errors that report a shortage of memory, threads, file descriptors or disk space: they are retried.

Not done here: disk errors of the relay log, which have their own codes (``producer.relay.files``).
"""

import errno

from millrace.errors import Retryable

_SHORTAGES = frozenset({errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOSPC})
_NO_THREAD = "can't start new thread"  # CPython's text: there is no separate class


def shortage_of(error: BaseException | None) -> Retryable | None:
    """MR-4014 if ``error`` reports a shortage of a machine resource, else None."""
    is_shortage = (
        isinstance(error, MemoryError)
        or (isinstance(error, OSError) and error.errno in _SHORTAGES)
        or (isinstance(error, RuntimeError) and str(error) == _NO_THREAD)
    )
    if not is_shortage:
        return None
    return Retryable("MR-4014", f"{type(error).__name__}: {str(error)[:300]}")
