"""Shows a worker, an apply driver or a scheduler to monitoring.

`/livez`   each loop begins a round every second or two. A round waits for ZooKeeper for a session timeout at most, a
           few times. So a loop without a new round for several of them hangs (``hung``).
`/readyz`  the session is connected, and the last round succeeded
`/metrics` the tasks' reports, and the session
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Protocol

from millrace.http import Probes
from millrace.metrics import Exposition
from millrace.schemas.status import TaskReport
from millrace.zk.client.session import Session, SessionState
from millrace.zk.run.task_metrics import add_tasks

HUNG_S_MIN = 60.0
HUNG_TIMEOUTS = 3  # of the session

NO_REPORTS: Mapping[str, TaskReport] = MappingProxyType({})


class Looping(Protocol):
    """A supervisor or a scheduler."""

    @property
    def round_ages_s(self) -> Mapping[str, float]:
        """How long ago each loop began its last round."""

    @property
    def unready(self) -> str:
        """Why it does not do its work; "" if it does."""


def probes_of(
    looping: Looping,
    session: Session,
    *,
    read_reports: Callable[[], Mapping[str, TaskReport]] = lambda: NO_REPORTS,
) -> Probes:
    """The probes of a process."""

    def add_metrics(found: Exposition) -> None:
        is_connected = session.state is SessionState.CONNECTED
        found.add("millrace_zookeeper_connected", is_connected)
        add_tasks(found, read_reports())

    return Probes(
        hung=lambda: hung(looping.round_ages_s, session_timeout_s=session.timeout_s),
        unready=lambda: looping.unready,
        metrics=add_metrics,
    )


def hung(round_ages_s: Mapping[str, float], *, session_timeout_s: float) -> str:
    """The loops that hang, in one line; "" if none does. Pure."""
    limit_s = max(HUNG_S_MIN, HUNG_TIMEOUTS * session_timeout_s)
    found = [
        f"the loop of the {name} has not begun a round for {age_s:.0f} s"
        for name, age_s in round_ages_s.items()
        if age_s > limit_s
    ]
    return ", ".join(found)
