"""Rows of a set topic in memory, as a publish task reads them."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from millrace.consumer.kernel import walk
from millrace.consumer.records.row_schemas import RowSchemas, make_programs
from millrace.consumer.records.rows import Rows, Values, walk_values
from millrace.schemas.record.control import SchemaRecord
from millrace.schemas.record.record import KnownSchemas, decode_record
from tests.kit.capture.converter import Conversion, raw_records

_ROWS = (0, 2)  # byte 5 of a row's value


@dataclass(frozen=True, slots=True)
class SetTopic:
    """The values of rows in the topic's order, and the schemas of all of them."""

    values: tuple[bytes, ...]
    schemas: RowSchemas

    @classmethod
    def of(cls, conversion: Conversion) -> "SetTopic":
        """All records of a conversion."""
        known, schemas, values = KnownSchemas(), RowSchemas(), []
        for batch in conversion.batches():
            for key, value in raw_records(batch):
                if value[5] in _ROWS:
                    values.append(value)
                    continue
                record = decode_record(key, value, known)
                if isinstance(record, SchemaRecord) and record.table:
                    schemas = schemas.learned(record.value.id, record.value.schema.text)
        return cls(tuple(values), schemas)

    def walked(self) -> Iterator[Rows]:
        """All rows, in batches."""
        programs = make_programs(self.schemas)
        payload = np.frombuffer(b"".join(self.values), np.uint8)
        offsets = np.concatenate([[0], np.cumsum([len(value) for value in self.values])])
        values = Values(payload, offsets.astype(np.int64))
        at = 0
        while at < len(values):
            rows = walk_values(values.part(at, len(values)), programs)
            assert rows.status == walk.OK
            assert len(rows) > 0
            yield rows
            at += len(rows)
