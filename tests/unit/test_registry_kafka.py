"""The registry's store retries any request to a failing broker."""

from collections import defaultdict
from collections.abc import Callable
from types import SimpleNamespace

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException

from millrace.drivers.kafka import reader, topic
from millrace.errors import Fatal, Fenced, Retryable
from millrace.registry.catalog import Entry
from millrace.registry.kafka import KafkaSchemaStore
from millrace.schemas.documents import Brokers
from millrace.schemas.record.control import DDL_SCHEMA
from tests.kit.hidden import hide

TOPIC, END = "schemas", 7
ENTRY = Entry("shop", 1, 1, DDL_SCHEMA.text)
OF_A_NEW_TOPIC = {"create_topics", "the topic's making"}
OF_AN_APPEND = {"begin_transaction", "commit_transaction"}  # `produce` asks no broker
QUESTIONS = (
    "AdminClient",
    "list_topics",
    "describe_configs",
    "the settings",
    *sorted(OF_A_NEW_TOPIC),
    "Producer",
    "init_transactions",
    *sorted(OF_AN_APPEND),
    "Consumer",
    "get_watermark_offsets",
    "list_offsets",
    "the log's end",
    "assign",
    "consume",
    "describe_topics",
    "the topic's id",
)
CLIENTS = {"AdminClient": (topic, reader), "Producer": (confluent_kafka,), "Consumer": (reader,)}


class Broker:
    """A broker that answers every request except this one; it serves as all of its clients."""

    def __init__(self, asked: str, trouble: Callable[[], object]) -> None:
        self._asked = asked
        self._trouble = trouble
        self._has_topic = asked not in OF_A_NEW_TOPIC

    def __getattr__(self, question: str) -> Callable[..., object]:
        def ask(*_: object, **__: object) -> object:
            if question == self._asked:
                self._trouble()
            return self._answer(question)

        return ask

    def _answer(self, question: str) -> object:
        topics = {TOPIC: SimpleNamespace(error=None, partitions={0: SimpleNamespace(replicas=[1])})}
        if not self._has_topic:
            missing = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
            topics = {TOPIC: SimpleNamespace(error=missing)}
            self._has_topic = question == "the topic's making"
        numbers = ("max.message.bytes", "min.insync.replicas", "retention.ms")
        compacted = {name: SimpleNamespace(value="1") for name in numbers}
        end = SimpleNamespace(
            error=lambda: KafkaError(KafkaError._PARTITION_EOF), offset=lambda: END
        )
        return {
            "AdminClient": self,
            "Producer": self,
            "Consumer": self,
            "list_topics": SimpleNamespace(topics=topics),
            "create_topics": {TOPIC: SimpleNamespace(result=getattr(self, "the topic's making"))},
            "describe_configs": defaultdict(
                lambda: SimpleNamespace(result=getattr(self, "the settings"))
            ),
            "the settings": compacted | {"cleanup.policy": SimpleNamespace(value="compact")},
            "get_watermark_offsets": (0, END),
            "list_offsets": defaultdict(
                lambda: SimpleNamespace(result=getattr(self, "the log's end"))
            ),
            "the log's end": SimpleNamespace(offset=END),
            "consume": [end],
            "describe_topics": {TOPIC: SimpleNamespace(result=getattr(self, "the topic's id"))},
            "the topic's id": SimpleNamespace(topic_id=None),
        }.get(question)


def _connect(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    for client, modules in CLIENTS.items():
        for module in modules:
            monkeypatch.setattr(module, client, getattr(broker, client))


def asked_in_trouble(
    question: str, trouble: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> list[Entry]:
    """Load the store, append an entry, and return what was loaded before."""
    broker = Broker(question, trouble)
    _connect(broker, monkeypatch)
    store = KafkaSchemaStore(Brokers("127.0.0.1:1"), topic=TOPIC)
    loaded = list(store.load())
    store.append([ENTRY])
    return loaded


def refused(code: int) -> Callable[[], None]:
    """Raise this error of the client."""

    def trouble() -> None:
        raise KafkaException(KafkaError(code))

    return trouble


def silent() -> None:
    """Return a future of a broker that accepts requests and never answers."""
    raise TimeoutError


def hidden(code: int) -> Callable[[], None]:
    """Raise this error while the client serves a line for its log."""
    return lambda: hide(KafkaException(KafkaError(code)), 2)


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize(
    "trouble",
    [
        refused(KafkaError._TRANSPORT),
        silent,
        hidden(KafkaError._TRANSPORT),
    ],
    ids=["away", "silent", "hidden"],
)
def test_failing_broker_is_retried_for_any_request(
    question: str, trouble: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The result is a code with a fix, never the driver's own error."""
    with pytest.raises(Retryable) as caught:
        asked_in_trouble(question, trouble, monkeypatch)
    assert caught.value.code == "MR-3001"
    assert "--kafka or MILLRACE_KAFKA" in caught.value.fix


@pytest.mark.parametrize("question", QUESTIONS)
def test_refused_request_needs_an_operator(question: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another try would be refused, too."""
    with pytest.raises(Fatal) as caught:
        asked_in_trouble(question, refused(KafkaError._INVALID_ARG), monkeypatch)
    assert caught.value.code == "MR-6022"


@pytest.mark.parametrize("question", ["init_transactions", *sorted(OF_AN_APPEND)])
@pytest.mark.parametrize("fenced", [refused, hidden], ids=["alone", "before a log line"])
def test_newer_registry_is_distinguished_from_a_failing_broker(
    question: str, fenced: Callable[[int], Callable[[], None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A registry that misreads the error would load its store again and fence the newer one."""
    with pytest.raises(Fenced) as caught:
        asked_in_trouble(question, fenced(KafkaError._FENCED), monkeypatch)
    assert caught.value.code == "MR-6023"


class Starting(Broker):
    """A broker that loads its coordinator and reports that until it is ready."""

    LOADS_S = 60.0

    def init_transactions(self, wait_s: float) -> None:
        """Act as librdkafka, which retries until ``wait_s`` is over."""
        if wait_s < self.LOADS_S:
            raise KafkaException(KafkaError(KafkaError.COORDINATOR_LOAD_IN_PROGRESS))


def test_registry_waits_for_a_starting_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker reports that it runs before its coordinator is loaded, which takes long on a busy machine.

    A registry that is started beside it would end.
    """
    broker = Starting("nothing", silent)
    _connect(broker, monkeypatch)
    assert list(KafkaSchemaStore(Brokers("127.0.0.1:1"), topic=TOPIC).load()) == []


def test_healthy_broker_serves_every_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stand-in lets a registry load and append, so the failures above come from their faults."""
    assert asked_in_trouble("nothing", silent, monkeypatch) == []
