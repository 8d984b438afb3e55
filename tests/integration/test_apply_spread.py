"""Spread turns on real targets, without Spark: shares one after the other, failures between them, second executions."""

import random
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from secrets import randbelow

import pytest

from millrace.consumer.target.progress import DATABASE
from millrace.consumer.turn.context import Tools
from millrace.consumer.turn.order import Outcome, Share, ShareEnd, ShareStop, TurnOrder
from millrace.consumer.write.lanes import Done
from millrace.deploy.servers import DatabaseServer
from millrace.errors import Fenced, Retryable
from tests.kit.apply.history import SQL, make_history
from tests.kit.apply.local import (
    InlineLanes,
    LocalApplier,
    LocalRecords,
    apply_task,
    backwards,
    ignore,
    run_once,
    seqs_above_the_mark,
    started,
)
from tests.kit.apply.tables import integer, table
from tests.kit.apply.topic import RecordStream

# a failing test shows its seed; add the seed to the test's list to replay it
DRAWN = [pytest.param(randbelow(1 << 32), marks=pytest.mark.chaos) for _ in range(10)]
ROWS = 300


def _started(server: DatabaseServer, name: str, *, lanes: int) -> LocalApplier:
    """A run whose every backlog is one for several executors."""
    made = started(server, apply_task(name, lanes=lanes))
    made.conductor.backlog_min = 1
    return made


@dataclass
class _DyingLanes(InlineLanes):
    """After some parts, the process dies."""

    left: int = 0

    def take(self, *, wait: bool) -> list[Done]:
        if wait and self.left <= 0:
            raise Retryable("MR-9002", "the process dies")
        self.left -= wait
        return super().take(wait=wait)


@dataclass
class _Cluster(LocalRecords):
    """Shares in any order, with small parts; each may die."""

    chance: random.Random = field(default_factory=random.Random)
    dies: float = 0.0

    def apply_shares(self, shares: Sequence[Share]) -> Sequence[ShareEnd]:
        """All shares are executed; then the error of one is raised."""
        ends: dict[int, ShareEnd] = {}
        for share in self.chance.sample(shares, len(shares)):
            with suppress(Retryable):
                ends[share.place] = self.apply_share(share)
        if len(ends) < len(shares):
            raise Retryable("MR-9002", "a share died")
        return [ends[place] for place in sorted(ends)]

    def tools(self, order: TurnOrder) -> Tools:
        """With small parts."""
        tools = super().tools(order)
        return replace(tools, limits=replace(tools.limits, part_rows=20))

    def lanes(self) -> InlineLanes:
        """Lanes that may die."""
        if self.chance.random() < self.dies:
            return _DyingLanes(self.lane_order, left=self.chance.randint(0, 2))
        return super().lanes()


@pytest.mark.parametrize("seed", [1, 2, *DRAWN])
def test_any_mix_of_solo_and_spread_turns_gives_equal_rows(
    name: str, target_server: DatabaseServer, seed: int
) -> None:
    """As in the model: micro-batches cut anywhere, one to five executors, shares that die, restarts between them."""
    for sql in SQL:
        target_server.execute(sql, db=name)
    history, chance = make_history(name, seed=seed, steps=250), random.Random(seed)
    values, at = history.stream.values, 0
    while at < len(values):
        applier = _started(target_server, name, lanes=chance.randint(1, 8))
        at = max(applier.mark.next_offset, 0)
        records = _Cluster(
            values[at : at + chance.choice([20, 120, 300])],
            at,
            window_rows=chance.choice([3, 30, 1000]),
            lane_order=lambda count: chance.sample(range(count), count),
            executors=chance.randint(1, 5),
            chance=chance,
            dies=0.2,
        )
        with suppress(Retryable):
            applier.process(records, ignore)
        at = max(applier.mark.next_offset, 0)
        applier.close()
    for which in ("accounts", "words", "bag", "p", "c"):
        rows = target_server.execute(f"SELECT * FROM {name}.{which}")
        assert sorted(map(tuple, rows), key=repr) == history.tables.sorted(which), which


def _rows_stream(name: str, *, creates: bool = True) -> RecordStream:
    """Rows that any repetition would change, and (``creates``) three statements before and between them."""
    stream = RecordStream()
    if creates:
        stream.ddl("CREATE TABLE bag (n INT)", database=name)
        stream.ddl("CREATE TABLE sums (id INT PRIMARY KEY, n INT)", database=name)
    bag = table(name, "bag", integer("n"), key=())
    sums = table(name, "sums", integer("id"), integer("n"))
    for number in range(ROWS):
        stream.insert(bag, {"n": number})
        if number < 20:
            stream.insert(sums, {"id": number, "n": 0})
        else:
            key, times = number % 20, number // 20
            stream.update(sums, {"id": key, "n": times - 1}, {"id": key, "n": times})
        if creates and number == ROWS // 2:
            stream.ddl("ALTER TABLE bag ADD COLUMN m INT", database=name)
    stream.commit()
    return stream


