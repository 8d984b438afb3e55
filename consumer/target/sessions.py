"""Target sessions of a run, one for each lane, registered on the target and kept between turns.

A session is inserted into ``millrace.session`` before any other statement, so that a later run can end it if it hangs.
Each turn of a task is a run: a kept session is registered for it again. A broken session is replaced. Safety does not
depend on any of this: every target transaction reads the fence.

A server compares passwords, and in part rights, only at the login. So a turn replaces a session that is older than
``SESSION_AGE_S``: an account that was dropped, or has lost a right, stops the task within this time and a turn.

One more session executes DDL, under the source's session variables.

``Sessions`` is a value of a turn. A Python worker of Spark keeps one for its next turn (``turn.resident``); the driver
has one for each spread turn.
"""

import time
from dataclasses import dataclass, field, replace
from weakref import WeakKeyDictionary

from millrace.consumer.target.progress import Owner, register_session
from millrace.consumer.target.table_state import server_of
from millrace.drivers.mysql.connection import Endpoint, MySqlSession, connect
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


@dataclass(frozen=True, slots=True)
class Leftovers:
    """Settings of earlier DDL statements in their session: names of variables, the database, default collations."""

    names: frozenset[str] = frozenset()
    database: str = ""
    collations: str | None = None


@dataclass(frozen=True, slots=True)
class Sessions:
    """The sessions of a task's run. ``kept``: by lane, with those of its earlier turns. ``leftovers``: of DDL."""

    endpoint: Endpoint
    owner: Owner
    kept: dict[int, Kept] = field(default_factory=dict)
    leftovers: WeakKeyDictionary[MySqlSession, Leftovers] = field(default_factory=WeakKeyDictionary)

    def of(self, owner: Owner, endpoint: Endpoint | None = None) -> "Sessions":
        """The same sessions for another run of the task, perhaps with another password."""
        return replace(self, owner=owner, endpoint=endpoint or self.endpoint)

    def for_lane(self, lane: int = COORDINATOR, *, is_checked: bool = False) -> MySqlSession:
        """The session of a lane; a new one if the server has ended it. Only between target transactions.

        Each lane is used by one thread at a time. The first use in a turn asks the server whether the session is still
        there, and replaces an old one; ``is_checked``: in any case.
        """
        kept = self.kept.get(lane)
        if kept is not None:
            is_of_turn = kept.owner == self.owner and not is_checked
            if is_of_turn and kept.endpoint == self.endpoint and kept.session.is_open:
                return kept.session
            if kept.is_usable(self.endpoint) and _is_registered(kept.session, self.owner):
                self.kept[lane] = replace(kept, owner=self.owner)
                return kept.session
            kept.session.close()
        session = open_session(self.endpoint, self.owner)
        self.kept[lane] = Kept(self.owner, self.endpoint, session, time.monotonic())
        return session

    def close(self) -> None:
        """Close them all."""
        while self.kept:
            self.kept.popitem()[1].session.close()


def open_session(endpoint: Endpoint, owner: Owner) -> MySqlSession:
    """A new session, registered for the next run."""
    session = connect(endpoint)
    _register(session, owner)
    return session


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
