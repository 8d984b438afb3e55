"""What says that the machine has not enough of something now: no defect, and nothing that an operator has to end.

Not done here: what the disk of the relay log says (``producer.relay.files``), which has codes of its own.
"""

import errno

from millrace.errors import Retryable

_LACKS = frozenset({errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOSPC})
_NO_THREAD = "can't start new thread"  # in CPython's words: it has no class of its own


def lack_of(error: BaseException | None) -> Retryable | None:
    """MR-4014 for memory, a thread, a descriptor or room that the system refused; None for everything else."""
    is_lack = (
        isinstance(error, MemoryError)
        or (isinstance(error, OSError) and error.errno in _LACKS)
        or (isinstance(error, RuntimeError) and str(error) == _NO_THREAD)
    )
    return Retryable("MR-4014", f"{type(error).__name__}: {str(error)[:300]}") if is_lack else None
