"""Finds the schemas of a topic's records in the topic itself.

A reader that starts in the middle of a topic needs schemas that were introduced before its start. The last schema
record of an id before the start counts. The look-up reads the topic backwards to that record. This is not far, because
schemas in use are introduced again and again. It is cheap, because only the kind in byte 5 of each value is read. If
retention has removed the record, the look-up searches from the start on. The registry comes last, because it may have
given the id to another schema since. A schema id that is in none of these places raises Fatal MR-6009.
"""

from collections.abc import Callable, Iterator
from contextlib import closing

from millrace.drivers.kafka.reader import TopicReader
from millrace.errors import Fatal
from millrace.schemas.record.control import RecordKind, SchemaRecord
from millrace.schemas.record.framing import peek_kind
from millrace.schemas.record.record import LookUp, decode_control

_WINDOW_OFFSETS_MIN = 64


class TopicLookUp:
    """The look-up of ``KnownSchemas`` for a reader that starts at offset ``at``; ``reader`` creates a second reader."""

    def __init__(
        self, reader: Callable[[], TopicReader], at: int, *, registry: LookUp | None = None
    ) -> None:
        self._reader = reader
        self._at = self._read_from = at
        self._window = _WINDOW_OFFSETS_MIN
        self._registry = registry
        self._texts: dict[int, str] = {}  # from the last schema records before ``at``

    def __call__(self, schema_id: int) -> str:
        """The text of a schema; Fatal MR-6009."""
        if schema_id in self._texts:
            return self._texts[schema_id]
        with closing(self._reader()) as reader:
            found = self._find_before(reader, schema_id) or self._find_after(reader, schema_id)
        if found is None and self._registry is not None:
            found = self._registry(schema_id)
        if found is None:
            raise Fatal(
                "MR-6009", f"schema id {schema_id} is not in the topic", schema_id=schema_id
            )
        return found

    def _find_before(self, reader: TopicReader, schema_id: int) -> str | None:
        low = reader.ends().low
        while schema_id not in self._texts and self._read_from > low:
            start = max(low, self._read_from - self._window)
            self._texts = dict(_introduced(reader, start, self._read_from)) | self._texts
            self._read_from = start
            self._window *= 4
        return self._texts.get(schema_id)

    def _find_after(self, reader: TopicReader, schema_id: int) -> str | None:
        """Retention removed the schema record before ``at``, so a later one introduces the schema again."""
        introduced = _introduced(reader, self._at, reader.ends().stable)
        return next((text for id_, text in introduced if id_ == schema_id), None)


def _introduced(reader: TopicReader, start: int, stop: int) -> Iterator[tuple[int, str]]:
    for chunk in reader.chunks(start, stop):
        for found in chunk:
            if peek_kind(found.value) is not RecordKind.SCHEMA:
                continue
            record = decode_control(found.value)
            assert isinstance(record, SchemaRecord)
            for registered in (record.value, record.key):
                if registered is not None:
                    yield registered.id, registered.schema.text
