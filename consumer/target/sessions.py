"""Target connections of a run. They are registered on the target and kept between Spark tasks and in the driver.

A session is inserted into ``millrace.session`` before any other statement, so that a later run can end it if it hangs.
An executor process runs one Spark task at a time, and the driver has one thread per run, so no connection is shared.
A broken connection is replaced; connections of earlier runs are closed. Safety does not depend on any of this: every
target transaction reads the fence.

The driver has a second session, which executes DDL under the source's session variables. ``cut_session`` leaves it
alone, because the server would continue its statement.
"""

from consumer.target.connection import Endpoint, TargetConnection, connect
from consumer.target.progress import DATABASE, Owner
from millrace.errors import Retryable

# task → its session in this process, and ``_of_statements(task)`` → its session for DDL
kept_sessions: dict[str, tuple[Owner, Endpoint, TargetConnection]] = {}


def open_session(endpoint: Endpoint, owner: Owner) -> TargetConnection:
    """A new session, registered for the next run."""
    session = connect(endpoint)
    session.query(
        f"REPLACE INTO {DATABASE}.session VALUES (%s, %s, %s)", (owner.task, session.id, owner.run)
    )
    session.commit()
    return session


def session_for(endpoint: Endpoint, owner: Owner) -> TargetConnection:
    """This process's session for a run; a new one if the server has ended it. Only between target transactions."""
    return _kept(owner.task, endpoint, owner)


def statement_session(endpoint: Endpoint, owner: Owner) -> TargetConnection:
    """The run's session for DDL statements; a new one if the server has ended it."""
    return _kept(_of_statements(owner.task), endpoint, owner)


def _of_statements(task: str) -> str:
    return f"{task}/statements"  # no name of a task has a slash


def _kept(place: str, endpoint: Endpoint, owner: Owner) -> TargetConnection:
    kept = kept_sessions.get(place)
    if kept is not None and kept[:2] == (owner, endpoint) and _answers(kept[2]):
        return kept[2]
    if kept is not None:
        kept[2].close()
    session = open_session(endpoint, owner)
    kept_sessions[place] = (owner, endpoint, session)
    return session


def close_session(owner: Owner) -> None:
    """Close this process's sessions of a run."""
    for place in (owner.task, _of_statements(owner.task)):
        kept = kept_sessions.get(place)
        if kept is not None and kept[0] == owner:
            kept_sessions.pop(place)
            kept[2].close()


def cut_session(owner: Owner) -> None:
    """From another thread: end a pending call of the run's session as a lost connection does."""
    kept = kept_sessions.get(owner.task)
    if kept is not None and kept[0] == owner:
        kept[2].cut()


def _answers(session: TargetConnection) -> bool:
    try:
        return session.is_open and bool(session.query("SELECT 1"))
    except Retryable:
        return False
