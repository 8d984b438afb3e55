"""Stops a task at a statement that changes delivered rows. Apart: target sets will use it, too.

After such a logged statement the rows that the task delivered may no longer be those of its view.

The operator answers in the document: ``accept_ddl`` has the seq of each statement that the task passes, and the rows
that were delivered before it stay as they are.
"""

from collections.abc import Collection, Mapping

from millrace.errors import Fatal
from millrace.schemas.record.control import DdlRecord
from millrace.schemas.table.structure import TableSchema
from millrace.schemas.view.ddl import TableKey, effect_of
from millrace.schemas.view.view import View

SHOWN_CHARACTERS = 300  # of a reason


def check_statement(
    record: DdlRecord,
    view: View,
    *,
    tables: Mapping[TableKey, TableSchema],
    accepted: Collection[int],
) -> None:
    """Fatal MR-5204 unless the statement passes or is accepted. ``tables``: their structures before it."""
    seq = record.source.seq
    if seq in accepted:
        return
    effect = effect_of(record, view, tables)
    if effect.passes:
        return
    reason = effect.reason
    shown = f"{reason[:SHOWN_CHARACTERS]} …" if len(reason) > SHOWN_CHARACTERS else reason
    concerned = [*(obstacle.table for obstacle in effect.obstacles), *effect.enters]
    raise Fatal(
        "MR-5204",
        f"the statement at seq {seq} needs a decision: {shown}",
        seq=seq,
        table=".".join(filter(None, concerned[0])),
    )
