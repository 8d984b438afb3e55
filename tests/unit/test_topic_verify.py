"""The verifier of set topics passes an intact one and names every violation."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from millrace.consumer.topic.verify import Check
from millrace.schemas.gtid import Flavour
from millrace.schemas.progress import OpenTransaction, Progress
from millrace.schemas.record.control import RecordKind
from millrace.schemas.record.framing import peek_kind
from tests.kit.capture.topic_rows import RowStream, start_of
from tests.kit.capture.topic_text import TopicText, whole


@pytest.mark.parametrize("flavour", list(Flavour))
def test_intact_topic_passes_from_any_offset(flavour: Flavour) -> None:
    """There is no false alarm from the beginning or from any later offset, as retention leaves it."""
    text = whole(flavour)
    assert text.found() == []
    records = text.records
    for start in range(1, len(records)):
        text.records = records[start:]
        assert text.found(from_beginning=False) == []


def _drop_row(text: TopicText) -> None:
    del text.records[9]


def _repeat_row(text: TopicText) -> None:
    text.records.insert(9, text.records[9])


def _repeat_first_row(text: TopicText) -> None:
    text.records.insert(7, text.records[7])


def _swap_rows(text: TopicText) -> None:
    text.records[8], text.records[9] = text.records[9], text.records[8]


def _stale_owner(text: TopicText) -> None:
    text.rows(3, 7)


def _no_fence(text: TopicText) -> None:
    text.rows(3, 10)


def _resolved_too_early(text: TopicText) -> None:
    text.stream.progress = Progress(text.stream.progress.gtid_set, None, text.stream.progress.seq)
    ahead = RowStream("shop", text.ids, text.stream.progress, 1, True).next_batch(1).progress
    text.rows(1, 9, Progress(ahead.gtid_set, None, ahead.seq))


def _resolved_forgets(text: TopicText) -> None:
    text.resolved(9, Progress(start_of(Flavour.MYSQL).gtid_set, None, text.stream.progress.seq))


def _open_not_named(text: TopicText) -> None:
    progress = text.stream.progress
    assert progress.open is not None
    text.resolved(9, Progress(progress.gtid_set, OpenTransaction("other:1", 1), progress.seq))


def _never_finished(text: TopicText) -> None:
    progress = text.stream.progress
    assert progress.open is not None
    gtid, _, number = progress.open.gtid.rpartition(":")
    text.stream.progress = Progress(
        progress.gtid_set, OpenTransaction(f"{gtid}:{int(number) + 1}", 0), progress.seq
    )
    text.rows(3, 9)


def _delivered_again(text: TopicText) -> None:
    text.rows(2, 9)  # ends the transaction that is open
    progress = start_of(Flavour.MYSQL)
    text.stream.progress = Progress(progress.gtid_set, None, text.stream.progress.seq)
    text.rows(3, 9, Progress(whole().stream.progress.gtid_set, None, text.stream.progress.seq))


def _schema_not_introduced(text: TopicText) -> None:
    del text.records[6]


def _foreign(text: TopicText) -> None:
    text.records.insert(9, (None, b"hello"))


def _no_mark_at_the_end(text: TopicText) -> None:
    del text.records[-1]


def _emptied(text: TopicText) -> None:
    text.records.clear()


def _first_fence_gone(text: TopicText) -> None:
    del text.records[: _first(text, RecordKind.ROW)]


def _row_of_the_part_before(text: TopicText) -> None:
    """Rows published before the fence follow it again, and those before it are removed."""
    rows = [record for record in text.records if peek_kind(record[1]) is RecordKind.ROW]
    progress = text.stream.progress
    assert progress.open is not None
    text.records.clear()
    text.fence(11)
    text.records += [rows[-1]]


def _seq_ahead(text: TopicText) -> None:
    progress = text.stream.progress
    text.resolved(9, replace(progress, seq=progress.seq + 1))


def _another_set(text: TopicText) -> None:
    text.records.append((None, text.codec(9, "other").resolved(text.stream.progress)))


def _finished_and_not_said(text: TopicText) -> None:
    before = text.stream.progress
    assert before.open is not None
    text.rows(4, 9, replace(before, seq=before.seq + 4))
    assert text.stream.progress.gtid_set != before.gtid_set


def _fewer_rows_named(text: TopicText) -> None:
    progress = text.stream.progress
    assert progress.open is not None
    fewer = replace(progress.open, rows=progress.open.rows - 1)
    text.resolved(9, replace(progress, open=fewer))


def _first(text: TopicText, kind: RecordKind) -> int:
    return next(at for at, (_, value) in enumerate(text.records) if peek_kind(value) is kind)


@pytest.mark.parametrize(
    ("harm", "check", "words"),
    [
        (_drop_row, Check.SEQ, "follows seq"),
        (_repeat_row, Check.SEQ, "follows seq"),
        (_repeat_row, Check.ONCE, "was delivered before"),
        (_repeat_first_row, Check.WHOLE, "row 1 of"),
        (_swap_rows, Check.SEQ, "follows seq"),
        (_first_fence_gone, Check.SEQ, "before any fence"),
        (_seq_ahead, Check.SEQ, "resolved or fence record with seq"),
        (_stale_owner, Check.OWNER, "epoch 7 writes after epoch 9"),
        (_no_fence, Check.OWNER, "without a fence"),
        (_resolved_too_early, Check.RESOLVED, "before its end"),
        (_resolved_forgets, Check.RESOLVED, "does not contain all of"),
        (_open_not_named, Check.RESOLVED, "is unfinished but not named"),
        (_fewer_rows_named, Check.RESOLVED, "reported, but row"),
        (_finished_and_not_said, Check.RESOLVED, "is finished but not in the GTID set"),
        (_never_finished, Check.WHOLE, "has no last record"),
        (_delivered_again, Check.ONCE, "was delivered before"),
        (_row_of_the_part_before, Check.ONCE, "row "),
        (_schema_not_introduced, Check.SCHEMA, "was not introduced"),
        (_foreign, Check.STREAM, "MR-"),
        (_another_set, Check.STREAM, "shop became other"),
        (_no_mark_at_the_end, Check.TAIL, "the last record is of kind"),
        (_emptied, Check.TAIL, "holds no record"),
    ],
)
@pytest.mark.guarantee("provable")
def test_every_topic_violation_is_named(
    harm: Callable[[TopicText], None], check: Check, words: str
) -> None:
    """Each message of the verifier has a broken topic that triggers it."""
    text = whole()
    harm(text)
    found = [found for found in text.found() if found.check is check and words in found.what]
    assert found, f"no violation has {words!r}"
