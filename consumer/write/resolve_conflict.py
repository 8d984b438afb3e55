"""Replays or discards stored conflicts for an operator: each in one target transaction that holds the task's fence.

    1  lock      the fence row FOR UPDATE: it waits for open target transactions of the task, and new ones wait for it
    2  read      the conflict and the mark
    3  write     replay: the record's row, one counted statement. Discard of a `stop`: its seq as applied, and run + 1
    4  store     delete the conflict; for a discarded `stop`, make it a `skip`; for one above the mark, nothing
    5  commit

    killed between   the target has
    1 and 5          the conflict, unchanged: repeat the command
    after 5          the result, exactly once: the command repeated reports that there is no such conflict, or that the
                     change is left out already

Between two target transactions of a task, a replay is like a client's write, so the task may run. The mark must be at
or above the seq: all earlier changes are applied, and no later run applies the change again.

A change that blocks the task is above the mark. Its discard stores the seq in ``applied``, where the next run finds the
seqs that it must not apply again. A run that has already read its progress does not know this. So the fence is raised
in the same target transaction, and that run can write no more. A discard deletes no conflict above the mark: it is the
only trace of the change, which a replay needs once the task has passed it.

The session is registered, so a run that starts can end it if it hangs (``consumer.target.fence``). A replay does not
repeat later changes of the row.

A row that is kept aside holds its keys: the task keeps all later changes of them, too, whether it has passed the row or
not. So all changes that are connected with it are kept, and its replay applies them in order, in one target
transaction, and frees their keys (``consumer.target.aside``). A discard leaves only this change out for ever: those
that follow stay. Not done here: deciding whether the task may be stopped.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from millrace.consumer.records.numbers import Seqs
from millrace.consumer.target.aside import chain_of, free_rows, read_kept
from millrace.consumer.target.bitmap import to_bitmap
from millrace.consumer.target.conflicts import (
    ASIDE,
    SKIP,
    STOP,
    no_conflict,
    read_conflict,
)
from millrace.consumer.target.progress import DATABASE, Owner
from millrace.consumer.target.sessions import open_session
from millrace.consumer.write.aside import StoredRecords, stored_record
from millrace.consumer.write.row_writer import ConflictRule, RowWriter
from millrace.drivers.mysql.catalog import read_inventory
from millrace.drivers.mysql.connection import Endpoint, MySqlSession
from millrace.errors import Fatal
from millrace.faults import fault_point, register
from millrace.schemas.documents import ConflictPolicy

BEFORE_COMMIT = register("conflict.before_commit")
AFTER_COMMIT = register("conflict.after_commit")

_UNRESOLVED = (STOP, ASIDE)
DELETED_MAX = 10_000  # conflicts in one transaction of ``discard_resolved``
_REPEAT = (
    "Correct the row that the message names and repeat the command, or run"
    " `millrace conflict discard TASK N`."
)


def replay(endpoint: Endpoint, task: str, seq: int) -> list[int]:
    """Apply the change of a conflict and delete the conflict. Returns the seqs: of a kept row, those of its chain.

    Fatal MR-5061 if it is not found, MR-5062 if the task has not passed it, MR-5010 if it still does not fit, and
    those of a row (MR-5011 to MR-5019).
    """
    with open_session(endpoint, Owner(task, 0, 0)) as session:
        read_conflict(session, task, seq)
        inventory = read_inventory(session)
        session.rollback()  # the fence is locked only for the writes
        lock_fence(session, task)
        decision = read_conflict(session, task, seq).decision
        if decision == STOP or (decision != ASIDE and seq > _mark_seq(session, task)):
            raise Fatal("MR-5062", f"{task} has not passed seq {seq} yet", task=task, seq=seq)
        kept = read_kept(session, task) if decision == ASIDE else {}
        seqs = chain_of(session, task, seq) if decision == ASIDE else [seq]
        for each in seqs:
            _write(
                session, task, each, stored_record(session, task, each, inventory, kept.get(each))
            )
        free_rows(session, task, seqs if kept else [])
        _delete(session, task, seqs)
        _commit(session)
    return seqs


def _write(session: MySqlSession, task: str, seq: int, record: StoredRecords) -> None:
    writer = RowWriter(session, record.plans, ConflictRule(task, ConflictPolicy.STOP))
    try:
        writer.write_carefully(record.rows, record.numbers)
    except Fatal as exc:
        fix = _REPEAT if exc.code == "MR-5010" else exc.own_fix
        repeat = Fatal(exc.code, exc.message, fix=fix, **dict(exc.context))
        raise repeat.name(task=task, seq=seq) from exc


@dataclass(frozen=True, slots=True)
class Discarded:
    """The outcome of a discard. ``left_out``: changes that blocked the task, and that it now leaves out.

    ``kept``: resolved conflicts that the task has not passed yet. They stay; so do those of ``left_out``, as `skip`.
    """

    left_out: Sequence[int] = ()
    kept: Sequence[int] = ()


def discard(endpoint: Endpoint, task: str, seqs: Sequence[int]) -> Discarded:
    """Delete the conflicts that the task has passed, and let it leave out those that block it.

    All or nothing; Fatal MR-5061 if one does not exist.
    """
    with open_session(endpoint, Owner(task, 0, 0)) as session:
        run, mark_seq = lock_fence(session, task), _mark_seq(session, task)
        decisions = {seq: read_conflict(session, task, seq).decision for seq in sorted(set(seqs))}
        blocking = [seq for seq, decision in decisions.items() if decision == STOP]
        aside = [seq for seq, decision in decisions.items() if decision == ASIDE]
        kept = [seq for seq in decisions if seq > mark_seq and seq not in (*blocking, *aside)]
        _delete(session, task, [seq for seq in decisions if seq not in (*blocking, *kept)])
        free_rows(session, task, aside)
        if blocking:
            _leave_out(session, task, blocking, run=run + 1)
        _commit(session)
    return Discarded(blocking, kept)


def discard_resolved(endpoint: Endpoint, task: str) -> tuple[int, int]:
    """Delete all conflicts that `overwrite` or `skip` resolved and that the task has passed.

    Returns the number of them, and that of those that it has not passed.
    """
    count = 0
    with open_session(endpoint, Owner(task, 0, 0)) as session:
        mark_seq = _mark_seq(session, task)
        while True:
            deleted = session.run(
                session.with_arguments(
                    f"DELETE FROM {DATABASE}.conflict"
                    " WHERE task = %s AND seq <= %s AND decision NOT IN %s LIMIT %s",
                    (task, mark_seq, _UNRESOLVED, DELETED_MAX),
                )
            )
            session.commit()
            count += deleted
            if deleted < DELETED_MAX:
                break
        ((kept,),) = session.query(
            f"SELECT COUNT(*) FROM {DATABASE}.conflict"
            " WHERE task = %s AND seq > %s AND decision NOT IN %s",
            (task, mark_seq, _UNRESOLVED),
        )
    assert isinstance(kept, int)
    return count, kept


def lock_fence(session: MySqlSession, task: str) -> int:
    """Lock the fence until the end of the transaction and return its run; Fatal MR-5061 if the task never ran."""
    rows = session.query(f"SELECT run FROM {DATABASE}.fence WHERE task = %s FOR UPDATE", (task,))
    if not rows:
        raise Fatal("MR-5061", f"{task} has not run on this target", task=task)
    run = rows[0][0]
    assert isinstance(run, int)
    return run


def _mark_seq(session: MySqlSession, task: str) -> int:
    rows = session.query(f"SELECT seq FROM {DATABASE}.progress WHERE task = %s", (task,))
    seq = rows[0][0] if rows else -1
    assert isinstance(seq, int)
    return seq


def _delete(session: MySqlSession, task: str, seqs: Sequence[int]) -> None:
    """Fatal MR-5061 if a conflict was deleted since it was read."""
    for seq in seqs:
        sql = f"DELETE FROM {DATABASE}.conflict WHERE task = %s AND seq = %s"
        if session.run(session.with_arguments(sql, (task, seq))) != 1:
            raise no_conflict(task, seq)


def _leave_out(session: MySqlSession, task: str, seqs: Sequence[int], *, run: int) -> None:
    """Store the seqs as applied, for the next run, and raise the fence to ``run``."""
    first, bitmap = to_bitmap(Seqs(np.array(seqs, np.int64)))
    session.query(
        f"INSERT INTO {DATABASE}.applied VALUES (%s, %s, 0, 0, 0, %s, _binary %s)",
        (task, run, first, bitmap),
    )
    session.query(f"UPDATE {DATABASE}.fence SET run = %s WHERE task = %s", (run, task))
    for seq in seqs:
        session.query(
            f"UPDATE {DATABASE}.conflict SET decision = %s WHERE task = %s AND seq = %s",
            (SKIP, task, seq),
        )


def _commit(session: MySqlSession) -> None:
    fault_point(BEFORE_COMMIT)
    session.commit()
    fault_point(AFTER_COMMIT)
