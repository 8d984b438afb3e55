"""mypy refuses an array of one kind of numbers where another kind is wanted."""

from typing import TYPE_CHECKING

from millrace.consumer.records.numbers import NO_SEQS
from millrace.consumer.target.bitmap import not_applied, to_bitmap

if TYPE_CHECKING:
    from millrace.consumer.records.numbers import (
        Groups,
        LaneNumbers,
        RecordNumbers,
        Seqs,
        Slots,
        Units,
    )
    from millrace.consumer.records.rows import Rows
    from millrace.consumer.tables.causality_keys import KeyEntries, KeyPrograms, find_keys
    from millrace.consumer.tables.table_plans import slots_of
    from millrace.consumer.turn.lane_planner import HeldKeys
    from millrace.consumer.window.units import owned_by

    def _mix_ups(rows: Rows, numbers: RecordNumbers, seqs: Seqs, slots: Slots) -> None:
        """Each line is an error. mypy reports an ``ignore`` that is not needed, so that `make check` fails."""
        to_bitmap(numbers)  # type: ignore[arg-type]
        slots_of(seqs)  # type: ignore[arg-type]
        rows.seqs(slots)  # type: ignore[arg-type]
        rows.slots(seqs)  # type: ignore[arg-type]

    def _mixed_plans(
        held: HeldKeys, entries: KeyEntries, units: Units, groups: Groups, lanes: LaneNumbers
    ) -> None:
        held.bind(entries, units, done=0)  # type: ignore[arg-type]
        held.hold(entries, groups, flight=1, done=0)  # type: ignore[arg-type]
        owned_by(entries, lanes)  # type: ignore[arg-type]

    def _mixed_keys(rows: Rows, programs: KeyPrograms, units: Units) -> None:
        find_keys(rows, programs, units)  # type: ignore[arg-type]


def test_an_empty_array_of_seqs_is_an_array() -> None:
    """The types exist for mypy only: at run time all are arrays of numpy."""
    assert not_applied(NO_SEQS, mark=0, applied=NO_SEQS).tolist() == []
