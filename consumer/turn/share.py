"""One share of a spread turn in an executor: read the progress, claim the share, apply.

The driver has taken the fence for the turn. What a share reads does not change while the turn lasts: the mark stays,
and bitmaps of this run are not read, so it does not matter which shares have already begun.

If the process is killed, the claim stays: no second execution of the share writes a row. The turn fails, and the next
one skips the rows whose bitmaps are there.
"""

from dataclasses import replace

from consumer.records.transaction_cut import Cutter
from consumer.tables.plan_key import plan_key
from consumer.target.claims import claim_share
from consumer.target.sessions import session_for
from consumer.turn.context import Tools
from consumer.turn.order import Share, ShareEnd, ShareStop
from consumer.turn.spread_applier import SpreadApplier
from consumer.turn.turn import Resident, known_plans, known_position, residents


def run_share(share: Share, tools: Tools) -> ShareEnd:
    """Apply a share. Fenced MR-5020 if the turn is over or another execution has claimed the share."""
    order, window = share.order, tools.limits.window
    task, lane_count = order.owner.task, order.assignment.rules.lane_count
    resident = residents.pop(task, None)
    session = session_for(order.assignment.endpoint, order.owner, is_checked=True)
    position = known_position(session, order, before_run=order.owner.run)
    mark, offsets = position.mark, order.offsets
    last = replace(order.owner, run=order.owner.run - 1)
    plans = known_plans(session, order, resident, last=last, mark=mark)
    session.commit()
    key = plan_key(
        plans,
        (mark.seq, mark.next_offset, offsets.begin, offsets.end),
        position.applied.tobytes(),
        (share.count, lane_count, window.rows, window.bytes),
    )
    if not claim_share(session, order.owner, share.place, key):
        return ShareEnd(stop=ShareStop.DISAGREED)
    begin = max(mark.next_offset, offsets.begin)
    tools.source.seek(begin)
    windows = Cutter(tools.source, window, begin, offsets.end, tools.is_read)
    applier = SpreadApplier(share, tools, position, plans, windows)
    end = applier.run()
    residents[task] = Resident(order.owner, applier.seen, applier.plans)
    return end
