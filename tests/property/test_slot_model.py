"""Any history of a publish task on a model of Kafka gives each record once: kills, torn commits, two owners."""

from contextlib import suppress
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from millrace import faults
from millrace.consumer.publish.slot import Slot
from millrace.errors import Fenced, Retryable
from tests.kit.examples import examples
from tests.kit.publish.model import Fate, ModelBroker, patched
from tests.kit.publish.rig import Row, SlotRig

LAST_SEQ = 120
RUNS = 12
KILL_EVERY = (8, 25, 80)  # fault points, on average
TROUBLE = (Fate.SLOW, Fate.TORN, Fate.LOST, Fate.UNSENT)


class Killed(BaseException):
    """The process ends at a fault point."""


class ModelRig(SlotRig):
    """A task on the model."""

    def __init__(self, random: Random) -> None:
        self.broker = ModelBroker(random, self.fate)
        super().__init__("model", "t", slots=random.randint(1, 3), partitions=random.randint(1, 3))
        self.brokers = self.broker
        self.era = random.choice((0, 25))
        self.random, self.trouble = random, 0.0

    def fate(self) -> Fate:
        """Choose that of the next commit."""
        return self.random.choice(TROUBLE) if self.random.random() < self.trouble else Fate.OK

    def rows(self) -> list[Row]:
        """All committed records."""
        rows = []
        for place, log in self.broker.logs.items():
            for entry in log[: self.broker.stable(place)]:
                record = entry.record
                if place[0] != self.order().progress_topic and record and not entry.is_aborted:
                    headers = {name: value.decode() for name, value in record.headers.items()}
                    rows.append(Row(place, record.key, record.value, headers))
        return rows


def _run(rig: ModelRig, epoch: int, stale: list[Slot]) -> None:
    """One owner, until it is done, killed, or ends with an error. Stale owners try to write, except in the last run."""
    random = rig.random
    is_alone = epoch == RUNS
    if random.random() < 0.15:
        rig.slots = random.randint(1, 3)
    rig.start(epoch)
    slots = [rig.open(number, epoch) for number in range(rig.slots)]
    stale += slots
    step = random.randint(3, 40)
    while behind := [slot for slot in slots if slot.position.seq < LAST_SEQ]:
        if not is_alone and random.random() < 0.1 and (old := random.choice(stale)) not in slots:
            with suppress(Fenced, Retryable):
                rig.feed(old, old.position.seq + step, step=step)
        if not is_alone and random.random() < 0.05 and epoch > 1:
            with suppress(Fenced, Retryable):
                old = rig.open(random.randrange(rig.slots), epoch - 1)
                rig.feed(old, LAST_SEQ, step=step)
        slot = random.choice(behind)
        rig.feed(slot, min(slot.position.seq + 2 * step, LAST_SEQ), step=step)
        slot.verify()
    for slot in slots:
        slot.close()


@examples(150, deadline=None)  # the first example may compile the kernel
@given(st.integers(0, 2**32), st.integers(0, 3))
def test_history_of_slots_gives_each_record_once(seed: int, trouble: int) -> None:
    """Owners are killed at any fault point, change the number of slots, and write after they were replaced."""
    rig = ModelRig(Random(seed))
    stale: list[Slot] = []
    kill_every = rig.random.choice(KILL_EVERY)

    def kill(_name: str) -> None:
        if rig.random.random() < 1 / kill_every:
            raise Killed

    with patched():
        for epoch in range(1, RUNS):
            rig.trouble = trouble / 10
            with suppress(Killed, Retryable, Fenced), faults.watched(kill):
                _run(rig, epoch, stale)
        rig.trouble = 0.0
        _run(rig, RUNS, stale)
    rig.assert_exact(LAST_SEQ)
    assert all(entry.writer == "" for log in rig.broker.logs.values() for entry in log)
