"""The rules of snapshots in a topic: an intact snapshot passes, and each broken rule is named."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from millrace.consumer.topic.verify import Check
from millrace.schemas.progress import Progress
from millrace.schemas.record.control import (
    CONTROL_SCHEMAS,
    RecordKind,
    SnapshotRecord,
    SnapshotStep,
    SnapshotTable,
)
from millrace.schemas.record.record import encode_control
from millrace.schemas.snapshot import SnapshotState, TablePlace
from tests.kit.capture.topic_text import TopicText, whole

TABLE = SnapshotTable("initial", "shop", "orders", "")
STATE = SnapshotState("initial", ("*.*",), "", TablePlace(("shop", "orders"), True, ("7",)))


@dataclass
class Snapshot:
    """A topic with changes, to which a snapshot of its table is appended."""

    text: TopicText

    def step(self, step: SnapshotStep, rows: int = 0, table: SnapshotTable = TABLE) -> None:
        """A ``snapshot`` record."""
        progress = self.text.stream.progress
        schema = CONTROL_SCHEMAS[RecordKind.SNAPSHOT]
        record = SnapshotRecord(step, table, str(progress.gtid_set), rows, progress.seq)
        schema_id = self.text.ids(schema.subject("shop"), schema.text)
        self.text.records.append((None, encode_control(record, schema_id=schema_id)))

    def row(self, chunk: int, number: int) -> None:
        """A row of the snapshot."""
        self.text.records.append(self.text.stream.snapshot_row(chunk, number))

    def mark(self, state: SnapshotState | None) -> None:
        """A resolved record."""
        progress = self.text.stream.progress
        self.text.stream.progress = Progress(progress.gtid_set, progress.open, progress.seq, state)
        self.text.resolved(9, self.text.stream.progress)

    def found(self, *, from_beginning: bool = True) -> list[tuple[Check, str]]:
        """The verifier's findings."""
        found = self.text.found(from_beginning=from_beginning)
        return [(violation.check, violation.what) for violation in found]


def begun() -> Snapshot:
    """A topic in which a snapshot has begun and published two rows of a chunk."""
    text = whole()
    text.rows(2, 9)  # ends the source transaction that is open
    made = Snapshot(text)
    made.step(SnapshotStep.BEGIN)
    made.row(0, 0)
    made.row(0, 2)
    made.mark(STATE)
    return made


def ended() -> Snapshot:
    """The same with the next chunk and the end."""
    made = begun()
    made.row(1, 0)
    made.step(SnapshotStep.END, 3)
    made.mark(None)
    return made


def test_intact_snapshot_passes_from_any_offset() -> None:
    """There is no false alarm, wherever retention has cut the topic."""
    made = ended()
    assert made.found() == []
    records = made.text.records
    for start in range(1, len(records)):
        made.text.records = records[start:]
        assert made.found(from_beginning=False) == []


def test_stopped_table_begins_again() -> None:
    """As after a statement that changed it."""
    made = begun()
    made.step(SnapshotStep.STOP, 2)
    made.mark(replace(STATE, at=TablePlace(("shop", "orders"))))
    made.step(SnapshotStep.BEGIN)
    made.row(0, 0)
    made.step(SnapshotStep.END, 1)
    made.mark(None)
    assert made.found() == []


def _row_after_end(made: Snapshot) -> None:
    made.row(1, 0)
    made.step(SnapshotStep.END, 3)
    made.row(1, 1)


def _chunk_again(made: Snapshot) -> None:
    made.row(0, 1)


def _begin_twice(made: Snapshot) -> None:
    made.step(SnapshotStep.BEGIN)


def _end_of_another(made: Snapshot) -> None:
    made.step(SnapshotStep.END, 2, replace(TABLE, table="items"))


def _end_twice(made: Snapshot) -> None:
    made.step(SnapshotStep.END, 2)
    made.step(SnapshotStep.END, 2)


def _row_lost(made: Snapshot) -> None:
    made.step(SnapshotStep.END, 3)


def _state_forgotten(made: Snapshot) -> None:
    made.mark(None)


def _row_in_transaction(made: Snapshot) -> None:
    made.text.rows(1, 9)
    made.row(1, 0)


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (_row_after_end, "comes while none is open"),
        (_chunk_again, "follows row 2 of 0"),
        (_begin_twice, "begins in that of"),
        (_end_of_another, "ends in that of"),
        (_end_twice, "and none is open"),
        (_row_lost, "has 2 rows instead of 3"),
        (_state_forgotten, "the state names nothing"),
        (_row_in_transaction, "a row of a snapshot comes in "),
    ],
)
def test_every_broken_rule_of_snapshots_is_named(
    harm: Callable[[Snapshot], None], words: str
) -> None:
    """Each message has a broken topic that triggers it."""
    made = begun()
    harm(made)
    found = [what for _, what in made.found() if words in what]
    assert found, f"no violation has {words!r}: {made.found()}"
