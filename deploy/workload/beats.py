"""Beats: small source transactions at a steady pace, and how long each of them takes to arrive.

    acknowledged: dict[int, float] = {}
    topic = watch_topic(Arrivals(acknowledged), brokers, "shop")
    with topic:
        with write_beats(acknowledged, connect):
            …
        topic.wait_complete(timeout_s=30)
    topic.arrivals.latencies_ms()

The latency of a beat starts when the answer to COMMIT has reached the writer, and ends when an observer has the
row. Both times come from the monotonic clock of this process.

Guarantees: an observer that finds several beats in one poll dates each of them; a beat that has not arrived is reported
as missing, never dropped. Observers write nothing, join no consumer group, and are unknown to the service.
A topic observer is a read_committed consumer. A target observer selects the beats it has not seen, every ``POLL_S``,
by primary key: its latencies are up to ``POLL_S`` too high.
"""

import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from millrace.background import Background
from millrace.deploy.workload.shop import BEATS, Connect
from millrace.drivers.kafka.reader import TopicReader
from millrace.schemas.documents import Brokers
from millrace.schemas.record.control import SchemaRecord
from millrace.schemas.record.record import KnownSchemas, RowRecord, decode_record

POLL_S = 0.005
COMPLETE_POLL_S = 0.05
BEAT_S = 0.05


class Arrivals:
    """When beats arrived at one observer. ``acknowledged`` is shared: when the source acknowledged each beat."""

    def __init__(self, acknowledged: Mapping[int, float]) -> None:
        self._acknowledged = acknowledged
        self._seen: dict[int, float] = {}
        self._latest = 0
        self.complete_to = 0

    def add(self, beats: Iterable[int], at_s: float) -> None:
        """These beats were readable at ``at_s`` (monotonic clock). Only the first sighting of a beat counts."""
        for beat in beats:
            self._seen.setdefault(beat, at_s)
            self._latest = max(self._latest, beat)
        while self.complete_to + 1 in self._seen:
            self.complete_to += 1

    def latencies_ms(self, since_s: float = -math.inf, until_s: float = math.inf) -> list[float]:
        """One latency for each beat that arrived and was acknowledged between the two moments."""
        return [
            (self._seen[beat] - at_s) * 1000
            for beat, at_s in list(self._acknowledged.items())
            if beat in self._seen and since_s <= at_s < until_s
        ]

    def missing(self) -> list[int]:
        return [beat for beat in list(self._acknowledged) if beat not in self._seen]

    def age_now_ms(self) -> float | None:
        """How long ago the newest beat that arrived was acknowledged; None before the first."""
        at_s = self._acknowledged.get(self._latest)
        return None if at_s is None else (time.monotonic() - at_s) * 1000


class Observer(Background):
    """Fills ``arrivals`` in a thread for the length of the ``with`` block."""

    def __init__(
        self, arrivals: Arrivals, name: str, watch: Callable[[threading.Event], None]
    ) -> None:
        super().__init__(name, watch)
        self.arrivals = arrivals

    def wait_complete(self, timeout_s: float) -> bool:
        """Wait for every acknowledged beat; False when time is up or the observer has failed."""
        deadline = time.monotonic() + timeout_s
        while self.arrivals.missing():
            if time.monotonic() > deadline or not self.is_alive():
                return False
            time.sleep(COMPLETE_POLL_S)
        return True


def write_beats(
    acknowledged: dict[int, float], connect: Connect, *, interval_s: float = BEAT_S
) -> Background:
    """Inserts beats 1, 2, …, ``interval_s`` apart, and notes when the source acknowledged each COMMIT."""

    def write(stop: threading.Event) -> None:
        connection = connect()
        cursor = connection.cursor()
        beat = 0
        due_s = time.monotonic()
        while not stop.wait(max(due_s - time.monotonic(), 0.0)):
            beat += 1
            cursor.execute(f"INSERT INTO {BEATS} VALUES (%s)", (beat,))
            connection.commit()
            acknowledged[beat] = time.monotonic()
            due_s += interval_s
        connection.close()

    return Background("beats", write)


def watch_topic(arrivals: Arrivals, brokers: Brokers, topic: str) -> Observer:
    """A subscriber that reads the topic from its beginning."""

    def watch(stop: threading.Event) -> None:
        reader = TopicReader(brokers, topic)
        schemas = KnownSchemas()
        try:
            for chunk in reader.follow(reader.ends().low, stop.is_set):
                at_s = time.monotonic()
                beats = []
                for record in chunk:
                    found = decode_record(record.key, record.value, schemas)
                    if isinstance(found, SchemaRecord):
                        schemas.learn(found)
                    elif isinstance(found, RowRecord):
                        beats += _beat(found)
                arrivals.add(beats, at_s)
        finally:
            reader.close()

    return Observer(arrivals, "topic observer", watch)


def watch_target(arrivals: Arrivals, connect: Connect) -> Observer:
    """A client of the target. ``connect`` selects the database; the table of beats exists."""

    def watch(stop: threading.Event) -> None:
        connection = connect()
        cursor = connection.cursor()
        cursor.execute("SET autocommit = 1")
        while not stop.is_set():
            # lanes commit in any order: a beat below the newest may still be missing
            cursor.execute(f"SELECT beat FROM {BEATS} WHERE beat > %s", (arrivals.complete_to,))
            found = cursor.fetchall()
            arrivals.add((beat for (beat,) in found), time.monotonic())
            stop.wait(POLL_S)
        connection.close()

    return Observer(arrivals, "target observer", watch)


def percentile(values: Sequence[float], share: float) -> float | None:
    """The value that this share of ``values`` does not exceed (nearest rank); None without values."""
    ordered = sorted(values)
    return ordered[max(math.ceil(share * len(ordered)) - 1, 0)] if ordered else None


def _beat(record: RowRecord) -> list[int]:
    after = record.change.after
    if record.source.table != BEATS or after is None:
        return []
    beat = after.get("beat")
    return [beat] if isinstance(beat, int) else []
