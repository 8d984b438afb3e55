"""The question to a client: to decode a value of a topic, and what else its library can ask a registry for."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from millrace.schemas.record.avro_schema import Json

Answers = Mapping[str, Json]


@dataclass(frozen=True, slots=True)
class Question:
    """A value of ``topic`` in Confluent's framing, whose ID and schema ``registry`` knows or does not."""

    registry: str
    topic: str
    frame: bytes


class NoAnswer(Exception):
    """The client's error."""


class AskingClient(Protocol):
    """A library of other authors. Its answers are named in ``tests/chaos/test_registry_clients.py``."""

    @property
    def name(self) -> str:
        """A key of ``requests.REQUESTS``."""

    def ask(self, question: Question) -> Answers:
        """NoAnswer with the client's error."""
