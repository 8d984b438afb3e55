"""A model of snapshots in a stream: whatever changes, whenever chunks are read, and wherever the owner dies."""

import random
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import cast

import numpy as np
import pytest
from numpy.typing import NDArray

from millrace.producer.snapshot.chunk_read import ReadChunk, ReadRequest, Refused
from millrace.producer.snapshot.encoder import EncodedRows
from millrace.producer.snapshot.insertion_plan import Answer, Course, Insertion, NamesRequest
from millrace.schemas.gtid import Flavour, GtidPosition, parse_gtid_set
from millrace.schemas.record.control import SnapshotStep
from millrace.schemas.snapshot import Name, SnapshotState, TablePlace, initial_state

TABLES: tuple[Name, ...] = (("d", "a"), ("d", "b"))
KEYS = 12
Rows = dict[int, int]  # value by key
Tables = dict[Name, Rows]
Change = tuple[Name, int | None, int | None, int]  # table, key before, key after, value


def position(count: int) -> GtidPosition:
    """After the first ``count`` source transactions."""
    return parse_gtid_set(Flavour.MARIADB, f"0-1-{count}" if count else "")


def count_of(found: GtidPosition) -> int:
    """The inverse."""
    return int(str(found).rpartition("-")[2] or 0) if str(found) else 0


@dataclass(frozen=True)
class ModelRows:
    """The part of ``EncodedRows`` that ``Course`` uses."""

    rows: tuple[tuple[int, int], ...]

    def without(self, keys: Collection[bytes]) -> NDArray[np.bool_]:
        """See ``EncodedRows.without``."""
        return np.array([str(key).encode() not in keys for key, _ in self.rows], np.bool_)


@dataclass(frozen=True)
class Transaction:
    """A source transaction: changes of rows, or a statement that may change rows without records."""

    changes: tuple[Change, ...] = ()
    altered: Name | None = None
    statement: str = ""  # empty, drop, convert


@dataclass
class Source:
    """The history of the source: its rows after each source transaction."""

    chance: random.Random
    log: list[Transaction] = field(default_factory=list)
    states: list[Tables] = field(default_factory=list)

    def __post_init__(self) -> None:
        rows = self.chance.sample(range(KEYS), 8)
        self.states.append({name: {key: key * 100 for key in rows} for name in TABLES})

    def commit(self) -> None:
        """One more source transaction."""
        after = {name: dict(rows) for name, rows in self.states[-1].items()}
        if self.chance.random() < 0.04:
            name = self.chance.choice(TABLES)
            statement = self.chance.choice(("empty", "drop", "convert"))
            if statement == "convert":
                after[name] = {key: value + 1 for key, value in after.get(name, {}).items()}
            elif statement == "empty":
                after[name] = {}
            else:
                after.pop(name, None)
            self.log.append(Transaction(altered=name, statement=statement))
        else:
            count = self.chance.randint(0, 3)
            changes = [self._change(after) for _ in range(count)]
            self.log.append(Transaction(tuple(change for change in changes if change)))
        self.states.append(after)

    def _change(self, tables: Tables) -> Change | None:
        if not tables:
            return None
        name = self.chance.choice(list(tables))
        rows, value = tables[name], self.chance.randrange(10**6)
        before = self.chance.choice([None, *rows]) if rows else None
        free = [key for key in range(KEYS) if key not in rows]
        after: int | None
        if before is None:
            if not free:
                return None
            after = self.chance.choice(free)
        else:
            after = self.chance.choice([before, None, *free[:2]])
        if before is not None:
            del rows[before]
        if after is not None:
            rows[after] = value
        return name, before, after, value


@dataclass
class ModelReads:
    """Reads the source at any moment that the request allows."""

    source: Source
    chance: random.Random
    asked: deque[NamesRequest | ReadRequest] = field(default_factory=deque)
    answers: deque[Answer] = field(default_factory=deque)
    reads: int = 0

    def ask_names(self, request: NamesRequest) -> None:
        """See ``Reads``."""
        self.asked.append(request)

    def ask(self, request: ReadRequest) -> None:
        """See ``Reads``."""
        self.asked.append(request)

    def take(self) -> Answer | None:
        """See ``Reads``."""
        return self.answers.popleft() if self.answers else None

    def work(self) -> None:
        """Answer the next request."""
        if not self.asked:
            return
        request = self.asked.popleft()
        now = len(self.source.log)
        if isinstance(request, NamesRequest):
            self.answers.append(
                Answer(request.run, names=dict.fromkeys(self.source.states[now], 5))
            )
            return
        seen = self.chance.randint(count_of(request.covered), now)
        until = position(self.chance.randint(seen, now))
        rows = self.source.states[seen].get(request.name)
        if self.chance.random() < 0.05:
            self.answers.append(Answer(request.run))
        elif rows is None:
            refused = Refused("gone", until, is_gone=True)
            self.answers.append(Answer(request.run, chunk=refused))
        else:
            self.answers.append(Answer(request.run, chunk=self._chunk(request, rows, until)))

    def _chunk(self, request: ReadRequest, rows: Rows, until: GtidPosition) -> ReadChunk:
        self.reads += 1
        limit = self.chance.randint(1, 4)
        after = int(request.after[0]) if request.after else -1
        found = sorted((key, value) for key, value in rows.items() if key > after)[:limit]
        border = (str(found[-1][0]),) if found else ()
        encoded = cast(EncodedRows, ModelRows(tuple(found)))
        return ReadChunk(encoded, border, until, len(found) < limit)


class NoWishes:
    """No operator wants anything."""

    def next(self) -> SnapshotState | None:
        """See ``Wishes``."""
        return None

    def may_run(self, id_: str) -> bool:
        """See ``Wishes``."""
        return bool(id_)

    def stops(self, id_: str) -> bool:
        """See ``Wishes``."""
        return not id_


