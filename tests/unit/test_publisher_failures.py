"""Every error of the installed Kafka client has a branch."""

import ctypes
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from importlib import metadata
from types import SimpleNamespace
from typing import Any, Never

import confluent_kafka
import numpy as np
import pytest
from confluent_kafka import KafkaError, KafkaException, cimpl

from millrace.codes import CATALOGUE
from millrace.drivers.kafka import bulk, producer
from millrace.drivers.kafka.access import GivenAccess, Settings
from millrace.drivers.kafka.errors import BRANCHES, KINDS, LOST, REFUSALS, Kind
from millrace.drivers.kafka.producer import WRITING, TransactionalProducer
from millrace.drivers.kafka.reader import READING
from millrace.drivers.kafka.topic import TopicAdmin
from millrace.errors import Fatal, Fenced, MillraceError, Retryable
from millrace.registry.broker import ERRORS as REGISTRY
from tests.kit.hidden import hide
from tests.kit.waiting import PATIENCE_S

KNOWN = {
    name
    for name in dir(KafkaError)
    if name.replace("_", "").isupper() and isinstance(getattr(KafkaError, name), int)
}


def test_each_kafka_error_has_exactly_one_branch() -> None:
    """A driver upgrade that brings new errors fails this test."""
    assert set(KINDS) == KNOWN


# An operator names the topic of a reader. The registry is a member of a group.
DIFFERENCES = [
    (Kind.TOPIC_MISSING, READING),
    (Kind.GROUP, REGISTRY),
    (Kind.OFFSET_REMOVED, WRITING),
]


@pytest.mark.parametrize("name", sorted(KINDS))
def test_all_clients_of_kafka_agree_about_each_error(name: str) -> None:
    """No client ends on an error that another retries, except for the reasons above. Each code has a fix."""
    for errors in (WRITING, READING, REGISTRY):
        error = errors.error(name, "detail", doing="testing")
        assert CATALOGUE[error.code].fix
        expected = REFUSALS[name][1] if name in REFUSALS else BRANCHES[KINDS[name]]
        differs = any(kind is KINDS[name] and errors is of for kind, of in DIFFERENCES)
        assert isinstance(error, expected) is not differs


@pytest.mark.parametrize(
    ("name", "branch", "code"),
    [
        ("_FENCED", Fenced, "MR-3003"),
        ("INVALID_PRODUCER_EPOCH", Fenced, "MR-3003"),
        ("_TRANSPORT", Retryable, "MR-3001"),
        ("_NOENT", Retryable, "MR-3001"),
        ("INVALID_REPLICATION_FACTOR", Retryable, "MR-3001"),
        ("INVALID_TXN_STATE", Retryable, "MR-3002"),
        ("MSG_SIZE_TOO_LARGE", Fatal, "MR-3004"),
        ("SECURITY_DISABLED", Fatal, "MR-3005"),
        ("TOPIC_AUTHORIZATION_FAILED", Fatal, "MR-7010"),
        ("SASL_AUTHENTICATION_FAILED", Retryable, "MR-7001"),
        ("AN_ERROR_OF_TOMORROW", Fatal, "MR-3008"),
    ],
)
def test_kafka_error_becomes_its_branch(name: str, branch: type[MillraceError], code: str) -> None:
    """Known entries of the table are checked; an unknown error stops the task."""
    error = WRITING.error(name, "detail", doing="testing")
    assert type(error) is branch
    assert error.code == code
    assert name in error.message


def test_silent_broker_is_retried() -> None:
    """The timeout of a future is not a driver error; it must not end as an unknown one."""

    def silent() -> None:
        raise TimeoutError

    with pytest.raises(Retryable) as raised:
        WRITING.call("asking for the topic", silent)
    assert raised.value.code == "MR-3001"


