"""The contract of a client: it reads one topic, and returns the rows that remain at its end."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from millrace.schemas.view.format_options import FormatName


@dataclass(frozen=True, slots=True)
class ClientTopic:
    """A topic of a publish task, with its broker and registry. ``records``: how many committed ones it has."""

    bootstrap: str
    registry: str
    topic: str
    records: int


class Client(Protocol):
    """A client of the table in ``docs/subscribers.md``. It is made without an effect."""

    @property
    def name(self) -> str:
        """The language and the libraries, such as "Go: franz-go, sr, hamba/avro"."""

    @property
    def format(self) -> FormatName:
        """The format of the topics that it reads."""

    def missing(self) -> str:
        """A program that this machine does not have, such as "cargo"; "" if nothing is missing."""

    def prepare(self) -> None:
        """Build it once, in ``$MILLRACE_HOME/clients``."""

    def versions(self) -> str:
        """The versions of its libraries, from the file that pins them."""

    def rows(self, topic: ClientTopic) -> Iterable[Mapping[str, object]]:
        """The rows that remain at the topic's end, by the names of columns. AssertionError if it failed."""
