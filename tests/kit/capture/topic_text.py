"""The records of a set topic in memory, as a publisher writes them."""

from millrace.consumer.topic.verify import TopicVerifier, Violation
from millrace.producer.publish.codec import RecordCodec
from millrace.producer.publish.config import PublisherConfig
from millrace.schemas.documents import Brokers
from millrace.schemas.gtid import Flavour
from millrace.schemas.progress import Progress
from tests.kit.capture.topic_rows import Ids, RowStream, start_of

Record = tuple[bytes | None, bytes]


class TopicText:
    """Writes a topic's records as a publisher does."""

    def __init__(self, flavour: Flavour = Flavour.MYSQL) -> None:
        self.ids = Ids()
        self.stream = RowStream("shop", self.ids, start_of(flavour))
        self.flavour = flavour
        self.records: list[Record] = []

    def codec(self, epoch: int, set_name: str = "shop") -> RecordCodec:
        """The codec of one owner."""
        config = PublisherConfig(
            brokers=Brokers(""),
            topic="shop",
            transactional_id="t",
            epoch=epoch,
            worker="w",
            set=set_name,
            flavour=self.flavour,
        )
        return RecordCodec.register(config, self.ids)

    def fence(self, epoch: int) -> None:
        """A fence record: a run begins."""
        self.records += [
            (None, value) for value in self.codec(epoch).run_start(self.stream.progress)
        ]
        self.stream.is_introduced = False

    def rows(self, count: int, epoch: int, progress: Progress | None = None) -> None:
        """One Kafka transaction with ``count`` rows."""
        batch = self.stream.next_batch(count)
        octets = batch.buffer.tobytes()
        for key_start, key_end, start, end in batch.bounds.tolist():
            key = None if key_start < 0 else octets[key_start:key_end]
            self.records.append((key, octets[start:end]))
        self.resolved(epoch, progress or batch.progress)

    def resolved(self, epoch: int, progress: Progress) -> None:
        """A resolved record."""
        self.records.append((None, self.codec(epoch).resolved(progress)))

    def found(self, *, from_beginning: bool = True) -> list[Violation]:
        """The verifier's findings."""
        verifier = TopicVerifier(from_beginning=from_beginning)
        for offset, (key, value) in enumerate(self.records):
            verifier.feed(offset, key, value)
        return verifier.finish().violations


def whole(flavour: Flavour = Flavour.MYSQL) -> TopicText:
    """A correct topic: two owners, and transactions cut between batches."""
    text = TopicText(flavour)
    text.fence(7)
    text.rows(4, 7)
    text.rows(5, 7)
    text.resolved(7, text.stream.progress)
    text.fence(9)
    text.rows(7, 9)
    return text
