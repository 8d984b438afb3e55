"""The Kafka client against librdkafka's mock cluster: failures of every request, and the duration of hidden retries.

The mock neither filters read_committed nor fences zombies, so the tests cover the client side only.
"""

import ctypes
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from millrace.drivers.kafka.acls import Grants, capture_acls, subscriber_acls
from millrace.drivers.kafka.producer import WRITING, TransactionalProducer
from millrace.drivers.kafka.wire import require_transactions
from millrace.errors import Fatal, MillraceError, Retryable
from millrace.producer.publish.config import PublisherConfig, PublisherLimits
from millrace.producer.publish.driver import Transactions
from millrace.producer.publish.kafka import KafkaDriver
from millrace.schemas.documents import Brokers
from millrace.schemas.gtid import Flavour
from tests.kit.kafka_topics import log_end
from tests.kit.waiting import answered, eventually

PRODUCE, FIND, INIT, ADD_PARTITIONS, END = 0, 10, 22, 24, 26
NAMES = ("InitProducerId", "AddPartitionsToTxn", "Produce", "EndTxn")
TRANSPORT = -195
BROKER, NOBODY = 1, -1  # the cluster's only broker; the id that means no leader
TOPIC = "mock"


class MockCluster:
    """One broker inside this process whose answers the test controls."""

    def __init__(self) -> None:
        found = Path(confluent_kafka.__file__).parent.parent / "confluent_kafka.libs"
        self._library = ctypes.CDLL(str(next(found.glob("librdkafka-*.so*"))))
        library = self._library
        library.rd_kafka_conf_new.restype = ctypes.c_void_p
        library.rd_kafka_new.restype = ctypes.c_void_p
        library.rd_kafka_new.argtypes = [
            ctypes.c_int,
            ctypes.c_void_p,
            ctypes.c_char_p,
            ctypes.c_size_t,
        ]
        library.rd_kafka_mock_cluster_new.restype = ctypes.c_void_p
        library.rd_kafka_mock_cluster_new.argtypes = [ctypes.c_void_p, ctypes.c_int]
        library.rd_kafka_mock_cluster_destroy.argtypes = [ctypes.c_void_p]
        library.rd_kafka_destroy.argtypes = [ctypes.c_void_p]
        library.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
        library.rd_kafka_mock_cluster_bootstraps.argtypes = [ctypes.c_void_p]
        library.rd_kafka_mock_broker_error_stack_cnt.argtypes = [
            ctypes.c_void_p,
            ctypes.c_int32,
            ctypes.c_int16,
            ctypes.c_void_p,
        ]
        error = ctypes.create_string_buffer(512)
        self._client = library.rd_kafka_new(0, library.rd_kafka_conf_new(), error, 512)
        self._cluster = library.rd_kafka_mock_cluster_new(self._client, 1)
        self.bootstrap: str = library.rd_kafka_mock_cluster_bootstraps(self._cluster).decode()
        create = library.rd_kafka_mock_topic_create  # clients do not create it by asking
        create.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_int]
        assert create(self._cluster, TOPIC.encode(), 1, 1) == 0

    def answer(self, api: int, error: int) -> None:
        """Set the next answer to a request of this kind; TRANSPORT drops the connection instead."""
        self._push(api, error, 0)

    def answer_late(self, api: int, delay_ms: int) -> None:
        """Delay the next answer to a request of this kind, which is correct."""
        self._push(api, 0, delay_ms)

    def _push(self, api: int, error: int, delay_ms: int) -> None:
        push = self._library.rd_kafka_mock_broker_push_request_error_rtts
        failed = push(
            ctypes.c_void_p(self._cluster),
            ctypes.c_int32(BROKER),
            ctypes.c_int16(api),
            ctypes.c_size_t(1),
            ctypes.c_int(error),
            ctypes.c_int(delay_ms),
        )
        assert not failed, f"the mock refused the answer: {failed}"

    def forget(self, api: int) -> None:
        """From now on the broker does not know this kind of request."""
        none = ctypes.c_int16(-1)
        cluster = ctypes.c_void_p(self._cluster)
        failed = self._library.rd_kafka_mock_set_apiversion(
            cluster, ctypes.c_int16(api), none, none
        )
        assert not failed, f"the mock refused the version: {failed}"

    def count_left(self, api: int) -> int:
        """The number of set answers that were not requested yet."""
        left = ctypes.c_size_t()
        failed = self._library.rd_kafka_mock_broker_error_stack_cnt(
            self._cluster, BROKER, api, ctypes.byref(left)
        )
        assert not failed, f"the mock did not report the remaining answers: {failed}"
        return left.value

    def lose_leader(self) -> None:
        """From now on the partition has no leader."""
        self._lead(NOBODY)

    def find_leader(self) -> None:
        """From now on the partition has a leader again."""
        self._lead(BROKER)

    def _lead(self, broker: int) -> None:
        cluster, topic = ctypes.c_void_p(self._cluster), TOPIC.encode()
        assert not self._library.rd_kafka_mock_partition_set_leader(cluster, topic, 0, broker)

    def count_records(self) -> int:
        """The number of records in the partition."""
        reader = confluent_kafka.Consumer(
            {"bootstrap.servers": self.bootstrap, "group.id": "g", "enable.partition.eof": True}
        )
        reader.assign([confluent_kafka.TopicPartition(TOPIC, 0, 0)])
        records: list[confluent_kafka.Message] = []

        def is_at_end() -> bool:
            message = reader.poll(1.0)
            if message is not None and message.error() is None:
                records.append(message)
            return message is not None and message.error() is not None

        eventually(is_at_end, what="the end of the mock's partition")
        reader.close()
        return len(records)

    def close(self) -> None:
        """Destroy the cluster."""
        self._library.rd_kafka_mock_cluster_destroy(self._cluster)
        self._library.rd_kafka_destroy(self._client)


