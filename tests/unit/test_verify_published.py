"""The verifier of published topics passes an intact partition and names every violation."""

from collections.abc import Callable

import pytest

from millrace.consumer.topic.published import verified_ends
from millrace.consumer.topic.verify_published import Check, PartitionSummary, PartitionVerifier
from millrace.drivers.kafka.reader import Ends

Record = dict[str, bytes]


def _record(n: int, seq: int, part: int = 0, *, epoch: int = 3, task: str = "public") -> Record:
    values = {"task": task, "epoch": epoch, "seq": seq, "part": part, "n": n}
    return {name: str(value).encode() for name, value in values.items()}


def _partition() -> list[Record]:
    """Ten records: rows of other partitions leave gaps in seq, a key change has three parts, a new owner follows."""
    numbers = [(1, 0), (4, 0), (4, 1), (9, 0), (9, 1), (9, 2), (10, 0), (30, 0), (31, 0), (40, 0)]
    return [
        _record(n, seq, part, epoch=3 if n < 8 else 7) for n, (seq, part) in enumerate(numbers, 1)
    ]


def _summary(
    records: list[Record],
    *,
    task: str = "",
    from_beginning: bool = True,
    is_compacted: bool = False,
) -> PartitionSummary:
    verifier = PartitionVerifier(
        task=task, from_beginning=from_beginning, is_compacted=is_compacted
    )
    for at, record in enumerate(records):
        verifier.feed(10 * at, record)
    return verifier.finish()


def test_intact_partition_passes_from_any_record() -> None:
    """There is no false alarm from the beginning, nor from a later record, as retention leaves it."""
    records = _partition()
    summary = _summary(records, task="public")
    assert (summary.first_n, summary.last_n, summary.records) == (1, 10, 10)
    assert (summary.first_seq, summary.last_seq) == (1, 40)
    assert summary.epochs == [(3, 0), (7, 70)]
    assert summary.violation_count == 0
    for start in range(1, len(records)):
        assert _summary(records[start:], from_beginning=False).violations == []
    assert _summary([]).violation_count == 0


def _drop(records: list[Record]) -> None:
    del records[4]


def _drop_first(records: list[Record]) -> None:
    del records[0]


def _repeat(records: list[Record]) -> None:
    records.insert(4, records[4])


def _swap(records: list[Record]) -> None:
    records[4], records[5] = records[5], records[4]


def _seq_falls(records: list[Record]) -> None:
    records[5] = _record(6, 8)


def _same_part(records: list[Record]) -> None:
    records[5] = _record(6, 9, 1)


def _stale_owner(records: list[Record]) -> None:
    records[9] = _record(10, 40, epoch=3)


def _other_task(records: list[Record]) -> None:
    records[5] = _record(6, 9, 2, task="other")


def _no_headers(records: list[Record]) -> None:
    records.insert(5, {})


def _no_number(records: list[Record]) -> None:
    records.insert(5, _record(6, 9) | {"n": b"six"})


BROKEN: dict[Callable[[list[Record]], None], list[tuple[int, Check]]] = {
    _drop: [(40, Check.N)],
    _drop_first: [(0, Check.N)],
    _repeat: [(50, Check.N), (50, Check.ORDER)],
    _swap: [(40, Check.N), (50, Check.N), (50, Check.ORDER), (60, Check.N)],
    _seq_falls: [(50, Check.ORDER)],
    _same_part: [(50, Check.ORDER)],
    _stale_owner: [(90, Check.OWNER)],
    _other_task: [(50, Check.TASK)],
    _no_headers: [(50, Check.FOREIGN)],
    _no_number: [(50, Check.FOREIGN)],
}


@pytest.mark.parametrize("damage", BROKEN)
def test_violation_is_named_with_its_offset(damage: Callable[[list[Record]], None]) -> None:
    """Each damage gives its violations, and no others after it."""
    records = _partition()
    damage(records)
    found = [(violation.offset, violation.check) for violation in _summary(records).violations]
    assert found == BROKEN[damage]


def test_gaps_of_compaction_are_counted_and_no_violation() -> None:
    """Compaction keeps the order, so all other checks remain."""
    records = _partition()
    del records[6], records[2:4], records[0]
    summary = _summary(records, is_compacted=True)
    assert (summary.violation_count, summary.removed) == (0, 3)
    _swap(records)
    assert _summary(records, is_compacted=True).violation_count > 0


def test_partition_that_lost_its_end_is_a_violation() -> None:
    """The task's progress has the last n of the partition."""
    verifier = PartitionVerifier(from_beginning=True, is_compacted=False)
    for offset, record in enumerate(_partition()[:9]):
        verifier.feed(offset, record)
    [violation] = verifier.finish(n_at_least=10).violations
    assert violation.check is Check.TAIL
    assert "n 9; the task has written n 10" in violation.what


def test_violations_are_kept_up_to_a_limit() -> None:
    """Memory stays bounded in a partition of another program; all are counted."""
    summary = _summary([{}] * 5000)
    assert (summary.violation_count, len(summary.violations)) == (5000, 100)
    assert summary.records == 0


def test_only_an_open_transaction_hides_records() -> None:
    """A running task writes while its topic is verified: its transactions have ended."""
    before = Ends(0, 50, 60)
    assert verified_ends(before, Ends(0, 50, 65)) == Ends(0, 50, 65)
    assert verified_ends(before, Ends(0, 70, 75)) == Ends(0, 50, 50)
