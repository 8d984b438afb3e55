"""Waits for a condition with a deadline. Tests use it instead of sleeping; only this module decides how long.

The deadline is generous: a busy machine makes a test slow, never red. It ends a test whose condition never holds.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from millrace.deploy.servers import DatabaseServer

Answer = TypeVar("Answer")

PATIENCE_S = 300.0
POLL_S = 0.02
POLL_S_MAX = 0.1
INNODB_LOOK_S = 0.15  # INNODB_TRX shows cached contents when it is read again within 0.1 s


def eventually(
    claim: Callable[[], object],
    *,
    timeout_s: float = PATIENCE_S,
    every_s: float = POLL_S,
    what: str = "",
) -> None:
    """Return when ``claim()`` is true; AssertionError if it is not within ``timeout_s``.

    After a second it asks less often, down to every ``POLL_S_MAX``: questions take CPU time from the answer.
    """
    begun_s = time.monotonic()
    while not claim():
        waited_s = time.monotonic() - begun_s
        if waited_s > timeout_s:
            raise AssertionError(f"not within {timeout_s:.0f} s: {what or claim}")
        time.sleep(max(every_s, min(waited_s * every_s, POLL_S_MAX)))


def answered(call: Callable[[], Answer], *retried: type[Exception]) -> Answer:
    """Return the first result of ``call()`` that raises none of these errors; at the deadline, raise its error."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return call()
        except retried:
            if time.monotonic() > deadline:
                raise
            time.sleep(POLL_S)


def is_stopped(pid: int) -> bool:
    """Whether a process has received SIGSTOP and no SIGCONT since."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    except OSError:
        return False


def is_locked_out(server: DatabaseServer) -> bool:
    """Whether a session of the server waits for a row that another has locked; ask every ``INNODB_LOOK_S``."""
    ask = "SELECT 1 FROM information_schema.INNODB_TRX WHERE trx_state = 'LOCK WAIT'"
    return bool(server.execute(ask))


def until_locked_out(server: DatabaseServer, *, what: str) -> None:
    """Return when a session of the server waits for a row that another has locked."""
    eventually(lambda: is_locked_out(server), every_s=INNODB_LOOK_S, what=what)
