"""Where clients of Kafka connect, and how."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

# librdkafka's: texts, numbers, callbacks; each client declares other types
Settings: TypeAlias = dict[str, Any]


class KafkaAccess(Protocol):
    """Where clients connect, and how (``schemas.documents.brokers``)."""

    @property
    def bootstrap(self) -> str: ...

    def settings(self) -> Settings: ...


@dataclass(frozen=True, slots=True)
class GivenAccess:
    """The access of a program that brings librdkafka's settings itself."""

    bootstrap: str
    client: Mapping[str, str] = field(default_factory=dict, repr=False)

    def settings(self) -> Settings:
        """All settings; no client creates a topic by asking for it."""
        return {
            "allow.auto.create.topics": False,
            **self.client,
            "bootstrap.servers": self.bootstrap,
        }


# For clients whose own log lines are dropped: every failed call is reported anyway.
driver_log = logging.getLogger("librdkafka")
driver_log.addHandler(logging.NullHandler())
driver_log.propagate = False
