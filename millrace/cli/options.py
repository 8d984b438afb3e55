"""Options that several commands take.

--kafka               host:port[,…], before the file's `bootstrap` and before MILLRACE_KAFKA
--kafka-config        a file with the mapping `kafka` of a task document (``schemas.documents.kafka``): TLS and login
--http                the page of a command that runs until a signal
--label, --capacity   what a worker or an apply driver takes
"""

import os
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from millrace.errors import Fatal

if TYPE_CHECKING:
    from millrace.schemas.documents import Brokers

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
    from millrace.schemas.documents import Brokers, parse_brokers

    of_environment = os.environ.get(VARIABLE, "")
    if not config:
        named = kafka or of_environment
        return Brokers(named) if named else None
    brokers = parse_brokers(plain_from_file(config), origin=config)
    bootstrap = kafka or brokers.bootstrap or of_environment
    return replace(brokers, bootstrap=bootstrap) if bootstrap else None


Http = Annotated[
    str,
    typer.Option(
        "--http",
        metavar="HOST:PORT",
        envvar="MILLRACE_HTTP",
        help="Where /metrics, /livez and /readyz answer; `none`: nowhere. By default a free port on loopback, which the"
        " log names.",
        show_default=False,
    ),
]


Labels = Annotated[
    list[str],
    typer.Option(
        "--label", help="A label NAME=VALUE that sets and tasks may ask for; may be repeated."
    ),
]
Sets = Annotated[
    int | None,
    typer.Option("--capacity", min=1, help="The most sets that it takes; any number by default."),
]
Tasks = Annotated[
    int | None,
    typer.Option("--capacity", min=1, help="The most tasks that it takes; any number by default."),
]


def labels_of(texts: Iterable[str]) -> frozenset[str]:
    """The labels; Fatal MR-4120 for one that is malformed."""
    from millrace.schemas.documents.fields import Unreadable
    from millrace.schemas.documents.readers import label

    try:
        return frozenset(map(label, texts))
    except Unreadable as error:
        raise Fatal("MR-4120", f"--label: found {error.found}, wanted {error.wanted}") from error
