"""Target sessions of a run, one for each lane, registered on the target and kept between turns.

A session is inserted into ``millrace.session`` before any other statement, so that a later run can end it if it hangs.
Each turn of a task is a run: a kept session is registered for it again. A broken session is replaced. Safety does not
depend on any of this: every target transaction reads the fence.

A server compares passwords, and in part rights, only at the login. So a turn replaces a session that is older than
``SESSION_AGE_S``: an account that was dropped, or has lost a right, stops the task within this time and a turn.

One more session executes DDL, under the source's session variables.
"""

import time
from dataclasses import dataclass, replace

from consumer.target.progress import Owner, register_session
from consumer.target.table_state import server_of
from drivers.mysql.connection import Endpoint, MySqlSession, connect
from millrace.errors import Retryable

COORDINATOR = -1  # the session that moves the mark
STATEMENTS = -2  # the session that executes DDL
SESSION_AGE_S = 240.0  # with a turn, of 30 s at most under a constant load, below 5 minutes


@dataclass(frozen=True, slots=True)
class Kept:
    """A session, the owner that it is registered for, and when it was opened (monotonic)."""

    owner: Owner
    endpoint: Endpoint
    session: MySqlSession
    opened_s: float

    def is_usable(self, endpoint: Endpoint) -> bool:
        """Whether a turn may begin with it."""
        is_young = time.monotonic() - self.opened_s < SESSION_AGE_S
        return is_young and self.endpoint == endpoint and self.session.is_open


kept_sessions: dict[str, Kept] = {}  # by "task/lane", in this process


def open_session(endpoint: Endpoint, owner: Owner) -> MySqlSession:
    """A new session, registered for the next run."""
    session = connect(endpoint)
    _register(session, owner)
    return session


def session_for(
    endpoint: Endpoint, owner: Owner, lane: int = COORDINATOR, *, is_checked: bool = False
) -> MySqlSession:
    """This process's session for a lane; a new one if the server has ended it. Only between target transactions.

    Each lane is used by one thread at a time. The first use in a turn asks the server whether the session is still
    there, and replaces an old one; ``is_checked``: in any case.
    """
    place = f"{owner.task}/{lane}"
    kept = kept_sessions.get(place)
    if kept is not None:
        is_of_turn = kept.owner == owner and not is_checked
        if is_of_turn and kept.endpoint == endpoint and kept.session.is_open:
            return kept.session
        if kept.is_usable(endpoint) and _is_registered(kept.session, owner):
            kept_sessions[place] = replace(kept, owner=owner)
            return kept.session
        kept.session.close()
    session = open_session(endpoint, owner)
    kept_sessions[place] = Kept(owner, endpoint, session, time.monotonic())
    return session


def statement_session(endpoint: Endpoint, owner: Owner) -> MySqlSession:
    """The run's session for DDL statements."""
    return session_for(endpoint, owner, STATEMENTS)


def close_sessions(task: str) -> None:
    """Close this process's sessions of a task."""
    for place in [place for place in kept_sessions if place.rpartition("/")[0] == task]:
        kept_sessions.pop(place).session.close()


def _is_registered(session: MySqlSession, owner: Owner) -> bool:
    """Register a kept session for another turn; False if the server has ended it."""
    try:
        _register(session, owner)
    except Retryable:
        return False
    return True


def _register(session: MySqlSession, owner: Owner) -> None:
    register_session(session, owner.task, owner.run, server_of(session))
    session.commit()
