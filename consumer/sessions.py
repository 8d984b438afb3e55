"""Target connections that an executor process keeps between Spark tasks: one for each task and run.

A process runs one Spark task at a time, so a connection is never shared. One that broke is made anew; those of
earlier runs are closed. Safety does not rest on any of this: the fence is read in every target transaction.
"""

from consumer.target.connection import Endpoint, TargetConnection, connect
from consumer.target.progress import Owner

_sessions: dict[str, tuple[Owner, Endpoint, TargetConnection]] = {}


def session_for(endpoint: Endpoint, owner: Owner) -> TargetConnection:
    """An open connection for this run."""
    kept = _sessions.get(owner.task)
    if kept is not None and kept[:2] == (owner, endpoint) and kept[2].is_open:
        return kept[2]
    if kept is not None:
        kept[2].close()
    session = connect(endpoint)
    _sessions[owner.task] = (owner, endpoint, session)
    return session
