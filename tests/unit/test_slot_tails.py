"""The start of a slot on a model of Kafka: which ends of a partition it believes, and which stop the task."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random

import pytest

from millrace.consumer.publish.mark import Definition, Description, Mark, Position, Tail
from millrace.consumer.publish.slot import Slot
from millrace.drivers.kafka.partitions import HeaderedRecord, Place
from millrace.errors import Fatal, Fenced, MillraceError, Retryable
from tests.kit.publish.model import Entry, ModelBroker, patched
from tests.kit.publish.rig import SlotRig, position

PLACE: Place = ("t.t1", 0)
Change = Callable[[ModelBroker], object]


@pytest.fixture
def rig() -> Iterator[SlotRig]:
    """A task on the model. Its first owner wrote 100 records, the last 50 of them after its last mark."""
    rig = SlotRig("model", "t")
    rig.brokers = ModelBroker(Random(1))
    with patched():
        rig.start(7)
        slot = rig.open()
        rig.feed(slot, 100, step=50)
        slot.discard()
        yield rig


def _broker(rig: SlotRig) -> ModelBroker:
    assert isinstance(rig.brokers, ModelBroker)
    return rig.brokers


def _marked(rig: SlotRig) -> Tail:
    """The tail in the mark: after the first 50 records of the task."""
    broker = _broker(rig)
    mark = Mark.of(
        [
            (entry.record.key or b"", entry.record.value or b"")
            for entry in broker.logs["_t.progress", 0]
            if entry.record and entry.record.value and entry.record.key
        ]
    )
    return mark.tails[PLACE]


def _open(rig: SlotRig) -> Slot:
    rig.start(8)
    return rig.open(epoch=8)


def _abort(broker: ModelBroker) -> None:
    for entry in broker.logs[PLACE]:
        entry.is_aborted |= entry.record is not None and int(entry.record.headers["seq"]) > 50


def _compact(broker: ModelBroker) -> None:
    broker.logs[PLACE] = [
        Entry(None) if entry.record and int(entry.record.headers["seq"]) > 50 else entry
        for entry in broker.logs[PLACE]
    ]


def _compact_middle(broker: ModelBroker) -> None:
    broker.logs[PLACE] = [
        Entry(None) if entry.record and 40 < int(entry.record.headers["seq"]) < 90 else entry
        for entry in broker.logs[PLACE]
    ]


def _with_headers(broker: ModelBroker, **headers: bytes) -> None:
    log = broker.logs[PLACE]
    log.append(Entry(HeaderedRecord(len(log), b"", b"", headers)))


OURS = {"task": b"t", "seq": b"101", "part": b"0"}


def test_records_after_the_mark_are_the_truth(rig: SlotRig) -> None:
    """The slot reads again what the mark does not have, and numbers continue."""
    before = _marked(rig)
    slot = _open(rig)
    tail = slot.mark.tails[PLACE]
    assert (tail.n > before.n, slot.position.seq, tail.seq) == (True, 50, 100)
    rig.feed(slot, 120)
    slot.close()
    last = _broker(rig).logs[PLACE][-2].record
    assert last is not None
    assert int(last.headers["seq"]) == 118


def test_aborted_records_after_the_mark_change_nothing(rig: SlotRig) -> None:
    """Also in a compacted topic, where a reader of aborted records still sees them."""
    before = _marked(rig)
    _abort(_broker(rig))
    rig.config = {"cleanup.policy": "compact"}
    tail = _open(rig).mark.tails[PLACE]
    assert tail == replace(before, end=len(_broker(rig).logs[PLACE]))


def test_repeated_marker_after_the_mark_is_no_record(rig: SlotRig) -> None:
    """One offset more, in a compacted topic."""
    broker = _broker(rig)
    before = _marked(rig)
    del broker.logs[PLACE][before.end :]
    broker.logs[PLACE].append(Entry(None))
    rig.config = {"cleanup.policy": "compact"}
    assert _open(rig).mark.tails[PLACE] == replace(before, end=before.end + 1)


def test_retention_that_leaves_the_last_record_is_no_loss(rig: SlotRig) -> None:
    """The tail is its headers."""
    broker = _broker(rig)
    broker.lows[PLACE] = len(broker.logs[PLACE]) - 2
    assert _open(rig).mark.tails[PLACE].seq == 100


@pytest.mark.parametrize(("policy", "code"), [("compact,delete", ""), ("delete", "MR-3105")])
def test_numbers_may_jump_in_a_compacted_topic_alone(rig: SlotRig, policy: str, code: str) -> None:
    """The policy is the topic's: an operator may have changed it since the document created the topic."""
    broker = _broker(rig)
    broker.policies = {PLACE[0]: policy}
    _compact_middle(broker)
    if code:
        with pytest.raises(Fatal, match=code):
            _open(rig)
    else:
        assert _open(rig).mark.tails[PLACE].seq == 100


def test_numbers_never_fall_in_a_compacted_topic(rig: SlotRig) -> None:
    """Such a record is not the task's next one."""
    broker = _broker(rig)
    broker.policies = {PLACE[0]: "compact"}
    rig.start(8)
    _with_headers(broker, **OURS, n=b"3", epoch=b"7")
    with pytest.raises(Fatal, match="MR-3105"):
        rig.open(epoch=8)


def test_removed_tombstone_counts_by_the_topics_own_policy(rig: SlotRig) -> None:
    """The document does not name the policy."""
    broker = _broker(rig)
    broker.policies = {PLACE[0]: "compact"}
    _compact(broker)
    with pytest.raises(Fatal, match="MR-3104"):
        _open(rig)


