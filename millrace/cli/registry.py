"""``millrace registry --kafka HOST:PORT [--port N]``: the built-in schema registry.

Prints one line of JSON, ``{"registry": "http://127.0.0.1:8081"}``, when it has read its topic and accepts requests.
Runs until SIGTERM or Ctrl-C. Ends with MR-6020 after some seconds if no broker answers.
"""

import json
from typing import Annotated

import typer


def registry(
    kafka: Annotated[str, typer.Option(help="Kafka's bootstrap servers, host:port[,…].")],
    port: Annotated[
        int, typer.Option(help="Port to listen on; 0 chooses a free one.", min=0, max=65535)
    ] = 8081,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    topic: Annotated[
        str, typer.Option(help="The compacted topic that stores the schemas.")
    ] = "_millrace_schemas",
) -> None:
    """Run the built-in schema registry: Confluent's REST API. It has no authentication; the default is loopback."""
    from registry.kafka import KafkaSchemaStore
    from registry.server import RegistryServer

    server = RegistryServer.listen(KafkaSchemaStore(kafka, topic=topic), host=host, port=port)
    server.run(ready=lambda: print(json.dumps({"registry": server.address}), flush=True))
