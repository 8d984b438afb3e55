"""Lag is measured by positions and one clock, and the judge leaves a member only for a better one."""

from dataclasses import replace

import pytest

from millrace.errors import Retryable
from millrace.producer.source.choose.judge import Look, find_reason
from millrace.producer.source.choose.lag import SAMPLES_MAX, LagMeter, Still
from millrace.producer.source.choose.probe import Pulse
from millrace.schemas.documents.model import Directives, Member, UpstreamRules
from millrace.schemas.gtid import Flavour, parse_gtid_set

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
RULES = UpstreamRules()
HERE, OTHER, PRIMARY = (Member("db", number) for number in (2, 3, 1))


def pulse(
    member: Member, last: int, *, primary: bool = False, seconds: float | None = 0.0
) -> Pulse:
    """An answer of a member that has the transactions 1 to ``last``."""
    position = parse_gtid_set(Flavour.MYSQL, f"{UUID}:1-{last}")
    server = f"server-{member.port}"
    return Pulse(
        member=member, server=server, is_primary=primary, seconds_behind=seconds, position=position
    )


def test_lag_is_the_age_of_the_oldest_absent_sample() -> None:
    """No server's clock takes part: a stopped replica lags from the primary's next commit on."""
    meter = LagMeter()
    for second in range(10):
        meter.sample([pulse(PRIMARY, 100 + second, primary=True)], at_s=float(second))
    assert meter.lag_s(pulse(HERE, 109), at_s=9.5) == 0.0
    assert meter.lag_s(pulse(HERE, 105), at_s=9.5) == 3.5
    assert meter.lag_s(pulse(HERE, 90), at_s=9.5) == 9.5
    assert meter.lag_s(pulse(HERE, 90, seconds=70), at_s=9.5) == 70, "late before the first sample"
    assert meter.lag_s(pulse(HERE, 105, seconds=70), at_s=9.5) == 3.5, "its opinion decides nothing"
    assert meter.lag_s(replace(pulse(HERE, 1), position=None), at_s=9.5) is None


def test_lag_from_before_the_watch_is_unknown() -> None:
    """A task that restarts at a stopped replica must not count from 0. Decisions use the bound."""
    meter = LagMeter()
    assert not meter.is_known(pulse(HERE, 90))
    for second in range(3 * SAMPLES_MAX):
        meter.sample([pulse(PRIMARY, 100 + second, primary=True)], at_s=float(second))
    stopped = pulse(HERE, 90, seconds=None)
    assert not meter.is_known(stopped)
    assert meter.is_known(pulse(HERE, 90, seconds=70))
    assert meter.is_known(pulse(HERE, 100, seconds=None)), "it stopped under the watch"
    assert meter.is_known(pulse(PRIMARY, 100, seconds=None, primary=True))
    assert Look(stopped, 9.5, 3, is_lag_known=False).shown_lag_s is None
    assert Look(stopped, 9.5, 3).shown_lag_s == 9.5


def test_idle_set_has_no_lag_and_memory_is_bounded() -> None:
    """Only new positions are samples; old ones become coarse."""
    meter = LagMeter()
    meter.sample([pulse(PRIMARY, 100, primary=True)], at_s=0.0)
    meter.sample([pulse(PRIMARY, 100, primary=True)], at_s=500.0)
    assert meter.lag_s(pulse(HERE, 100), at_s=1000.0) == 0.0
    for second in range(5 * SAMPLES_MAX):
        meter.sample([pulse(PRIMARY, 101 + second, primary=True)], at_s=1000.0 + second)
    end_s = 1000.0 + 5 * SAMPLES_MAX
    recent = meter.lag_s(pulse(HERE, 100 + 5 * SAMPLES_MAX - 10), at_s=end_s)
    old = meter.lag_s(pulse(HERE, 100), at_s=end_s)
    assert recent == 10.0
    assert old is not None
    assert old > SAMPLES_MAX


def test_failover_forgets_what_the_former_primary_lost() -> None:
    """A new primary without the last transactions: replicas that follow it do not lag."""
    meter = LagMeter()
    meter.sample([pulse(PRIMARY, 100, primary=True)], at_s=0.0)
    meter.sample([pulse(OTHER, 95, primary=True)], at_s=5.0)
    assert meter.lag_s(pulse(HERE, 95), at_s=60.0) == 0.0


