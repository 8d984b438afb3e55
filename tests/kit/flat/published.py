"""Millrace's records of the same binlog files: the converter, a view of all tables and ``consumer/format``."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from millrace.consumer.format.encoded import RECORD, SEQ
from millrace.consumer.format.formats import make_format
from millrace.consumer.format.table_format import FormatNames, TableFormat
from millrace.consumer.kernel import walk
from millrace.consumer.records.numbers import RecordNumbers
from millrace.consumer.records.rows import Rows
from millrace.consumer.view.changes import make_changes
from millrace.consumer.view.program import ViewProgram, make_view_program, view_of
from millrace.schemas.view.format_options import FormatOptions
from millrace.schemas.view.view import ALL_TABLES
from tests.kit.flat.jvm import Judged
from tests.kit.flat.set_topic import SetTopic


@dataclass
class FlatRecords:
    """Records of a set topic in one of the formats."""

    options: FormatOptions
    _formats: dict[int, tuple[ViewProgram, TableFormat]] = field(default_factory=dict)

    def of(self, topic: SetTopic) -> Iterator[Judged]:
        """All records, in the topic's order."""
        numbers: Counter[str] = Counter()
        for rows in topic.walked():
            for _, gtid, name, key, value in sorted(self._encoded(rows)):
                yield Judged(*name, (gtid, numbers[gtid]), key, value)
                numbers[gtid] += 1

    def _encoded(self, rows: Rows) -> Iterator[tuple[int, str, tuple[str, str], str, str]]:
        slots = rows.column(walk.SLOT)
        for slot in np.unique(slots).tolist():
            program, encoder = self._format(rows, slot)
            own = RecordNumbers(np.flatnonzero(slots == slot))
            encoded = encoder.encode(rows, make_changes(program, rows, own))
            for at, line in enumerate(encoded.lines.tolist()):
                key, value = encoded.key(at) or b"", encoded.value(at)
                assert value is not None
                gtid = rows.gtid(line[RECORD])
                yield line[SEQ], gtid, program.view.name, key.decode(), value.decode()

    def _format(self, rows: Rows, slot: int) -> tuple[ViewProgram, TableFormat]:
        if slot not in self._formats:
            layout = rows.programs.layouts[slot]
            view = view_of(ALL_TABLES, layout)
            assert view is not None
            encoder = make_format(self.options, view, layout, FormatNames("flat", "flat"))
            self._formats[slot] = make_view_program(view, layout), encoder
        return self._formats[slot]
