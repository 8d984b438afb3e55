"""The state of a task that a process keeps between two turns.

Spark uses a Python worker again for later turns, and gives it only an order. So ``residents`` is the one state of apply
that belongs to the process: with it a turn has its sessions, the reader of the topic with the records that it has read
ahead, and the plans of the tables, which cost a second or more to make again. Nothing depends on it: every target
transaction reads the fence, and the plans are used only if this process also executed the task's last turn.
"""

from dataclasses import dataclass, field

from millrace.consumer.records.stream import TopicStream
from millrace.consumer.tables.table_plans import TablePlans
from millrace.consumer.target.load_range import is_side
from millrace.consumer.target.progress import Mark, Owner
from millrace.consumer.target.sessions import Sessions
from millrace.consumer.turn.order import TurnOrder
from millrace.consumer.write.aside import NOTHING_ASIDE
from millrace.consumer.write.incidents import Tally
from millrace.consumer.write.target_transaction import Writing
from millrace.schemas.documents import TopicAddress


@dataclass(frozen=True, slots=True)
class LastTurn:
    """The plans have the topic's schemas up to ``mark``."""

    owner: Owner
    mark: Mark
    plans: TablePlans


@dataclass(slots=True)
class Resident:
    """``last``: None while a turn is under way, and after one that failed. ``incidents``: since the last answer."""

    sessions: Sessions
    last: LastTurn | None = None
    stream: tuple[TopicAddress, TopicStream] | None = None
    incidents: Tally = field(default_factory=Tally)

    def writing(self, order: TurnOrder) -> Writing:
        """How the order's owner writes."""
        assignment = order.assignment
        sessions = self.sessions.of(order.owner, assignment.endpoint)
        # a stream of a load stops at a refused row: the rows that it keeps would be those of two streams
        aside = NOTHING_ASIDE if is_side(order.owner.task) else assignment.rules.aside
        return Writing(sessions, assignment.rules.policy, self.incidents, aside)

    def take_last(self) -> LastTurn | None:
        """The last turn, which is forgotten."""
        last, self.last = self.last, None
        return last

    def close_stream(self) -> None:
        """Close the reader of the topic."""
        kept, self.stream = self.stream, None
        if kept is not None:
            kept[1].close()


residents: dict[str, Resident] = {}  # by task


def resident_of(order: TurnOrder) -> Resident:
    """The state that this process keeps of the order's task."""
    resident = residents.get(order.owner.task)
    if resident is None:
        resident = Resident(Sessions(order.assignment.endpoint, order.owner))
        residents[order.owner.task] = resident
    return resident


def forget(task: str) -> None:
    """Close everything that this process keeps of a task."""
    resident = residents.pop(task, None)
    if resident is not None:
        resident.close_stream()
        resident.sessions.close()
