"""The built-in registry over HTTP on a real broker."""

import http.client
import json
import socket
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest
import urllib3
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from millrace.deploy.servers import KafkaServer
from millrace.errors import Fatal, Fenced, Retryable
from millrace.producer.publish.driver import Partition
from millrace.producer.publish.topic_schemas import ASKED_MAX, SchemaIds
from millrace.registry.catalog import Entry
from millrace.registry.client import RegistryClient
from millrace.registry.kafka import KafkaSchemaStore
from millrace.schemas.documents import Brokers, Registry
from millrace.schemas.record.avro_schema import AvroSchema, Json
from millrace.schemas.record.control import DDL_SCHEMA, FENCE_SCHEMA, RESOLVED_SCHEMA
from tests.kit.kafka_topics import make_topic
from tests.kit.registry_process import command, started

Ask = Callable[[str, str, Json], tuple[int, Json]]
Running = Callable[[str], AbstractContextManager[str]]


def asking(address: str) -> Ask:
    """Plain HTTP, as from any client."""
    parts = urlsplit(address)

    def ask(method: str, path: str, body: Json = None) -> tuple[int, Json]:
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
        connection.request(method, path, None if body is None else json.dumps(body))
        response = connection.getresponse()
        assert response.getheader("content-type") == "application/vnd.schemaregistry.v1+json"
        answer = json.loads(response.read())
        connection.close()
        return response.status, answer

    return ask


@contextmanager
def running(kafka: KafkaServer, topic: str) -> Iterator[str]:
    """The address of a registry process."""
    with started(kafka, topic) as (address, _):
        yield address


@pytest.fixture
def topic() -> str:
    """A topic name for this test."""
    return f"schemas-{uuid.uuid4().hex[:8]}"


def test_registry_answers_like_confluents(kafka: KafkaServer, topic: str) -> None:
    """Register, look up, read by ID and by version, and error codes, over HTTP."""
    schema = DDL_SCHEMA.text
    with running(kafka, topic) as address:
        ask: Any = asking(address)
        assert ask("GET", "/subjects", None) == (200, [])
        status, answer = ask("POST", "/subjects/t-ddl/versions", {"schema": schema})
        assert (status, isinstance(answer, dict)) == (200, True)
        number = answer["id"]
        assert ask("POST", "/subjects/t-ddl/versions", {"schema": schema}) == (status, answer)
        assert ask("POST", "/subjects/other/versions", {"schema": schema}) == (status, answer)
        assert ask("POST", "/subjects/t-ddl/versions", {"schema": FENCE_SCHEMA.text}) == (
            200,
            {"id": number + 1},
        )
        assert ask("GET", "/subjects", None) == (200, ["other", "t-ddl"])
        assert ask("GET", "/subjects?subjectPrefix=t-", None) == (200, ["t-ddl"])
        assert ask("GET", "/contexts", None) == (200, ["."])
        assert ask("GET", "/subjects/t-ddl/versions", None) == (200, [1, 2])
        described = {
            "subject": "t-ddl",
            "version": 1,
            "id": number,
            "schema": schema,
            "schemaType": "AVRO",
        }
        assert ask("GET", "/subjects/t-ddl/versions/1", None) == (200, described)
        assert ask("POST", "/subjects/t-ddl", {"schema": schema}) == (200, described)
        latest = ask("GET", "/subjects/t-ddl/versions/latest", None)[1]
        assert isinstance(latest, dict)
        assert latest["version"] == 2
        assert ask("GET", f"/schemas/ids/{number}", None) == (200, {"schema": schema})
        assert ask("GET", f"/schemas/ids/{number}/schema", None) == (200, json.loads(schema))
        assert ask("GET", f"/schemas/ids/{number}/subjects", None) == (200, ["other", "t-ddl"])
        assert ask("GET", "/schemas?subjectPrefix=t-&offset=0&limit=1", None) == (200, [described])
        listed = ask("GET", "/schemas", None)[1]
        assert isinstance(listed, list)
        assert [
            (entry["subject"], entry["version"]) for entry in listed if isinstance(entry, dict)
        ] == [
            ("t-ddl", 1),
            ("other", 1),
            ("t-ddl", 2),
        ]
        assert ask("GET", "/schemas?offset=3&limit=-1", None) == (200, [])
        assert ask("GET", "/schemas/types", None) == (200, ["AVRO"])
        assert ask("GET", "/config", None) == (200, {"compatibilityLevel": "NONE"})
        assert ask("GET", "/mode", None) == (200, {"mode": "READWRITE"})
        refused: list[tuple[str, str, Json, int, int]] = [
            ("GET", "/subjects/none/versions", None, 404, 40401),
            ("POST", "/subjects/none", {"schema": schema}, 404, 40401),
            ("GET", "/subjects/t-ddl/versions/9", None, 404, 40402),
            ("GET", "/subjects/t-ddl/versions/x", None, 422, 42202),
            ("GET", "/schemas/ids/99", None, 404, 40403),
            ("POST", "/subjects/t-ddl", {"schema": RESOLVED_SCHEMA.text}, 404, 40403),
            ("POST", "/subjects/t-ddl/versions", {"schema": "{}"}, 422, 42201),
            (
                "POST",
                "/subjects/t-ddl/versions",
                {"schema": schema, "schemaType": "JSON"},
                422,
                42201,
            ),
            ("DELETE", "/subjects/t-ddl", None, 405, 40501),
        ]
        for method, path, body, status, code in refused:
            got, answer = ask(method, path, body)
            assert isinstance(answer, dict)
            assert (got, answer["error_code"]) == (status, code), path


