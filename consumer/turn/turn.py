"""One turn of a task in an executor: take the fence, read the progress, apply.

The fence is taken from exactly the owner that the order names. So of two executions of one turn only the first
applies anything, and an execution that outlives its turn is refused at its next target transaction.

A Python worker of Spark is kept between turns, and with it the sessions, the reader of the topic and what is known
about the target's tables. That is used again only if this process also executed the task's last turn.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from consumer.records.pieces import Source
from consumer.records.row_schemas import Ints
from consumer.tables.filter import Route
from consumer.tables.related import RELATED, related
from consumer.tables.table_plans import Catalogue, TablePlans
from consumer.target.fence import take_turn
from consumer.target.load_range import WHOLE, View
from consumer.target.loads import set_waiting
from consumer.target.progress import Mark, Owner, check_fence, read_position, read_schemas
from consumer.target.sessions import session_for
from consumer.target.streams import current_view
from consumer.turn.applier import DEFAULT_LIMITS, Applier, Limits
from consumer.turn.order import Order, Outcome
from consumer.window.overlap import Overlap
from consumer.window.safe_mode import SafeMode
from consumer.window.window import LookUp
from consumer.write.lanes import Lanes
from drivers.mysql.catalog import Inventory, alter_count, read_inventory
from drivers.mysql.connection import MySqlSession
from millrace.errors import Fatal
from millrace.faults import fault_point, register

AFTER_TURN = register("apply.after_turn")


@dataclass
class Resident:
    """The state of a task that a process keeps after a turn. The plans have the topic's schemas up to ``mark``."""

    owner: Owner
    mark: Mark
    plans: TablePlans


@dataclass(frozen=True)
class Tools:
    """The tools of a turn: the reader of the topic, the lanes, the look-up of schemas."""

    source: Source
    lanes: Lanes
    look_up: LookUp
    limits: Limits = DEFAULT_LIMITS
    is_over: Callable[[], bool] = lambda: False
    is_read: Callable[[], bool] = lambda: True


residents: dict[str, Resident] = {}  # by task


def run_turn(order: Order, tools: Tools) -> Outcome:
    """Apply for one turn. Fenced MR-5020 if another execution or run has the task."""
    task = order.owner.task
    resident = residents.pop(task, None)
    session = session_for(order.endpoint, order.owner, is_checked=True)
    owner = take_turn(session, order.owner)
    fault_point(AFTER_TURN)
    mark, applied = known_position(session, order)
    view = current_view(session, owner, mark) if order.is_partial else WHOLE
    plans = known_plans(session, order, resident, last=order.owner, mark=mark, view=view)
    plans = without_related(session, owner, plans)
    session.commit()
    applier = Applier(
        replace(order, owner=owner),
        owner,
        mark,
        applied,
        plans,
        tools.source,
        tools.lanes,
        tools.look_up,
        replace(tools.limits, turn_s=min(tools.limits.turn_s, order.turn_s)),
        tools.is_over,
        tools.is_read,
        Overlap(SafeMode.of(order.safe_until), view.range),
    )
    outcome = applier.run()
    residents[task] = Resident(owner, outcome.mark, applier.plans)
    return outcome


def known_position(
    session: MySqlSession, order: Order, *, before_run: int | None = None
) -> tuple[Mark, Ints]:
    """The mark, with the topic's id, and the applied seqs of bitmaps. Fatal MR-5022.

    ``before_run``: only bitmaps of earlier runs.
    """
    task = order.owner.task
    mark, applied = read_position(session, task, before_run=before_run)
    if mark is None:
        raise Fatal("MR-5022", f"the progress of {task} is gone", task=task)
    return replace(mark, topic=replace(mark.topic, id=order.topic_id or mark.topic.id)), applied


def known_plans(
    session: MySqlSession,
    order: Order,
    resident: Resident | None,
    *,
    last: Owner,
    mark: Mark,
    view: View = WHOLE,
) -> TablePlans:
    """The plans of this process if it executed the last turn, of owner ``last``, up to ``mark``; else new ones.

    New ones, too, if the stream has other tables now: ``alter_count`` does not count what a load has created.
    """
    if (
        resident is not None
        and (resident.owner, resident.mark.next_offset) == (last, mark.next_offset)
        and alter_count(session) == resident.plans.inventory.alter_count
        and resident.plans.route == _route(order, view, resident.plans.inventory)
    ):
        return resident.plans
    inventory = read_inventory(session)
    schemas = read_schemas(session, order.owner.task)
    return TablePlans(Catalogue("", schemas, inventory, _route(order, view, inventory)))


def without_related(session: MySqlSession, owner: Owner, plans: TablePlans) -> TablePlans:
    """Main leaves tables that foreign keys relate to those of others to their load, too. Does not commit."""
    route = plans.route
    if not route.elsewhere:
        return plans
    more = related(route.elsewhere, plans.inventory.foreign_keys, route) - route.elsewhere
    if not more:
        return plans
    check_fence(session, owner)
    set_waiting(session, owner.task, more, detail=RELATED)
    return plans.routed(route.without(more))


def _route(order: Order, view: View, inventory: Inventory) -> Route:
    return Route(order.tables, inventory.folds_names, view.elsewhere, view.only)