@pytest.fixture
def cluster() -> Iterator[MockCluster]:
    """A mock cluster."""
    made = MockCluster()
    yield made
    made.close()


def driver_on(cluster: MockCluster, limits: PublisherLimits) -> KafkaDriver:
    """A driver on the cluster."""
    config = PublisherConfig(
        brokers=Brokers(cluster.bootstrap),
        topic=TOPIC,
        transactional_id="t",
        epoch=1,
        worker="w",
        set="s",
        flavour=Flavour.MARIADB,
        limits=limits,
    )
    return KafkaDriver(config)


def instance_on(cluster: MockCluster, limits: PublisherLimits) -> Transactions:
    """A transactional client that has sent nothing yet."""
    return driver_on(cluster, limits).transactions(1_000_000)


@pytest.fixture
def instance(cluster: MockCluster) -> Iterator[Transactions]:
    """An initialized transactional client."""
    made = instance_on(cluster, LIMITS)
    made.init()
    yield made
    made.discard()


LIMITS = PublisherLimits(publish_timeout_s=60.0)  # for requests that should succeed


def transact(instance: Transactions) -> float:
    """Commit one record in one Kafka transaction; return the seconds that the commit took."""
    instance.begin()
    assert instance.add([(b"k", b"v")]) is None
    instance.flush()
    return instance.commit()


@contextmanager
def discarding(instance: Transactions) -> Iterator[None]:
    """Discard it after the block."""
    try:
        yield
    finally:
        instance.discard()


SHORT = PublisherLimits(publish_timeout_s=2.0)


@pytest.mark.parametrize(
    ("api", "name"),
    [
        (FIND, "FindCoordinator"),
        (INIT, "InitProducerId"),
        (ADD_PARTITIONS, "AddPartitionsToTxn"),
        (END, "EndTxn"),
    ],
)
def test_brokers_without_transactions_are_named(cluster: MockCluster, api: int, name: str) -> None:
    """A task's start and the check. Readers need none. librdkafka reports the third as silence."""
    cluster.forget(api)
    brokers = Brokers(cluster.bootstrap)

    def start() -> None:
        transactions = instance_on(cluster, SHORT)
        with discarding(transactions), Grants(brokers, capture_acls(TOPIC)).explained():
            transactions.init()
            transact(transactions)

    def read() -> None:
        with Grants(brokers, subscriber_acls(TOPIC)).explained():
            raise Retryable("MR-3001", "no broker answers")

    with pytest.raises(Fatal) as caught:
        start()
    assert (caught.value.code, name in caught.value.message) == ("MR-3023", True)
    with pytest.raises(Fatal, match=f"has no Kafka transactions: it does not know {name}"):
        require_transactions(brokers)
    with pytest.raises(Retryable, match="no broker answers"):
        read()