@dataclass
class Subscriber:
    """Upserts rows of snapshots, applies changes, and checks the order of begin and end."""

    tables: Tables = field(default_factory=dict)
    is_open: Name | None = None
    complete: set[Name] = field(default_factory=set)

    def copy(self) -> "Subscriber":
        """The same, to return to after a kill."""
        tables = {name: dict(rows) for name, rows in self.tables.items()}
        return Subscriber(tables, self.is_open, set(self.complete))

    def change(self, transaction: Transaction) -> None:
        """Apply a source transaction. It can convert only rows of which it has all."""
        altered = transaction.altered
        if altered is not None and transaction.statement != "convert":
            self.tables[altered] = {}
        elif altered in self.complete and altered is not None:
            rows = self.tables[altered]
            self.tables[altered] = {key: value + 1 for key, value in rows.items()}
        for name, before, after, value in transaction.changes:
            rows = self.tables.setdefault(name, {})
            if before is not None:
                rows.pop(before, None)
            if after is not None:
                rows[after] = value

    def insert(self, found: Insertion) -> None:
        """Take what is inserted."""
        if found.begins:
            assert self.is_open is None
            assert found.table is not None
            self.is_open = found.table.name
        if found.rows is not None:
            assert found.table is not None
            assert found.kept is not None
            assert self.is_open == found.table.name
            rows = self.tables.setdefault(found.table.name, {})
            for (key, value), kept in zip(
                cast(ModelRows, found.rows).rows, found.kept, strict=True
            ):
                if kept:
                    rows[key] = value
        if found.end is not None:
            assert self.is_open is not None
            if found.end is SnapshotStep.END:
                self.complete.add(self.is_open)
            self.is_open = None


@dataclass
class Owner:
    """A capture task's stream: the course, the subscriber of its topic, and what is committed."""

    source: Source
    chance: random.Random
    reads: ModelReads = field(init=False)
    course: Course = field(init=False)
    subscriber: Subscriber = field(default_factory=Subscriber)
    at: int = 0
    state: SnapshotState | None = field(default_factory=lambda: initial_state(("*.*",)))
    committed: tuple[int, Subscriber, SnapshotState | None] = field(init=False)

    def __post_init__(self) -> None:
        self.committed = (0, Subscriber(), self.state)
        self._start()

    def _start(self) -> None:
        self.reads = ModelReads(self.source, self.chance)
        self.course = Course(self.state, self.reads, NoWishes())

    def kill(self) -> None:
        """The next owner begins with what is committed."""
        self.at, subscriber, self.state = self.committed
        self.subscriber = subscriber.copy()
        self._start()

    def commit(self) -> None:
        """A Kafka transaction with all that the stream has."""
        self.committed = (self.at, self.subscriber.copy(), self.state)

    def convert(self) -> None:
        """The next source transaction, and the boundary after it."""
        if self.at == len(self.source.log):
            self.look()
            return
        transaction = self.source.log[self.at]
        self.at += 1
        for name, before, after, _ in transaction.changes:
            if name in self.course.watched:
                keys = [str(key).encode() for key in (before, after) if key is not None]
                self.course.changed(name, keys)
        if transaction.altered is not None:
            self.course.discard((transaction.altered,))
        self.subscriber.change(transaction)
        if transaction.altered is not None or self.chance.random() < 0.7:
            self.look()
        self._check()

    def look(self) -> None:
        """A boundary."""
        here, is_near = position(self.at), self.at + 3 >= len(self.source.log)
        if not self.course.wants_boundary(here, is_near=is_near):
            return
        found = self.course.next_insertion(here, is_near=is_near)
        if found is not None:
            self.subscriber.insert(found)
            self.state = found.state
            self._check()

    def _check(self) -> None:
        """At each boundary, a table whose snapshot has ended has exactly the source's rows."""
        for name in self.subscriber.complete:
            rows = self.source.states[self.at].get(name, {})
            assert self.subscriber.tables.get(name, {}) == rows, (name, self.at)


@pytest.mark.parametrize("seed", range(300))
def test_subscriber_ends_with_the_sources_rows(seed: int) -> None:
    """Random changes of rows, keys and tables, reads at any allowed moment, and owners that die."""
    chance = random.Random(seed)
    source = Source(chance)
    owner = Owner(source, chance)
    for step in range(4000):
        if owner.state is None and step > 200:
            break
        is_busy = step < 400
        act = chance.random()
        if act < 0.25 and is_busy:
            source.commit()
        elif act < 0.6:
            owner.convert()
        elif act < 0.85:
            owner.reads.work()
        elif act < 0.95:
            owner.commit()
        elif act < 0.97 and is_busy:
            owner.kill()
    assert owner.state is None, owner.course.view
    while owner.at < len(source.log):
        owner.convert()
    assert {name: owner.subscriber.tables.get(name, {}) for name in TABLES} == {
        name: source.states[-1].get(name, {}) for name in TABLES
    }


def test_begun_table_that_is_gone_is_stopped() -> None:
    """Its rows end with a stop record, and the next table begins."""
    chance = random.Random(0)
    source = Source(chance)
    owner = Owner(source, chance)
    opened = TablePlace(("d", "a"), is_open=True, after=("3",), chunks=1, rows=2)
    owner.state = initial_state(("*.*",)).moved(opened)
    owner.subscriber.is_open = ("d", "a")
    del source.states[0]["d", "a"]
    owner.commit()
    owner.kill()
    for _ in range(100):
        owner.look()
        owner.reads.work()
    assert owner.course.state is None
    assert owner.subscriber.complete == {("d", "b")}
