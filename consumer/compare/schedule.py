"""When the next comparison of a task is due, and whether it continues the last one. Pure.

    the last one ended                        due ``every_h`` after its end
    one has begun and not ended               continued: its process was killed, or its task was paused or moved
    and nothing was compared for ``every_h``  begun again: most of its result would be old

Ages are those of the target's clock, which all drivers share: a task that moves keeps its schedule.
"""

from dataclasses import dataclass

from millrace.schemas.stages import ComparedResult

LOOK_S = 60.0  # after which an operator's `millrace compare` is noticed
RETRY_S, RETRY_S_MAX = 10.0, 600.0


@dataclass(frozen=True, slots=True)
class Last:
    """The comparisons of a task as the target has them.

    ``result``, ``ended_ago_s``: of the last one that has ended. ``idle_s``: of one that has begun and not ended, since
    its last chunk. ``is_loading``: a load copies tables now, so nothing shall be compared. Each None: there is none.
    """

    result: ComparedResult | None = None
    ended_ago_s: float | None = None
    idle_s: float | None = None
    is_loading: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """The next comparison. ``after_s``: 0 if it is due. ``resumes``: it continues the last one."""

    after_s: float
    resumes: bool = False


def next_step(last: Last, every_h: int) -> Step:
    """The next comparison. A clock that was set back does not delay it by more than ``every_h``."""
    every_s = every_h * 3600.0
    after_s = 0.0
    if last.ended_ago_s is not None:
        after_s = min(max(0.0, every_s - last.ended_ago_s), every_s)
    if last.is_loading:
        after_s = max(after_s, LOOK_S)
    return Step(after_s, resumes=last.idle_s is not None and last.idle_s < every_s)


def retry_s(failures: int) -> float:
    """The pause after this many failures in succession without a chunk in between."""
    return min(RETRY_S * 2.0 ** min(failures - 1, 10), RETRY_S_MAX)
