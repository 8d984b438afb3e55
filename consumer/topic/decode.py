"""Records of a topic, explained by the schemas in the topic itself.

A reader that begins in the middle of a topic meets schemas that were introduced before. What an id meant there its last
explanation in front of that place says: the topic is read backwards to it, not far, since what is in use is explained
again and again (of what is read only the kind, in byte 5, is looked at). A registry may have given the id to another
schema since, so it is asked last, of what retention has taken from the topic. A schema id that nobody explains is Fatal
MR-6009.
"""

from collections.abc import Callable, Iterator

from consumer.topic.kafka import TopicReader
from millrace.errors import Fatal
from schemas.control import RecordKind, SchemaRecord
from schemas.framing import peek_kind
from schemas.record import LookUp, decode_control

_COUNTED = (RecordKind.ROW, RecordKind.DDL)
_WINDOW_OFFSETS_MIN = 64


class TopicLookUp:
    """A ``SchemaBook``'s look-up for a reader that begins at offset ``at``; ``reader`` makes a reader of its own."""

    def __init__(
        self, reader: Callable[[], TopicReader], at: int, *, registry: LookUp | None = None
    ) -> None:
        self._reader = reader
        self._at = self._read_from = at
        self._window = _WINDOW_OFFSETS_MIN
        self._registry = registry
        self._texts: dict[int, str] = {}  # as explained last in front of ``at``

    def __call__(self, schema_id: int) -> str:
        """The text of a schema; Fatal MR-6009."""
        if schema_id in self._texts:
            return self._texts[schema_id]
        reader = self._reader()
        try:
            found = self._before(reader, schema_id) or self._behind(reader, schema_id)
        finally:
            reader.close()
        if found is None and self._registry is not None:
            found = self._registry(schema_id)
        if found is None:
            raise Fatal(
                "MR-6009",
                f"schema id {schema_id} is introduced nowhere in the topic",
                schema_id=schema_id,
            )
        return found

    def _before(self, reader: TopicReader, schema_id: int) -> str | None:
        low = reader.ends().low
        while schema_id not in self._texts and self._read_from > low:
            start = max(low, self._read_from - self._window)
            self._texts = dict(_explained(reader, start, self._read_from)) | self._texts
            self._read_from = start
            self._window *= 4
        return self._texts.get(schema_id)

    def _behind(self, reader: TopicReader, schema_id: int) -> str | None:
        """Retention took it from what stands before: it is explained again."""
        explained = _explained(reader, self._at, reader.ends().stable)
        return next((text for id_, text in explained if id_ == schema_id), None)


def _explained(reader: TopicReader, start: int, stop: int) -> Iterator[tuple[int, str]]:
    for chunk in reader.chunks(start, stop):
        for found in chunk:
            if peek_kind(found.value) is not RecordKind.SCHEMA:
                continue
            record = decode_control(found.value)
            assert isinstance(record, SchemaRecord)
            for registered in (record.value, record.key):
                if registered is not None:
                    yield registered.id, registered.schema.text


def offset_of_last(reader: TopicReader, count: int) -> int:
    """Where the last ``count`` rows and DDL records begin; the first kept offset if there are fewer."""
    ends = reader.ends()
    if count == 0:
        return ends.stable
    window = _WINDOW_OFFSETS_MIN
    while True:
        start = max(ends.low, ends.stable - window)
        offsets = [
            record.offset
            for chunk in reader.chunks(start, ends.stable)
            for record in chunk
            if peek_kind(record.value) in _COUNTED
        ]
        if len(offsets) >= count:
            return offsets[-count]
        if start == ends.low:
            return start
        window *= 4
