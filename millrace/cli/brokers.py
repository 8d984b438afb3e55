"""The brokers that a command names: an option, a file, or a variable.

--kafka           host:port[,…], before the file's `bootstrap` and before MILLRACE_KAFKA
--kafka-config    a file with the mapping `kafka` of a task document (``schemas.documents.kafka``): TLS and login
"""

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from schemas.documents import Brokers

VARIABLE = "MILLRACE_KAFKA"

Kafka = Annotated[
    str, typer.Option("--kafka", help="Brokers, host:port[,…]. Default: MILLRACE_KAFKA.")
]
KafkaConfig = Annotated[
    str,
    typer.Option(
        "--kafka-config",
        help="File with the mapping `kafka` of a task document: TLS and login.",
        envvar="MILLRACE_KAFKA_CONFIG",
    ),
]


def named_brokers(kafka: str, config: str) -> "Brokers | None":
    """The brokers that options or variables name; None if none does. Fatal MR-4101, MR-4102, MR-4206."""
    from millrace.cli.control import plain_from_file
    from schemas.documents import Brokers, parse_brokers

    of_environment = os.environ.get(VARIABLE, "")
    if not config:
        named = kafka or of_environment
        return Brokers(named) if named else None
    brokers = parse_brokers(plain_from_file(config), origin=config)
    bootstrap = kafka or brokers.bootstrap or of_environment
    return replace(brokers, bootstrap=bootstrap) if bootstrap else None
