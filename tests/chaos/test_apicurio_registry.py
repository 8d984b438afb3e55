"""Apicurio's registry in place of the built-in one: a capture task and publish tasks register their schemas there."""

import io
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

import fastavro
import pytest

from millrace.consumer.publish.rebuild import EVERY_SEQ
from millrace.deploy.servers import DatabaseServer, KafkaServer
from millrace.registry.checks import check_registry
from millrace.registry.client import RegistryClient
from millrace.schemas.documents import Brokers, OutputTopics, PublishTask, Registry, TopicAddress
from millrace.schemas.record.avro_schema import Json
from millrace.schemas.record.framing import unframe
from millrace.schemas.view.format_options import FormatName, FormatOptions
from millrace.zk.ensemble import Ensemble
from tests.kit.capture.cluster import CaptureCluster
from tests.kit.control.control import scheduled
from tests.kit.debezium.whole_way import CopiedTopic, publish
from tests.kit.publish.local import published
from tests.kit.registry_clients.apicurio import SERDES, ApicurioConverter
from tests.kit.registry_clients.asking import Answers, AskingClient, Question
from tests.kit.registry_clients.programs import PROGRAMS
from tests.kit.registry_clients.server import ApicurioRegistry

pytestmark = pytest.mark.usefixtures("trusting")

FORMATS = (FormatName.AVRO, FormatName.DEBEZIUM_AVRO)
OTHERS: tuple[AskingClient, ...] = (ApicurioConverter(), *SERDES)
CONFLUENT = PROGRAMS[0]


@pytest.fixture(scope="module")
def apicurio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApicurioRegistry]:
    """Empty at first."""
    server = ApicurioRegistry(tmp_path_factory.mktemp("apicurio"))
    try:
        server.start()
        yield server
    finally:
        server.discard()


def test_apicurio_serves_capture_and_publish_tasks(
    apicurio: ApicurioRegistry,
    ensemble: Ensemble,
    kafka: KafkaServer,
    mariadb_server: DatabaseServer,
    tmp_path: Path,
) -> None:
    """`millrace check` accepts it; its own clients and Confluent's read the records with its schemas."""
    address = apicurio.confluent_address
    client = RegistryClient(Registry(address))
    assert not [each for each in check_registry(client, is_written=True) if each.code]
    same = [client.register(f"elsewhere-{number}", '"long"') for number in range(3)]
    assert len(set(same)) == 1  # from here the numbers of contents and of versions differ
    with ExitStack() as ends:
        cluster = CaptureCluster(ensemble, kafka, address, folder=tmp_path, ends=ends)
        source = cluster.add_source(mariadb_server)
        session, own = (ends.enter_context(ensemble.session()) for _ in range(2))
        ends.enter_context(scheduled(own, ensemble.tree))
        cluster.create(session)
        with cluster.worker(session, "w"):
            source.wait_for_rows()
            mariadb_server.execute(f"ALTER TABLE {source.name}.t MODIFY id BIGINT")
            source.wait_for_rows()
            cluster.assert_whole()
        wanted = {
            row[0]: row[1] for row in mariadb_server.execute(f"SELECT * FROM {source.name}.t")
        }
        for name in FORMATS:
            task = _publish(CopiedTopic(kafka.bootstrap, source.name), address, name)
            topic = f"{task.name}.{source.name}.t"
            records = published(task, [topic], bytes)
            read = _reader(client)
            rows = [read(record.value)["after"] for record in records]
            assert {row["id"]: row["v"] for row in rows} == wanted
            assert [read(record.key)["id"] for record in records] == [row["id"] for row in rows]
            first, last = records[0].value, records[-1].value
            answers = CONFLUENT.ask(Question(address, topic, first))
            assert (answers["first"], answers["latest"]) == (unframe(first)[0], unframe(last)[0])
            assert answers["versions"] == [1, 2]
            assert _after(answers) == rows[0]
            for other in OTHERS:
                assert _after(other.ask(Question(apicurio.address, topic, last))) == rows[-1]


def _publish(topic: CopiedTopic, address: str, name: FormatName) -> PublishTask:
    brokers = Brokers(topic.bootstrap)
    source = TopicAddress(topic=topic.topic, brokers=brokers, registry=Registry(address))
    return publish(
        topic,
        source=source,
        topics=OutputTopics(pattern="{task}.{database}.{table}", partitions=1),
        format=FormatOptions.of(name),
        accept_ddl=EVERY_SEQ,
    )


def _reader(client: RegistryClient) -> Callable[[bytes], Any]:
    """Decodes a key or a value with the registry's schemas."""

    @cache
    def schema(number: int) -> Any:
        return fastavro.parse_schema(json.loads(client.schema_by_id(number)))

    def read(octets: bytes) -> Any:
        number, body = unframe(octets)
        return fastavro.schemaless_reader(io.BytesIO(body), schema(number), None)

    return read


def _after(answers: Answers) -> Json:
    row = answers["row"]
    assert isinstance(row, dict)
    return row["after"]
