"""Checks the records of snapshots in a topic: a row of a table comes only between its ``begin`` and ``end``.

    rule                                                                        broken by
    between    a row of a snapshot follows the begin of its table               a row before it, or after its end
    in order   its chunk and its number in the chunk grow                       a chunk published twice
    counted    the rows of an end or stop record are those since its begin      a lost or repeated row
    one        one table at a time; a state names the table that is open        two snapshots at once

A reader that starts in the middle learns what is open from the first state (in a ``resolved`` or ``fence`` record).
"""

from collections.abc import Iterator
from dataclasses import dataclass

from millrace.schemas.record.control import SnapshotRecord, SnapshotStep
from millrace.schemas.record.row_end import RowEnd, read_place
from millrace.schemas.snapshot import Name, SnapshotState


@dataclass(slots=True)
class _Open:
    """The table under way. ``rows``: None if its begin was not seen."""

    id: str
    name: Name
    rows: int | None
    place: tuple[int, int] = (-1, -1)


class SnapshotRules:
    """Fed with records in order. Each call returns what is wrong. ``from_beginning``: no snapshot is open before."""

    def __init__(self, *, from_beginning: bool) -> None:
        self.row_count = 0
        self.table_count = 0  # whose snapshot is complete
        self._is_known = from_beginning
        self._open: _Open | None = None

    def row(self, value: bytes, row: RowEnd, name: Name | None) -> Iterator[str]:
        """A row of a snapshot. ``name``: its table; None if its schema is not known."""
        self.row_count += 1
        place = read_place(value, row)
        if self._open is None:
            if self._is_known:
                yield f"a row of a snapshot of {_shown(name)} comes while none is open"
            return
        opened = self._open
        if name not in (None, opened.name):
            yield f"a row of {_shown(name)} comes in the snapshot of {_shown(opened.name)}"
        if place <= opened.place:
            yield f"row {place[1]} of chunk {place[0]} follows row {opened.place[1]} of {opened.place[0]}"
        opened.place = place
        if opened.rows is not None:
            opened.rows += 1

    def step(self, record: SnapshotRecord) -> Iterator[str]:
        """A ``snapshot`` record."""
        name = (record.table.database, record.table.table)
        before, self._open = self._open, None
        if record.step is SnapshotStep.BEGIN:
            if before is not None:
                yield f"a snapshot of {_shown(name)} begins in that of {_shown(before.name)}"
            self._open = _Open(record.table.id, name, 0)
        elif before is not None and (before.id, before.name) != (record.table.id, name):
            yield f"the snapshot of {_shown(name)} ends in that of {_shown(before.name)}"
        elif before is None and self._is_known:
            yield f"the snapshot of {_shown(name)} ends, and none is open"
        elif before is not None and before.rows not in (None, record.rows):
            yield f"the snapshot of {_shown(name)} has {before.rows} rows instead of {record.rows}"
        self.table_count += record.step is SnapshotStep.END
        self._is_known = True

    def state(self, state: SnapshotState | None) -> Iterator[str]:
        """The state in a ``resolved`` or ``fence`` record."""
        at = state.at if state is not None and state.at is not None and state.at.is_open else None
        named = (state.id, at.name) if state is not None and at is not None else None
        opened = (self._open.id, self._open.name) if self._open is not None else None
        if self._is_known and named != opened:
            yield f"the state names {named or 'nothing'}, and {opened or 'nothing'} is open"
        if not self._is_known and named is not None and state is not None:
            self._open = _Open(*named, None)
        self._is_known = True


def _shown(name: Name | None) -> str:
    return ".".join(name) if name is not None else "an unknown table"
