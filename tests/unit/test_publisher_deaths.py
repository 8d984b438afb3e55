"""The publisher's process or its broker dies, on a model of the topic: the next owner continues exactly.

``tests/fault/test_publisher_faults.py`` and ``test_publisher_topic_lost.py`` kill real ones, most of them in chaos.
"""

from collections import Counter

import pytest

from millrace.errors import Fatal, MillraceError
from millrace.faults import registered
from millrace.producer.publish import opening, publisher
from millrace.producer.publish.opening import TailHint
from millrace.producer.publish.publisher import Publisher
from tests.kit.publisher.model import Outcome
from tests.kit.publisher.model_rig import ModelRig

POINTS = [name for name in registered() if name.startswith("publisher.")]
IN_THE_LOOP = ("begin", "produce", "chunks", "commit")  # killed at the second pass
ROWS = 9


class KilledError(BaseException):
    """The owner's process ends here."""


@pytest.fixture
def rig() -> ModelRig:
    """A topic without a broker."""
    return ModelRig("shop")


@pytest.mark.parametrize("point", POINTS)
def test_next_owner_resumes_exactly_after_a_death(
    rig: ModelRig, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At each fault point, with two batches in each Kafka transaction."""
    passes: Counter[str] = Counter()

    def die(name: str) -> None:
        passes[name] += 1
        if name == point and passes[name] == (2 if point.endswith(IN_THE_LOOP) else 1):
            raise KilledError

    with monkeypatch.context() as armed:
        armed.setattr(opening, "fault_point", die)
        armed.setattr(publisher, "fault_point", die)
        with pytest.raises(KilledError):
            _publish_until_killed(rig, is_renewed=point.endswith("renew"))
    with rig.running(9) as successor:
        sent = successor.progress.seq
        committed = {"publisher.before_commit": ROWS, "publisher.after_commit": 2 * ROWS}
        assert sent == committed.get(point, sent)
        successor.publish(rig.stream(successor).next_batch(4 * ROWS - sent))
    rig.assert_whole(4 * ROWS)


def _publish_until_killed(rig: ModelRig, *, is_renewed: bool) -> None:
    owner = rig.open(7)
    stream = rig.stream(owner)
    while True:
        if is_renewed:
            rig.model.outcomes = [Outcome.LOST_BEFORE]
        owner.add(stream.next_batch(4))
        owner.publish(stream.next_batch(ROWS - 4))


def _owner_of_two_commits(rig: ModelRig) -> tuple[Publisher, int]:
    """An owner with two audited commits, and the end of the first one."""
    owner = rig.open(7)
    stream = rig.stream(owner)
    owner.publish(stream.next_batch(ROWS))
    first_end = owner.hint.end_offset
    owner.publish(stream.next_batch(ROWS))
    owner.drain()
    return owner, first_end


def test_batch_lost_by_the_broker_is_sent_again(rig: ModelRig) -> None:
    """The owner stops before the gap; the next one believes the topic and not the status."""
    owner, first_end = _owner_of_two_commits(rig)
    hint, stream = owner.hint, rig.stream(owner)
    del rig.model.entries[first_end:]
    rig.model.outcomes = [
        Outcome.LOST_BEFORE
    ]  # the broker does not know the producer's last number
    for code in ("MR-3018", "MR-3002"):  # lost records, then a publisher that has ended
        with pytest.raises(MillraceError) as raised:
            owner.publish(stream.next_batch(ROWS))
        assert raised.value.code == code
    rig.assert_whole(ROWS)
    successor = rig.open(8, hint=hint)
    successor.publish(rig.stream(successor).next_batch(2 * ROWS))
    successor.close()
    rig.assert_whole(3 * ROWS)


def test_topic_emptied_by_the_broker_is_detected(rig: ModelRig) -> None:
    """It accepts records after the gap without an error; the audit and each later start refuse."""
    owner, _ = _owner_of_two_commits(rig)
    before, stream = owner.hint, rig.stream(owner)
    rig.model.entries.clear()

    def publish_more() -> None:
        owner.publish(stream.next_batch(ROWS))
        owner.close()

    with pytest.raises(Fatal) as raised:
        publish_more()
    assert raised.value.code in ("MR-3014", "MR-3015")
    hints: tuple[TailHint | None, ...] = (before, owner.hint, None)
    for hint in hints:
        with pytest.raises(Fatal) as raised:
            rig.open(8, hint=hint)
        assert raised.value.code == "MR-3017"
