"""``millrace registry --kafka HOST:PORT [--port N]``: the built-in schema registry.

Prints one line of JSON, ``{"registry": "http://127.0.0.1:8081"}``, when it has read its topic and accepts requests.
Runs until SIGTERM or Ctrl-C. Ends with MR-6020 after some seconds if no broker answers, and with MR-6025 if another
registry serves the topic.
"""

import json
import socket
from typing import Annotated

import typer

from millrace.cli.brokers import Kafka, KafkaConfig, named_brokers
from millrace.errors import Fatal
from millrace.private import keep_private
from schemas.kafka_names import REGISTRY_TOPIC


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
) -> None:
    """Run the built-in schema registry: Confluent's REST API. It has no authentication; the default is loopback."""
    from millrace.kafka_refusals import explained
    from registry.kafka import KafkaSchemaStore
    from registry.ownership import Ownership
    from registry.server import RegistryServer, address_text, listen
    from schemas.kafka_acls import Grants, registry_acls

    keep_private()
    listening = listen(host, port)
    name = f"{socket.gethostname()}/{address_text(listening)}"
    brokers = named_brokers(kafka, kafka_config)
    if brokers is None:
        raise Fatal("MR-3502", "no brokers are known for the registry's topic")
    ownership = Ownership(brokers, topic, name=name, takes_over=take_over)
    server = RegistryServer(listening, KafkaSchemaStore(brokers, topic=topic, ownership=ownership))
    with explained(brokers, Grants(brokers, registry_acls(topic)).fix):
        server.run(ready=lambda: print(json.dumps({"registry": server.address}), flush=True))
