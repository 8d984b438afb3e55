"""Schema IDs for a run: from the registry, one by one or by a list, or from the topic while it is unavailable.

A request for each schema takes a millisecond or two, so a start with thousands of tables would take minutes. After
``ASKED_MAX`` schemas the registry's list is read, once in a run: thousands in a second. A new schema takes the registry
a transaction. So the schemas of tables that come together are registered at the same time (``prepare``), which the
registry stores together.

Each run begins with the schema records of the control schemas, and writes the schema record of a table before its first
row. So the part between the last beginning of a run and the stable end has all schemas that the last run used:

    … │ schema schema schema schema fence │ schema row row resolved │ … stable end
        ^ the last beginning of a run       ^ a table's

Guarantees: the newest record of a schema counts. It reads at most ``OFFSETS_MAX`` offsets, then the beginning of the
topic, where its first run begins. Any other schema must come from the registry.
Not done here: asking the registry (``registry.client``).
"""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from typing import Protocol

from millrace.drivers.kafka.reader import TopicRecord
from millrace.errors import Fatal, MillraceError, Retryable
from millrace.log import get_logger
from millrace.producer.publish.driver import Partition
from millrace.schemas.record.avro_schema import NAMESPACE
from millrace.schemas.record.control import CONTROL_SCHEMAS, RecordKind, SchemaRecord
from millrace.schemas.record.framing import peek_kind
from millrace.schemas.record.record import decode_control

# schemas that are registered one by one; twice the control schemas, and 15 tables with keys
ASKED_MAX = 40
AT_ONCE = 32  # requests at the same time
OFFSETS_MAX = 1_000_000  # two core-seconds
_WINDOW_OFFSETS = 65_536
_OPENING_OFFSETS = 64  # of the first run, which begins with its schema records
_AWAY_CODE = "MR-6020"

log = get_logger("producer.publish")


class Registry(Protocol):
    """``registry.client.RegistryClient``."""

    def register(self, subject: str, schema_text: str) -> int:
        """The schema's ID; Retryable MR-6020 while the registry is unavailable."""
        ...

    def knows(self, subject: str, schema_text: str) -> bool: ...

    def learn(self, prefix: str) -> None:
        """Make the registry's schemas known whose subject begins with ``prefix``."""
        ...

    def remember(self, subject: str, schema_text: str, schema_id: int) -> None:
        """Return this ID from now on without asking the registry."""
        ...


class SchemaIds:
    """Asks the registry for IDs; while it is unavailable, reads the topic once."""

    def __init__(
        self, registry: Registry, partition: Callable[[], Partition], *, topic: str
    ) -> None:
        self._registry = registry
        self._partition = partition
        self._prefix = f"{topic}-{NAMESPACE}."
        self._asked = 0
        self._has_learned = False
        self._has_read_topic = False

    def register(self, subject: str, schema_text: str) -> int:
        """The ID of a schema. Retryable MR-6020 if neither the registry nor the topic has it."""
        self._count(1)
        try:
            return self._registry.register(subject, schema_text)
        except Retryable as away:
            if away.code != _AWAY_CODE or self._has_read_topic:
                raise
            log.warning(
                "the registry is unavailable; schema records are read from the topic", error=away
            )
        self._has_read_topic = True
        with suppress(Retryable), closing(self._partition()) as partition:  # no topic, no broker
            for (known, text), schema_id in find_schemas(partition).items():
                self._registry.remember(known, text, schema_id)
        return self._registry.register(subject, schema_text)

    def prepare(self, schemas: Sequence[tuple[str, str]]) -> None:
        """Register several pairs of subject and text at the same time; ``register`` then has them in memory.

        It raises nothing: after an error the rest is left to ``register``, one by one.
        """
        unknown = self._unknown(schemas)
        self._count(len(unknown))
        unknown = self._unknown(unknown)
        if len(unknown) < 2:
            return
        failed = threading.Event()

        def ask(schema: tuple[str, str]) -> None:
            if not failed.is_set():
                try:
                    self._registry.register(*schema)
                except MillraceError:
                    failed.set()

        threads = min(len(unknown), AT_ONCE)
        with ThreadPoolExecutor(threads, thread_name_prefix="registry") as pool:
            list(pool.map(ask, unknown))

    def _unknown(self, schemas: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
        return [pair for pair in dict.fromkeys(schemas) if not self._registry.knows(*pair)]

    def _count(self, asked: int) -> None:
        """Read the registry's list once, after ``ASKED_MAX`` schemas."""
        self._asked += asked
        if self._asked < ASKED_MAX or self._has_learned:
            return
        self._has_learned = True
        try:
            self._registry.learn(self._prefix)
        except (Retryable, Fatal) as error:
            log.info("the registry lists no schemas: each is registered alone", error=str(error))


def find_schemas(partition: Partition) -> dict[tuple[str, str], int]:
    """The IDs of the schema records that are read, by subject and text; see the module."""
    ends = partition.all_ends()
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
