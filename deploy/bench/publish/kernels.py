"""CPU of the kernels that a view adds to a publish task, without Kafka: rows of the set topic into records of ``json``.

    publish.kernels             CPU µs a row to walk rows, make their changes and write them
    publish.kernels.where       the same with a condition on an integer that admits all rows
    publish.kernels.mask        the same with an HMAC of a VARCHAR(40) in both images
    publish.kernels.columns     the same with half of the columns

The peer of the last three is the first, in the same rounds. A third of the rows are inserts, two thirds are updates;
half of the updates change the VARCHAR(40).
"""

import random
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import median

import numpy as np
import numpy.typing as npt

from millrace.consumer.format.formats import make_format
from millrace.consumer.format.table_format import FormatNames
from millrace.consumer.records.numbers import RecordNumbers
from millrace.consumer.records.row_schemas import Programs, RowSchemas, make_programs
from millrace.consumer.records.rows import Values, walk_values
from millrace.consumer.view.changes import make_changes
from millrace.consumer.view.program import make_view_program, view_of
from millrace.deploy.bench.figure import Figure, Size, announced_rounds, bench_folder
from millrace.process.memory import keep_freed_memory
from millrace.schemas.record.avro_codec import encode
from millrace.schemas.record.avro_schema import envelope_schema
from millrace.schemas.record.framing import frame
from millrace.schemas.table.structure import Column, ColumnType, TableSchema, TextEncoding, TypeCode
from millrace.schemas.view.format_options import FormatName, FormatOptions
from millrace.schemas.view.view import Mask, MaskKind, TableRule, View

ALONE = "publish.kernels"
WHERE, MASK, COLUMNS = f"{ALONE}.where", f"{ALONE}.mask", f"{ALONE}.columns"
LINES = (ALONE, WHERE, MASK, COLUMNS)
UNIT = "CPU us a row"

ROWS, BATCHES = 2_000, 15  # each row is in the batch this many times
PASSES = 10
SET, SCHEMA_ID = "bench", 100
_UTF8 = TextEncoding("utf8mb4", 255)
TABLE = TableSchema(
    "bench",
    "plain",
    (
        Column("id", ColumnType(TypeCode.LONG), nullable=False),
        Column("a", ColumnType(TypeCode.LONG), nullable=True),
        Column("b", ColumnType(TypeCode.VARCHAR, 160, text=_UTF8), nullable=True),
        Column("c", ColumnType(TypeCode.VARCHAR, 400, text=_UTF8), nullable=True),
    ),
    primary_key=(0,),
    primary_key_prefixes=(0,),
)


def kernel_figures(size: Size) -> Iterator[Figure]:
    """The four lines."""
    keep_freed_memory()  # as a slot does
    programs = make_programs(RowSchemas({SCHEMA_ID: envelope_schema(SET, TABLE).text}))
    values = _values(random.Random(1))
    rounds: dict[str, list[float]] = {line: [] for line in LINES}
    with bench_folder() as folder:
        views = _views(folder / "key")
        for number in announced_rounds(size):
            for line, view in views.items():
                cpu_us = _cpu_us(view, values, programs)
                if number:
                    rounds[line].append(cpu_us)
    alone = median(rounds[ALONE])
    yield Figure(ALONE, alone, UNIT)
    for line in LINES[1:]:
        yield Figure(line, median(rounds[line]), UNIT, "the same without it", alone)


def _views(key: Path) -> dict[str, View]:
    key.write_text("a key of the benchmark, of 32 bytes")
    hmac = Mask(MaskKind.HMAC, f"file:{key}")
    rules = {
        ALONE: TableRule("*.*"),
        WHERE: TableRule("*.*", where="a >= 0"),
        MASK: TableRule("*.*", masks=(("b", hmac),)),
        COLUMNS: TableRule("*.*", drop=("a", "c")),
    }
    return {line: View((rule,)) for line, rule in rules.items()}


def _cpu_us(view: View, values: Values, programs: Programs) -> float:
    """The least of a few passes: this process's CPU for one row."""
    (layout,) = programs.layouts
    table_view = view_of(view, layout)
    assert table_view is not None
    program = make_view_program(table_view, layout)
    options = FormatOptions.of(FormatName.JSON)
    format_ = make_format(options, table_view, layout, FormatNames("bench.plain", "bench"))
    numbers = RecordNumbers(np.arange(len(values)))
    passes = []
    for _ in range(PASSES):
        begin = time.process_time()
        rows = walk_values(values, programs)
        format_.encode(rows, make_changes(program, rows, numbers))
        passes.append(time.process_time() - begin)
    return 1e6 * min(passes) / len(values)


def _values(chance: random.Random) -> Values:
    """A batch of records as a reader of the topic has it."""
    records = [_record(chance, number) for number in range(ROWS)] * BATCHES
    offsets: npt.NDArray[np.integer[npt.NBitBase]] = np.zeros(len(records) + 1, np.int64)
    np.cumsum([len(record) for record in records], out=offsets[1:])
    return Values(np.frombuffer(b"".join(records), np.uint8), offsets)


def _record(chance: random.Random, number: int) -> bytes:
    before = {
        "id": number,
        "a": chance.randrange(1_000_000),
        "b": _text(chance, 40),
        "c": _text(chance, 100),
    }
    after = before | {"a": chance.randrange(1_000_000)}
    if number % 3 == 1:
        after["b"] = _text(chance, 40)
    is_insert = number % 3 == 0
    plain: Mapping[str, object] = {
        "before": None if is_insert else before,
        "after": after,
        "source": {
            "version": "0.1.0",
            "connector": "mysql",
            "name": "capture",
            "snapshot": "false",
            "db": TABLE.database,
            "table": TABLE.table,
            "set": SET,
            "ts_ms": 1_700_000_000_000,
            "server_id": 1,
            "gtid": "3e11fa47-71ca-11e1-9e33-c80aa9429562:1",
            "file": "bin.000001",
            "pos": 4,
            "row": number,
            "event_flags": 0,
            "seq": number + 1,
        },
        "op": "c" if is_insert else "u",
        "ts_ms": 1_700_000_000_000,
        "transaction": {
            "id": "3e11fa47-71ca-11e1-9e33-c80aa9429562:1",
            "total_order": 1,
            "last": False,
        },
    }
    return frame(SCHEMA_ID, encode(envelope_schema(SET, TABLE).text, plain))


def _text(chance: random.Random, characters: int) -> str:
    return "".join(
        chance.choices("abcdefgh ijklmnop", k=chance.randint(characters // 2, characters))
    )
