"""The Kafka client against librdkafka's own mock cluster: every request's failures, and what a hidden retry costs.

The mock does not filter read_committed nor fence zombies, so only the client side of the seam is tried here.
"""

import ctypes
import time
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest

from millrace.errors import Fenced, MillraceError, Retryable
from producer.publisher.config import PublisherConfig, PublisherLimits
from producer.publisher.driver import Transactions
from producer.publisher.kafka import KafkaDriver
from schemas.gtid import Flavour

PRODUCE, INIT, ADD_PARTITIONS, END = 0, 22, 24, 26
TRANSPORT = -195


class MockCluster:
    """One broker inside this process, told which answers to give."""

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
        library.rd_kafka_mock_push_request_errors_array.argtypes = [
            ctypes.c_void_p,
            ctypes.c_int16,
            ctypes.c_size_t,
            ctypes.c_void_p,
        ]
        error = ctypes.create_string_buffer(512)
        self._client = library.rd_kafka_new(0, library.rd_kafka_conf_new(), error, 512)
        self._cluster = library.rd_kafka_mock_cluster_new(self._client, 1)
        self.bootstrap: str = library.rd_kafka_mock_cluster_bootstraps(self._cluster).decode()

    def answer(self, api: int, *errors: int) -> None:
        """The next answers to requests of this kind; TRANSPORT drops the connection instead."""
        codes = (ctypes.c_int * len(errors))(*errors)
        self._library.rd_kafka_mock_push_request_errors_array(
            self._cluster, api, len(errors), ctypes.cast(codes, ctypes.c_void_p)
        )

    def close(self) -> None:
        """Gone."""
        self._library.rd_kafka_mock_cluster_destroy(self._cluster)
        self._library.rd_kafka_destroy(self._client)


@pytest.fixture
def cluster() -> Iterator[MockCluster]:
    """A mock cluster."""
    made = MockCluster()
    yield made
    made.close()


@pytest.fixture
def instance(cluster: MockCluster) -> Iterator[Transactions]:
    """A client's instance, initialised."""
    config = PublisherConfig(
        bootstrap=cluster.bootstrap,
        topic="mock",
        transactional_id="t",
        epoch=1,
        worker="w",
        set="s",
        flavour=Flavour.MARIADB,
        limits=LIMITS,
    )
    made = KafkaDriver(config).transactions(1_000_000)
    made.init()
    yield made
    made.discard()


LIMITS = PublisherLimits(publish_timeout_s=8.0)


def transact(instance: Transactions) -> float:
    """One record in one Kafka transaction; the seconds its commit took."""
    instance.begin()
    assert instance.add([(b"k", b"v")]) is None
    instance.flush()
    return instance.commit()


def test_a_commit_that_was_not_retried_is_fast(instance: Transactions) -> None:
    """Rule 3 must not throw every instance away."""
    assert min(transact(instance) for _ in range(5)) < LIMITS.suspicious_s


def test_a_hidden_retry_of_a_commit_is_never_faster_than_we_trust(
    cluster: MockCluster, instance: Transactions
) -> None:
    """What rule 3 rests on: librdkafka retries EndTxn behind our back, but not within 0.8 × retry.backoff.ms."""
    transact(instance)
    for _ in range(3):
        cluster.answer(END, TRANSPORT)
        assert transact(instance) >= LIMITS.suspicious_s


@pytest.mark.parametrize(
    ("api", "error", "branch", "code"),
    [
        (END, 90, Fenced, "MR-3003"),  # PRODUCER_FENCED
        (END, 47, Fenced, "MR-3003"),  # INVALID_PRODUCER_EPOCH
        (END, 48, Retryable, "MR-3002"),  # INVALID_TXN_STATE
        (END, 49, Retryable, "MR-3002"),  # INVALID_PRODUCER_ID_MAPPING
        (END, 53, MillraceError, "MR-3005"),  # TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        (ADD_PARTITIONS, 47, Fenced, "MR-3003"),
        (ADD_PARTITIONS, 29, MillraceError, "MR-3005"),  # TOPIC_AUTHORIZATION_FAILED
        (ADD_PARTITIONS, 48, Retryable, "MR-3002"),
        (PRODUCE, 10, MillraceError, "MR-3004"),  # MSG_SIZE_TOO_LARGE
        (PRODUCE, 29, MillraceError, "MR-3005"),
        (PRODUCE, 47, Fenced, "MR-3003"),
        (PRODUCE, 45, Retryable, "MR-3002"),  # OUT_OF_ORDER_SEQUENCE_NUMBER
        (PRODUCE, 59, Retryable, "MR-3002"),  # UNKNOWN_PRODUCER_ID
    ],
)
def test_a_refused_request_ends_in_its_branch(
    cluster: MockCluster,
    instance: Transactions,
    api: int,
    error: int,
    branch: type[MillraceError],
    code: str,
) -> None:
    """Whichever request fails, the caller learns what to do next."""
    cluster.answer(api, error)
    with pytest.raises(branch) as raised:
        transact(instance)
    assert raised.value.code == code


@pytest.mark.parametrize(
    ("api", "error"),
    [
        (PRODUCE, 6),  # NOT_LEADER_FOR_PARTITION
        (PRODUCE, 19),  # NOT_ENOUGH_REPLICAS
        (PRODUCE, TRANSPORT),
        (ADD_PARTITIONS, 51),  # CONCURRENT_TRANSACTIONS
        (ADD_PARTITIONS, 16),  # NOT_COORDINATOR
        (END, 14),  # COORDINATOR_LOAD_IN_PROGRESS
        (END, 16),
    ],
)
def test_a_passing_trouble_is_ridden_out_inside_the_client(
    cluster: MockCluster, instance: Transactions, api: int, error: int
) -> None:
    """No error to the caller; the commit returns in the time allowed."""
    cluster.answer(api, error)
    began = time.monotonic()
    transact(instance)
    assert time.monotonic() - began < LIMITS.publish_timeout_s
