"""Target sessions of a run, one for each lane, registered on the target and kept between turns.

A session is inserted into ``millrace.session`` before any other statement, so that a later run can end it if it hangs.
Each turn of a task is a run: a kept session is registered for it again. A broken session is replaced. Safety does not
depend on any of this: every target transaction reads the fence.

One more session executes DDL, under the source's session variables.
"""

from consumer.target.connection import Endpoint, TargetConnection, connect
from consumer.target.progress import DATABASE, Owner
from millrace.errors import Retryable

COORDINATOR = -1  # the session that moves the mark
STATEMENTS = -2  # the session that executes DDL

# "task/lane" → its session in this process
kept_sessions: dict[str, tuple[Owner, Endpoint, TargetConnection]] = {}


def open_session(endpoint: Endpoint, owner: Owner) -> TargetConnection:
    """A new session, registered for the next run."""
    session = connect(endpoint)
    _register(session, owner)
    return session


def session_for(
    endpoint: Endpoint, owner: Owner, lane: int = COORDINATOR, *, is_checked: bool = False
) -> TargetConnection:
    """This process's session for a lane; a new one if the server has ended it. Only between target transactions.

    Each lane is used by one thread at a time. The first use in a turn asks the server whether the session is still
    there; ``is_checked``: ask in any case.
    """
    place = f"{owner.task}/{lane}"
    kept = kept_sessions.get(place)
    if kept is not None and kept[1] == endpoint and kept[2].is_open:
        if kept[0] == owner and not is_checked:
            return kept[2]
        try:
            _register(kept[2], owner)
        except Retryable:
            kept[2].close()
        else:
            kept_sessions[place] = (owner, endpoint, kept[2])
            return kept[2]
    elif kept is not None:
        kept[2].close()
    session = open_session(endpoint, owner)
    kept_sessions[place] = (owner, endpoint, session)
    return session


def statement_session(endpoint: Endpoint, owner: Owner) -> TargetConnection:
    """The run's session for DDL statements."""
    return session_for(endpoint, owner, STATEMENTS)


def close_sessions(task: str) -> None:
    """Close this process's sessions of a task."""
    for place in [place for place in kept_sessions if place.rpartition("/")[0] == task]:
        kept_sessions.pop(place)[2].close()


def _register(session: TargetConnection, owner: Owner) -> None:
    session.query(
        f"REPLACE INTO {DATABASE}.session VALUES (%s, %s, %s)", (owner.task, session.id, owner.run)
    )
    session.commit()
