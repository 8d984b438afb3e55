"""The record of a stream's member: since when it is read, why, and the last switches with their gaps.

One thread writes, any number read.
"""

import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from millrace.log import get_logger
from millrace.schemas.documents.model import Member
from millrace.schemas.stages import SWITCHES_MAX, SwitchView

log = get_logger("producer.source")


@dataclass(frozen=True, slots=True)
class Departure:
    """A member that is left: why, when that was decided, and when its last byte arrived (monotonic seconds)."""

    member: Member
    why: str
    noticed_at_s: float
    last_byte_at_s: float


class Switches:
    """The switches of one stream."""

    def __init__(self, why: str) -> None:
        self.since = now_text()
        self.why = why
        self._last: tuple[SwitchView, ...] = ()

    def last(self) -> tuple[SwitchView, ...]:
        return self._last

    def note(
        self, departure: Departure, to: Member, *, first_byte_at_s: float, refused: tuple[str, ...]
    ) -> None:
        """Note a switch that is complete."""
        elapsed_s = time.monotonic() - departure.noticed_at_s
        switch = SwitchView(
            at=now_text(before_s=elapsed_s),
            source=str(departure.member),
            target=str(to),
            why=departure.why,
            refused=refused,
            gap_s=round(max(0.0, first_byte_at_s - departure.last_byte_at_s), 3),
            switch_s=round(max(0.0, first_byte_at_s - departure.noticed_at_s), 3),
        )
        self._last = (*self._last, switch)[-SWITCHES_MAX:]
        self.since, self.why = now_text(), f"{departure.member} was left: {departure.why}"
        log.info(
            "member switched",
            left=switch.source,
            member=switch.target,
            why=switch.why,
            gap_s=switch.gap_s,
            switch_s=switch.switch_s,
            complete_s=round(elapsed_s, 3),
        )


def now_text(*, before_s: float = 0.0) -> str:
    """The time ``before_s`` ago, UTC, to the millisecond."""
    return (datetime.now(UTC) - timedelta(seconds=before_s)).isoformat(timespec="milliseconds")
