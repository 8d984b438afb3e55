"""The schedule of comparisons with a simulated clock: under kills, moves and failures each runs when it is due."""

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from millrace.consumer.compare.schedule import LOOK_S, RETRY_S_MAX, Last, next_step, retry_s

HOUR_S = 3600.0
TICK_S = 1e-3  # a clock moves
HOURS = st.integers(1, 48)


@dataclass
class _World:
    """A target with its clock, and a driver that obeys the schedule."""

    every_h: int
    now_s: float = 0.0
    ended_s: float | None = None
    busy_s: float | None = None  # the last chunk of one that has begun and not ended
    due_s: float = 0.0

    def last(self) -> Last:
        ended_ago_s = None if self.ended_s is None else self.now_s - self.ended_s
        idle_s = None if self.busy_s is None else self.now_s - self.busy_s
        return Last(None, ended_ago_s, idle_s)

    def until_due(self) -> bool:
        """Look again and again. Whether the comparison that is due continues another one."""
        while (step := next_step(self.last(), self.every_h)).after_s:
            self.now_s += max(min(step.after_s, LOOK_S), TICK_S)
        assert self.now_s >= self.due_s - TICK_S, "it begins too early"
        return step.resumes

    def compare(self, took_s: float) -> None:
        self.now_s += took_s
        self.busy_s = self.now_s

    def end(self) -> None:
        self.ended_s, self.busy_s = self.now_s, None
        self.due_s = self.now_s + self.every_h * HOUR_S


@given(
    HOURS,
    st.lists(
        st.tuples(
            st.sampled_from(["ends", "is killed", "fails"]),
            st.floats(0, 30 * HOUR_S),
            st.floats(0, 60 * HOUR_S),
        ),
        max_size=12,
    ),
)
def test_comparison_runs_when_due_and_never_before(
    every_h: int, events: list[tuple[str, float, float]]
) -> None:
    """``took_s`` is compared, then the driver is away for a time: killed, paused, moved, or waits for a retry."""
    world = _World(every_h)
    for what, took_s, away_s in events:
        ready_s = max(world.due_s, world.now_s)
        before = world.last()
        resumes = world.until_due()
        assert world.now_s <= ready_s + 2 * TICK_S, "it begins as soon as it is due"
        idle_s = world.last().idle_s
        assert resumes == (idle_s is not None and idle_s < every_h * HOUR_S)
        assert (before.idle_s is None) <= (not resumes)
        world.compare(took_s)
        if what == "ends":
            world.end()
        elif what == "fails":
            world.now_s += retry_s(1)
            continue
        world.now_s += away_s


@given(HOURS, st.floats(-1e9, 1e9))
def test_clock_that_was_set_back_delays_nothing_for_ever(every_h: int, ago_s: float) -> None:
    """Also a time in the future is at most one interval away."""
    assert 0.0 <= next_step(Last(ended_ago_s=ago_s), every_h).after_s <= every_h * HOUR_S


def test_load_delays_a_comparison_and_failures_delay_it_more() -> None:
    """At most ten minutes; the first retry comes after ten seconds."""
    assert next_step(Last(is_loading=True), 24).after_s == LOOK_S
    pauses = [retry_s(failures) for failures in range(1, 2_000)]
    assert pauses[0] == 10.0
    assert pauses == sorted(pauses)
    assert pauses[-1] == RETRY_S_MAX