def test_brokers_with_transactions_pass(cluster: MockCluster) -> None:
    """The check of the mock as it is."""
    require_transactions(Brokers(cluster.bootstrap))


def test_event_hubs_are_refused_by_name() -> None:
    """Without a connection, in every writer."""
    brokers = Brokers("shop.servicebus.windows.net:9093")
    with pytest.raises(Fatal, match="Azure Event Hubs") as caught:
        TransactionalProducer(
            brokers, TOPIC, errors=WRITING, settings={"client.id": "t"}, timeout_s=1.0
        )
    assert caught.value.code == "MR-3023"


def test_commit_without_a_retry_is_fast(instance: Transactions) -> None:
    """Rule 3 must not replace every instance."""
    assert any(transact(instance) < LIMITS.suspicious_s for _ in range(20))


def test_hidden_commit_retry_is_never_fast(cluster: MockCluster, instance: Transactions) -> None:
    """Rule 3 depends on this: librdkafka silently retries EndTxn, but not within 0.8 × retry.backoff.ms."""
    transact(instance)
    for _ in range(3):
        cluster.answer(END, TRANSPORT)
        assert transact(instance) >= LIMITS.suspicious_s


# The outcome of one failed answer to one request, by error name: branch and code, or "OK" when the client recovers
# by itself. Then no record is lost or repeated, and a retried commit takes long enough to be noticed.
AWAY, SPOILED, FENCED = "Retryable MR-3001", "Retryable MR-3002", "Fenced MR-3003"
OVERSIZE, UNAUTHORIZED, UNSUPPORTED = "Fatal MR-3004", "Fatal MR-3005", "Fatal MR-3006"
NO_TOPIC, FOREIGN, OK = "Retryable MR-3007", "Fatal MR-3008", "OK"
NO_RIGHT, NO_ID_RIGHT, NO_ALL_RIGHT = "Fatal MR-7010", "Fatal MR-7011", "Fatal MR-7012"
OUTCOMES = {
    #                                      InitProducerId  AddPartitions  Produce      EndTxn
    "COORDINATOR_LOAD_IN_PROGRESS":         (OK,           OK,            OK,          OK),
    "COORDINATOR_NOT_AVAILABLE":            (OK,           OK,            OK,          OK),
    "NOT_COORDINATOR":                      (OK,           OK,            OK,          OK),
    "CONCURRENT_TRANSACTIONS":              (OK,           OK,            SPOILED,     OK),
    "_TRANSPORT":                           (OK,           OK,            OK,          OK),
    "NOT_ENOUGH_REPLICAS":                  (OK,           AWAY,          OK,          AWAY),
    "NOT_ENOUGH_REPLICAS_AFTER_APPEND":     (OK,           AWAY,          OK,          AWAY),
    "NOT_LEADER_FOR_PARTITION":             (OK,           AWAY,          OK,          AWAY),
    "LEADER_NOT_AVAILABLE":                 (OK,           AWAY,          OK,          AWAY),
    "REQUEST_TIMED_OUT":                    (OK,           AWAY,          OK,          AWAY),
    "KAFKA_STORAGE_ERROR":                  (OK,           AWAY,          OK,          AWAY),
    "UNKNOWN_TOPIC_OR_PART":                (OK,           OK,            OK,          NO_TOPIC),
    "INVALID_PRODUCER_EPOCH":               (FENCED,       FENCED,        FENCED,      FENCED),
    "PRODUCER_FENCED":                      (FENCED,       FENCED,        FENCED,      FENCED),
    "UNKNOWN_PRODUCER_ID":                  (OK,           SPOILED,       SPOILED,     SPOILED),
    "OUT_OF_ORDER_SEQUENCE_NUMBER":         (OK,           SPOILED,       SPOILED,     SPOILED),
    "INVALID_TXN_STATE":                    (OK,           SPOILED,       SPOILED,     SPOILED),
    "INVALID_PRODUCER_ID_MAPPING":          (OK,           SPOILED,       SPOILED,     SPOILED),
    "TRANSACTION_ABORTABLE":                (OK,           SPOILED,       SPOILED,     SPOILED),
    "MSG_SIZE_TOO_LARGE":                   (OK,           OVERSIZE,      OVERSIZE,    OVERSIZE),
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": (NO_ID_RIGHT, NO_ID_RIGHT, NO_ID_RIGHT, NO_ID_RIGHT),
    "CLUSTER_AUTHORIZATION_FAILED":         (NO_ALL_RIGHT, NO_ALL_RIGHT,  NO_ALL_RIGHT, NO_ALL_RIGHT),
    "TOPIC_AUTHORIZATION_FAILED":           (OK,           NO_RIGHT,      NO_RIGHT,    NO_RIGHT),
    "SECURITY_DISABLED":                    (OK,           UNAUTHORIZED,  UNAUTHORIZED, UNAUTHORIZED),
    "INVALID_RECORD":                       (OK,           UNSUPPORTED,   UNSUPPORTED, UNSUPPORTED),
    "INVALID_REQUEST":                      (OK,           UNSUPPORTED,   UNSUPPORTED, UNSUPPORTED),
    "UNSUPPORTED_VERSION":                  (OK,           UNSUPPORTED,   UNSUPPORTED, UNSUPPORTED),
    "DUPLICATE_VOTER":                      (OK,           FOREIGN,       FOREIGN,     FOREIGN),
}  # fmt: skip
CASES_AT_ONCE = 9
NEVER_MS = 120_000


