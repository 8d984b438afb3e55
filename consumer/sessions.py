"""Target connections of a run: registered on the target, and kept between Spark tasks, and by the driver.

A session is written into ``millrace.session`` before it does anything, so that a later run can end it where it
hangs. An executor's process runs one Spark task at a time, a driver's one thread a task's run: a kept connection is
never shared. One that broke is made anew; those of earlier runs are closed. Safety does not rest on any of this: the
fence is read in every target transaction.
"""

from consumer.target.connection import Endpoint, TargetConnection, connect
from consumer.target.progress import DATABASE, Owner
from millrace.errors import Retryable

# task → its session in this process
kept_sessions: dict[str, tuple[Owner, Endpoint, TargetConnection]] = {}


def open_session(endpoint: Endpoint, owner: Owner) -> TargetConnection:
    """A new session that the next run knows of."""
    session = connect(endpoint)
    session.query(
        f"REPLACE INTO {DATABASE}.session VALUES (%s, %s, %s)", (owner.task, session.id, owner.run)
    )
    session.commit()
    return session


def session_for(endpoint: Endpoint, owner: Owner) -> TargetConnection:
    """This process's session for a run; a new one where the server has ended it. Between target transactions only."""
    kept = kept_sessions.get(owner.task)
    if kept is not None and kept[:2] == (owner, endpoint) and _answers(kept[2]):
        return kept[2]
    if kept is not None:
        kept[2].close()
    session = open_session(endpoint, owner)
    kept_sessions[owner.task] = (owner, endpoint, session)
    return session


def close_session(owner: Owner) -> None:
    """Close what this process keeps for a run."""
    kept = kept_sessions.get(owner.task)
    if kept is not None and kept[0] == owner:
        kept_sessions.pop(owner.task)
        kept[2].close()


def cut_session(owner: Owner) -> None:
    """From another thread: what this process waits for in a run ends as a lost connection does."""
    kept = kept_sessions.get(owner.task)
    if kept is not None and kept[0] == owner:
        kept[2].cut()


def _answers(session: TargetConnection) -> bool:
    try:
        return session.is_open and bool(session.query("SELECT 1"))
    except Retryable:
        return False
