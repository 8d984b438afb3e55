"""Guards of a publish task's slots (the rules of ``consumer.publish``), judged on a model of Kafka."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from millrace.consumer.kernel.partitions import assign_numbers
from millrace.consumer.publish.mark import Position, Tail
from millrace.consumer.publish.outputs import Outputs
from millrace.consumer.publish.slot import Slot
from millrace.drivers.kafka.partitions import HeaderedRecord, Place
from tests.mutants.mutant import Mutant, Patch

HISTORY = "tests/property/test_slot_model.py"
TAILS = "tests/unit/test_slot_tails.py"
ALL_OF_A_HISTORY = "test_history_of_slots_gives_each_record_once"
ENDS = "test_end_that_proves_nothing_stops_the_task"


def tails_not_read(patch: Patch) -> None:
    """Rule 1 off: the mark is taken for what a partition has."""

    def marked(_: Outputs, tails: Mapping[Place, Tail], **__: Any) -> dict[Place, Tail]:
        return dict(tails)

    patch.setattr(Outputs, "tails", marked)


def epochs_not_compared(patch: Patch) -> None:
    """Rule 3 off: a greater epoch in a record does not stop an owner."""
    read = Outputs.read_tail

    def as_newest(self: Outputs, place: Place, record: HeaderedRecord) -> Tail:
        order = self._order
        self._order = replace(order, epoch=2**62)
        try:
            return read(self, place, record)
        finally:
            self._order = order

    patch.setattr(Outputs, "read_tail", as_newest)


def only_ends_verified(patch: Patch) -> None:
    """Rule 4 off: a partition whose records were aborted counts as complete."""
    patch.setattr(Slot, "_verified", lambda _, __, tail, ___: replace(tail, end=tail.end + 1))


def mark_with_its_own_transaction(patch: Patch) -> None:
    """Rule 4 off: the position is in the transaction of the records that lead to it."""
    commit_to = Slot._commit_to

    def early(self: Slot, position: Position) -> None:
        if self._sent.is_open:
            before = self._sent.mark
            self._mark = replace(self._mark, position=position)
            self._add_mark()
            self._sent.mark = [*before, *self._sent.mark]
        commit_to(self, position)

    patch.setattr(Slot, "_commit_to", early)


def emptied_partition_believed(patch: Patch) -> None:
    """Rule 5 off: without records, the mark is believed wherever the partition ends."""
    patch.setattr(Outputs, "_is_proven", lambda *_: True)


def topic_ids_not_compared(patch: Patch) -> None:
    """Rule 5 off: a topic of the same name is the same."""
    patch.setattr(Outputs, "_check_topics", lambda *_: None)


def order_not_checked(patch: Patch) -> None:
    """Records out of order are taken for repeated ones."""
    patch.setattr(
        "millrace.consumer.publish.slot.assign_numbers", lambda *given: abs(assign_numbers(*given))
    )


MUTANTS = [
    Mutant(
        "the tails of output partitions",
        tails_not_read,
        HISTORY,
        {ALL_OF_A_HISTORY: "MR-3105|repeated"},
    ),
    Mutant(
        "the epochs of records",
        epochs_not_compared,
        TAILS,
        {f"{ENDS}[greater epoch]": "DID NOT RAISE Fenced|MR-"},
    ),
    Mutant(
        "the last record of each partition",
        only_ends_verified,
        HISTORY,
        {ALL_OF_A_HISTORY: "missing|MR-3105"},
    ),
    Mutant(
        "the mark goes with the next transaction",
        mark_with_its_own_transaction,
        HISTORY,
        {ALL_OF_A_HISTORY: "missing"},
    ),
    Mutant(
        "the mark of an emptied partition",
        emptied_partition_believed,
        TAILS,
        {f"{ENDS}[emptied]": "DID NOT RAISE", f"{ENDS}[compacted]": "DID NOT RAISE"},
    ),
    Mutant(
        "the order of records",
        order_not_checked,
        TAILS,
        {"test_records_out_of_order_end_a_slot": "DID NOT RAISE"},
    ),
    Mutant(
        "the ids of output topics",
        topic_ids_not_compared,
        TAILS,
        {f"{ENDS}[recreated]": "DID NOT RAISE"},
    ),
]
