"""Time to loss: how long until retention may remove the record that a reader of a topic must read next.

    no record waits      as long as the topic keeps records: if the reader stopped now
    records wait         the same, less the age of the first of them
    with retention.bytes also until the topic has grown by what it may, at its pace of the last minute

Kafka removes whole segments, by their newest record, so the time is never too long. Pure.
Apart: tasks of both halves have readers.
"""

from dataclasses import dataclass

from millrace.drivers.kafka.reader import Retention


@dataclass(frozen=True, slots=True)
class Growth:
    """``waiting_bytes``: after the place of the reader. ``bytes_s``: how fast the topic grows; None: unknown."""

    waiting_bytes: float = 0.0
    bytes_s: float | None = None


def time_to_loss_s(retention: Retention, *, age_s: float, growth: Growth) -> float | None:
    """The time; None if it is unknown, or if the topic keeps its records without a limit.

    ``age_s``: of the first record that waits; 0 if none does.
    """
    times = []
    if retention.ms >= 0:
        times.append(max(retention.ms / 1000 - age_s, 0.0))
    if retention.bytes >= 0:
        left = max(retention.bytes - growth.waiting_bytes, 0.0)
        if not left:
            times.append(0.0)
        elif growth.bytes_s:
            times.append(left / growth.bytes_s)
    return min(times, default=None)
