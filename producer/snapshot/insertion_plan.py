"""Decides which chunk is inserted where: the course of a snapshot in the stream of its task. No I/O.

The stream is all that the converter writes, in order, published or not. A chunk passes these points of it:

    P0 ─────────── the read ─────────── P1                stream ──►
    a boundary     sees at least P0,    the first boundary at which the stream has ``until``
                   at most ``until``

At P1 the rows are inserted, except those whose key a record between P0 and P1 has (before or after image). Why that is
exact, for a row with key K that the read returned:

    no record between P0 and P1 has K    every source transaction that the read may have seen beyond P0 is before P1,
                                         and none of them changed the row. So it is the row at P0, and at P1.
    one has                              the row's state at P1, or its deletion, is in the stream already.

A row that was deleted, or moved to another key, before P0 is not returned; one that was inserted later has a record. So
a subscriber that upserts rows and applies changes has, at P1, the source's rows of the chunk's range.

A statement between P0 and P1 that may change the table discards what is read of it. If rows of the table are published
already, a ``stop`` record ends them, and the table begins again: the statement may have changed its key, or its rows.

Two chunks at most are under way: one waits for its P1 while the next one is read. Nothing of it holds back a change.
"""

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from millrace.producer.snapshot.chunk_read import ReadChunk, ReadRequest, Refused
from millrace.producer.snapshot.encoder import EncodedRows, ReadPlace
from millrace.schemas.gtid import GtidPosition, any_gtid_of
from millrace.schemas.record.control import SnapshotStep
from millrace.schemas.snapshot import Name, SnapshotState, TablePlace, remaining

