"""Judges a running stream: whether it should leave its member, and why.

    an operator drained the member                              leave it at once
    an operator pinned another member, which answers            leave it at once
    its lag is above ``max_lag_s``, and another                 leave it, unless lag caused a switch less than
    member is better by ``hysteresis_s``                        ``cool_down_s`` ago
    it is the primary, and a replica has caught up              the same

A member that dies or stalls is not judged here: its connection ends (``dump_stream``). The judge only says that it is
worth to choose again. ``choice`` decides, by fresh answers of all members.

Pure: the same looks give the same reason.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from millrace.producer.source.choose.probe import Pulse
from millrace.schemas.documents.model import Directives, Member, UpstreamRules


@dataclass(frozen=True, slots=True)
class Look:
    """A member at one moment: its last answer, its measured lag, and how many of the set's transactions it misses.

    ``still_s``: how long it has applied nothing although it misses some; None: unknown. ``is_lag_known``: ``lag_s`` is
    more than a lower bound. Decisions use the bound, people are not shown it.
    """

    pulse: Pulse
    lag_s: float | None  # None: unknown
    missing_count: int | None
    still_s: float | None = None
    is_lag_known: bool = True

    @property
    def shown_lag_s(self) -> float | None:
        return self.lag_s if self.is_lag_known else None

    @property
    def member(self) -> Member:
        return self.pulse.member


@dataclass(frozen=True, slots=True)
class Reason:
    """Why to leave the member. ``is_by_lag``: the cool-down begins."""

    why: str
    is_by_lag: bool = False


def find_reason(
    current: Member,
    looks: Sequence[Look],
    *,
    rules: UpstreamRules,
    directives: Directives,
    since_lag_switch_s: float,
) -> Reason | None:
    """The reason to leave ``current``; None if there is none or no other member answers."""
    others = [
        look
        for look in looks
        if look.member != current and look.member not in directives.drained and _is_known(look)
    ]
    if not others:
        return None
    if current in directives.drained:
        return Reason("an operator drained it")
    pinned = directives.pinned
    if pinned not in (None, current) and any(look.member == pinned for look in others):
        return Reason(f"an operator pinned {pinned}")
    if current == pinned or since_lag_switch_s < rules.cool_down_s:
        return None
    here = next((look for look in looks if look.member == current), None)
    if here is None or here.lag_s is None:
        return None
    return _find_lag(here, others, rules)


def _find_lag(here: Look, others: Sequence[Look], rules: UpstreamRules) -> Reason | None:
    best = min(others, key=_lag)
    if here.lag_s is None:
        return None
    if here.lag_s > rules.max_lag_s and _lag(best) + rules.hysteresis_s <= here.lag_s:
        why = f"it is {here.lag_s:.1f} s behind, {best.member} {_lag(best):.1f} s"
        return Reason(why, is_by_lag=True)
    replicas = [look for look in others if not look.pulse.is_primary]
    best = min(replicas, key=_lag, default=here)
    if here.pulse.is_primary and best is not here and _lag(best) <= rules.probe_s:
        return Reason(f"it is the primary, and {best.member} has caught up", is_by_lag=True)
    return None


def _is_known(look: Look) -> bool:
    return look.pulse.error is None and look.lag_s is not None


def _lag(look: Look) -> float:
    assert look.lag_s is not None, "only known ones are compared"
    return look.lag_s
