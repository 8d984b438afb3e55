"""Statements of rows with hostile values, and the state of a session after a statement or the session fails."""

import re
from dataclasses import dataclass, field, replace
from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from millrace.consumer.records.numbers import RecordNumbers
from millrace.consumer.records.row_schemas import RowSchemas
from millrace.consumer.records.rows import walk_values
from millrace.consumer.tables.table_plans import Catalogue, TablePlans
from millrace.consumer.write.row_writer import ConflictRule, RowWriter
from millrace.consumer.write.statements import STATEMENT_ROWS_MAX, byte_parts
from millrace.drivers.mysql.catalog import CatalogColumn, CatalogTable, Inventory, UniqueKey
from millrace.drivers.mysql.connection import LENIENT_MODE, STRICT_MODE
from millrace.errors import Fatal, MillraceError, Retryable
from millrace.schemas.documents import ConflictPolicy
from millrace.schemas.gtid import Flavour
from millrace.schemas.record.avro_schema import envelope_schema
from millrace.schemas.table.structure import Column, ColumnType, TableSchema, TextEncoding, TypeCode
from tests.kit.apply.tables import UTF8, integer, table
from tests.kit.apply.topic import SET, RecordStream
from tests.kit.apply.values import values_of

LOST = Retryable("MR-5001", "Lost connection to server during query")
KILLED = Retryable("MR-5001", "Query execution was interrupted")
TAKEN = Fatal("MR-5010", "Duplicate entry")
# ends a literal, with and without an escape before the quote
HOSTILE = "HOSTILE' HOSTILE \\' HOSTILE \\\\' HOSTILE \0 ' -- HOSTILE"
_LITERAL = re.compile(r"'(?:[^'\\]|\\.|'')*'", re.DOTALL)  # as the servers read it
BYTES = TextEncoding("binary", 63)
START, END = "2026-01-02 03:04:05.678901", "2038-01-19 03:14:07.999999"
# each type whose value in a record is a text or bytes that SQL has as a literal
TEXTS: dict[str, ColumnType] = {
    "varchar": ColumnType(TypeCode.VARCHAR, 400, text=UTF8),
    "char": ColumnType(TypeCode.STRING, 200, text=UTF8),
    "longtext": ColumnType(TypeCode.BLOB, 4, text=UTF8),
    "enum": ColumnType(TypeCode.ENUM, 1, text=UTF8, labels=("a",)),
    "set": ColumnType(TypeCode.SET, 1, text=UTF8, labels=("a",)),
    "json": ColumnType(TypeCode.JSON, 4),
    "date": ColumnType(TypeCode.DATE),
    "time": ColumnType(TypeCode.TIME2, 6),
    "datetime": ColumnType(TypeCode.DATETIME2, 6),
    "timestamp": ColumnType(TypeCode.TIMESTAMP2, 6),
}
BINARIES: dict[str, ColumnType] = {
    "varbinary": ColumnType(TypeCode.VARCHAR, 400, text=BYTES),
    "binary": ColumnType(TypeCode.STRING, 200, text=BYTES),
    "longblob": ColumnType(TypeCode.BLOB, 4, text=BYTES),
    "geometry": ColumnType(TypeCode.GEOMETRY, 4),
}


@dataclass
class _Session:
    """A session that answers by the beginning of a statement; a lost one never answers again."""

    answers: dict[bytes, MillraceError]
    statements: list[str] = field(default_factory=list)
    is_open: bool = True

    def run(self, sql: bytes) -> int:
        if not self.is_open:
            raise Retryable("MR-5001", "")
        self.statements.append(sql.decode())
        for opening, error in self.answers.items():
            if sql.startswith(opening):
                self.is_open = error is not LOST
                raise error
        return 1

    def close(self) -> None:
        self.is_open = False


def _writer(session: Any) -> RowWriter:
    plans: Any = SimpleNamespace(
        template=lambda *_: None, inventory=SimpleNamespace(packet_bytes_max=1 << 20)
    )
    return RowWriter(session, plans, ConflictRule("task", ConflictPolicy.SKIP))


def _hostile_table(*, is_versioned: bool) -> tuple[TableSchema, CatalogTable, dict[str, object]]:
    """A column of each type, all of them hostile; all of a length for keys are the key."""
    types = TEXTS | BINARIES
    columns = [Column(name, type_, False) for name, type_ in types.items()]
    row: dict[str, object] = dict.fromkeys(TEXTS, HOSTILE)
    row |= dict.fromkeys(BINARIES, HOSTILE.encode())
    at = {name: CatalogColumn(name, name, name, "", "", False, False) for name in types}
    for name in ("varchar", "char", "longtext", "enum", "set"):
        at[name] = replace(at[name], charset="utf8mb4", collation="utf8mb4_bin")
    period = ("row_start", "row_end") if is_versioned else ()
    moment = ColumnType(TypeCode.TIMESTAMP2, 6)
    columns += [Column(name, moment, False) for name in period]
    named = tuple(
        name for name in types if name not in ("longtext", "json", "longblob", "geometry")
    )
    target = CatalogTable(
        "shop", "t", at, (UniqueKey("PRIMARY", named, True),), period=period,
        is_versioned=is_versioned,
    )  # fmt: skip
    return table("shop", "t", *columns, key=()), target, row | dict.fromkeys(period, START)


