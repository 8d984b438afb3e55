"""Schema ids that the topic tells, for a start while the registry is away.

Every run opens with the schema records of the control schemas, and explains each table's schemas before their first
use. So from the stable end back to the last opening, everything that the last run used is explained:

    … │ schema schema schema schema fence │ schema row row resolved │ … stable end
        ^ the last opening                  ^ a table's

Guarantees: the newest explanation of a schema counts. At most ``OFFSETS_MAX`` offsets are read, then the beginning of
the topic, where its first run opens; what is not found there, the registry must give.
Not done here: asking the registry (``registry.client``).
"""

from collections.abc import Callable
from contextlib import closing, suppress
from typing import Protocol

from millrace.errors import Fatal, Retryable
from millrace.log import get_logger
from producer.publish.driver import Partition, TopicRecord
from schemas.record.control import CONTROL_SCHEMAS, RecordKind, SchemaRecord
from schemas.record.framing import peek_kind
from schemas.record.record import decode_control

OFFSETS_MAX = 1_000_000  # two core-seconds
_WINDOW_OFFSETS = 65_536
_OPENING_OFFSETS = 64  # of the first run: its schema records are the first of all
_AWAY_CODE = "MR-6020"

log = get_logger("producer.publish")


class Registry(Protocol):
    """``registry.client.RegistryClient``."""

    def register(self, subject: str, schema_text: str) -> int:
        """The id; Retryable MR-6020 while the registry is away."""
        ...

    def remember(self, subject: str, schema_text: str, schema_id: int) -> None:
        """Answer so from now on, without asking."""
        ...


class SchemaIds:
    """Asks the registry for ids; while it is away, the topic, once."""

    def __init__(self, registry: Registry, partition: Callable[[], Partition]) -> None:
        self._registry = registry
        self._partition = partition
        self._has_read_topic = False

    def register(self, subject: str, schema_text: str) -> int:
        """The id of a schema. Retryable MR-6020 where neither registry nor topic can say."""
        try:
            return self._registry.register(subject, schema_text)
        except Retryable as away:
            if away.code != _AWAY_CODE or self._has_read_topic:
                raise
            log.warning("the registry is away: the topic's own schema records are read", error=away)
        self._has_read_topic = True
        with suppress(Retryable), closing(self._partition()) as partition:  # no topic, no broker
            for (known, text), schema_id in find_schemas(partition).items():
                self._registry.remember(known, text, schema_id)
        return self._registry.register(subject, schema_text)


def find_schemas(partition: Partition) -> dict[tuple[str, str], int]:
    """By subject and text, the ids in the schema records that are read; see the module."""
    ends = partition.ends()
    found: dict[tuple[str, str], int] = {}
    stop, limit = ends.stable, max(ends.low, ends.stable - OFFSETS_MAX)
    while stop > limit and not _has_opening(found):
        start = max(limit, stop - _WINDOW_OFFSETS)
        for record in reversed(partition.read(start, stop)):
            _note(record, found)
        stop = start
    if stop > ends.low and not _has_opening(found):
        for record in partition.read(ends.low, min(ends.low + _OPENING_OFFSETS, stop)):
            _note(record, found)
    return found


def _has_opening(found: dict[tuple[str, str], int]) -> bool:
    texts = {text for _, text in found}
    return all(schema.text in texts for schema in CONTROL_SCHEMAS.values())


def _note(record: TopicRecord, found: dict[tuple[str, str], int]) -> None:
    with suppress(Fatal):  # a foreign record, which the publisher will report
        if peek_kind(record.value) is not RecordKind.SCHEMA:
            return
        explained = decode_control(record.value)
        assert isinstance(explained, SchemaRecord)
        for schema in (explained.value, explained.key):
            if schema is not None:
                found.setdefault((schema.subject, schema.schema.text), schema.id)
