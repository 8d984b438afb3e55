"""The registry without HTTP and Kafka: ids, versions, and the state after a failed store."""

import json
import socket
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from millrace.errors import Fatal, Fenced, Retryable
from millrace.registry.catalog import Catalog, Entry
from millrace.registry.kafka import first_id_of
from millrace.registry.server import listen
from millrace.registry.service import Refusal, RegistryService
from millrace.schemas.record.control import DDL_SCHEMA, FENCE_SCHEMA, RESOLVED_SCHEMA
from tests.kit.memory_store import MemoryStore
from tests.kit.waiting import eventually


class UncertainStore(MemoryStore):
    """A store whose first ``append`` fails with an unknown outcome."""

    def __init__(self, *, is_stored: bool) -> None:
        super().__init__()
        self._is_stored = is_stored
        self._has_failed = False

    def append(self, entries: Sequence[Entry]) -> None:
        if self._has_failed or self._is_stored:
            super().append(entries)
        if not self._has_failed:
            self._has_failed = True
            raise Retryable("MR-6020", "no answer to the commit")


class FencedStore(MemoryStore):
    """Another registry has taken over its topic. ``loads`` counts the calls that would fence that registry."""

    loads = 0

    def load(self) -> tuple[Entry, ...]:
        self.loads += 1
        return super().load()

    def append(self, entries: Sequence[Entry]) -> None:
        raise Fenced("MR-6023", "another registry has started on the same topic")


def test_fenced_registry_never_loads_its_store_again() -> None:
    """Loading would fence the registry that has taken over."""
    store = FencedStore()
    service = RegistryService(store)
    for _ in range(2):
        with pytest.raises(Fenced, match="MR-6023"):
            service.register("a", {"schema": DDL_SCHEMA.text})
    assert store.loads == 1


def test_schema_has_one_id_in_every_subject() -> None:
    """Other whitespace makes no difference; another schema gets the next id and version."""
    service = RegistryService(MemoryStore())
    spaced = json.dumps(json.loads(DDL_SCHEMA.text), indent=2)
    assert service.register("a", {"schema": DDL_SCHEMA.text}) == {"id": 1}
    assert service.register("b", {"schema": spaced}) == {"id": 1}
    assert service.register("b", {"schema": FENCE_SCHEMA.text}) == {"id": 2}
    assert service.versions("b") == [1, 2]
    assert service.schema_text("1") == DDL_SCHEMA.text


def test_different_properties_make_a_different_schema() -> None:
    """Properties carry a table's structure: they are part of a schema's identity."""
    service = RegistryService(MemoryStore())
    other = json.dumps(json.loads(DDL_SCHEMA.text) | {"millrace.extra": 1})
    assert service.register("a", {"schema": DDL_SCHEMA.text}) == {"id": 1}
    assert service.register("a", {"schema": other}) == {"id": 2}


@pytest.mark.parametrize("is_stored", [True, False])
def test_unknown_append_outcome_never_gives_one_id_twice(
    is_stored: bool,
) -> None:
    """After the failure everything is read again before the next id is assigned."""
    store = UncertainStore(is_stored=is_stored)
    service = RegistryService(store)
    with pytest.raises(Retryable):
        service.register("a", {"schema": DDL_SCHEMA.text})
    service.register("a", {"schema": FENCE_SCHEMA.text})
    service.register("a", {"schema": DDL_SCHEMA.text})
    service.register("a", {"schema": RESOLVED_SCHEMA.text})
    entries = list(store.load())
    assert len({entry.id for entry in entries}) == len({entry.schema for entry in entries}) == 3
    assert len({(entry.id, entry.schema) for entry in entries}) == 3
    assert len({(entry.subject, entry.version) for entry in entries}) == 3


class SlowStore(MemoryStore):
    """A store whose first ``append`` waits, and may fail. ``sizes``: the number of entries of each append."""

    def __init__(self, *, fails_at: int = 0) -> None:
        super().__init__()
        self.sizes: list[int] = []
        self.began, self.may_end = threading.Event(), threading.Event()
        self._fails_at = fails_at

    def append(self, entries: Sequence[Entry]) -> None:
        self.sizes.append(len(entries))
        self.began.set()
        assert self.may_end.wait(60)
        if len(self.sizes) == self._fails_at:
            raise Retryable("MR-6020", "no answer to the commit")
        super().append(entries)


SCHEMAS = [json.dumps({"type": "fixed", "name": f"f{size}", "size": size}) for size in range(1, 16)]


