"""Decides which registry may start on a topic: at most one member of the Kafka consumer group ``registry/<topic>``.

Each start takes the topic's transactional ID, so it fences the registry before it. Two supervised registries on one
topic would end each other in turn. Therefore a registry joins the group before it takes the ID. The group coordinator
assigns the topic's only partition to one member. The sticky assignor leaves it there while that member lives.
Confluent's registry elects its leader in the same way.

    the partition belongs to …     this process
    itself                         starts
    a live registry                is refused: Fatal MR-6025 names the other
    a registry that has died       waits until the broker expires that member (``SESSION_S``), then starts
    a registry of the same name    starts at once: this process listens on that address, so the other has ended

Names are ``host/address:port``. Two hosts with the same host name look like one; then the later start wins.
The group decides who may start. Only the transactional ID decides who may write (``registry.kafka``), so a process
that was suspended for longer than its session still cannot write after its successor has started.
"""

import threading
import time
from contextlib import suppress

from confluent_kafka import Consumer, KafkaException

from millrace.drivers.kafka.access import KafkaAccess, Settings
from millrace.drivers.kafka.group import describe_group
from millrace.drivers.kafka.names import registry_id
from millrace.errors import Fatal, Retryable
from millrace.registry.broker import AWAY_FIX, CLIENT, ERRORS

SESSION_S = 6.0  # the broker's default minimum
HEARTBEAT_S = 1.0  # also how soon a live owner joins the rebalance of a start
CLAIM_S = 120.0  # a broker that has just started loads its coordinator first
LOOK_S = 0.2
LEAVE_S = 5.0


class Ownership:
    """One registry's membership, as ``name``. ``claim`` may be called again. Not for several threads.

    ``takes_over``: this process starts in any case. The registry that serves the topic then ends with MR-6023.
    """

    def __init__(
        self, brokers: KafkaAccess, topic: str, *, name: str, takes_over: bool = False
    ) -> None:
        self._topic = topic
        self._takes_over = takes_over
        self._name = name
        self._group = registry_id(topic)
        self._brokers = brokers
        self._is_owner = threading.Event()
        self._leaves = threading.Event()
        self._thread: threading.Thread | None = None

    def claim(self) -> None:
        """Join the group and return when this process may start. Fatal MR-6025, Retryable MR-3001."""
        has_predecessor_here = self._thread is None and self._is_own_name()
        self._join()
        if self._takes_over or has_predecessor_here:
            return
        deadline_s = time.monotonic() + CLAIM_S
        while not self._is_owner.wait(LOOK_S):
            try:
                owner, is_stable = self._owner()
            except Retryable:
                if time.monotonic() > deadline_s:
                    raise
                continue
            if owner not in ("", self._name) and is_stable:
                self.release()
                raise Fatal(
                    "MR-6025",
                    f"registry {owner} serves topic {self._topic}",
                    topic=self._topic,
                    owner=owner,
                )
            if time.monotonic() > deadline_s:
                raise Retryable(
                    "MR-3001",
                    f"Kafka did not assign topic {self._topic} within {CLAIM_S:g} s",
                    fix=AWAY_FIX,
                )

    def release(self) -> None:
        """Leave the group, so that another registry can start at once."""
        self._leaves.set()
        if self._thread is not None:
            self._thread.join(LEAVE_S)

    def _settings(self) -> Settings:
        return {**self._brokers.settings(), **CLIENT, "client.id": self._name}

    def _is_own_name(self) -> bool:
        """True if the owner has this name. Asked before the rebalance, which hides the owner until its session ends."""
        with suppress(Retryable):
            return self._owner()[0] == self._name
        return False

    def _join(self) -> None:
        if self._thread is not None:
            return
        settings: Settings = {
            **self._settings(),
            "group.id": self._group,
            "partition.assignment.strategy": "cooperative-sticky",
            "session.timeout.ms": int(SESSION_S * 1000),
            "heartbeat.interval.ms": int(HEARTBEAT_S * 1000),
            "enable.auto.commit": False,
            "auto.offset.reset": "latest",
        }
        doing = "joining the registry's group"
        consumer = ERRORS.call(doing, lambda: Consumer(settings))
        ERRORS.call(doing, lambda: consumer.subscribe([self._topic]))
        self._thread = threading.Thread(
            target=self._stay, args=(consumer,), name="ownership", daemon=True
        )
        self._thread.start()

    def _stay(self, consumer: Consumer) -> None:
        """Poll until ``release``: the client sends heartbeats and rebalances only while it is polled."""
        while not self._leaves.is_set():
            with suppress(KafkaException):
                consumer.poll(LOOK_S)  # records of the topic are not needed here
                if consumer.assignment():
                    self._is_owner.set()
                else:
                    self._is_owner.clear()
        with suppress(KafkaException):
            consumer.close()

    def _owner(self) -> tuple[str, bool]:
        """(name of the member with the partition or "", True if a rebalance with this member has ended)."""
        group = describe_group(self._brokers, self._group, code="MR-3001", fix=AWAY_FIX)
        owners = [member.client_id for member in group.members if member.has_partitions]
        has_joined = self._name in [member.client_id for member in group.members]
        return next(iter(owners), ""), group.is_stable and has_joined
