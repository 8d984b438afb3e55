"""``millrace registry --kafka HOST:PORT [--port N]``: the built-in schema registry.

Prints one line of JSON, ``{"registry": "http://127.0.0.1:8081"}``, when it has read its topic and accepts requests.
Runs until SIGTERM or Ctrl-C. Ends with MR-3001 after some seconds if no broker answers, and with MR-6025 if another
registry serves the topic.
"""

import json
import socket
from pathlib import Path
from typing import Annotated

import typer

from millrace.cli.options import Http, Kafka, KafkaConfig, named_brokers
from millrace.drivers.kafka.names import REGISTRY_TOPIC
from millrace.errors import Fatal
from millrace.process.privacy import keep_private


def _reference(value: str) -> str:
    """Checks that the option is a reference. It may be the token itself, so it is not shown."""
    from millrace.schemas.documents import SecretReference

    if value and SecretReference.parse(value) is None:
        raise typer.BadParameter("not a reference: env:NAME or file:/PATH")
    return value


def registry(
    kafka: Kafka = "",
    kafka_config: KafkaConfig = "",
    port: Annotated[
        int, typer.Option(help="Port to listen on; 0 chooses a free one.", min=0, max=65535)
    ] = 8081,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    topic: Annotated[
        str, typer.Option(help="The compacted topic that stores the schemas.")
    ] = REGISTRY_TOPIC,
    take_over: Annotated[
        bool,
        typer.Option(
            "--take-over", help="Start even if another registry serves the topic; that one ends."
        ),
    ] = False,
    tls_cert: Annotated[
        Path | None, typer.Option("--tls-cert", help="Certificate (PEM): serve https.")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option("--tls-key", help="Its key (PEM).")] = None,
    token: Annotated[
        str,
        typer.Option(
            "--token",
            help="Where the token is that clients must send: env:NAME or file:/PATH.",
            callback=_reference,
        ),
    ] = "",
    insecure: Annotated[
        bool,
        typer.Option(
            "--insecure", help="Listen for other machines without TLS or without a token."
        ),
    ] = False,
    http: Http = "",
) -> None:
    """Run the built-in schema registry: Confluent's REST API."""
    from millrace.drivers.kafka.acls import Grants, registry_acls
    from millrace.http import open_page
    from millrace.registry.door import Door
    from millrace.registry.kafka import KafkaSchemaStore
    from millrace.registry.ownership import Ownership
    from millrace.registry.server import RegistryServer, address_text, listen
    from millrace.schemas.documents import SecretReference, resolve_secret
    from millrace.tls import is_loopback

    keep_private()
    reference = SecretReference.parse(token)
    door = Door(certificate=tls_cert, key=tls_key, token=reference, is_local=is_loopback(host))
    door.check_exposure(host, is_accepted=insecure)
    if reference is not None:
        resolve_secret(reference)  # a missing one is reported now, not to the first client
    brokers = named_brokers(kafka, kafka_config)
    if brokers is None:
        raise Fatal("MR-3502", "no brokers are known for the registry's topic")
    with open_page(http) as page, Grants(brokers, registry_acls(topic)).explained():
        listening = listen(host, port)
        name = f"{socket.gethostname()}/{address_text(listening)}"
        ownership = Ownership(brokers, topic, name=name, takes_over=take_over)
        store = KafkaSchemaStore(brokers, topic=topic, ownership=ownership)
        server = RegistryServer(listening, store, door, page)
        server.run(ready=lambda: print(json.dumps({"registry": server.address}), flush=True))
