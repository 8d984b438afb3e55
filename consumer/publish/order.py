"""The driver's request to an executor to run one slot of a publish task for a while, a value that Spark can send."""

from collections.abc import Collection
from dataclasses import dataclass

from millrace.consumer.publish.definitions import Definitions
from millrace.consumer.publish.outputs import TaskOrder


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishOrder:
    """``accepted``: the seqs of statements that do not stop the task.

    ``first_offset``: the first that the set topic has kept, or the slot's.

    ``turn_s``: the turn ends at the first quiet moment after this time. ``end_offset``: records from there on are
    not read; -1: all are.
    """

    task: TaskOrder
    definitions: Definitions
    slot: int
    accepted: Collection[int] = ()
    first_offset: int = -1
    turn_s: float = 0.0
    end_offset: int = -1

    def continues(self, before: "PublishOrder") -> bool:
        """Whether a slot that was opened for ``before`` can serve this order."""
        return (self.task, self.slot) == (before.task, before.slot)
