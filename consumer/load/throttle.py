"""Measures whether a load must pause (``schemas.throttle``): the lag of the member it reads, the target's threads."""

from dataclasses import dataclass, field

from millrace.drivers.mysql.connection import Endpoint, MySqlSession, connect
from millrace.drivers.mysql.members import ask_replications, greatest_lag_s
from millrace.schemas.throttle import Measured


@dataclass(slots=True)
class Gauges:
    """Sessions that measure. One that breaks is opened again at the next look."""

    source: Endpoint
    target: Endpoint
    _sessions: dict[Endpoint, MySqlSession] = field(default_factory=dict)

    def measure(self) -> Measured:
        """Both figures now. Retryable if a server does not answer."""
        lag_s = greatest_lag_s(ask_replications(self._session(self.source)))
        return Measured(lag_s, threads_running(self._session(self.target)))

    def _session(self, endpoint: Endpoint) -> MySqlSession:
        known = self._sessions.get(endpoint)
        if known is None or not known.is_open:
            known = self._sessions[endpoint] = connect(endpoint)
        return known

    def close(self) -> None:
        """End the sessions."""
        for session in self._sessions.values():
            session.close()


def threads_running(session: MySqlSession) -> int:
    """``Threads_running`` of the server, with this session."""
    ((_, count),) = session.query("SHOW GLOBAL STATUS LIKE 'Threads_running'")
    return int(str(count))
