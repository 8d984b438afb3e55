"""A subscriber of published topics, a separate program: confluent_kafka alone, as docs/subscribers.md describes it.

    python -I subscriber.py BOOTSTRAP PREFIX

It reads every topic whose name begins with PREFIX, also topics and partitions that come later. It leaves out a record
whose ``n`` it has, and prints each other one as a line of JSON: topic, partition, offset, key, value, headers. It fails
at the first record that breaks a rule of its partition: ``n`` grows by one, ``seq`` and ``epoch`` never fall, and all
have one ``task``. After SIGTERM it reads up to the present ends, and exits with 0.
"""

import json
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

POLL_S, ASK_S, PATIENCE_S = 0.2, 60.0, 300.0
AWAY = (KafkaError._TRANSPORT, KafkaError._TIMED_OUT)
Headers = dict[str, str]
T = TypeVar("T")


class Subscription:
    """The state of each partition: the headers of its last record, and its end as the last poll met it."""

    def __init__(self, bootstrap: str, prefix: str) -> None:
        self.prefix = prefix
        self.last: dict[tuple[str, int], Headers] = {}
        self.ends: dict[tuple[str, int], int] = {}
        self.is_stopping = False
        self.consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": f"subscriber of {prefix}",
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "check.crcs": True,
                "topic.metadata.refresh.interval.ms": 500,
                "log_level": 0,
            }
        )
        self.consumer.subscribe([f"^{re.escape(prefix)}.*"])

    def records(self) -> Iterator[dict[str, object]]:
        """Each record once, until the ends that the partitions have after SIGTERM."""
        wanted: dict[tuple[str, int], int] | None = None
        while True:
            if self.is_stopping and wanted is None:
                wanted = self._present_ends()
            if wanted is not None and all(
                self.ends.get(place, 0) >= end for place, end in wanted.items()
            ):
                return
            message = self.consumer.poll(POLL_S)
            if message is None:
                continue
            error, place = message.error(), (message.topic() or "", message.partition() or 0)
            if error is None:
                if self._is_new(place, message):
                    yield self._plain(place, message)
            elif error.code() == KafkaError._PARTITION_EOF:
                self.ends[place] = message.offset() or 0

    def _present_ends(self) -> dict[tuple[str, int], int]:
        topics = self._asked(lambda: self.consumer.list_topics(timeout=ASK_S)).topics
        places = [
            TopicPartition(name, partition)
            for name, topic in topics.items()
            if name.startswith(self.prefix)
            for partition in topic.partitions
        ]
        ends = {}
        for place in places:
            ask = partial(self.consumer.get_watermark_offsets, place, timeout=ASK_S)
            answer = self._asked(ask)
            assert answer is not None, place
            ends[place.topic, place.partition] = int(answer[1])  # the stable end
        return ends

    @staticmethod
    def _asked(ask: Callable[[], T]) -> T:
        """The answer; a lost connection of a busy machine is asked again."""
        deadline_s = time.monotonic() + PATIENCE_S
        while True:
            try:
                return ask()
            except KafkaException as error:
                if error.args[0].code() not in AWAY or time.monotonic() > deadline_s:
                    raise
                time.sleep(POLL_S)

    def _is_new(self, place: tuple[str, int], message: Message) -> bool:
        headers, before = _headers(message), self.last.get(place)
        n = int(headers["n"])
        if before is not None and n <= int(before["n"]):
            return False
        where = f"{place} offset {message.offset()}: {headers} after {before}"
        assert n == (int(before["n"]) if before is not None else 0) + 1, where
        if before is not None:
            assert headers["task"] == before["task"], where
            assert int(headers["epoch"]) >= int(before["epoch"]), where
            assert int(headers["seq"]) >= int(before["seq"]), where
        self.last[place] = headers
        return True

    @staticmethod
    def _plain(place: tuple[str, int], message: Message) -> dict[str, object]:
        key, value = (
            None if one is None else bytes(one).decode() for one in (message.key(), message.value())
        )
        return {
            "topic": place[0],
            "partition": place[1],
            "offset": message.offset(),
            "key": key,
            "value": value,
            "headers": _headers(message),
        }


def _headers(message: Message) -> Headers:
    pairs = list(message.headers() or ())
    headers = {}
    for name, value in pairs:
        assert isinstance(value, bytes), (name, value)
        headers[str(name)] = value.decode()
    own = sorted(name for name in headers if not name.startswith("__debezium."))
    assert own == ["epoch", "n", "part", "seq", "task"], headers
    assert len(pairs) == len(headers), pairs
    return headers


def read(bootstrap: str, prefix: str) -> None:
    """Print the records until SIGTERM."""
    subscription = Subscription(bootstrap, prefix)

    def stop(*_: object) -> None:
        subscription.is_stopping = True

    signal.signal(signal.SIGTERM, stop)
    for record in subscription.records():
        print(json.dumps(record))
    subscription.consumer.close()


if __name__ == "__main__":
    read(*sys.argv[1:])
