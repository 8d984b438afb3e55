"""The counters that a process keeps itself: Kafka transactions, damage, clients, requests of the registry."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.types import Message

from millrace.errors import Retryable
from millrace.metrics import METRICS, PROCESS
from millrace.producer.relay.quarantine import find_damage, set_aside
from millrace.producer.serve.clients import Clients
from millrace.registry.door import Door
from millrace.registry.server import Counted, Pulse, application
from millrace.registry.service import RegistryService
from millrace.schemas.place import Coordinates
from tests.kit.memory_store import MemoryStore
from tests.kit.publisher.model import ModelTopic, Outcome, batch_after
from tests.kit.publisher.opened import opened, running
from tests.kit.relay.damaged import NAMES, flip, lay_log, open_log

TRANSACTIONS = "millrace_kafka_txn_total"


@contextmanager
def _grows(name: str, by: float, **labels: str) -> Iterator[None]:
    """Check that a series grows by so much in the block; tests share the process's instruments."""
    before = PROCESS.get_sample_value(name, labels) or 0.0
    yield
    assert (PROCESS.get_sample_value(name, labels) or 0.0) - before == by


def test_committed_kafka_transactions_are_counted_and_timed() -> None:
    """Each commit once."""
    with (
        running(ModelTopic()) as publisher,
        _grows(TRANSACTIONS, 2, result="commit", reason=""),
        _grows("millrace_kafka_txn_seconds_count", 2),
    ):
        for _ in range(2):
            publisher.publish(batch_after(publisher.progress, 3))


@pytest.mark.parametrize(
    ("outcome", "result"), [(Outcome.LOST_BEFORE, "discard"), (Outcome.LOST_AFTER, "commit")]
)
def test_unknown_outcome_is_counted_as_the_tail_shows_it(outcome: Outcome, result: str) -> None:
    """With the code of the error. A transaction that is sent again is another one."""
    topic = ModelTopic()
    with running(topic) as publisher:
        topic.outcomes = [outcome]
        again = int(result == "discard")
        with (
            _grows(TRANSACTIONS, 1, result=result, reason="MR-3002"),
            _grows(TRANSACTIONS, again, result="commit", reason=""),
        ):
            publisher.publish(batch_after(publisher.progress, 3))


def test_kafka_transaction_without_a_broker_is_counted_as_discarded() -> None:
    """The next start reads whether it was committed."""
    publisher = opened(topic := ModelTopic())
    topic.outcomes = [Outcome.AWAY]
    with (
        _grows(TRANSACTIONS, 1, result="discard", reason="MR-3001"),
        pytest.raises(Retryable),
    ):
        publisher.publish(batch_after(publisher.progress, 3))


def test_damaged_relay_file_is_counted(tmp_path: Path) -> None:
    """The alert for it needs a series of each place from the start."""
    for where in ("stream", "disk"):
        found = PROCESS.get_sample_value("millrace_relay_corruption_total", {"where": where})
        assert found is not None
    files = lay_log(tmp_path)
    flip(tmp_path / "server-a.000001" / NAMES[1], files[NAMES[1]].ends[2] + 30)
    relay = open_log(tmp_path)
    damage = find_damage(relay, Coordinates("server-a.000001", NAMES[1], 4))
    assert damage is not None
    with _grows("millrace_relay_corruption_total", 1, where="disk"):
        set_aside(relay, damage)
    relay.close()


def test_clients_of_a_served_relay_log_are_counted() -> None:
    """A client that has ended is not counted any more."""
    clients = Clients(3)
    with _grows("millrace_serve_clients", 0), clients.connected(1):
        assert PROCESS.get_sample_value("millrace_serve_clients") == 1


def _asked(app: Any, method: str) -> None:
    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(_: Message) -> None:
        pass

    scope = {
        "type": "http",
        "method": method,
        "path": "/subjects",
        "query_string": b"",
        "headers": [],
        "root_path": "",
        "scheme": "http",
    }
    asyncio.run(app(scope, receive, send))


def test_requests_of_the_registry_are_counted_by_status() -> None:
    """A client can't make new series with other methods."""
    app = Counted(application(RegistryService(MemoryStore()), Door(), on_fenced=lambda _: None))
    with (
        _grows("millrace_registry_requests_total", 1, method="GET", status="200"),
        _grows("millrace_registry_requests_total", 2, method="other", status="405"),
        _grows("millrace_registry_request_seconds_count", 3),
    ):
        for method in ("GET", "BREW", "PATCH"):
            _asked(app, method)


def test_event_loop_that_does_not_run_is_hung(monkeypatch: pytest.MonkeyPatch) -> None:
    """The registry then answers no client."""
    pulse = Pulse()
    asyncio.run(pulse.beat())
    assert pulse.probes().hung() == ""
    monkeypatch.setattr("millrace.registry.server.HUNG_S", -1.0)
    assert "event loop" in pulse.probes().hung()


def test_process_exposes_only_series_of_the_table() -> None:
    """Besides those of Prometheus's client about the process itself."""
    own = {sample.name for family in PROCESS.collect() for sample in family.samples}
    known = {name for metric in METRICS.values() for name in metric.series}
    assert {name for name in own if not name.startswith(("process_", "python_"))} <= known
