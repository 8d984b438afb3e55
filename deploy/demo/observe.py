"""Watching from outside: a plain subscriber of the topic and a plain client of the target, each in a thread.

Both look for the shop's ``pulse`` row, which holds the time at which it was sent: what they see now minus that time
is how old the topic or the target is, from the statement on the source to visibility. One machine, one clock.

Guarantees: neither writes anything, joins a consumer group, or is known to the service.
"""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from consumer.topic.kafka import TopicReader
from deploy.workload.shop import Connect
from schemas.control import DdlRecord, SchemaRecord
from schemas.record import RowRecord, SchemaBook, decode_record

POLL_S = 0.005  # the target's pulse: 200 point reads a second


@dataclass(slots=True)
class Sightings:
    """What one watcher saw."""

    changes: int = 0
    ages_ms: list[float] = field(default_factory=list)
    _last: tuple[float, float] | None = None  # when, on the monotonic clock; how old then, ms

    def percentile(self, share: float) -> float | None:
        """The age that this share of sightings did not exceed, in ms; None without any."""
        ages = sorted(self.ages_ms)
        return ages[min(len(ages) - 1, int(share * len(ages)))] if ages else None

    def age_now_ms(self) -> float | None:
        """How old what is visible is now: it grows while nothing newer comes. None when nothing was seen."""
        if self._last is None:
            return None
        seen_s, age_ms = self._last
        return age_ms + (time.monotonic() - seen_s) * 1000

    def add_age(self, sent_us: int) -> None:
        """A pulse that was sent at ``sent_us`` is visible now."""
        if sent_us:
            age_ms = (time.time_ns() // 1000 - sent_us) / 1000
            self.ages_ms.append(age_ms)
            self._last = time.monotonic(), age_ms


class Watcher:
    """Runs ``watch(sightings, is_over)`` in a thread for the length of the ``with`` block; re-raises what it raised."""

    def __init__(self, name: str, watch: Callable[[Sightings, Callable[[], bool]], None]) -> None:
        self.seen = Sightings()
        self._over = threading.Event()
        self._failure: BaseException | None = None
        self._watch = watch
        self._thread = threading.Thread(target=self._run, name=name)

    def wait_seen(self, timeout_s: float) -> None:
        """Until it has seen a pulse: a short demonstration may be over before the first is through."""
        deadline = time.monotonic() + timeout_s
        while not self.seen.ages_ms and self._thread.is_alive() and time.monotonic() < deadline:
            time.sleep(POLL_S)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join()
        if kind is None and self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            self._watch(self.seen, self._over.is_set)
        except BaseException as failure:  # noqa: BLE001 - raised again in the thread that made this
            self._failure = failure


def watch_topic(bootstrap: str, topic: str) -> Watcher:
    """A subscriber from the topic's end on."""

    def watch(seen: Sightings, is_over: Callable[[], bool]) -> None:
        reader = TopicReader(bootstrap, topic)
        book = SchemaBook()
        try:
            for chunk in reader.follow(reader.ends().low, is_over):
                for record in chunk:
                    found = decode_record(record.key, record.value, book)
                    if isinstance(found, SchemaRecord):
                        book.learn(found)
                    elif isinstance(found, RowRecord | DdlRecord):
                        seen.changes += 1
                        if isinstance(found, RowRecord) and found.source.table == "pulse":
                            seen.add_age(_sent_us(found))
        finally:
            reader.close()

    return Watcher("topic watcher", watch)


def watch_target(connect: Connect) -> Watcher:
    """A client of the target that reads the pulse over and over."""

    def watch(seen: Sightings, is_over: Callable[[], bool]) -> None:
        connection = connect()
        cursor = connection.cursor()
        last = 0
        while not is_over():
            row = _pulse(cursor)
            connection.commit()
            if row and row[0] > last:
                last = row[0]
                seen.changes += 1
                seen.add_age(row[1])
            time.sleep(POLL_S)
        connection.close()

    return Watcher("target watcher", watch)


def _pulse(cursor: object) -> Sequence[int]:
    execute, fetchall = cursor.execute, cursor.fetchall  # type: ignore[attr-defined]  # a PEP 249 cursor
    execute(
        "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema='shop' AND table_name='pulse'"
    )
    if not fetchall()[0][0]:
        return ()
    execute("SELECT beat, sent_us FROM shop.pulse WHERE id = 1")
    found: Sequence[Sequence[int]] = fetchall()
    return found[0] if found else ()


def _sent_us(record: RowRecord) -> int:
    after = record.change.after
    sent = after.get("sent_us") if after is not None else None
    return sent if isinstance(sent, int) else 0
