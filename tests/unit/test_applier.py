"""A turn on the model target, step by step."""

import random
from dataclasses import dataclass, replace
from types import SimpleNamespace

import pytest

from millrace.consumer.records.numbers import Seqs
from millrace.consumer.records.pieces import Size
from millrace.consumer.records.row_schemas import RowSchemas
from millrace.consumer.tables.table_plans import Catalogue, TablePlans
from millrace.consumer.target.bitmap import from_bitmaps, to_bitmap
from millrace.consumer.target.progress import Owner
from millrace.consumer.turn import applier
from millrace.consumer.turn.applier import FLIGHTS_MAX, Applier
from millrace.consumer.turn.context import Limits, Position, Tools
from millrace.consumer.turn.order import Assignment, Rules, TurnOrder
from millrace.consumer.write.ddl import DdlPlace, Passed
from millrace.consumer.write.lanes import Done
from millrace.consumer.write.target_transaction import Writing
from millrace.errors import Retryable
from millrace.schemas.documents import Brokers, ConflictPolicy, Consistency, TopicAddress
from tests.kit.apply.history import History, inventory, schemas
from tests.kit.apply.local import ALL, InlineLanes, ListSource
from tests.kit.apply.model import ENDPOINT, ModelTarget, model_patched, sessions_on
from tests.kit.apply.topic import RecordStream

ROWS = 12
LIMITS = Limits(serial_rows=0, linger_s=0.0, turn_s=float(ALL))


@pytest.fixture
def target(monkeypatch: pytest.MonkeyPatch) -> ModelTarget:
    """A target without faults, and a history of rows with different keys."""
    history = History(RecordStream())
    _add_rows(history, range(ROWS))
    made = ModelTarget(history, random.Random(1), faults=0.0)
    model_patched(monkeypatch, made)
    return made


def _add_rows(history: History, numbers: range) -> None:
    words = schemas("bank")["words"]
    for number in numbers:
        row = (f"w{number}", number)
        history.tables.apply("words", None, row)
        history.stream.insert(words, {"word": row[0], "n": number})
        history.changes[history.stream.seq] = ("words", None, row)


@dataclass
class _Lanes(InlineLanes):
    """A wait runs only the part that was submitted last, or (``ends_at``) fails; otherwise no part ends."""

    ends_at: int = 1 << 30
    waits: int = 0
    most: int = 0

    def take(self, *, wait: bool) -> list[Done]:
        """One part if it waits."""
        if not wait:
            return []
        self.waits += 1
        if self.waits > self.ends_at:
            raise Retryable("MR-5001", "the connection broke")
        parts = [(flight, lane) for lane, given in self.waiting.items() for flight, _ in given]
        self.most = max(self.most, len({flight for flight, _ in parts}))
        _, lane = max(parts)
        flight, work = self.waiting[lane].pop(0)
        return [Done(flight, self.run(work))]


def _turn(
    target: ModelTarget,
    lanes: InlineLanes,
    *,
    window_rows: int,
    limits: Limits = LIMITS,
    consistency: Consistency = Consistency.CAUSAL,
) -> Applier:
    state, values = target.state, target.history.stream.values
    state.run += 1
    owner = Owner("task", 1, state.run)
    known = replace(inventory("bank"), flavour=target.flavour)
    assignment = Assignment(
        endpoint=ENDPOINT,
        source=TopicAddress(topic="local", brokers=Brokers("")),
        rules=Rules(policy=ConflictPolicy.STOP, lane_count=2, consistency=consistency),
    )
    source = ListSource(values, 0, window_rows)
    return Applier(
        TurnOrder(owner=owner, assignment=assignment),
        Tools(source, lanes, lambda number: pytest.fail(f"schema {number}"), limits),
        writing=Writing(sessions_on(target, owner), ConflictPolicy.STOP),
        begin=Position(state.mark, from_bitmaps(state.applied.values())),
        plans=TablePlans(Catalogue("", RowSchemas(dict(state.schemas)), known)),
    )


def _whole_turn(
    target: ModelTarget, lanes: InlineLanes, *, window_rows: int = 3, turn_s: float = LIMITS.turn_s
) -> Applier:
    limits = replace(LIMITS, window=Size(window_rows, 1 << 20), turn_s=turn_s)
    rule = Consistency.TRANSACTIONAL
    return _turn(target, lanes, window_rows=window_rows, limits=limits, consistency=rule)


def _seqs(target: ModelTarget) -> Seqs:
    return from_bitmaps(target.state.applied.values())


