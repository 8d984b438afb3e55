"""Apicurio's Avro converter for Kafka Connect, and as much of a registry as it asks.

    with schema_store() as store:
        SinkJars(…, plugins(folder, connector))      a connector with the converter beside it
        settings("value", store)                     of a connector
        store.schema(1)                              the schema that the converter gave the ID 1

Its records are as Confluent's: a byte 0, the ID in four bytes, Avro. A schema gets the ID of an equal text.
"""

import json
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from millrace.deploy.servers.fetch import fetch_jars

IVY_FILE = Path(__file__).with_name("avro-ivy.xml")
SIZE_MB = 27
CONVERTER = "io.apicurio.registry.utils.converter.AvroConverter"
_SERVICES = "META-INF/services/org.apache.kafka.connect.storage.Converter"
# metadata of a registered schema without its IDs; the client refuses an answer without these
_METADATA = {
    "groupId": "default",
    "type": "AVRO",
    "version": "1",
    "state": "ENABLED",
    **dict.fromkeys(("createdOn", "modifiedOn"), "2020-01-01T00:00:00Z"),
}


@dataclass(slots=True)
class SchemaStore:
    """``port``: on loopback."""

    port: int = 0
    _texts: list[str] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def register(self, text: str) -> int:
        """The ID of a schema."""
        with self._lock:
            if text not in self._texts:
                self._texts.append(text)
            return self._texts.index(text) + 1

    def schema(self, number: int) -> Any:
        """The schema with this ID, as JSON."""
        return json.loads(self._texts[number - 1])


@contextmanager
def schema_store() -> Iterator[SchemaStore]:
    """A store that the converter can reach during the block."""
    store = SchemaStore()

    class Handler(BaseHTTPRequestHandler):
        """Answers ``POST …/artifacts``, whose body is the schema."""

        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            """Register a schema."""
            text = self.rfile.read(int(self.headers["Content-Length"])).decode()
            number = store.register(text)
            ids = {"globalId": number, "contentId": number}
            name = {"id": self.headers["X-Registry-ArtifactId"]}
            answer = json.dumps(_METADATA | name | ids).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        store.port = server.server_port
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield store
        finally:
            server.shutdown()
            thread.join()


def settings(part: str, store: SchemaStore) -> dict[str, str]:
    """Settings of a connector for ``key`` or ``value``, which registers its schemas in the store."""
    registers = {f"{part}.converter.apicurio.registry.auto-register": "true"}
    return reading_settings(part, f"http://127.0.0.1:{store.port}") | registers


def reading_settings(part: str, registry: str) -> dict[str, str]:
    """Settings of a sink for ``key`` or ``value``, whose schemas are in this registry."""
    prefix = f"{part}.converter.apicurio.registry"
    return {
        f"{part}.converter": CONVERTER,
        f"{prefix}.url": f"{registry}/apis/registry/v2",
        f"{prefix}.as-confluent": "true",
        f"{prefix}.use-id": "contentId",
        f"{prefix}.headers.enabled": "false",  # the ID is in the value
    }


def plugins(folder: Path, connectors: Path) -> Path:
    """A new folder of plugins: those of ``connectors``, and the converter."""
    folder.mkdir()
    for plugin in (*connectors.iterdir(), fetch_converter()):
        (folder / plugin.name).symlink_to(plugin)
    return folder


def fetch_converter() -> Path:
    """The folder of the converter's jars, and of the serde that it uses."""
    return fetch_jars("avro-converter", size_mb=SIZE_MB, ivy_file=IVY_FILE, finish=_announce)


def _announce(folder: Path) -> None:
    """Connect looks for converters in service files, and Apicurio's jar has none."""
    with zipfile.ZipFile(folder / "services.jar", "w") as jar:
        jar.writestr(_SERVICES, f"{CONVERTER}\n")
