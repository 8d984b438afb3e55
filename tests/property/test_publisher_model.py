"""T14: publishing, lost answers, late requests, crashes and takeovers in any order leave a whole topic.

The topic is the model of ``tests.kit.publisher.model``. Owners come and go. Each opens with a greater epoch, or with an
old epoch if it is stale and believes that it still has its lease.
"""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from millrace.errors import Fenced, Retryable
from millrace.producer.publish.opening import Basis
from millrace.producer.publish.positions import ProgressRecord
from millrace.producer.publish.publisher import Publisher
from tests.kit.examples import examples
from tests.kit.publisher.model import (
    START,
    ModelCodec,
    ModelDriver,
    ModelTopic,
    Outcome,
    batch_after,
    model_config,
)

# possible outcomes of broker and network; a broker that lies (Outcome.ABORTED_OK) is for the audit, not for repair
HONEST = [
    outcome
    for outcome in Outcome
    if outcome not in (Outcome.ABORTED_OK, Outcome.FOREIGN, Outcome.FOREIGN_INSIDE)
]


class Owners(RuleBasedStateMachine):
    """Several owners over one topic."""

    @initialize()
    def begin(self) -> None:
        """Start with an empty topic and its first owner."""
        self.topic = ModelTopic()
        self.owners: list[tuple[int, Publisher]] = []
        self.epoch = 0
        self.take_over()

    @rule()
    def take_over(self) -> None:
        """A new owner takes the lease; the former one does not know yet."""
        self.epoch += 1
        self._open(self.epoch)

    @rule(back=st.integers(1, 3))
    def start_again_stale(self, back: int) -> None:
        """An owner that lost its lease passes the check by bad luck."""
        if self.epoch - back >= 1:
            self._open(self.epoch - back)

    @rule(
        which=st.integers(0, 3),
        counts=st.lists(st.integers(0, 9), min_size=1, max_size=3),
        outcomes=st.lists(st.sampled_from(HONEST), max_size=3),
    )
    def publish(self, which: int, counts: list[int], outcomes: list[Outcome]) -> None:
        """An owner, current or stale, continues from the state it knows, with one or more batches together."""
        self.topic.outcomes = outcomes
        epoch, publisher = self.owners[which % len(self.owners)]
        try:
            progress = publisher.progress
            for count in counts:
                batch = batch_after(progress, count)
                publisher.add(batch)
                progress = batch.progress
            publisher.commit()
        except (Retryable, Fenced):
            self.owners.remove((epoch, publisher))
            self.topic.outcomes = []
            self._open(epoch)
            if not self.owners:
                self.take_over()
        self.topic.outcomes = []

    @rule()
    def crash(self) -> None:
        """The newest owner's process ends; the next one has a new epoch."""
        self.owners.pop()[1].discard()
        self.take_over()

    def _open(self, epoch: int) -> None:
        try:
            publisher = Publisher.open_with(
                ModelDriver(self.topic),
                model_config(epoch),
                codec=ModelCodec(epoch),
                verify_lease=lambda: None,
                basis=Basis(START),
            )
        except Fenced:
            return
        self.owners.append((epoch, publisher))

    @invariant()
    def numbers_are_dense(self) -> None:
        """I2: seq is 1, 2, 3, … without gap or repetition, regardless of the answers."""
        if hasattr(self, "topic"):
            seqs = self.topic.seqs()
            assert seqs == list(range(1, len(seqs) + 1))

    @invariant()
    def epochs_never_go_down(self) -> None:
        """I4: no mark of an older owner follows one of a newer owner."""
        if hasattr(self, "topic"):
            marks = [ModelCodec(0).read(record.value) for record in self.topic.committed()]
            epochs = [mark.epoch for mark in marks if isinstance(mark, ProgressRecord)]
            assert epochs == sorted(epochs)

    def teardown(self) -> None:
        """Release the threads."""
        for _, publisher in getattr(self, "owners", ()):
            publisher.discard()


TestOwners = Owners.TestCase
TestOwners.settings = examples(60, stateful_step_count=25, deadline=None)