UNDER_WAY_MAX = 2
# The keys that are kept for a chunk take about 100 bytes each.
KEYS_MAX = 500_000


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a request of ``run``: of the names, each with about the rows of its table, or of a chunk."""

    run: int
    names: Mapping[Name, int] | None = None
    chunk: ReadChunk | Refused | None = None


@dataclass(frozen=True, slots=True)
class NamesRequest:
    """The tables that the task publishes, of which the patterns match some."""

    run: int
    patterns: tuple[str, ...]


class Reads(Protocol):
    """Reads in another thread (``reader``). It answers in the order of the requests."""

    def ask_names(self, request: NamesRequest) -> None:
        """Ask for the tables."""

    def ask(self, request: ReadRequest) -> None: ...

    def take(self) -> Answer | None: ...


class Wishes(Protocol):
    def next(self) -> SnapshotState | None: ...

    def may_run(self, id_: str) -> bool:
        """Whether the request is removed, so that no later owner begins it again."""

    def stops(self, id_: str) -> bool: ...


@dataclass(slots=True)
class _UnderWay:
    """A chunk between its P0 and its P1. ``changed``: the keys that the stream has changed since P0."""

    name: Name
    after: tuple[str, ...]
    number: int
    changed: set[bytes] = field(default_factory=set)
    result: ReadChunk | Refused | None = None


@dataclass(frozen=True, slots=True)
class Insertion:
    """The records that are inserted at a boundary, in this order, and the state after them.

    ``table``: that of the records, with its rows published before. ``kept``: which of ``rows`` are inserted, as a
    mask. ``end``: END or STOP, a record after them.
    """

    state: SnapshotState | None
    id: str = ""
    where: str = ""
    table: TablePlace | None = None
    begins: bool = False
    rows: EncodedRows | None = None
    kept: NDArray[np.bool_] | None = None
    end: SnapshotStep | None = None
    is_stopped: bool = False  # an operator ends the snapshot

    @property
    def kept_count(self) -> int:
        """The rows that are inserted."""
        return int(self.kept.sum()) if self.kept is not None else 0


@dataclass(frozen=True, slots=True)
class CourseView:
    """For the status. ``tables``: how many there are, and how many are done; None before they are listed.

    ``left``: about how many rows are to be published yet; None if that is not known.
    """

    state: SnapshotState | None = None
    tables: tuple[int, int] | None = None
    left: int | None = None
    why: str = ""
    left_out: tuple[str, ...] = ()


class Course:
    """The course of a snapshot. Used by the converter's thread; ``view`` by any."""

    def __init__(self, state: SnapshotState | None, reads: Reads, wishes: Wishes) -> None:
        self.state = state
        self.view = CourseView(state)
        self._reads = reads
        self._wishes = wishes
        self._run = 0
        self._names: list[Name] | None = None
        self._expected: Mapping[Name, int] = {}
        self._is_asked = False
        self._under_way: deque[_UnderWay] = deque()
        self._must_discard = False  # a statement may have changed a table that is being read
        self._begins_again = False  # it is the one of which rows are published
        self._left_out: dict[Name, str] = {}
        self._listed = 0
        self._is_behind = False

    @property
    def is_active(self) -> bool:
        """Whether there is anything to do."""
        return self.state is not None or self._wishes.next() is not None

    @property
    def watched(self) -> Collection[Name]:
        return {chunk.name for chunk in self._under_way}

    def changed(self, name: Name, keys: Iterable[bytes]) -> None:
        """Records that follow in the stream have these keys of a table."""
        known = list(keys)
        for chunk in self._under_way:
            if chunk.name == name:
                chunk.changed.update(known)
                self._is_behind |= len(chunk.changed) > KEYS_MAX

    def discard(self, tables: Collection[Name] | None) -> None:
        """Discard what is read of these tables: a statement in the stream changes them. None: perhaps any."""
        if self.state is None or self.state.at is None:
            return
        folded = None if tables is None else {_folded(name) for name in tables}

        def is_hit(name: Name) -> bool:
            return folded is None or _folded(name) in folded

        self._begins_again |= is_hit(self.state.at.name)
        self._must_discard |= self._begins_again or any(map(is_hit, self.watched))

    def wants_boundary(self, position: GtidPosition, *, is_near: bool) -> bool:
        """Whether ``next_insertion`` has something to do at the next boundary between source transactions."""
        if self.state is None:
            return self._wishes.next() is not None
        self._take_answers()
        if self._must_discard or self._wishes.stops(self.state.id):
            return True
        if not self._wishes.may_run(self.state.id):
            return False
        if self._names is None:
            return not self._is_asked
        if self.state.at is None or self.state.at.name not in self._names:
            return True
        front = self._under_way[0].result if self._under_way else None
        if isinstance(front, ReadChunk) and position.includes(front.until):
            return True
        return isinstance(front, Refused) or (is_near and self._next_chunk() is not None)

    def next_insertion(self, position: GtidPosition, *, is_near: bool) -> Insertion | None:
        """At a boundary with this position: what to insert. ``is_near``: the stream is near the source's end."""
        if self.state is None:
            wanted = self._wishes.next()
            if wanted is None or self._wishes.stops(wanted.id):
                return None
            self._left_out.clear()
            self._listed, self.view = 0, CourseView(wanted)
            return self._moved(Insertion(wanted))
        state = self.state
        if self._wishes.stops(state.id):
            return self._stopped(state)
        if self._must_discard:
            begins_again = self._begins_again and state.at is not None and state.at.is_open
            self._must_discard = self._begins_again = False
            self._forget()
            if begins_again and state.at is not None:
                begun_again = state.moved(TablePlace(state.at.name))
                return self._moved(self._end_of(state, SnapshotStep.STOP, begun_again))
        if self._is_behind:  # wait until the stream is near again
            self._forget()
            self._is_behind = False
            return None
        self._take_answers()
        if not self._wishes.may_run(state.id):
            return None
        if self._names is None:
            self._ask_names(state)
            return None
        found = self._arrived(position)
        if found is None and is_near:
            self._ask_next(position)
        self._show("reads" if is_near else "waits until all changes are converted")
        return found

    # ---- what has arrived ------------------------------------------------------------------------------

    def _arrived(self, position: GtidPosition) -> Insertion | None:
        assert self.state is not None
        assert self._names is not None
        state = self.state
        if state.at is None or (not self._under_way and state.at.name not in self._names):
            return self._on_to_next(state)
        if not self._under_way:
            return None
        front = self._under_way[0]
        if isinstance(front.result, Refused):
            if not front.result.is_gone:
                self._left_out[front.name] = front.result.why
            self._names.remove(front.name)
            self._forget_chunks()
            return self._on_to_next(state)
        if front.result is None or not position.includes(front.result.until):
            return None
        self._under_way.popleft()
        return self._chunk(state, front, front.result)

    def _chunk(self, state: SnapshotState, chunk: _UnderWay, read: ReadChunk) -> Insertion:
        at = state.at
        assert at is not None
        assert at.name == chunk.name
        kept = read.rows.without(chunk.changed)
        moved = at.begun().advanced(read.border or at.after, int(kept.sum()))
        following: SnapshotState | None = state.moved(moved)
        if read.is_last:
            after = self._after(at.name)
            following = state.moved(TablePlace(after)) if after is not None else None
        return self._moved(
            Insertion(
                following,
                state.id,
                state.where,
                at,
                not at.is_open,
                read.rows,
                kept,
                SnapshotStep.END if read.is_last else None,
            )
        )

    def _on_to_next(self, state: SnapshotState) -> Insertion | None:
        """The table under way can't be read, or none is yet."""
        assert self._names is not None
        names = remaining(self._names, state)
        following = state.moved(TablePlace(names[0])) if names else None
        if state.at is not None and state.at.is_open:
            return self._moved(self._end_of(state, SnapshotStep.STOP, following))
        if following is None:
            return self._moved(Insertion(None))
        self.state = following  # published with the next chunk
        return None

    def _stopped(self, state: SnapshotState) -> Insertion:
        self._forget()
        if state.at is not None and state.at.is_open:
            return self._moved(
                replace(self._end_of(state, SnapshotStep.STOP, None), is_stopped=True)
            )
        return self._moved(Insertion(None, is_stopped=True))

    def _end_of(
        self, state: SnapshotState, end: SnapshotStep, following: SnapshotState | None
    ) -> Insertion:
        return Insertion(following, state.id, state.where, state.at, end=end)

    def _moved(self, insertion: Insertion) -> Insertion:
        self.state = insertion.state
        if insertion.state is None:
            self._forget()
        self._show("reads" if insertion.state is not None else "")
        return insertion

    # ---- what is asked ---------------------------------------------------------------------------------

    def _take_answers(self) -> None:
        while (answer := self._reads.take()) is not None:
            if answer.run != self._run:
                continue
            if answer.names is not None:
                assert self.state is not None
                self._names = remaining(answer.names, self.state)
                self._expected = answer.names
            elif answer.chunk is None:  # the table changed meanwhile, or its rows are too large
                self._forget_chunks()
            else:
                waiting = next(chunk for chunk in self._under_way if chunk.result is None)
                waiting.result = answer.chunk

    def _ask_names(self, state: SnapshotState) -> None:
        if not self._is_asked:
            self._is_asked = True
            self._reads.ask_names(NamesRequest(self._run, state.tables))
        self._show("lists the tables")

    def _ask_next(self, position: GtidPosition) -> None:
        following = self._next_chunk()
        if following is None:
            return
        assert self.state is not None
        self._under_way.append(following)
        place = ReadPlace(self.state.id, following.number, any_gtid_of(position), 0)
        name, after, where = following.name, following.after, self.state.where
        self._reads.ask(ReadRequest(self._run, name, after, where, position, place))

    def _next_chunk(self) -> _UnderWay | None:
        """The chunk to ask for now."""
        if self.state is None or self.state.at is None or len(self._under_way) >= UNDER_WAY_MAX:
            return None
        return self._following(self.state.at)

    def _following(self, at: TablePlace) -> _UnderWay | None:
        """The chunk after the last one under way; None if that is not read yet, or if none follows."""
        if not self._under_way:
            return _UnderWay(at.name, at.after, at.chunks)
        last = self._under_way[-1]
        if not isinstance(last.result, ReadChunk):
            return None
        if not last.result.is_last:
            return _UnderWay(last.name, last.result.border, last.number + 1)
        after = self._after(last.name)
        return _UnderWay(after, (), 0) if after is not None else None

    def _after(self, name: Name) -> Name | None:
        assert self._names is not None
        place = self._names.index(name) + 1
        return self._names[place] if place < len(self._names) else None

    def _forget(self) -> None:
        self._forget_chunks()
        self._names = None

    def _forget_chunks(self) -> None:
        """Answers to earlier requests are not used any more."""
        self._run += 1
        self._is_asked = False
        self._under_way.clear()

    def _count(self) -> None:
        """Count the tables for the view."""
        at = self.state.at if self.state is not None else None
        if self._names is None or at is None or at.name not in self._names:
            return
        left = self._names[self._names.index(at.name) :]
        self._listed = max(self._listed, len(left))
        tables = (self._listed, self._listed - len(left))
        rows = max(self._expected[at.name] - at.rows, 0) + sum(
            self._expected[name] for name in left[1:]
        )
        is_known = self.state is not None and not self.state.where
        self.view = replace(self.view, tables=tables, left=rows if is_known else None)

    def _show(self, why: str) -> None:
        left_out = self.view.left_out
        if len(left_out) != len(self._left_out):
            left_out = tuple(f"{'.'.join(name)}: {what}" for name, what in self._left_out.items())
        if (self.state, why, left_out) != (self.view.state, self.view.why, self.view.left_out):
            self.view = replace(self.view, state=self.state, why=why, left_out=left_out)
            self._count()


def _folded(name: Name) -> Name:
    return name[0].lower(), name[1].lower()