def test_bitmaps_of_earlier_turns_stay_until_the_mark_passes_them(target: ModelTarget) -> None:
    """Otherwise a turn that ends in between would apply their rows twice."""
    late = ROWS
    target.state.tables.apply(*target.history.changes[late])
    target.state.applied["task", 0, 1, 0, 0] = to_bitmap(from_bitmaps([(late, b"\1")]))
    with pytest.raises(Retryable):
        _turn(target, _Lanes(ends_at=6), window_rows=3).run()
    assert 0 < target.state.mark.seq < late
    assert late in _seqs(target), "bitmaps are lost"
    _turn(target, InlineLanes(), window_rows=3).run()
    assert target.state.tables == target.history.tables
    assert target.state.mark.seq == ROWS


def test_bitmaps_that_few_rows_pass_are_deleted(target: ModelTarget) -> None:
    """Windows of few rows use no lanes. Without this, each turn would read the bitmaps again."""
    late = ROWS - 1
    target.state.tables.apply(*target.history.changes[late])
    target.state.applied["task", 0, 1, 0, 0] = to_bitmap(from_bitmaps([(late, b"\1")]))
    turn = _turn(target, InlineLanes(), window_rows=3)
    turn.tools = replace(turn.tools, limits=replace(LIMITS, serial_rows=ROWS, part_rows=2))
    turn.run()
    assert target.state.tables == target.history.tables
    assert target.state.applied == {}


def test_mark_moves_only_over_ended_flights(target: ModelTarget) -> None:
    """Parts of later flights end first: their bitmaps stay above the mark, and at most some flights are under way."""
    lanes = _Lanes(ends_at=2)
    with pytest.raises(Retryable):
        _turn(target, lanes, window_rows=3).run()
    assert target.state.mark.seq == 0
    assert len(_seqs(target))
    assert 1 not in _seqs(target)
    again = _Lanes()
    outcome = _turn(target, again, window_rows=3).run()
    assert target.state.tables == target.history.tables
    assert outcome.mark == target.state.mark
    assert outcome.mark.seq == ROWS
    assert again.most == FLIGHTS_MAX
    assert target.state.applied == {}


def test_large_source_transaction_waits_for_all_lanes(target: ModelTarget) -> None:
    """Parts of smaller ones are under way when its end has come. It moves the mark itself, so it needs their move."""
    history = target.history
    history.stream.commit()
    _add_rows(history, range(ROWS, 3 * ROWS))
    history.stream.commit()
    lanes = _Lanes()
    outcome = _whole_turn(target, lanes, window_rows=ROWS + 2).run()
    assert target.state.tables == history.tables
    assert outcome.mark.seq == target.state.mark.seq == 3 * ROWS
    assert target.state.applied == {}


def test_turn_is_idle_before_a_source_transaction_without_its_end(target: ModelTarget) -> None:
    """Whether its rows fit into a window or not. Later the next turn applies all of them."""
    history = target.history
    for window_rows in (ROWS - 1, 2 * ROWS):
        turn = _whole_turn(target, InlineLanes(), window_rows=window_rows, turn_s=0.05)
        outcome = turn.run()
        assert outcome.is_idle
        assert outcome.mark.seq == 0
        assert target.state.done == frozenset()
    history.stream.commit()
    assert _whole_turn(target, InlineLanes()).run().mark.seq == ROWS
    assert target.state.tables == history.tables


@pytest.mark.parametrize("consistency", Consistency)
def test_turn_leaves_statements_that_it_has_read_to_the_next(
    target: ModelTarget, monkeypatch: pytest.MonkeyPatch, consistency: Consistency
) -> None:
    """Each takes a second. A stream that waits for the end of the turn would otherwise wait for all of them."""
    stream, now_s = target.history.stream, [0.0]
    stream.commit()
    for _ in range(10):
        stream.ddl("ALTER TABLE words FORCE")

    def slow(*_: object, place: DdlPlace, scope: object) -> Passed:
        now_s[0] += 1
        target.state.mark = place.after
        return Passed()

    monkeypatch.setattr(applier, "apply_ddl", slow)
    monkeypatch.setattr(applier, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    limits = replace(LIMITS, turn_s=4.0)
    begun = stream.seq - 10
    for end in (begun + 4, begun + 8, begun + 10):
        turn = _turn(target, InlineLanes(), window_rows=ALL, limits=limits, consistency=consistency)
        outcome = turn.run()
        assert outcome.mark.seq == end
        assert outcome.is_idle == (end == stream.seq)
    assert target.state.tables == target.history.tables
