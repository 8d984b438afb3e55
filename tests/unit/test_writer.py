"""The state of a session that writes rows after a statement or the session itself fails."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from consumer.kernel.walk import HAS_FALLBACK
from consumer.target.connection import LENIENT_MODE, STRICT_MODE
from consumer.writer import ConflictRule, RowWriter
from millrace.errors import Fatal, MillraceError, Retryable
from schemas.documents import ConflictPolicy

LOST = Retryable("MR-5001", "Lost connection to server during query")
KILLED = Retryable("MR-5001", "Query execution was interrupted")
TAKEN = Fatal("MR-5010", "Duplicate entry")


@dataclass
class _Session:
    """A session that answers by the beginning of a statement; a lost one never answers again."""

    answers: dict[bytes, MillraceError]
    said: list[str] = field(default_factory=list)
    is_open: bool = True

    def run(self, sql: bytes) -> int:
        if not self.is_open:
            raise Retryable("MR-5001", "")
        self.said.append(sql.decode())
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
def test_sql_mode_ends_with_its_statement_and_keeps_the_error(
    monkeypatch: pytest.MonkeyPatch, error: MillraceError
) -> None:
    """A refused row ends the strict mode; a lost session has no mode, and no later error hides the cause."""
    monkeypatch.setattr(RowWriter, "_filled", lambda *_: b"INSERT")
    monkeypatch.setattr(RowWriter, "_has_index_zero", lambda *_: True)
    rows: Any = SimpleNamespace(records=np.full((1, HAS_FALLBACK + 1), 1))
    session = _Session({b"INSERT": error})
    with pytest.raises(MillraceError) as caught:
        _writer(session)._write_one(rows, 0, "insert")
    assert caught.value is error
    assert LENIENT_MODE in session.said[0]
    assert session.is_open == any(STRICT_MODE in sql for sql in session.said)


def test_session_that_cannot_be_reset_is_closed() -> None:
    """Sessions are kept between target transactions: one in an unknown mode would truncate the next one's values."""
    session = _Session({b"SET": KILLED})
    with pytest.raises(Retryable):
        _writer(session).settle()
    assert not session.is_open
