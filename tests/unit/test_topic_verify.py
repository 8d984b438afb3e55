"""The verifier of set topics: it passes a whole one and names every way in which a topic can be broken."""

from collections.abc import Callable

import pytest

from consumer.topic.verify import Check, TopicVerifier
from producer.publisher.codec import RecordMarks
from producer.publisher.config import PublisherConfig
from schemas.gtid import Flavour
from schemas.progress import OpenTransaction, Progress
from tests.topic_rows import Ids, RowStream, start_of

Record = tuple[bytes | None, bytes]


class TopicText:
    """Writes a topic's records as a publisher would."""

    def __init__(self, flavour: Flavour = Flavour.MYSQL) -> None:
        self.ids = Ids()
        self.stream = RowStream("shop", self.ids, start_of(flavour))
        self.flavour = flavour
        self.records: list[Record] = []

    def marks(self, epoch: int) -> RecordMarks:
        """Of one owner."""
        config = PublisherConfig(
            bootstrap="",
            topic="shop",
            transactional_id="t",
            epoch=epoch,
            worker="w",
            set="shop",
            flavour=self.flavour,
        )
        return RecordMarks.registered(config, self.ids)

    def fence(self, epoch: int) -> None:
        """A run begins."""
        self.records += [
            (None, value) for value in self.marks(epoch).run_start(self.stream.progress)
        ]
        self.stream.is_introduced = False

    def rows(self, count: int, epoch: int, progress: Progress | None = None) -> None:
        """One Kafka transaction."""
        batch = self.stream.next_batch(count)
        octets = batch.buffer.tobytes()
        for key_start, key_end, start, end in batch.bounds.tolist():
            key = None if key_start < 0 else octets[key_start:key_end]
            self.records.append((key, octets[start:end]))
        self.resolved(epoch, progress or batch.progress)

    def resolved(self, epoch: int, progress: Progress) -> None:
        """A mark."""
        self.records.append((None, self.marks(epoch).resolved(progress)))

    def found(self, *, from_beginning: bool = True) -> set[Check]:
        """What the verifier says."""
        verifier = TopicVerifier(from_beginning=from_beginning)
        for offset, (key, value) in enumerate(self.records):
            verifier.feed(offset, key, value)
        return {violation.check for violation in verifier.finish().violations}


def whole(flavour: Flavour = Flavour.MYSQL) -> TopicText:
    """Two owners, transactions cut between batches."""
    text = TopicText(flavour)
    text.fence(7)
    text.rows(4, 7)
    text.rows(5, 7)
    text.resolved(7, text.stream.progress)
    text.fence(9)
    text.rows(7, 9)
    return text


@pytest.mark.parametrize("flavour", list(Flavour))
def test_a_whole_topic_passes_from_any_offset(flavour: Flavour) -> None:
    """No false alarm: from the beginning, and from every later offset (what retention leaves)."""
    text = whole(flavour)
    assert text.found() == set()
    records = text.records
    for start in range(1, len(records)):
        text.records = records[start:]
        assert text.found(from_beginning=False) == set()


def _drop_row(text: TopicText) -> None:
    del text.records[8]


def _repeat_row(text: TopicText) -> None:
    text.records.insert(8, text.records[8])


def _repeat_first_row(text: TopicText) -> None:
    text.records.insert(6, text.records[6])


def _swap_rows(text: TopicText) -> None:
    text.records[7], text.records[8] = text.records[8], text.records[7]


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
    del text.records[5]


def _foreign(text: TopicText) -> None:
    text.records.insert(9, (None, b"hello"))


def _no_mark_at_the_end(text: TopicText) -> None:
    del text.records[-1]


@pytest.mark.parametrize(
    ("harm", "check"),
    [
        (_drop_row, Check.SEQ),
        (_repeat_row, Check.SEQ),
        (_repeat_row, Check.ONCE),
        (_repeat_first_row, Check.WHOLE),
        (_swap_rows, Check.SEQ),
        (_stale_owner, Check.OWNER),
        (_no_fence, Check.OWNER),
        (_resolved_too_early, Check.RESOLVED),
        (_resolved_forgets, Check.RESOLVED),
        (_open_not_named, Check.RESOLVED),
        (_never_finished, Check.WHOLE),
        (_delivered_again, Check.ONCE),
        (_schema_not_introduced, Check.SCHEMA),
        (_foreign, Check.STREAM),
        (_no_mark_at_the_end, Check.TAIL),
    ],
)
def test_every_harm_is_named(harm: Callable[[TopicText], None], check: Check) -> None:
    """Each check has a broken topic that only it explains."""
    text = whole()
    harm(text)
    assert check in text.found()
