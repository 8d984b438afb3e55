"""One topic for one test on a real broker: its registry, its publishers, and the verifier's verdict."""

import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import cached_property

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

import millrace.producer.publish.publisher as publishing
from millrace.consumer.topic.verify import Summary, TopicVerifier
from millrace.drivers.kafka.access import GivenAccess, KafkaAccess
from millrace.drivers.kafka.names import transactional_id
from millrace.drivers.kafka.producer import TransactionalProducer
from millrace.drivers.kafka.reader import Ends, TopicReader
from millrace.errors import MillraceError, Retryable
from millrace.producer.publish.codec import RecordCodec
from millrace.producer.publish.config import PublisherConfig, PublisherLimits
from millrace.producer.publish.kafka import KafkaDriver
from millrace.producer.publish.opening import Basis, TailHint
from millrace.producer.publish.publisher import Publisher
from millrace.schemas.documents import Brokers, CaptureRules
from millrace.schemas.documents.model import TopicOptions
from millrace.schemas.gtid import Flavour
from millrace.schemas.requests.decision import Decision
from tests.kit.capture.topic_rows import SET, Ids, RowStream, start_of
from tests.kit.kafka_topics import ANSWER_S, log_end, make_topic, remove_records_before
from tests.kit.waiting import answered, eventually

PATIENT = PublisherLimits(publish_timeout_s=60.0, stable_timeout_s=30.0, audit_timeout_s=60.0)


def topic_named(prefix: str, test_name: str) -> str:
    """A topic name that no other test has."""
    return f"{prefix}-{re.sub(r'[^a-z0-9_]', '-', test_name)[:120]}-{time.time_ns()}"


def once_at(patch: pytest.MonkeyPatch, point: str, act: Callable[[], None]) -> None:
    """Call ``act`` when a publisher passes the fault point ``point`` for the first time."""
    planned = [act]

    def passed(name: str) -> None:
        if name == point and planned:
            planned.pop()()

    patch.setattr(publishing, "fault_point", passed)


# set explicitly, so that no warning is logged
ONE_BROKER = TopicOptions(replication_factor=1, min_insync_replicas=1)


class ObservedDriver(KafkaDriver):
    """The real driver; ``newest`` is the producer instance that it made last."""

    newest: TransactionalProducer

    def transactions(self, record_bytes_max: int) -> TransactionalProducer:
        self.newest = super().transactions(record_bytes_max)
        return self.newest