@dataclass(frozen=True)
class Attempt:
    """The outcome of one Kafka transaction with one record."""

    outcome: str
    took_s: float  # of its commit
    count: int  # records in the partition
    left: int  # failed answers not requested; if any, the case tested nothing


def attempt(
    api: int, disturb: Callable[[MockCluster], None], *, timeout_s: float = 60.0
) -> Attempt:
    """Run one Kafka transaction of a new instance; disturb the cluster just before the request ``api``."""
    cluster = MockCluster()
    instance = instance_on(cluster, PublisherLimits(publish_timeout_s=timeout_s))
    outcome, took_s = OK, 0.0
    try:
        if api == INIT:
            disturb(cluster)
        instance.init()
        if api != INIT:
            disturb(cluster)
        took_s = transact(instance)
    except MillraceError as error:
        outcome = f"{type(error).__name__} {error.code}"
    finally:
        instance.discard()
    left = cluster.count_left(api)
    count = cluster.count_records() if outcome == OK else 0
    cluster.close()
    return Attempt(outcome, took_s, count, left)


@pytest.mark.parametrize(
    ("column", "api"), list(enumerate((INIT, ADD_PARTITIONS, PRODUCE, END))), ids=NAMES
)
def test_every_error_at_every_request_has_its_outcome(column: int, api: int) -> None:
    """For every failed request the caller gets the next step, or the client recovers without loss or repetition."""

    def of(name: str) -> Attempt:
        code = getattr(confluent_kafka.KafkaError, name)
        return attempt(api, lambda cluster: cluster.answer(api, code))

    with ThreadPoolExecutor(CASES_AT_ONCE) as pool:
        found = dict(zip(OUTCOMES, pool.map(of, OUTCOMES), strict=True))
    expected = {name: row[column] for name, row in OUTCOMES.items()}
    assert {name: case.outcome for name, case in found.items()} == expected
    assert [name for name, case in found.items() if case.left] == [], "these were never answered"
    assert api != END or {case.outcome.split()[-1] for case in found.values()} == {
        "OK",
        "MR-3001",
        "MR-3002",
        "MR-3003",
        "MR-3004",
        "MR-3005",
        "MR-3006",
        "MR-3007",
        "MR-3008",
        "MR-7010",
        "MR-7011",
        "MR-7012",
    }  # every possible end of a commit
    ridden_out = [case for case in found.values() if case.outcome == OK]
    assert ridden_out
    assert {case.count for case in ridden_out} == {1}
    assert api != END or min(case.took_s for case in ridden_out) >= LIMITS.suspicious_s


