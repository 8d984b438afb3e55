"""A topic of a test's own on a real broker, its registry, publishers on it, and the verifier's verdict."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from consumer.topic.kafka import TopicReader
from consumer.topic.verify import Summary, TopicVerifier
from producer.publisher.config import PublisherConfig, PublisherLimits
from producer.publisher.opening import TailHint
from producer.publisher.publisher import Publisher
from schemas.gtid import Flavour
from tests.topic_rows import SET, Ids, RowStream, start_of


class Rig:
    """One topic."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        self.ids = Ids()
        self.limits = PublisherLimits(publish_timeout_s=10.0, stable_timeout_s=3.0)
        self.client: Mapping[str, str] = {}

    def config(self, epoch: int) -> PublisherConfig:
        """Of the owner with this lease epoch."""
        return PublisherConfig(
            bootstrap=self.bootstrap,
            topic=self.topic,
            transactional_id=f"test/{self.topic}/0",
            epoch=epoch,
            worker=f"w{epoch}",
            set=SET,
            flavour=Flavour.MYSQL,
            limits=self.limits,
            client=self.client,
        )

    def open(
        self,
        epoch: int = 7,
        *,
        verify_lease: Callable[[], None] = lambda: None,
        hint: TailHint | None = None,
    ) -> Publisher:
        """A publisher."""
        return Publisher.open(
            self.config(epoch),
            verify_lease=verify_lease,
            register=self.ids,
            start=start_of(Flavour.MYSQL),
            hint=hint,
        )

    @contextmanager
    def running(self, epoch: int = 7) -> Iterator[Publisher]:
        """A publisher that is closed in the end."""
        publisher = self.open(epoch)
        yield publisher
        publisher.close()

    def stream(self, publisher: Publisher, transaction_rows: int = 3) -> RowStream:
        """Rows behind what stands."""
        return RowStream(self.topic, self.ids, publisher.progress, transaction_rows)

    def verdict(self) -> Summary:
        """What `millrace topic verify` finds."""
        reader = TopicReader(self.bootstrap, self.topic)
        ends = reader.ends()
        verifier = TopicVerifier(from_beginning=ends.low == 0)
        for chunk in reader.chunks(ends.low, ends.stable):
            for record in chunk:
                verifier.feed(record.offset, record.key, record.value)
        reader.close()
        return verifier.finish()

    def assert_whole(self, last_seq: int) -> None:
        """Nothing missing, repeated, out of order."""
        found = self.verdict()
        assert found.violations == []
        assert (found.last_seq, found.counts.rows) == (last_seq, last_seq)