def test_start_with_known_schemas_makes_few_requests(
    kafka: KafkaServer, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They come from the registry's list; schemas of another topic and new ones are registered."""
    schemas = [
        AvroSchema.of(
            {"type": "record", "namespace": "millrace.s.d", "name": f"t{n}", "fields": []}
        )
        for n in range(250)
    ]
    with running(kafka, topic) as address:
        first = _schema_ids(address)
        ids = [first.register(schema.subject("shop"), schema.text) for schema in schemas]
        requests: list[str] = []
        urlopen = urllib3.HTTPConnectionPool.urlopen

        def counting(pool: urllib3.HTTPConnectionPool, method: str, url: str, **more: Any) -> Any:
            requests.append(method)
            return urlopen(pool, method, url, **more)

        monkeypatch.setattr(urllib3.HTTPConnectionPool, "urlopen", counting)
        later = _schema_ids(address)
        assert [later.register(schema.subject("shop"), schema.text) for schema in schemas] == ids
        assert requests.count("POST") == ASKED_MAX - 1
        assert requests.count("GET") == 2, "pages"
        assert later.register(schemas[-1].subject("other"), schemas[-1].text) == ids[-1]
        assert later.register("shop-new", DDL_SCHEMA.text) > max(ids)
        assert requests.count("POST") == ASKED_MAX + 1


def _schema_ids(address: str) -> SchemaIds:
    def no_partition() -> Partition:
        raise AssertionError("the topic is read only while the registry is unavailable")

    return SchemaIds(RegistryClient(Registry(address)), no_partition, topic="shop")


def test_run_ends_when_the_registry_lost_its_store(
    kafka: KafkaServer, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that remembers the first ID would frame rows of the second schema with it."""
    topics = (topic, f"{topic}-again")
    for name in topics:  # with one entry, so that both continue after the same ID
        with closing(KafkaSchemaStore(Brokers(kafka.bootstrap), topic=name)) as store:
            assert list(store.load()) == []
            store.append([Entry("first", 1, 1, RESOLVED_SCHEMA.text)])
    with running(kafka, topics[0]) as address:
        client = RegistryClient(Registry(address))
        assert client.register("a", DDL_SCHEMA.text) == 2
    with running(kafka, topics[1]) as address:
        for where in ("_parts", "_pool"):
            monkeypatch.setattr(client, where, getattr(RegistryClient(Registry(address)), where))
        assert client.register("a", DDL_SCHEMA.text) == 2
        with pytest.raises(Retryable, match="MR-6024"):
            client.register("b", FENCE_SCHEMA.text)
        assert RegistryClient(Registry(address)).register("b", FENCE_SCHEMA.text) == 2


def test_ids_of_two_registries_have_no_schema_in_common(kafka: KafkaServer, topic: str) -> None:
    """A client that asks the wrong one gets 40403, whatever subject it names; a restart changes no ID."""
    ids = []
    for name in (topic, f"{topic}-other"):
        with running(kafka, name) as address:
            ids.append(RegistryClient(Registry(address)).register("a", DDL_SCHEMA.text))
    assert ids[0] != ids[1]
    with running(kafka, topic) as address:
        ask = asking(address)
        for path in (f"/schemas/ids/{ids[1]}", f"/schemas/ids/{ids[1]}?subject=a"):
            status, answer = ask("GET", path, None)
            assert (status, isinstance(answer, dict) and answer["error_code"]) == (404, 40403)
        known = {"schema": DDL_SCHEMA.text}
        assert ask("GET", f"/schemas/ids/{ids[0]}?subject=not-used", None) == (200, known)
        client = RegistryClient(Registry(address))
        assert client.register("b", FENCE_SCHEMA.text) == ids[0] + 1


def test_schema_ids_survive_a_registry_restart(kafka: KafkaServer, topic: str) -> None:
    """The first one closes its store after SIGTERM. The next one keeps its IDs, and gives new ones to other schemas."""
    with started(kafka, topic) as (address, process):
        first = RegistryClient(Registry(address))
        number = first.register("a", DDL_SCHEMA.text)
        assert first.register("b", FENCE_SCHEMA.text) == number + 1
    assert process.returncode == 0
    with running(kafka, topic) as address:
        second = RegistryClient(Registry(address))
        assert second.register("b", FENCE_SCHEMA.text) == number + 1
        assert second.register("c", DDL_SCHEMA.text) == number
        assert second.register("c", RESOLVED_SCHEMA.text) == number + 2
        assert second.schema_by_id(number) == DDL_SCHEMA.text
        with pytest.raises(Fatal, match="MR-6009"):
            second.schema_by_id(number + 3)
        with pytest.raises(Fatal, match="MR-6021"):
            second.register("c", '{"type": "nothing"}')


def test_starting_registry_fences_its_predecessor(kafka: KafkaServer, topic: str) -> None:
    """The older registry can no longer append, so one ID never means two schemas."""
    older, newer = (
        KafkaSchemaStore(Brokers(kafka.bootstrap), topic=topic),
        KafkaSchemaStore(Brokers(kafka.bootstrap), topic=topic),
    )
    assert list(older.load()) == []
    older.append([Entry("s", 1, 1, DDL_SCHEMA.text)])
    assert list(newer.load()) == [Entry("s", 1, 1, DDL_SCHEMA.text)]
    with pytest.raises(Fenced, match="MR-6023"):
        older.append([Entry("s", 2, 2, FENCE_SCHEMA.text)])
    newer.append([Entry("s", 2, 2, RESOLVED_SCHEMA.text)])
    assert [
        entry.schema for entry in KafkaSchemaStore(Brokers(kafka.bootstrap), topic=topic).load()
    ] == [
        DDL_SCHEMA.text,
        RESOLVED_SCHEMA.text,
    ]


def test_second_registry_on_a_topic_is_refused(kafka: KafkaServer, topic: str) -> None:
    """The error names the first one, which keeps serving; two supervised registries would end each other in turn."""
    with running(kafka, topic) as address:
        client = RegistryClient(Registry(address))
        number = client.register("a", DDL_SCHEMA.text)
        refused = subprocess.run(
            command(kafka, topic), capture_output=True, text=True, timeout=180, check=False
        )
        assert (refused.returncode, refused.stdout) == (4, "")
        assert "MR-6025" in refused.stderr
        assert f"{socket.gethostname()}/{urlsplit(address).netloc}" in refused.stderr
        assert client.register("b", FENCE_SCHEMA.text) == number + 1


def test_take_over_replaces_the_registry_that_serves(kafka: KafkaServer, topic: str) -> None:
    """The former registry ends with MR-6023 at its next registration."""
    with started(kafka, topic) as (former_address, former):
        former_client = RegistryClient(Registry(former_address))
        number = former_client.register("a", DDL_SCHEMA.text)
        with started(kafka, topic, "--take-over") as (address, _):
            with pytest.raises(Retryable, match="MR-6023"):
                former_client.register("b", FENCE_SCHEMA.text)
            _, errors = former.communicate(timeout=60)
            assert (former.returncode, "MR-6023" in errors) == (5, True)
            client = RegistryClient(Registry(address))
            assert client.register("c", RESOLVED_SCHEMA.text) == number + 1


def test_registry_replaces_a_killed_one(kafka: KafkaServer, topic: str) -> None:
    """It starts without an operator's help as soon as the broker has expired the killed one's session."""
    with started(kafka, topic) as (address, killed):
        number = RegistryClient(Registry(address)).register("a", DDL_SCHEMA.text)
        killed.kill()
        with running(kafka, topic) as successor:
            client = RegistryClient(Registry(successor))
            assert client.register("b", FENCE_SCHEMA.text) == number + 1


def test_registry_topic_with_other_settings_is_refused(kafka: KafkaServer, topic: str) -> None:
    """A topic with retention by age would make a registry assign IDs twice."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    make_topic(admin, topic)
    with pytest.raises(Fatal, match="MR-6022"):
        KafkaSchemaStore(Brokers(kafka.bootstrap), topic=topic).load()


def test_foreign_record_in_the_registry_topic_is_named(kafka: KafkaServer, topic: str) -> None:
    """A record that no registry wrote stops the start; the error has its offset."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    make_topic(admin, topic, config={"cleanup.policy": "compact"})
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    producer.produce(topic, key=b"k", value=b"not a schema")
    producer.flush(60)
    with pytest.raises(Fatal, match="offset 0"):
        KafkaSchemaStore(Brokers(kafka.bootstrap), topic=topic).load()


def test_registry_treats_an_unreachable_broker_as_retryable() -> None:
    """No listener at the address: Retryable in bounded time."""
    with pytest.raises(Retryable, match="MR-3001"):
        KafkaSchemaStore(Brokers("127.0.0.1:1"), timeout_s=2).load()


def test_registry_without_a_broker_exits_and_never_becomes_ready() -> None:
    """Within seconds; the Kafka client's own messages are limited to a line or two, instead of twenty per second."""
    command = (sys.executable, "-m", "millrace", "registry", "--port", "0", "--kafka", "nonsense")
    ended = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert ended.returncode == 3
    assert ended.stdout == ""
    assert "MR-3001" in ended.stderr
    assert "at nonsense" in ended.stderr
    assert "--kafka or MILLRACE_KAFKA" in ended.stderr
    assert len(ended.stderr.splitlines()) <= 5, ended.stderr


def test_unreachable_registry_is_retryable() -> None:
    """The client names the unreachable registry."""
    client = RegistryClient(Registry("http://127.0.0.1:1"))
    with pytest.raises(Retryable, match=r"MR-6020 http://127.0.0.1:1 did not answer"):
        client.register("s", DDL_SCHEMA.text)