def test_late_answer_ends_in_a_bounded_timeout() -> None:
    """A request timeout is Retryable in bounded time. A slow answer is accepted, and a slow commit is noticed."""

    def too_late(api: int) -> Attempt:
        return attempt(api, lambda cluster: cluster.answer_late(api, NEVER_MS), timeout_s=2.0)

    def late(api: int) -> Attempt:
        return attempt(api, lambda cluster: cluster.answer_late(api, 1200))

    began = time.monotonic()
    with ThreadPoolExecutor(2 * len(NAMES)) as pool:
        given_up = pool.map(too_late, (INIT, ADD_PARTITIONS, PRODUCE, END))
        slow = pool.map(late, (INIT, ADD_PARTITIONS, PRODUCE, END))
        assert [case.outcome for case in given_up] == [AWAY] * 4
        assert time.monotonic() - began < NEVER_MS / 1000
        taken = list(slow)
    assert [(case.outcome, case.count, case.left) for case in taken] == [(OK, 1, 0)] * 4
    assert taken[-1].took_s >= LIMITS.suspicious_s


def test_shorter_backoff_would_hide_commit_retries(cluster: MockCluster) -> None:
    """This is the reason for the value of retry.backoff.ms: the limit of suspicious commits follows from it."""
    hasty = instance_on(cluster, replace(LIMITS, retry_backoff_ms=100))
    hasty.init()
    transact(hasty)

    def retried_s() -> float:
        cluster.answer(END, TRANSPORT)
        return transact(hasty)

    # one fast commit is enough; a stalling machine makes some slow
    assert any(retried_s() < LIMITS.suspicious_s for _ in range(20))
    hasty.discard()


def test_record_reported_as_duplicate_counts_as_delivered() -> None:
    """librdkafka trusts the broker's answer; the audit detects a record lost by a wrong one."""
    duplicate = confluent_kafka.KafkaError.DUPLICATE_SEQUENCE_NUMBER
    found = attempt(PRODUCE, lambda cluster: cluster.answer(PRODUCE, duplicate))
    assert (found.outcome, found.count, found.left) == (OK, 0, 0)


def test_partition_without_a_leader_is_retryable(cluster: MockCluster) -> None:
    """As while a broker restarts: a consumer reports _UNKNOWN_PARTITION, an admin client _NOENT."""
    cluster.lose_leader()
    with closing(driver_on(cluster, LIMITS).partition()) as partition:
        with pytest.raises(Retryable) as raised:
            partition.all_ends()
        assert raised.value.code == "MR-3007"
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    end = {confluent_kafka.TopicPartition(TOPIC, 0): OffsetSpec.latest()}  # type: ignore[no-untyped-call]
    with pytest.raises(Retryable, match="_NOENT while asking for the end") as raised:
        WRITING.call(
            "asking for the end",
            lambda: [found.result(60) for found in admin.list_offsets(end).values()],
        )
    assert raised.value.code == "MR-3001"


def test_reader_finds_a_leader_that_comes_back(cluster: MockCluster) -> None:
    """librdkafka keeps "no leader"; a client that asks again must not get the old answer until its next refresh."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    end = {confluent_kafka.TopicPartition(TOPIC, 0): OffsetSpec.latest()}  # type: ignore[no-untyped-call]
    cluster.lose_leader()
    with closing(driver_on(cluster, LIMITS).partition()) as partition:
        with pytest.raises(Retryable):
            partition.all_ends()
        question = admin.list_offsets(end)
        with pytest.raises(confluent_kafka.KafkaException):
            [answer.result(60) for answer in question.values()]
        cluster.find_leader()
        assert answered(partition.all_ends, Retryable).high == 0
    assert log_end(admin, TOPIC) == 0