class Rig:
    """One topic. ``limits`` are patient; a test that waits for a limit shortens it only where it must run out."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        self.ids = Ids()
        self.limits = PATIENT
        self.options = ONE_BROKER
        self.compression = CaptureRules().compression
        self.brokers: KafkaAccess = GivenAccess(bootstrap)
        self._driver: ObservedDriver | None = None

    def config(self, epoch: int) -> PublisherConfig:
        """The configuration of the owner with this lease epoch."""
        return PublisherConfig(
            brokers=self.brokers,
            topic=self.topic,
            transactional_id=transactional_id(self.topic),
            epoch=epoch,
            worker=f"w{epoch}",
            set=SET,
            flavour=Flavour.MYSQL,
            limits=self.limits,
            options=self.options,
            compression=self.compression,
        )

    def open(
        self,
        epoch: int = 7,
        *,
        verify_lease: Callable[[], None] = lambda: None,
        hint: TailHint | None = None,
        decision: Decision | None = None,
    ) -> Publisher:
        """A new publisher."""
        config = self.config(epoch)
        self._driver = ObservedDriver(config)
        return Publisher.open_with(
            self._driver,
            config,
            codec=RecordCodec.register(config, self.ids),
            verify_lease=verify_lease,
            basis=Basis(start_of(Flavour.MYSQL), hint, decision),
        )

    @property
    def instance(self) -> TransactionalProducer:
        """The producer instance of the publisher that was opened last."""
        assert self._driver is not None
        return self._driver.newest

    @contextmanager
    def running(self, epoch: int = 7) -> Iterator[Publisher]:
        """A publisher that is closed after the block."""
        publisher = self.open(epoch)
        yield publisher
        publisher.close()

    def stream(self, publisher: Publisher, transaction_rows: int = 3) -> RowStream:
        """Rows that follow the publisher's progress."""
        return RowStream(self.topic, self.ids, publisher.progress, transaction_rows)

    @contextmanager
    def foreign_transaction(self) -> Iterator[None]:
        """Another writer's Kafka transaction with one record, open during the block."""
        foreign = Producer(
            {"bootstrap.servers": self.bootstrap, "transactional.id": f"foreign-{self.topic}"}
        )
        foreign.init_transactions(ANSWER_S)
        foreign.begin_transaction()
        foreign.produce(self.topic, b"hello", None, 0)
        assert foreign.flush(ANSWER_S) == 0
        yield
        foreign.abort_transaction(ANSWER_S)

    def write_foreign(self, partition: int = 0) -> None:
        """Another client writes a record outside of any Kafka transaction."""
        foreign = Producer({"bootstrap.servers": self.bootstrap})
        foreign.produce(self.topic, b"hello", None, partition)
        assert foreign.flush(ANSWER_S) == 0

    @cached_property
    def admin(self) -> AdminClient:
        """An operator's client."""
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def exists(self) -> bool:
        """Whether the topic is there."""
        return self.topic in self.admin.list_topics(timeout=ANSWER_S).topics

    def delete(self) -> None:
        """`kafka-topics --delete`; returns when the broker no longer lists the topic."""
        self.admin.delete_topics([self.topic])[self.topic].result(ANSWER_S)
        eventually(lambda: not self.exists(), what="the topic is gone")

    def recreate(self, config: dict[str, str] | None = None, *, partition_count: int = 1) -> None:
        """Create a topic of the same name; waits until the broker has removed the former one."""
        make_topic(
            self.admin, self.topic, partition_count=partition_count, config=config, replaces=True
        )

    def remove_before(self, offset: int = -1) -> int:
        """`kafka-delete-records` up to ``offset`` (-1: all records); returns the first offset that is kept."""
        return remove_records_before(self.admin, self.topic, offset)

    def high_end(self) -> int:
        """The end of the log, open transactions included; asks a restarted broker until it leads the partition."""
        return log_end(self.admin, self.topic)

    def ends(self) -> Ends:
        """The first kept offset and the end of committed records."""
        with closing(TopicReader(Brokers(self.bootstrap), self.topic)) as reader:
            return reader.ends()

    def wait_ended(self) -> None:
        """Wait until no Kafka transaction is open: markers follow commits, aborts follow timeouts."""

        def is_ended() -> bool:
            try:
                return self.ends().stable == self.high_end()
            except Retryable:
                return False

        eventually(is_ended, what="every Kafka transaction is ended")

    def verdict(self) -> Summary:
        """The findings of `millrace topic verify`."""
        reader = TopicReader(Brokers(self.bootstrap), self.topic)
        ends = reader.ends()
        verifier = TopicVerifier(from_beginning=ends.low == 0)
        for chunk in reader.chunks(ends.low, ends.stable):
            for record in chunk:
                verifier.feed(record.offset, record.key, record.value)
        reader.close()
        return verifier.finish()

    def wait_seq(self, seq: int) -> None:
        """Wait until this seq is published; a missing topic or leader is retried."""

        def is_published() -> bool:
            try:
                return (self.verdict().last_seq or 0) >= seq
            except MillraceError as error:
                if error.code != "MR-3501":
                    raise
                return False

        eventually(is_published, what=f"seq {seq}")

    def assert_whole(self, last_seq: int) -> None:
        """Every row up to ``last_seq`` is there once and in order."""
        self.wait_ended()
        found = self.verdict()
        assert found.violations == [], "; ".join(wrong.what for wrong in found.violations)
        assert (found.last_seq, found.counts.rows) == (last_seq, last_seq)


class Load:
    """A publisher that works in a thread; it is opened again after each Retryable, as the supervisor does."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.seq = 0
        self.failures: list[str] = []
        self.fatal: BaseException | None = None
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._is_done(answered(lambda: self._rig.open(7), Retryable)):
                pass
        except BaseException as error:  # noqa: BLE001 - raised again in ``finish``
            self.fatal = error

    def _is_done(self, publisher: Publisher) -> bool:
        """Publish until ``finish``. False after an error that is retried; True when every batch is audited."""
        stream = self._rig.stream(publisher)
        self.seq = publisher.progress.seq
        try:
            while not self._stop.is_set():
                publisher.publish(stream.next_batch(10))
                self.seq = publisher.progress.seq
            publisher.close()
        except Retryable as error:
            self.failures.append(str(error))
            return False
        return True

    def wait_rows(self, count: int) -> None:
        """Wait until ``count`` more rows are committed."""
        wanted = self.seq + count
        eventually(
            lambda: self.fatal or self.seq >= wanted,
            what=f"more rows after {self.failures}",
        )
        if self.fatal is not None:
            raise self.fatal

    def finish(self) -> int:
        """Stop; the last committed seq."""
        self._stop.set()
        eventually(lambda: not self._thread.is_alive(), what=f"the end after {self.failures}")
        if self.fatal is not None:
            raise self.fatal
        return self.seq