def _register_together(service: RegistryService, store: SlowStore) -> list[object]:
    """The answers to one registration, and to sixteen that come while it is stored; two of them are equal."""
    wanted = [("a", SCHEMAS[0]), ("b", SCHEMAS[0]), *(("a", text) for text in SCHEMAS)]

    def ask(pair: tuple[str, str]) -> object:
        try:
            return service.register(pair[0], {"schema": pair[1]})
        except Retryable as error:
            return error

    with ThreadPoolExecutor(len(wanted)) as pool:
        first = pool.submit(ask, wanted[0])
        assert store.began.wait(60)
        others = [pool.submit(ask, pair) for pair in wanted[1:]]
        eventually(lambda: service.waiting_count == len(others), what="waiting registrations")
        store.may_end.set()
        return [asked.result() for asked in (first, *others)]


def test_registrations_that_come_together_are_stored_together() -> None:
    """One append for all that waited; equal schemas have one ID, each subject its versions without a gap."""
    store = SlowStore()
    service = RegistryService(store)
    answers = _register_together(service, store)
    assert answers[0] == answers[1] == answers[2] == {"id": 1}
    assert sorted(answer["id"] for answer in answers[2:]) == list(range(1, 16))  # type: ignore[index]
    assert store.sizes == [1, 15]
    assert service.versions("a") == list(range(1, 16))
    assert service.versions("b") == [1]
    assert Catalog(store.load()).entries("") == list(store.load())


def test_failed_append_fails_all_that_waited_and_stores_none() -> None:
    """Each is answered with the error; after it everything is read again, and no ID is given twice."""
    store = SlowStore(fails_at=2)
    service = RegistryService(store)
    answers = _register_together(service, store)
    assert answers[0] == {"id": 1}
    assert all(isinstance(answer, Retryable) for answer in answers[1:])
    again = [service.register("a", {"schema": text}) for text in SCHEMAS]
    assert again == [{"id": number} for number in range(1, 16)]
    assert service.versions("a") == list(range(1, 16))


def test_catalog_is_equal_after_any_restart() -> None:
    """Entries in another order, or twice (compaction, a retried append), change nothing."""
    entries = [
        Entry("a", 1, 1, DDL_SCHEMA.text),
        Entry("a", 2, 2, FENCE_SCHEMA.text),
        Entry("b", 1, 2, FENCE_SCHEMA.text),
    ]
    for given in (entries, entries[::-1], entries + entries):
        catalog = Catalog(given)
        assert [entry.id for entry in catalog.versions("a")] == [1, 2]
        assert catalog.next_entry("c", RESOLVED_SCHEMA.text) == (
            Entry("c", 1, 3, RESOLVED_SCHEMA.text),
            True,
        )
        assert catalog.next_entry("b", FENCE_SCHEMA.text) == (entries[2], False)


def test_first_id_is_only_for_a_catalog_without_entries() -> None:
    """One with entries continues after the greatest ID, so that no ID of an installation changes."""
    entry, is_new = Catalog(first_id=70_001).next_entry("a", DDL_SCHEMA.text)
    assert (entry.id, is_new) == (70_001, True)
    older = Catalog([Entry("a", 1, 3, DDL_SCHEMA.text)], first_id=70_001)
    assert older.next_entry("a", FENCE_SCHEMA.text)[0].id == 4
    ids = {first_id_of(f"topic-{number}") for number in range(1000)}
    assert (len(ids) > 980, min(ids) > 10_000, max(ids) < 2**31 - 10_000) == (True, True, True)
    assert (first_id_of(""), first_id_of("a")) == (1, first_id_of("a"))


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        ({}, 42201),
        ({"schema": 1}, 42201),
        ({"schema": "{"}, 42201),
        ({"schema": '{"type":"record"}'}, 42201),
        ({"schema": DDL_SCHEMA.text, "references": [{"name": "x"}]}, 42201),
        ({"schema": DDL_SCHEMA.text, "schemaType": "PROTOBUF"}, 42201),
    ],
)
def test_invalid_avro_schema_is_refused(request_: dict[str, object], code: int) -> None:
    """It is refused before anything is stored."""
    store = MemoryStore()
    with pytest.raises(Refusal) as caught:
        RegistryService(store).register("a", request_)  # type: ignore[arg-type]
    assert (caught.value.code, caught.value.status) == (code, 422)
    assert list(store.load()) == []


def test_registry_reports_a_port_in_use() -> None:
    """The code is reported before any other action."""
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(Fatal, match="MR-8009"):
        listen("127.0.0.1", taken.getsockname()[1])


def test_registry_sends_an_answer_without_a_delay() -> None:
    """With Nagle's algorithm each request of a kept connection took 44 ms, and 5,000 tables took minutes to start."""
    with (
        listen("127.0.0.1", 0) as listening,
        socket.create_connection(listening.getsockname()),
    ):
        accepted, _ = listening.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
