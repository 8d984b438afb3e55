"""A job of copies: its stop, errors of a table that was changed meanwhile, and the job of the next run."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self, cast

import pytest

from millrace.consumer.copy import TablePair
from millrace.consumer.load import copies
from millrace.consumer.load.copies import Group, Job
from millrace.consumer.load.copy_order import CopyOrder, CopyTable, Sites
from millrace.consumer.load.plan import Ends
from millrace.consumer.load.remaining import groups_left
from millrace.consumer.load.tables import Admission, SourceTable
from millrace.consumer.target import loads
from millrace.consumer.target.loads import Amount, LoadChunk, LoadTable, Reach
from millrace.consumer.target.progress import Owner
from millrace.drivers.mysql.catalog import CatalogTable, TableKey
from millrace.drivers.mysql.chunks.chunk import Border, Chunk
from millrace.drivers.mysql.connection import Endpoint
from millrace.errors import Fatal, Retryable
from millrace.schemas.documents import LoadRules
from tests.kit.waiting import PATIENCE_S, eventually

NOWHERE = Endpoint("nowhere", 0, "", "")
SITES = Sites(Owner("task", 1, 1), NOWHERE, NOWHERE)


def _group(name: str) -> Group:
    """A table that is read in one snapshot, so its finder asks no server."""
    table = CatalogTable("shop", name, {}, ())
    source = SourceTable(("shop", name), table, why_snapshot="no key")
    pair = TablePair(table, table, (), None, 0)
    return Group((source,), (CopyTable(("shop", name), pair, 9, ""),))


@dataclass
class _DeafCopier:
    """A copy that begins just after a stop: it ends with the next one."""

    stops: int = 0
    began: threading.Event = field(default_factory=threading.Event)
    heard: threading.Event = field(default_factory=threading.Event)

    def call(self, _: CopyOrder) -> Amount | None:
        self.began.set()
        assert self.heard.wait(PATIENCE_S)
        raise Retryable("MR-5050", "stopped")

    def stop(self) -> None:
        self.stops += 1
        if self.stops > 1:
            self.heard.set()


def _never(_: Sequence[TableKey]) -> bool:
    return False


def test_stop_ends_a_copy_that_begins_beside_it() -> None:
    """Otherwise a pause would wait for the whole copy of a table. Its error is not one of the load."""
    copier = _DeafCopier()
    job = Job(copier, SITES, [_group("t")], begin="", parallel=1, waits=_never)
    job.start()
    job.resume()
    assert copier.began.wait(PATIENCE_S)
    job.end()
    assert copier.stops >= 2
    assert not job.is_complete


@dataclass
class _FailingCopier:
    """The copies of one table fail."""

    failing: str
    error: Fatal | Retryable
    copied: list[str] = field(default_factory=list)

    def call(self, order: CopyOrder) -> Amount | None:
        name = order.tables[0].key[1]
        if name == self.failing:
            raise self.error
        self.copied.append(name)
        return None  # waits, too: nothing is stored for it

    def stop(self) -> None:
        return


@pytest.mark.parametrize("is_changed", [True, False])
@pytest.mark.parametrize("error", [Fatal("MR-5013", "no v"), Retryable("MR-5005", "a lock")])
def test_only_an_error_of_a_changed_table_ends_no_copies(
    error: Fatal | Retryable, *, is_changed: bool
) -> None:
    """The job asks whether the table waits now; any other error ends it."""
    asked: list[TableKey] = []

    def waits(keys: Sequence[TableKey]) -> bool:
        asked.extend(keys)
        return is_changed

    copier = _FailingCopier("b", error)
    groups = [_group(name) for name in ("a", "b", "c")]
    job = Job(copier, SITES, groups, begin="", parallel=1, waits=waits)
    job.start()
    job.resume()
    eventually(lambda: job.is_over, what="the job is over")
    if is_changed:
        job.end()
        assert copier.copied == ["a", "c"]
    else:
        with pytest.raises(type(error)) as caught:
            job.end()
        assert caught.value is error
        assert copier.copied == ["a"]
    assert asked == [("shop", "b")]


class _Session:
    """A server that is not asked."""

    is_open = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def query(self, _: str) -> None: ...

    def rollback(self) -> None: ...

    def close(self) -> None: ...


@dataclass
class _CountingCopier:
    """Each chunk has a row."""

    copied: list[int] = field(default_factory=list)

    def call(self, order: CopyOrder) -> Amount | None:
        assert order.chunk is not None
        self.copied.append(order.chunk.number)
        return Amount(1, 1)

    def stop(self) -> None:
        return


def test_next_run_copies_only_the_chunks_that_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that were found and not copied, and the rest of the table; then the table is finished."""
    borders = [Border((str(number),)) for number in range(3)]
    found = [Chunk(0, None, borders[0]), *(Chunk(n, borders[n - 1], borders[n]) for n in (1, 2))]
    stored = [LoadChunk(chunk, is_copied=chunk.number == 1) for chunk in found]
    begins: list[Chunk | None] = []
    saved: list[int] = []
    finished: list[TableKey] = []

    def rest(*_: object, begin: Chunk | None, **__: object) -> list[Chunk]:
        begins.append(begin)
        return [Chunk(3, borders[2])]

    monkeypatch.setattr(SourceTable, "chunk_key", property(lambda _: "a key"))
    monkeypatch.setattr(copies, "connect", lambda _: _Session())
    monkeypatch.setattr(copies, "read_chunks", lambda *_: stored)
    monkeypatch.setattr(copies, "chunks", rest)
    monkeypatch.setattr(copies, "save_found", lambda *given: saved.append(given[-1][0].number))
    monkeypatch.setattr(copies, "finish_tables", lambda *given: finished.extend(given[-1]))
    copier = _CountingCopier()
    job = Job(copier, SITES, [_group("t")], begin="", parallel=1, waits=_never)
    job.start()
    job.resume()
    eventually(lambda: job.is_over, what="the job is over")
    job.end()
    assert job.is_complete
    assert copier.copied == [0, 2, 3]
    assert (begins, saved, finished) == ([found[-1]], [3], [("shop", "t")])


def test_next_run_leaves_copied_tables_alone() -> None:
    """Nothing is asked of the servers if no table is left."""
    names = (loads.COPIED, loads.FOLLOWS, loads.WAITS)
    tables = [LoadTable(("shop", name), name, Reach("", ""), "", "") for name in names]

    class Stored:
        def stored(self) -> dict[TableKey, LoadTable]:
            return {table.key: table for table in tables}

    ends = cast(Ends, Stored())
    assert groups_left(ends, cast(Admission, None), LoadRules(), loads.FIRST) == []
