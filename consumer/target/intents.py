"""Statements that wait on the target, as an operator finds and decides them: the rows of ``ddl_intent``.

    decision    ""              it is being executed, or the run has ended around it
                refused         the target refused it; a resumed task tries it again
                unexpected      it failed on the source, and not on the target
                unexecutable    its text is not for the target: a gap, or a statement that the view changes
                ended           an operator has ended it
                done, execute   an operator's decision, which the next run carries out once
    own_sql     the operator's text, which is executed in place of the source's
    reason      why it blocks the task, in the words of the error; "" if no run has stored it

``consumer.write.ddl`` writes them. A killed command has stored its decision or not.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from millrace.consumer.target.progress import DATABASE
from millrace.drivers.mysql.connection import MySqlSession, Row
from millrace.errors import Fatal

REFUSED, UNEXPECTED, ENDED = "refused", "unexpected", "ended"
ASKED, UNEXECUTABLE = "asked", "unexecutable"
DONE, EXECUTE = "done", "execute"

_COLUMNS = "task, seq, sql_text, state_text, server, decision, own_sql, reason"


@dataclass(frozen=True, slots=True)
class Intent:
    """One statement; see the module. ``sql`` is its text, or says that it is not shown.

    ``objects``: the state of each table and database before it, and the ``server`` that has it.
    """

    stream: str
    seq: int
    sql: str
    objects: Mapping[str, str]
    server: str
    decision: str
    own_sql: str = ""
    reason: str = ""


def list_intents(session: MySqlSession, streams: Sequence[str]) -> list[Intent]:
    """Those of the streams, in the order of seq."""
    rows = session.query(
        f"SELECT {_COLUMNS} FROM {DATABASE}.ddl_intent WHERE task IN %s ORDER BY seq", (streams,)
    )
    return [_intent(row) for row in rows]


def read_intent(session: MySqlSession, stream: str, seq: int) -> Intent:
    """Fatal MR-5043 if no statement of this seq waits."""
    rows = session.query(
        f"SELECT {_COLUMNS} FROM {DATABASE}.ddl_intent WHERE task = %s AND seq = %s", (stream, seq)
    )
    if not rows:
        raise no_statement(stream, seq)
    return _intent(rows[0])


def _intent(row: Row) -> Intent:
    stream, seq, sql, state, server, decision, own_sql, reason = row
    assert isinstance(seq, int)
    objects = json.loads(str(state) or "{}")
    texts = (str(server), str(decision), str(own_sql or ""), str(reason or ""))
    return Intent(str(stream), seq, str(sql), objects, *texts)


def put_decision(
    session: MySqlSession, stream: str, *, seq: int, decision: str, own_sql: str = ""
) -> None:
    """Store an operator's decision; Fatal MR-5043 if no statement of this seq waits. Does not commit."""
    sets, values = "decision = %s", [decision]
    if decision == EXECUTE:
        sets, values = f"{sets}, own_sql = %s", [decision, own_sql]
    decided = session.run(
        session.with_arguments(
            f"UPDATE {DATABASE}.ddl_intent SET {sets} WHERE task = %s AND seq = %s",
            (*values, stream, seq),
        )
    )
    if decided != 1:
        session.rollback()
        raise no_statement(stream, seq)


def decide_intent(
    session: MySqlSession, stream: str, *, seq: int, decision: str, own_sql: str = ""
) -> None:
    """Store and commit an operator's decision; Fatal MR-5043 if no statement of this seq waits."""
    put_decision(session, stream, seq=seq, decision=decision, own_sql=own_sql)
    session.commit()


def no_statement(stream: str, seq: int) -> Fatal:
    """The error for a seq at which no statement waits."""
    what = f"no statement of {stream} with seq {seq} waits for a decision"
    return Fatal("MR-5043", what, task=stream, seq=seq)
