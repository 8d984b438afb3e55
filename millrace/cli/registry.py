"""``millrace registry --kafka HOST:PORT [--port N]``: the built-in schema registry.

Prints one line of JSON, ``{"registry": "http://127.0.0.1:8081"}``, when it has read its topic and accepts requests.
Runs until SIGTERM or Ctrl-C. Ends with MR-6020 after some seconds if no broker answers, and with MR-6025 if another
registry serves the topic.
"""

import json
import socket
from typing import Annotated

import typer

from millrace.private import keep_private


def registry(
    kafka: Annotated[str, typer.Option(help="Kafka's bootstrap servers, host:port[,…].")],
    port: Annotated[
        int, typer.Option(help="Port to listen on; 0 chooses a free one.", min=0, max=65535)
    ] = 8081,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    topic: Annotated[
        str, typer.Option(help="The compacted topic that stores the schemas.")
    ] = "_millrace_schemas",
    take_over: Annotated[
        bool,
        typer.Option(
            "--take-over", help="Start even if another registry serves the topic; that one ends."
        ),
    ] = False,
) -> None:
    """Run the built-in schema registry: Confluent's REST API. It has no authentication; the default is loopback."""
    from registry.kafka import KafkaSchemaStore
    from registry.ownership import Ownership
    from registry.server import RegistryServer, address_text, listen
    from schemas.documents import Brokers

    keep_private()
    listening = listen(host, port)
    name = f"{socket.gethostname()}/{address_text(listening)}"
    brokers = Brokers(kafka)
    ownership = Ownership(brokers, topic, name=name, takes_over=take_over)
    server = RegistryServer(listening, KafkaSchemaStore(brokers, topic=topic, ownership=ownership))
    server.run(ready=lambda: print(json.dumps({"registry": server.address}), flush=True))
