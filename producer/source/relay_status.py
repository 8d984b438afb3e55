"""The status of a set's relay: what a feed receives, what is stored, and when data would be lost.

Time to loss: how long a transaction that a task needs and the relay log does not have stays on the source.

    the relay has all that its source has     as long as the source keeps a binlog: if receiving stopped now
    it is behind, or paused                   the same, less the age of the last transaction that it has
    a task needs more than the relay log has  unknown; ``loss`` names the task

The age is by the server's clock, and the next transaction is younger than the last one, so the time is never too long.
"""

import time
from collections.abc import Mapping

from millrace.producer.relay.summary import Summary
from millrace.producer.relay.writer import RelayLog
from millrace.producer.source.feed import Feed
from millrace.schemas.documents import RelayMode
from millrace.schemas.place import Coordinates
from millrace.schemas.stages import BinlogEnd, Relayed


def relay_status(relay: RelayLog, feed: Feed, summary: Summary, mode: RelayMode) -> Relayed:
    """The stage for the reports of the set's tasks."""
    end, position = relay.end(), relay.position()
    pulse = feed.pulse()
    caught_up = None
    source = None
    if pulse is not None and pulse.position is not None:
        caught_up = position.includes(pulse.position)
        source = BinlogEnd(file=pulse.file, pos=pulse.pos, gtid_set=str(pulse.position))
    kept_s = feed.kept_s()
    stage, why = feed.stage()
    return Relayed(
        stage=stage,
        why=why,
        source=source,
        subdir=end.subdir if end is not None else "",
        relay=BinlogEnd(
            file=end.file if end is not None else "",
            pos=end.pos if end is not None else None,
            gtid_set=str(position),
        ),
        caught_up=caught_up,
        behind_bytes=_behind_bytes(source, end),
        received_bytes=feed.figures.received_bytes,
        connects=feed.figures.connects,
        stored_bytes=summary.stored_bytes,
        disk_left_bytes=summary.disk_left_bytes,
        oldest_file=summary.oldest_file,
        needed=summary.needed,
        end_at_s=summary.end_at_s,
        kept_s=kept_s,
        time_to_loss_s=time_to_loss_s(kept_s, summary.end_at_s, is_caught_up=caught_up is True),
        loss=describe_loss(summary.needed, mode),
    )


def _behind_bytes(source: BinlogEnd | None, end: Coordinates | None) -> int | None:
    """How far the relay log ends before the member's binlog; None if they end in different files."""
    if source is None or source.pos is None or end is None or end.file != source.file:
        return None
    return max(0, source.pos - end.pos)


def time_to_loss_s(
    kept_s: float | None, end_at_s: float | None, *, is_caught_up: bool
) -> float | None:
    """The time until something may be lost. None: unknown, or the source keeps its binlogs without a limit in time."""
    if kept_s is None or is_caught_up:
        return kept_s
    return None if end_at_s is None else max(0.0, end_at_s + kept_s - time.time())


def describe_loss(needed: Mapping[str, str], mode: RelayMode) -> str:
    """The data that would be lost when that time has passed."""
    if mode is RelayMode.OFF:
        return "what no task has published when the source purges it: the relay is off"
    short = sorted(task for task, file in needed.items() if not file)
    if short:
        return f"what the relay has not received, and now what only the source has for {', '.join(short)}"
    return "what the relay has not received when the source purges it"