def look(member: Member, lag_s: float | None, *, primary: bool = False) -> Look:
    """A member with this lag."""
    return Look(pulse(member, 1, primary=primary), lag_s, 0)


@pytest.mark.parametrize(
    ("looks", "directives", "why"),
    [
        ([look(HERE, 6.0), look(OTHER, 0.0)], Directives(), "6.0 s"),
        ([look(HERE, 4.0), look(OTHER, 0.0)], Directives(), ""),
        ([look(HERE, 6.0), look(OTHER, 4.5)], Directives(), ""),
        ([look(HERE, 6.0), look(OTHER, None)], Directives(), ""),
        ([look(HERE, None), look(OTHER, 0.0)], Directives(), ""),
        ([look(HERE, 0.0, primary=True), look(OTHER, 0.5)], Directives(), "primary"),
        ([look(HERE, 0.0, primary=True), look(OTHER, 3.0)], Directives(), ""),
        ([look(HERE, 0.0), look(OTHER, 0.0)], Directives(drained=frozenset({HERE})), "drained"),
        ([look(HERE, 0.0)], Directives(drained=frozenset({HERE})), ""),
        ([look(HERE, 0.0), look(OTHER, 9.0)], Directives(pinned=OTHER), "pinned"),
        ([look(HERE, 9.0), look(OTHER, 0.0)], Directives(pinned=HERE), ""),
        ([look(HERE, 9.0), look(OTHER, 0.0)], Directives(drained=frozenset({OTHER})), ""),
    ],
    ids=[
        "late, and another is not",
        "not late enough",
        "the other one is hardly better",
        "the lag of the other one is unknown",
        "its own lag is unknown",
        "a replica rather than the primary",
        "no replica that is late",
        "drained",
        "drained, but the only one",
        "pinned, whatever its lag",
        "it is pinned itself",
        "the other one is drained",
    ],
)
def test_member_is_left_only_for_a_better_one(
    looks: list[Look], directives: Directives, why: str
) -> None:
    """Hysteresis, drains and pins."""
    reason = find_reason(
        HERE, looks, rules=RULES, directives=directives, since_lag_switch_s=float("inf")
    )
    assert (reason is None) == (why == "")
    assert why in (reason.why if reason is not None else "")


def test_cool_down_delays_only_switches_by_lag() -> None:
    """Flapping is bounded; an operator's wish is not delayed."""
    looks = [look(HERE, 60.0), look(OTHER, 0.0)]

    def at(directives: Directives, since_s: float) -> bool:
        reason = find_reason(
            HERE, looks, rules=RULES, directives=directives, since_lag_switch_s=since_s
        )
        return reason is not None

    assert not at(Directives(), RULES.cool_down_s - 1)
    assert at(Directives(), RULES.cool_down_s)
    assert at(Directives(drained=frozenset({HERE})), 0.0)


def test_unreachable_member_is_no_reason() -> None:
    """The connection of the dump decides about death: probes may fail while it works."""
    gone = Look(Pulse(member=HERE, error=Retryable("MR-1001", "no answer")), None, None)
    reason = find_reason(
        HERE,
        [gone, look(OTHER, 0.0)],
        rules=RULES,
        directives=Directives(),
        since_lag_switch_s=float("inf"),
    )
    assert reason is None


def test_member_is_still_only_while_it_misses_transactions() -> None:
    """A set without writes is not still, and neither is a late member that applies."""
    still = Still()
    here, ahead = (pulse(HERE, last).position for last in (1, 2))
    assert still.since(None, missing=None, at_s=0.0) is None
    assert still.since(here, missing=0, at_s=0.0) == 0.0
    assert still.since(here, missing=0, at_s=100.0) == 0.0
    assert still.since(here, missing=3, at_s=101.0) == 1.0
    assert still.since(here, missing=3, at_s=140.0) == 40.0
    assert still.since(ahead, missing=2, at_s=141.0) == 0.0
    assert still.since(ahead, missing=0, at_s=200.0) == 0.0
