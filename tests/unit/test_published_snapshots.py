"""The rows of snapshots that a publish task takes: its own, and those that no publish task asked for."""

import numpy as np
import pytest

from millrace.consumer.publish.snapshot_rows import without_rows_of_others
from millrace.consumer.records.numbers import RecordNumbers
from millrace.consumer.records.row_schemas import RowSchemas, make_programs
from millrace.consumer.records.rows import walk_values
from millrace.schemas.record.avro_schema import envelope_schema
from tests.kit.apply.tables import integer, table
from tests.kit.apply.topic import SET, RecordStream
from tests.kit.apply.values import values_of

ROWS = table("shop", "orders", integer("id"))
IDS = (
    *("initial", "publish-1", "publish-12", "publish-2", "publish", "publish-", ""),
    *("s" * 63, "s" * 64, "s" * 200, "publish-" + "x" * 55, "publish-" + "x" * 56),
    "publish-" + "x" * 200,
)


@pytest.mark.parametrize("own", ["", "publish-1", "publish-2", "publish-3"])
def test_rows_of_other_tasks_snapshots_are_left_out(own: str) -> None:
    """By the whole id, of any length. The last row ends the batch; changes are always taken."""
    stream = RecordStream()
    stream.insert(ROWS, {"id": -1})
    stream.commit()
    for number, stream.file in enumerate((*IDS, *IDS[::-1])):
        stream.snapshot(ROWS, {"id": number})
    schema = envelope_schema(SET, ROWS).text
    values = [value for value in stream.values if value[5] in (0, 2)]
    rows = walk_values(values_of(values), make_programs(RowSchemas({100: schema})))
    numbers = RecordNumbers(np.arange(len(rows)))
    taken = [
        number
        for number, one in enumerate((*IDS, *IDS[::-1]), 1)
        if not one.startswith("publish-") or one == own
    ]
    assert without_rows_of_others(rows, numbers, own).tolist() == [0, *taken]
    later = RecordNumbers(numbers[5:])
    assert without_rows_of_others(rows, later, own).tolist() == [one for one in taken if one >= 5]
