"""One turn of a task in an executor: take the fence, read the progress, apply.

The fence is taken from exactly the owner that the order names. So of two executions of one turn only the first
applies anything, and an execution that outlives its turn is refused at its next target transaction.

What the process keeps of the task between turns is in ``resident``.
"""

from dataclasses import replace

from millrace.consumer.tables.filter import Route, check_not_merged
from millrace.consumer.tables.related import RELATED, related
from millrace.consumer.tables.table_plans import Catalogue, TablePlans
from millrace.consumer.target.fence import take_turn
from millrace.consumer.target.load_range import WHOLE, StreamTables
from millrace.consumer.target.loads import set_waiting
from millrace.consumer.target.progress import Mark, Owner, check_fence, read_position, read_schemas
from millrace.consumer.target.streams import current_tables
from millrace.consumer.turn.applier import Applier
from millrace.consumer.turn.context import Position, Tools
from millrace.consumer.turn.order import Outcome, TurnOrder
from millrace.consumer.turn.resident import LastTurn, Resident
from millrace.consumer.window.overlap import Overlap
from millrace.consumer.window.safe_mode import SafeMode
from millrace.consumer.write.aside import hash_again
from millrace.drivers.mysql.catalog import Inventory, alter_count, read_inventory
from millrace.drivers.mysql.connection import MySqlSession
from millrace.errors import Fatal
from millrace.faults import fault_point, register

AFTER_TURN = register("apply.after_turn")


def run_turn(order: TurnOrder, tools: Tools, resident: Resident) -> Outcome:
    """Apply for one turn. Fenced MR-5020 if another execution or run has the task."""
    last_turn = resident.take_last()
    session = resident.writing(order).sessions.for_lane(is_checked=True)
    last, order = order.owner, replace(order, owner=take_turn(session, order.owner))
    fault_point(AFTER_TURN)
    if order.is_partial:
        check_not_merged(order.assignment.view, order.owner.task)
    begin = known_position(session, order)
    part = current_tables(session, order.owner, begin.mark) if order.is_partial else WHOLE
    plans = known_plans(session, order, last_turn, last=last, mark=begin.mark, part=part)
    plans = without_related(session, order.owner, plans)
    session.commit()
    writing = resident.writing(order)
    if writing.aside.follows and (last_turn is None or plans is not last_turn.plans):
        hash_again(session, order.owner, plans.inventory)
    safe_mode = SafeMode.of(order.assignment.rules.safe_until)
    # a side stream has only tables that were copied
    loads_missing = order.assignment.rules.loads_missing and part.only is None
    overlap = Overlap(safe_mode, part.range, loads_missing)
    applier = Applier(order, tools, writing=writing, begin=begin, plans=plans, overlap=overlap)
    outcome = applier.run()
    resident.last = LastTurn(order.owner, outcome.mark, applier.plans)
    return outcome


def known_position(
    session: MySqlSession, order: TurnOrder, *, before_run: int | None = None
) -> Position:
    """The mark, with the topic's id, and the applied seqs of bitmaps. Fatal MR-5022.

    ``before_run``: only bitmaps of earlier runs.
    """
    task = order.owner.task
    mark, applied = read_position(session, task, before_run=before_run)
    if mark is None:
        raise Fatal("MR-5022", f"the progress of {task} is gone", task=task)
    topic = replace(mark.topic, id=order.topic_id or mark.topic.id)
    return Position(replace(mark, topic=topic), applied)


def known_plans(
    session: MySqlSession,
    order: TurnOrder,
    last_turn: LastTurn | None,
    *,
    last: Owner,
    mark: Mark,
    part: StreamTables = WHOLE,
) -> TablePlans:
    """The plans of this process if it executed the last turn, of owner ``last``, up to ``mark``; else new ones.

    New ones, too, if the stream has other tables now: ``alter_count`` does not count what a load has created.
    """
    if (
        last_turn is not None
        and (last_turn.owner, last_turn.mark.next_offset) == (last, mark.next_offset)
        and alter_count(session) == last_turn.plans.inventory.alter_count
        and last_turn.plans.route == _route(order, part, last_turn.plans.inventory)
    ):
        return last_turn.plans
    inventory = read_inventory(session)
    schemas = read_schemas(session, order.owner.task)
    return TablePlans(Catalogue("", schemas, inventory, _route(order, part, inventory)))


def without_related(session: MySqlSession, owner: Owner, plans: TablePlans) -> TablePlans:
    """Main leaves tables that foreign keys relate to those of others to their load, too. Does not commit."""
    route = plans.route
    if not route.elsewhere:
        return plans
    more = related(route.elsewhere, plans.foreign_keys, route) - route.elsewhere
    if not more:
        return plans
    check_fence(session, owner)
    set_waiting(session, owner.task, more, detail=RELATED)
    return plans.routed(route.without(more))


def _route(order: TurnOrder, part: StreamTables, inventory: Inventory) -> Route:
    return Route(order.assignment.view, inventory.folds_names, part.elsewhere, part.only)
