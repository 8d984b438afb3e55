"""Records of a topic, explained by the schemas in the topic itself.

A reader that begins in the middle of a topic meets schemas that were introduced before. Then a registry is asked where
one is named, else the schema records of the whole topic are read once (their kind stands in byte 5; nothing else is
decoded). A schema id that nobody explains is Fatal MR-6009.
"""

from collections.abc import Callable

from consumer.topic.kafka import TopicReader
from millrace.errors import Fatal
from schemas.control import RecordKind, SchemaRecord
from schemas.framing import peek_kind
from schemas.record import decode_control

_COUNTED = (RecordKind.ROW, RecordKind.DDL)
_WINDOW_OFFSETS_MIN = 64


class TopicLookUp:
    """A ``SchemaBook``'s look-up over the topic's own schema records; ``reader`` makes a reader of its own."""

    def __init__(self, reader: Callable[[], TopicReader]) -> None:
        self._reader = reader
        self._texts: dict[int, str] | None = None

    def __call__(self, schema_id: int) -> str:
        """The text of a schema; Fatal MR-6009."""
        if self._texts is None:
            self._texts = self._introduced()
        if schema_id not in self._texts:
            raise Fatal(
                "MR-6009",
                f"schema id {schema_id} is introduced nowhere in the topic",
                schema_id=schema_id,
            )
        return self._texts[schema_id]

    def _introduced(self) -> dict[int, str]:
        texts: dict[int, str] = {}
        reader = self._reader()
        ends = reader.ends()
        for chunk in reader.chunks(ends.low, ends.stable):
            for found in chunk:
                if peek_kind(found.value) is not RecordKind.SCHEMA:
                    continue
                record = decode_control(found.value)
                assert isinstance(record, SchemaRecord)
                for registered in (record.value, record.key):
                    if registered is not None:
                        texts[registered.id] = registered.schema.text
        reader.close()
        return texts


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