@pytest.mark.parametrize("flavour", list(Flavour))
@pytest.mark.parametrize("is_versioned", [False, True])
def test_hostile_value_of_any_field_stays_in_its_literal(
    flavour: Flavour, *, is_versioned: bool
) -> None:
    """Each kind of change, in statements for many rows and for one. The times of a versioned row are checked."""
    made, target, row = _hostile_table(is_versioned=is_versioned)
    plans = TablePlans(
        Catalogue(
            f"hostile {flavour} {is_versioned}",
            RowSchemas({100: envelope_schema(SET, made).text}),
            Inventory(flavour, tables={("shop", "t"): target}),
        )
    )
    current = row | ({"row_end": END} if is_versioned else {})
    changed = current | {"longtext": HOSTILE * 2}
    past = row | ({"row_end": START} if is_versioned else {})
    session: Any = _Session({})
    stream = RecordStream()
    stream.insert(made, current)
    stream.update(made, current, changed)
    if is_versioned:
        stream.update(made, changed, past)
        stream.insert(made, past)
    stream.delete(made, past)
    rows = walk_values(values_of(stream.values[1:]), plans.programs)
    writer = RowWriter(session, plans, ConflictRule("task", ConflictPolicy.OVERWRITE))
    for number in range(len(rows)):
        writer.write(rows, RecordNumbers(np.array([number])))
        writer.write_carefully(rows, RecordNumbers(np.array([number])))
    verbs = {statement.split()[0] for statement in session.statements}
    assert verbs >= {"INSERT", "UPDATE", "DELETE"}
    assert any("HOSTILE" in statement for statement in session.statements)
    for statement in session.statements:
        assert "HOSTILE" not in _LITERAL.sub("?", statement), statement
    times = (HOSTILE, f"{START}')", "2026-01-02'03:04:05.678901", "2026-13-01 00:00:00.000000")
    for name, time in product(("row_start", "row_end") if is_versioned else (), times):
        stream = RecordStream()
        stream.insert(made, current | {name: time})
        rows = walk_values(values_of(stream.values[1:]), plans.programs)
        with pytest.raises(Fatal, match="MR-5029"):
            writer.write(rows, RecordNumbers(np.array([0])))


@pytest.mark.parametrize("error", [TAKEN, KILLED, LOST])
def test_sql_mode_ends_with_its_statement_and_keeps_the_error(error: MillraceError) -> None:
    """A refused row ends the strict mode; a lost session has no mode, and no later error hides the cause."""
    kind = Column("kind", ColumnType(TypeCode.ENUM, 1, text=UTF8, labels=("a",)), True)
    words = table("shop", "words", integer("id"), kind)
    stream = RecordStream()
    stream.insert(words, {"id": 1, "kind": 0})  # index 0, which has no label
    columns = {
        name: CatalogColumn(name, type_text, base, "", "", nullable=True, generated=False)
        for name, type_text, base in (("id", "int", "int"), ("kind", "enum('a')", "enum"))
    }
    key = UniqueKey("PRIMARY", ("id",), True)
    target = CatalogTable("shop", "words", columns, (key,))
    texts = {100: envelope_schema(SET, words).text}
    inventory = Inventory(tables={("shop", "words"): target})
    plans = TablePlans(Catalogue("writer", RowSchemas(texts), inventory))
    session: Any = _Session({b"INSERT": error})
    writer = RowWriter(session, plans, ConflictRule("task", ConflictPolicy.SKIP))
    with pytest.raises(MillraceError) as caught:
        writer.write(
            walk_values(values_of(stream.values[1:2]), plans.programs), RecordNumbers(np.array([0]))
        )
    assert caught.value is error
    assert LENIENT_MODE in session.statements[0]
    assert session.is_open == any(STRICT_MODE in sql for sql in session.statements)


def test_session_that_cannot_be_reset_is_closed() -> None:
    """Sessions are kept between target transactions: one in an unknown mode would truncate the next one's values."""
    session = _Session({b"SET": KILLED})
    with pytest.raises(Retryable):
        _writer(session).settle()
    assert not session.is_open


def test_texts_of_rows_are_split_below_both_limits() -> None:
    """A row above the limit of bytes has its own statement; no row is lost or moved."""
    inventory = Inventory(packet_bytes_max=2000)
    texts = [b"x" * size for size in (400, 400, 300, 5000, 1, *[2] * (2 * STATEMENT_ROWS_MAX))]
    parts = list(byte_parts(texts, inventory))
    assert [text for part in parts for text in part] == texts
    assert [len(part) for part in parts[:3]] == [2, 1, 1]
    assert all(len(part) == 1 or sum(map(len, part)) <= 1000 for part in parts)
    wide = list(byte_parts([b"x"] * (STATEMENT_ROWS_MAX + 1), Inventory()))
    assert [len(part) for part in wide] == [STATEMENT_ROWS_MAX, 1]