def test_partition_emptied_at_its_mark_is_believed(rig: SlotRig) -> None:
    """Nothing came after the mark."""
    broker = _broker(rig)
    before = _marked(rig)
    del broker.logs[PLACE][before.end :]
    broker.lows[PLACE] = before.end
    assert _open(rig).mark.tails[PLACE] == before


@pytest.mark.parametrize(
    ("change", "branch", "code"),
    [
        (lambda broker: broker.lows.update({PLACE: len(broker.logs[PLACE])}), Fatal, "MR-3104"),
        (_compact, Fatal, "MR-3104"),
        (lambda broker: broker.logs[PLACE].clear(), Fatal, "MR-3105"),
        (lambda broker: broker.logs[PLACE].pop(-3), Fatal, "MR-3105"),
        (lambda broker: broker.ids.update({"t.t1": "another"}), Fatal, "MR-3103"),
        (lambda broker: broker.topics.pop("t.t1"), Fatal, "MR-3103"),
        (_with_headers, Fatal, "MR-3102"),
        (lambda broker: _with_headers(broker, **OURS, n=b"x", epoch=b"7"), Fatal, "MR-3102"),
        (
            lambda broker: _with_headers(broker, **OURS | {"task": b"u"}, n=b"1", epoch=b"7"),
            Fatal,
            "MR-3102",
        ),
        (lambda broker: _with_headers(broker, **OURS, n=b"99", epoch=b"9"), Fenced, "MR-3010"),
        (lambda broker: _with_headers(broker, **OURS, n=b"99", epoch=b"7"), Fatal, "MR-3105"),
    ],
    ids=[
        "emptied",
        "compacted",
        "truncated",
        "a record less",
        "recreated",
        "deleted",
        "no headers",
        "no number",
        "another task",
        "greater epoch",
        "a gap",
    ],
)
def test_end_that_proves_nothing_stops_the_task(
    rig: SlotRig, change: Change, branch: type[MillraceError], code: str
) -> None:
    """Each with its own code."""
    rig.config = {"cleanup.policy": "compact"}
    rig.start(8)
    change(_broker(rig))
    with pytest.raises(branch) as raised:
        rig.open(epoch=8)
    assert raised.value.code == code


def test_progress_keeps_hundreds_of_changes_with_their_weights() -> None:
    """Kafka limits a record to 1 MiB. Weights are stored once, and a start writes what is new alone."""
    rig = SlotRig("model", "t")
    rig.brokers = broker = ModelBroker(Random(1))
    large = f'"{"9" * 75_000}"'
    with patched():
        for number in range(200):
            weights = {f"hash{number // 10}": large, "common": "{}"}
            description = Description(f"document {number}".ljust(3000), weights)
            rig.start(number + 1, description)
        history = rig.start(201, description).definitions
    assert [int(one.description.document.split()[1]) for one in history] == list(range(200))
    assert history[57].description.weights == {"hash5": large, "common": "{}"}
    records = [entry.record for entry in broker.logs["_t.progress", 0] if entry.record is not None]
    keys = [record.key or b"" for record in records]
    assert sorted(key for key in keys if key.startswith(b"weights/")) == sorted(
        {f"weights/{name}".encode() for one in history for name in one.description.weights}
    )
    assert max(len(record.value or b"") for record in records) < 100_000


def test_description_over_the_limit_is_named() -> None:
    """With the key of the record, before anything is written."""
    rig = SlotRig("model", "t")
    rig.brokers = ModelBroker(Random(1))
    with patched(), pytest.raises(Fatal, match=r"MR-3106.*key=definition/0"):
        rig.start(1, Description("x" * (1 << 21)))


def test_records_out_of_order_end_a_slot(rig: SlotRig) -> None:
    """They would be taken for repeated ones, and be missing."""
    slot = _open(rig)
    outgoing = rig.outgoing(101, 150)
    with pytest.raises(Fatal, match="order of their seq"):
        slot.write(replace(outgoing, lines=outgoing.lines[::-1]))
    with pytest.raises(Retryable):  # an error releases a slot
        slot.commit(position(150))


FIRST = Description('{"a": 1}', {"h1": '{"literals": ["ä"]}', "h2": "{}"})
LATER = Description("ä", {"h2": "{}"})


def test_mark_survives_its_records() -> None:
    """Every field, with names that contain the separator of others. A former slot has no position."""
    mark = Mark(
        epoch=7,
        slots=3,
        position=Position(5, 9, "gtid", "id", {4: 2}),
        definitions=(Definition(0, FIRST), Definition(5, LATER)),
        tails={("a.b-c_d", 11): Tail("id", 5, 4, 3, 2), ("a", 0): Tail("", 0)},
    )
    records = [(key, value) for key, value in mark.records().items() if value is not None]
    assert Mark.of(records) == mark
    assert mark.records(mark) == {}
    later = replace(mark, tails={**mark.tails, ("a", 0): Tail("", 3, 1, 6, 0)})
    assert list(later.records(mark)) == [b"partition/a/0"]
    longer = replace(mark, definitions=(*mark.definitions, Definition(9, LATER)))
    assert list(longer.records(mark)) == [b"definition/2"]
    assert mark.position is not None
    later = replace(mark, position=replace(mark.position, seq=6))
    assert list(later.records(mark)) == [b"progress"]
    assert [key for key, value in Mark().records().items() if value is None] == [
        b"progress",
        b"schemas",
    ]
