"""A subscriber of published topics, as a foreign client: a read_committed consumer that knows headers and JSON alone.

    end       the readable end of all partitions of some topics together, for clocks
    check     reads topics whole: ``n`` has no gap in any partition, and ``seq`` and ``part`` never decrease
    program   stamps the beats that arrive (``deploy.bench.beats``)

python -m millrace.deploy.bench.subscriber BOOTSTRAP TOPIC PARTITIONS COUNT
"""

import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass

from confluent_kafka import Consumer, IsolationLevel, KafkaError, Message, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec  # type: ignore[attr-defined]

from millrace.deploy.bench.beats import print_stamps
from millrace.drivers.kafka.errors import SILENCE
from millrace.drivers.kafka.reader import READING
from millrace.errors import Fatal, MillraceError

ANSWER_S = 60.0
SILENCE_S = 60.0  # while records are there
FOLLOW_S = 0.05
CHUNK = 1000
_SETTINGS = {
    "group.id": "bench-subscriber",
    "isolation.level": "read_committed",
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "error",
    "fetch.wait.max.ms": 100,
    "fetch.queue.backoff.ms": 1,
}


class Topics:
    """Topics with the same number of partitions: creates them, and asks for their end."""

    def __init__(self, bootstrap: str, names: Sequence[str], partitions: int) -> None:
        self._names, self._partitions = names, partitions
        self._client = AdminClient({"bootstrap.servers": bootstrap})
        self._exist = False

    def create(self) -> None:
        """Each with one replica."""
        topics = [NewTopic(name, self._partitions, 1) for name in self._names]
        futures = self._client.create_topics(topics).values()
        READING.call("creating topics", lambda: [future.result(ANSWER_S) for future in futures])

    def _ask_existence(self) -> bool:
        listed = READING.call(
            "asking for topics", lambda: self._client.list_topics(timeout=ANSWER_S)
        ).topics
        return all(name in listed and listed[name].error is None for name in self._names)

    def ends(self) -> Mapping[TopicPartition, int]:
        """The readable end of each partition."""
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        places = [
            TopicPartition(name, number)
            for name in self._names
            for number in range(self._partitions)
        ]

        def ask() -> Mapping[TopicPartition, int]:
            answers = self._client.list_offsets(
                dict.fromkeys(places, latest), isolation_level=IsolationLevel.READ_COMMITTED
            )
            return {place: int(answer.result(ANSWER_S).offset) for place, answer in answers.items()}

        ends = READING.call("asking for ends", ask)
        if min(ends.values()) < 0:  # so the client answers after its timeout, without an error
            raise READING.error(SILENCE, "no answer", doing="asking for ends")
        return ends

    def end(self) -> int:
        """The readable ends of all partitions together; 0 while a topic does not exist."""
        self._exist = self._exist or self._ask_existence()
        try:
            return sum(self.ends().values()) if self._exist else 0
        except MillraceError:
            self._exist = False  # the client keeps a former leader until it asks for the topic
            raise


@dataclass(slots=True)
class Counted:
    """The records of a partition so far."""

    records: int = 0
    n: int = 0
    place: tuple[int, int] = (-1, -1)  # seq and part

    def add(self, message: Message) -> None:
        """Fatal MR-8004 if a record is missing, repeated or out of order."""
        headers = dict(message.headers() or ())
        n, *place = (int(headers[name] or b"") for name in ("n", "seq", "part"))
        where = f"{message.topic()} partition {message.partition()} offset {message.offset()}"
        if n != self.n + 1:
            raise Fatal("MR-8004", f"{where}: n is {n} after {self.n}")
        if tuple(place) <= self.place:
            raise Fatal("MR-8004", f"{where}: seq and part are {place} after {self.place}")
        self.records, self.n, self.place = self.records + 1, n, (place[0], place[1])


def check(bootstrap: str, topics: Topics) -> int:
    """Read all partitions from their first records to their ends; the number of records, tombstones included."""
    ends = topics.ends()
    counts = {(place.topic, place.partition): Counted() for place in ends}
    with closing(Consumer({**_SETTINGS, "bootstrap.servers": bootstrap})) as consumer:
        consumer.assign([TopicPartition(place.topic, place.partition, 0) for place in ends])
        open_places = {
            (place.topic, place.partition): end for place, end in ends.items() if end > 0
        }
        for message in _messages(consumer):
            place = (str(message.topic()), message.partition() or 0)
            offset = message.offset() or 0
            if message.error() is None:
                counts[place].add(message)
                offset += 1
            if offset >= open_places.get(place, sys.maxsize):
                del open_places[place]
            if not open_places:
                break
    return sum(counted.records for counted in counts.values())


def _messages(consumer: Consumer) -> Iterator[Message]:
    """Records and ends of partitions. Fatal MR-8004 if none comes for ``SILENCE_S``."""
    last_s = time.monotonic()
    while time.monotonic() - last_s < SILENCE_S:
        for message in consumer.consume(CHUNK, FOLLOW_S):
            last_s = time.monotonic()
            error = message.error()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                raise Fatal("MR-8004", f"a subscriber can't read: {error.str()}")
            yield message
    raise Fatal("MR-8004", f"a subscriber got no record for {SILENCE_S:.0f} s")


def _stamp(bootstrap: str, topic: str, partitions: int, count: int) -> None:
    """Read from the end until ``count`` beats have arrived; at the end a line for each: the beat and its arrival."""
    arrived: dict[int, float] = {}
    topics = Topics(bootstrap, [topic], partitions)
    with closing(Consumer({**_SETTINGS, "bootstrap.servers": bootstrap})) as consumer:
        ends = topics.ends().items()
        consumer.assign([TopicPartition(place.topic, place.partition, end) for place, end in ends])
        print("ready", flush=True)
        while len(arrived) < count:
            first = consumer.poll(FOLLOW_S)
            messages = [] if first is None else [first, *consumer.consume(CHUNK, 0.0)]
            at_s = time.monotonic()
            for message in messages:
                if message.error() is None and (value := message.value()) is not None:
                    arrived.setdefault(json.loads(value)["after"]["beat"], at_s)
    print_stamps(arrived)


if __name__ == "__main__":
    _stamp(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