def _check(server: DatabaseServer, name: str) -> None:
    assert server.execute(f"SELECT COUNT(*), SUM(n) FROM {name}.bag") == [(ROWS, sum(range(ROWS)))]
    assert server.execute(f"SELECT n FROM {name}.sums") == [(ROWS // 20 - 1,)] * 20


@dataclass
class _Watched(_Cluster):
    """Keeps what was asked for."""

    solo: list[TurnOrder] = field(default_factory=list)
    shares: list[Share] = field(default_factory=list)

    def apply(self, order: TurnOrder) -> Outcome:
        """One turn."""
        self.solo.append(order)
        return super().apply(order)

    def apply_shares(self, shares: Sequence[Share]) -> Sequence[ShareEnd]:
        """One spread turn."""
        self.shares += shares
        return super().apply_shares(shares)


def test_backlog_with_a_statement_is_applied_by_all_executors(
    name: str, target_server: DatabaseServer
) -> None:
    """Statements are for a turn of one Spark task, which is short; all rows before and after come in shares."""
    stream = _rows_stream(name)
    applier = _started(target_server, name, lanes=4)
    records = _Watched(stream.values, window_rows=50, executors=2, lane_order=backwards)
    applier.process(records, ignore)
    applier.close()
    _check(target_server, name)
    assert applier.mark.seq == stream.seq
    assert {(share.place, share.count) for share in records.shares} == {(0, 2), (1, 2)}
    assert all(order.turn_s <= 4 for order in records.solo)
    counts = applier.figures.counts
    assert (counts.rows, counts.ddl) == (2 * ROWS, 3)
    assert not len(seqs_above_the_mark(target_server, name))


@pytest.mark.parametrize("when", ["during the turn", "after the mark moved"])
def test_second_execution_of_a_share_writes_nothing(
    name: str, target_server: DatabaseServer, when: str
) -> None:
    """The claim of the first is there, also when the turn is over and no other turn has taken the fence."""
    refused: list[str] = []

    class Twice(_Watched):
        def apply_shares(self, shares: Sequence[Share]) -> Sequence[ShareEnd]:
            """Each share once, then each again."""
            ends = super().apply_shares(shares)
            if when == "during the turn":
                self.again(shares)
            return ends

        def again(self, shares: Sequence[Share]) -> None:
            """Execute them again."""
            for share in shares:
                with pytest.raises(Fenced) as caught:
                    self.apply_share(share)
                refused.append(caught.value.code)

    stream = RecordStream()
    target_server.execute("CREATE TABLE bag (n INT)", db=name)
    for number in range(ROWS):
        stream.insert(table(name, "bag", integer("n"), key=()), {"n": number})
    stream.commit()
    applier = _started(target_server, name, lanes=4)
    records = Twice(stream.values, executors=2)
    applier.process(records, ignore)
    if when == "after the mark moved":
        target_server.execute(
            f"UPDATE {DATABASE}.progress SET seq = 0, next_offset = -2 WHERE task = %s", (name,)
        )
        records.again(records.shares)
    applier.close()
    assert refused == ["MR-5020"] * 2
    found = target_server.execute(f"SELECT COUNT(*), SUM(n) FROM {name}.bag")
    assert found == [(ROWS, sum(range(ROWS)))]


def test_share_of_a_turn_that_is_over_writes_nothing(
    name: str, target_server: DatabaseServer
) -> None:
    """A later run has taken the fence; the share did not begin before."""
    stream = _rows_stream(name)
    applier = _started(target_server, name, lanes=4)

    class Overtaken(_Cluster):
        def apply_shares(self, shares: Sequence[Share]) -> Sequence[ShareEnd]:
            """Another run applies everything."""
            run_once(target_server, apply_task(name), stream)
            return [self.apply_share(share) for share in shares]

    with pytest.raises(Fenced):
        applier.process(Overtaken(stream.values, executors=2), ignore)
    applier.close()
    _check(target_server, name)


def test_shares_that_know_other_tables_leave_the_turn_to_one(
    name: str, target_server: DatabaseServer
) -> None:
    """A unique key is added between the starts of two shares: the second applies nothing, and the mark stays."""
    target_server.execute("CREATE TABLE bag (n INT)", db=name)
    target_server.execute("CREATE TABLE sums (id INT PRIMARY KEY, n INT)", db=name)
    stream, ends = _rows_stream(name, creates=False), list[ShareEnd]()

    class Altered(_Watched):
        def apply_share(self, share: Share) -> ShareEnd:
            """Add the key before the last share of the first turn."""
            if len(ends) == 1:
                assert seqs_above_the_mark(target_server, name).size, "the first has applied rows"
                target_server.execute("ALTER TABLE sums ADD UNIQUE KEY other (id, n)", db=name)
            ends.append(super().apply_share(share))
            return ends[-1]

        def apply(self, order: TurnOrder) -> Outcome:
            """The turn after it."""
            ask = f"SELECT seq FROM {DATABASE}.progress WHERE task = %s"
            if not self.solo:
                assert target_server.execute(ask, (name,)) == [(0,)]
            return super().apply(order)

    applier = _started(target_server, name, lanes=4)
    records = Altered(stream.values, executors=2, window_rows=50)
    applier.process(records, ignore)
    applier.close()
    assert [end.stop is ShareStop.DISAGREED for end in ends[:2]] == [False, True]
    assert ends[0].steps
    assert records.solo
    _check(target_server, name)
