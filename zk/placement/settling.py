"""When a worker that has registered receives units. Apart: a pure function over the scheduler's clock.

A worker is settled once it has been registered for ``settle_s`` without a break. Each time that it registers again
within ``FORGET_S`` the wait doubles, up to ``WAIT_S_MAX``. So a worker that keeps restarting receives units less and
less often, and all others keep theirs.

    registers at   0      gone, again at 30      gone, again at 70      …    stays for FORGET_S
    settled after  10 s   20 s                   40 s                   …    10 s again

Not done here: counting over a change of the leader. A new leader takes all workers for new ones.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

SETTLE_S = 10.0
WAIT_S_MAX = 600.0
FORGET_S = 600.0


@dataclass(frozen=True, slots=True)
class Arrival:
    """A worker's last registration: its number (the node's czxid), when it was seen, and its wait until settled."""

    czxid: int
    seen_s: float
    wait_s: float
    is_here: bool = True

    def is_settled(self, now_s: float) -> bool:
        """Whether it is registered and its wait is over."""
        return self.is_here and now_s - self.seen_s >= self.wait_s


def arrivals_after(
    known: Mapping[str, Arrival], workers: Mapping[str, int], now_s: float, *, settle_s: float
) -> dict[str, Arrival]:
    """The arrivals of all ``workers`` (name → czxid), and of those that left less than ``FORGET_S`` after they came."""
    found = {}
    for name, czxid in workers.items():
        last = known.get(name)
        if last is not None and last.czxid == czxid:
            found[name] = replace(last, is_here=True)
            continue
        is_again = last is not None and now_s - last.seen_s < FORGET_S
        wait_s = min(2 * last.wait_s, max(WAIT_S_MAX, settle_s)) if last and is_again else settle_s
        found[name] = Arrival(czxid, now_s, wait_s)
    for name, last in known.items():
        if name not in workers and now_s - last.seen_s < FORGET_S:
            found[name] = replace(last, is_here=False)
    return found
