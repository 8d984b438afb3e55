"""The state of a session that writes rows after a statement or the session itself fails."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from consumer.apply.writer import ConflictRule, RowWriter
from consumer.row_schemas import RowSchemas
from consumer.rows import walk_values
from consumer.sql.table_plans import Catalogue, TablePlans
from consumer.target.connection import LENIENT_MODE, STRICT_MODE
from consumer.target.inventory import Inventory, TargetColumn, TargetTable, UniqueKey
from millrace.errors import Fatal, MillraceError, Retryable
from schemas.documents import ConflictPolicy
from schemas.record.avro_schema import envelope_schema
from schemas.table.structure import Column, ColumnType, TypeCode
from tests.kit.apply.tables import UTF8, integer, table
from tests.kit.apply.topic import SET, RecordStream
from tests.kit.apply.values import values_of

LOST = Retryable("MR-5001", "Lost connection to server during query")
KILLED = Retryable("MR-5001", "Query execution was interrupted")
TAKEN = Fatal("MR-5010", "Duplicate entry")


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


@pytest.mark.parametrize("error", [TAKEN, KILLED, LOST])
def test_sql_mode_ends_with_its_statement_and_keeps_the_error(error: MillraceError) -> None:
    """A refused row ends the strict mode; a lost session has no mode, and no later error hides the cause."""
    kind = Column("kind", ColumnType(TypeCode.ENUM, 1, text=UTF8, labels=("a",)), True)
    words = table("shop", "words", integer("id"), kind)
    stream = RecordStream()
    stream.insert(words, {"id": 1, "kind": 0})  # index 0, which has no label
    columns = {
        name: TargetColumn(name, type_text, base, "", "", nullable=True, generated=False)
        for name, type_text, base in (("id", "int", "int"), ("kind", "enum('a')", "enum"))
    }
    key = UniqueKey("PRIMARY", ("id",), True)
    target = TargetTable("shop", "words", columns, (key,))
    texts = {100: envelope_schema(SET, words).text}
    inventory = Inventory(tables={("shop", "words"): target})
    plans = TablePlans(Catalogue("writer", RowSchemas(texts), inventory))
    session: Any = _Session({b"INSERT": error})
    writer = RowWriter(session, plans, ConflictRule("task", ConflictPolicy.SKIP))
    with pytest.raises(MillraceError) as caught:
        writer.write(walk_values(values_of(stream.values[1:2]), plans.programs), np.array([0]))
    assert caught.value is error
    assert LENIENT_MODE in session.statements[0]
    assert session.is_open == any(STRICT_MODE in sql for sql in session.statements)


def test_session_that_cannot_be_reset_is_closed() -> None:
    """Sessions are kept between target transactions: one in an unknown mode would truncate the next one's values."""
    session = _Session({b"SET": KILLED})
    with pytest.raises(Retryable):
        _writer(session).settle()
    assert not session.is_open
