"""How a task continues in an adopted topic: by GTID set, and only if it is known exactly what the target has."""

from dataclasses import replace

import pytest

from millrace.consumer.target.progress import Mark, MarkTopic
from millrace.consumer.topic.adoption import Beginning, Continuation, beginning_of, continuation
from millrace.drivers.kafka.reader import TopicRecord
from millrace.errors import Fatal
from millrace.schemas.gtid import Flavour, GtidPosition, parse_gtid_set
from millrace.schemas.progress import Progress
from millrace.schemas.record.control import FenceRecord
from millrace.schemas.record.gap import gap_record
from millrace.schemas.record.record import encode_control
from millrace.schemas.requests.decision import Approval, Decision, DecisionKind
from tests.kit.apply.tables import integer, table
from tests.kit.apply.topic import RecordStream

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
SETS = {Flavour.MYSQL: f"{UUID}:1-{{}}", Flavour.MARIADB: "0-1-{}"}


def _set(flavour: Flavour, last: int) -> GtidPosition:
    return parse_gtid_set(flavour, SETS[flavour].format(last))


def _beginning(flavour: Flavour, last: int, *, seq: int = 9) -> Beginning:
    """Adopted after this transaction, at ``seq``."""
    progress = Progress(_set(flavour, last), None, seq)
    decision = Decision(
        id="d",
        kind=DecisionKind.ADOPT_TOPIC,
        task="t",
        before=progress,
        after=progress.gtid_set,
        approval=Approval("ann@db", "lost", 7),
    )
    records = [
        encode_control(FenceRecord(progress, "shop", 5, 1, "w"), schema_id=1),
        encode_control(gap_record(decision, set_name="shop"), schema_id=2),
    ]
    found = beginning_of(TopicRecord(n, None, v) for n, v in enumerate(records))
    assert found is not None
    return found


def _mark(flavour: Flavour, last: int, *, seq: int = 9, whole_seq: int = 9) -> Mark:
    topic = MarkTopic("shop", "old", 3, whole_seq)
    return Mark(seq, 40, str(_set(flavour, last)), str(flavour), topic)


def _continued(mark: Mark, beginning: Beginning, *, has_bitmaps: bool = False) -> Continuation:
    return continuation(mark, beginning, topic_id="new", has_bitmaps=has_bitmaps)


@pytest.mark.parametrize("flavour", list(Flavour))
def test_task_at_the_adopted_progress_continues_after_the_gap(flavour: Flavour) -> None:
    """Nothing is missing, and nothing comes again."""
    found = _continued(_mark(flavour, 7), _beginning(flavour, 7))
    assert found.refusal is None
    topic = MarkTopic("shop", "new", 5, 10)
    assert found.after == Mark(10, 2, SETS[flavour].format(7), str(flavour), topic)


@pytest.mark.parametrize("flavour", list(Flavour))
def test_task_ahead_of_the_adopted_progress_skips_what_comes_again(flavour: Flavour) -> None:
    """The status was older than the topic: the transactions up to the mark come again, with other numbers."""
    found = _continued(_mark(flavour, 9, seq=14, whole_seq=14), _beginning(flavour, 7))
    assert found.refusal is None
    assert (found.after.gtid_set, found.after.past_start) == (SETS[flavour].format(9), False)
    assert (found.after.seq, found.after.next_offset) == (10, 2)


@pytest.mark.parametrize(
    ("flavour", "missing"),
    [(Flavour.MYSQL, f"{UUID}:6-7"), (Flavour.MARIADB, "the transactions after 0-1-5 up to 0-1-7")],
)
def test_missing_transactions_are_named_and_block_the_task(flavour: Flavour, missing: str) -> None:
    """They were only in the old topic. An operator's decision continues after the gap."""
    found = _continued(_mark(flavour, 5, seq=6, whole_seq=6), _beginning(flavour, 7))
    assert found.missing == missing
    assert found.refusal is not None
    assert found.refusal.code == "MR-5070"
    assert missing in found.refusal.message
    assert (found.after.gtid_set, found.after.past_start) == (SETS[flavour].format(7), True)


@pytest.mark.parametrize(
    ("changed", "has_bitmaps"),
    [
        ({"seq": 10}, False),
        ({"topic": MarkTopic("shop", "old", 3)}, False),  # of an earlier version
        ({"past_start": False}, False),
        ({}, True),
    ],
)
def test_task_inside_a_transaction_is_blocked(
    changed: dict[str, object], *, has_bitmaps: bool
) -> None:
    """Its rows come again, and which of them the target has is not known."""
    mark = replace(_mark(Flavour.MARIADB, 7), **changed)  # type: ignore[arg-type]
    found = _continued(mark, _beginning(Flavour.MARIADB, 7), has_bitmaps=has_bitmaps)
    assert found.refusal is not None
    assert found.refusal.code == "MR-5071"


def test_topic_of_another_history_is_refused() -> None:
    """The same sequence of another server, or of another kind of server, is another transaction."""
    mark = replace(_mark(Flavour.MARIADB, 7), gtid_set="0-2-7")
    for other in (mark, _mark(Flavour.MYSQL, 7)):
        with pytest.raises(Fatal, match="MR-5035"):
            _continued(other, _beginning(Flavour.MARIADB, 7))


def test_topic_without_a_gap_record_was_not_adopted() -> None:
    """A capture task that began again from nothing has other numbers, and no progress to compare."""
    stream = RecordStream()
    stream.commit()
    stream.insert(table("d", "t", integer("id")), {"id": 1})
    for values in (stream.values, stream.values[::-1], []):
        records = [TopicRecord(n, None, v) for n, v in enumerate(values)]
        assert beginning_of(records) is None
