"""Apicurio's deserializer for Kafka, in a JVM that Python drives: serdes 2 with API v2, serdes 3 with API v3.

It reads Confluent's framing, and asks for a content ID or a global ID; a setting says which of the two an ID is.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JJavaError

from millrace.deploy.servers.fetch import fetch_jars
from millrace.deploy.servers.programs import pyspark_jars
from millrace.jvm import java_program
from tests.kit.debezium.avro_converter import fetch_converter
from tests.kit.registry_clients.asking import Answers, NoAnswer, Question

IVY_FILE = Path(__file__).with_name("ivy.xml")
ID_KINDS = ("contentId", "globalId")


def _serde() -> Path:
    return fetch_jars("apicurio-serde", size_mb=32, ivy_file=IVY_FILE)


@dataclass(frozen=True, slots=True)
class ApicurioSerde:
    """``api``: the path of the API below the registry's address."""

    name: str
    api: str
    jars: Callable[[], Path]
    id_kind: str

    def ask(self, question: Question) -> Answers:
        """The row and the schema that its record has."""
        with _jvm(self.jars()) as jvm:
            deserializer = jvm.io.apicurio.registry.serde.avro.AvroKafkaDeserializer()
            url = f"{question.registry}{self.api}"
            deserializer.configure(_settings(jvm, url, self.id_kind), False)
            try:
                record = deserializer.deserialize(question.topic, question.frame)
            except Py4JJavaError as error:
                raise NoAnswer(_text(error.java_exception)) from error
            finally:
                deserializer.close()
            return {
                "row": json.loads(record.toString()),
                "schema": json.loads(record.getSchema().toString()),
            }


@dataclass(frozen=True, slots=True)
class ApicurioConverter:
    """Kafka Connect's reader of Avro, as a sink has it; Connect's own converter makes JSON of the values."""

    name: str = "Kafka Connect: Apicurio's AvroConverter 2"

    def ask(self, question: Question) -> Answers:
        """The row."""
        with _jvm(fetch_converter()) as jvm:
            converter = jvm.io.apicurio.registry.utils.converter.AvroConverter()
            url = f"{question.registry}/apis/registry/v2"
            converter.configure(_settings(jvm, url, "contentId"), False)
            plain = jvm.org.apache.kafka.connect.json.JsonConverter()
            without_schemas = jvm.java.util.HashMap()
            without_schemas.put("schemas.enable", "false")
            plain.configure(without_schemas, False)
            try:
                read = converter.toConnectData(question.topic, question.frame)
            except Py4JJavaError as error:
                raise NoAnswer(_text(error.java_exception)) from error
            text = plain.fromConnectData(question.topic, read.schema(), read.value())
            return {"row": json.loads(text)}


def _settings(jvm: Any, url: str, id_kind: str) -> Any:
    settings = jvm.java.util.HashMap()
    for name, value in {
        "url": url,
        "as-confluent": "true",
        "use-id": id_kind,
        "headers.enabled": "false",  # the ID is in the value
    }.items():
        settings.put(f"apicurio.registry.{name}", value)
    return settings


def _text(error: Any) -> str:
    """An exception's own text. API v3 has the server's text in the title of its cause."""
    cause = error.getCause()
    is_problem = cause is not None and cause.getClass().getSimpleName() == "ProblemDetails"
    return f"{error.toString()}{f': {cause.getTitle()}' if is_problem else ''}"


@contextmanager
def _jvm(jars: Path) -> Iterator[Any]:
    (bridge,) = pyspark_jars().glob("py4j-*.jar")
    port: Any = launch_gateway(
        classpath=f"{jars}/*:{bridge}",
        jarpath=str(bridge),
        java_path=str(java_program()),
        javaopts=["-Xmx256m"],
        die_on_exit=True,
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port))
    try:
        yield gateway.jvm
    finally:
        gateway.shutdown()


SERDES = tuple(
    ApicurioSerde(f"Java: Apicurio's serde {major}, {kind}", f"/apis/registry/v{major}", jars, kind)
    for major, jars in ((2, fetch_converter), (3, _serde))
    for kind in ID_KINDS
)