def test_topic_unknown_to_one_broker_does_not_exist_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker asked for the settings may lag behind the broker asked for the topic."""
    future: Future[object] = Future()
    future.set_exception(KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)))
    known = SimpleNamespace(error=None, partitions={0: None})
    client = SimpleNamespace(
        list_topics=lambda *_: SimpleNamespace(topics={"shop": known}),
        describe_configs=lambda resources, **_: {resources[0]: future},
    )
    monkeypatch.setattr("millrace.drivers.kafka.topic.AdminClient", lambda *_, **__: client)
    admin = TopicAdmin(GivenAccess("h:1"), "shop", errors=WRITING)
    assert admin.settings() is None


@contextmanager
def _client(**settings: str) -> Iterator[tuple[TransactionalProducer, Callable[[int], None]]]:
    """Yield a real client without a broker, and a function that gives it a fatal error."""
    usual: Settings = {"client.id": "x"}
    library = ctypes.CDLL(cimpl.__file__)  # with the librdkafka that it loads
    library.rd_kafka_test_fatal_error.argtypes = [
        ctypes.c_void_p,
        ctypes.c_int,
        ctypes.c_char_p,
    ]
    made: list[confluent_kafka.Producer] = []
    real = confluent_kafka.Producer

    def make(*given: Any, **options: Any) -> confluent_kafka.Producer:
        made.append(real(*given, **options))
        return made[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(confluent_kafka, "Producer", make)
        transactions = TransactionalProducer(
            GivenAccess("127.0.0.1:1"),
            "shop",
            errors=WRITING,
            settings={**usual, **settings},
            timeout_s=5.0,
        )
    # the object's first field, after the head that every object has
    handle = ctypes.c_void_p.from_address(id(made.pop()) + object.__basicsize__).value
    try:
        yield transactions, lambda code: library.rd_kafka_test_fatal_error(handle, code, b"test")
    finally:
        transactions.discard()


def test_fatal_kafka_error_survives_a_log_line_after_it() -> None:
    """The client sets it as an exception and continues with the log; CPython sometimes turns that into SystemError."""
    for _ in range(30):
        with _client(debug="all") as (transactions, fail):
            transactions.add([(None, b"row")])
            fail(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER)
            with pytest.raises(Retryable) as raised:
                transactions.flush()
        assert raised.value.code == "MR-3002"
        message = raised.value.message
        assert "OUT_OF_ORDER_SEQUENCE_NUMBER" in message or LOST in message


def test_cleared_kafka_error_is_retried() -> None:
    """CPython then says only that a call failed without an exception; another SystemError is a defect."""

    def fail(text: str) -> Never:
        raise SystemError(text)

    with pytest.raises(Retryable, match=LOST) as raised:
        WRITING.call("sending", lambda: fail("flush returned NULL without setting an exception"))
    assert raised.value.code == "MR-3002"
    with pytest.raises(SystemError, match="bad argument"):
        WRITING.call("sending", lambda: fail("bad argument to internal function"))


@pytest.mark.parametrize("by", ["add", "add_slices", "add_slices, one by one"])
def test_producer_fenced_while_taking_records_is_fenced(
    by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client only reports "fatal"; a new producer would then fence the successor."""
    bounds = np.array([[-1, -1, 0, 3]])
    if by == "add_slices, one by one":
        monkeypatch.setattr(bulk, "TESTED", frozenset())
    with _client() as (transactions, fail):
        give = (
            partial(transactions.add, [(None, b"row")])
            if by == "add"
            else partial(transactions.add_slices, np.frombuffer(b"row", np.uint8), bounds)
        )
        fail(KafkaError._FENCED)
        with pytest.raises(Fenced) as raised:
            give()
    assert raised.value.code == "MR-3003"


def test_known_fatal_error_is_reported_as_fatal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The wait for details is short."""
    monkeypatch.setattr(producer, "FATAL_WAIT_S", 0.2)
    with _client() as (transactions, fail):
        fail(KafkaError._FENCED)
        with pytest.raises(Fenced):
            transactions.add([(None, b"row")])
        with pytest.raises(Retryable) as raised:
            transactions.add([(None, b"row")])
    assert raised.value.code == "MR-3002"


@pytest.mark.parametrize("lines", [0, 1, 3])
def test_fatal_error_is_found_after_any_number_of_lines(lines: int) -> None:
    """The chain is built as CPython builds it."""
    with pytest.raises(Fenced) as raised:
        WRITING.call(
            "committing", lambda: hide(KafkaException(KafkaError(KafkaError._FENCED)), lines)
        )
    assert raised.value.code == "MR-3003"
    led: list[BaseException] = []
    error: BaseException | None = raised.value
    while error is not None:  # a search for causes must end
        assert error not in led
        led.append(error)
        error = error.__cause__ or error.__context__


@pytest.mark.parametrize("cause", [ValueError(), SystemError()])
def test_interpreter_error_is_not_mapped_to_kafka(cause: Exception) -> None:
    """The error does not change."""
    with pytest.raises(SystemError):
        WRITING.call("committing", lambda: hide(cause, 1))


def test_untested_version_of_the_kafka_binding_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its records are sent one by one, much slower: the reason names the version found and the tested ones."""
    with _client() as (transactions, _):
        assert transactions.slow_path == ""
    monkeypatch.setattr(bulk, "TESTED", frozenset({"0.0.1"}))
    with _client() as (transactions, _):
        assert metadata.version("confluent-kafka") in transactions.slow_path
        assert "0.0.1" in transactions.slow_path


def test_unreachable_broker_is_soon_named_with_its_address() -> None:
    """With a wrong kafka.bootstrap, the error names the addresses tried and how their connections ended."""
    began = time.monotonic()
    admin = TopicAdmin(GivenAccess("127.0.0.1:1"), "shop", errors=WRITING)
    with pytest.raises(Retryable) as raised:
        admin.settings()
    assert time.monotonic() - began < PATIENCE_S
    assert raised.value.code == "MR-3001"
    assert "no broker answers at 127.0.0.1:1" in raised.value.message
    assert "refused" in raised.value.message


@pytest.mark.parametrize("trouble", ["none", "flush", "fenced", "fenced, one by one", "refused"])
def test_discard_releases_the_client_in_its_own_thread(
    trouble: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error that is still handled must not keep it: a collection of garbage would end it in any thread."""
    if trouble.endswith("one by one"):
        monkeypatch.setattr(bulk, "TESTED", frozenset())
    released: list[int] = []

    class Watched(confluent_kafka.Producer):
        def __del__(self) -> None:
            released.append(threading.get_ident())

    monkeypatch.setattr(confluent_kafka, "Producer", Watched)
    bounds = np.array([[-1, -1, 0, 3]])
    with _client() as (transactions, fail):
        if trouble != "none":
            fail(KafkaError._FENCED)
        steps: dict[str, Callable[[], object]] = {
            "none": dict,
            "flush": transactions.flush,
            "refused": lambda: transactions.add_slices(np.frombuffer(b"row", np.uint8), bounds + 9),
        }
        add = partial(transactions.add_slices, np.frombuffer(b"row", np.uint8), bounds)
        error: BaseException | None = None
        try:
            steps.get(trouble, add)()
        except MillraceError as raised:
            error = raised
            transactions.discard()
        transactions.discard()
        assert released == [threading.get_ident()]
        assert (error is None) == (trouble == "none")
