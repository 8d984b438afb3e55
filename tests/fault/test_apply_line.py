"""The line to the target breaks at every statement, before it is executed or behind: rows and DDL stand once.

The run that lost its connection knows nothing; the next one raises the fence and reads what the target says.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import count, cycle
from typing import Any

import pytest

from consumer.target.connection import TargetConnection
from deploy.servers import DatabaseServer
from schemas.gtid import Flavour
from tests.kit.apply.faults import BadLine, Loss, Supervised
from tests.kit.apply.local import apply_task
from tests.kit.apply.tables import integer, table, text
from tests.kit.apply.topic import RecordStream

ROWS = 12

_names = count(1)


class _Counted:
    """Counts what sessions do, and lets the line lose the N-th of a kind."""

    def __init__(self, line: BadLine, monkeypatch: pytest.MonkeyPatch) -> None:
        self.counts: Counter[str] = Counter()
        self.armed: tuple[str, int, Loss] | None = None
        self._line = line
        for kind in ("query", "run", "commit"):
            method = getattr(TargetConnection, kind)
            monkeypatch.setattr(TargetConnection, kind, self._counting(kind, method))

    def _counting(self, kind: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def counted(session: TargetConnection, *arguments: object) -> object:
            for name in (kind, "any"):
                self.counts[name] += 1
                if self.armed is not None and self.armed[:2] == (name, self.counts[name]):
                    self._line.lose(self.armed[2])
            return method(session, *arguments)

        return counted

    def lose(self, kind: str, number: int, what: Loss) -> None:
        self.counts.clear()
        self.armed = (kind, number, what)


@pytest.fixture
def line(target_server: DatabaseServer) -> Iterator[BadLine]:
    """The way to the target."""
    with BadLine(target_server) as made:
        yield made


@pytest.fixture
def counted(line: BadLine, monkeypatch: pytest.MonkeyPatch) -> _Counted:
    """Statements on it."""
    return _Counted(line, monkeypatch)


def _history(name: str) -> tuple[RecordStream, int]:
    """Rows for one lane, then, a second micro-batch, rows for two lanes, DDL, rows for one lane."""
    stream = RecordStream()
    bag, sums = (
        table(name, "bag", integer("n"), key=()),
        table(name, "sums", integer("id"), integer("n")),
    )
    for number in range(ROWS):
        stream.insert(bag, {"n": number})
        stream.insert(sums, {"id": number, "n": 0})
    stream.commit()
    cut = len(stream.values)
    for number in range(ROWS):
        stream.insert(bag, {"n": number})
        stream.update(sums, {"id": number, "n": 0}, {"id": number, "n": 1})
    stream.commit()
    stream.ddl("ALTER TABLE sums ADD note VARCHAR(20) DEFAULT 'x', ADD INDEX (n)", database=name)
    noted = table(name, "sums", integer("id"), integer("n"), text("note"))
    for number in range(ROWS):
        row = {"id": number, "n": 1, "note": "x"}
        stream.update(noted, row, row | {"n": 2, "note": "y"})
    stream.commit()
    return stream, cut


def _check(server: DatabaseServer, name: str) -> None:
    found = server.execute(f"SELECT COUNT(*), SUM(n) FROM {name}.bag")
    assert found == [(2 * ROWS, ROWS * (ROWS - 1))]
    found = server.execute(f"SELECT COUNT(*), SUM(n), MIN(note), MAX(note) FROM {name}.sums")
    assert found == [(ROWS, 2 * ROWS, "y", "y")]
    left = server.execute(
        "SELECT (SELECT COUNT(*) FROM millrace.ddl_intent WHERE task = %s),"
        " (SELECT COUNT(*) FROM millrace.applied WHERE task = %s)",
        (name, name),
    )
    assert left == [(0, 0)]
    indexes = server.execute(f"SHOW INDEX FROM {name}.sums WHERE Column_name = 'n'")
    assert len(indexes) == 1
    server.execute(f"DROP DATABASE {name}")


def _task(line: BadLine, server: DatabaseServer, name: str) -> Supervised:
    stream, cut = _history(name)
    for sql in (
        f"CREATE DATABASE {name}",
        f"CREATE TABLE {name}.bag (n INT)",
        f"CREATE TABLE {name}.sums (id INT PRIMARY KEY, n INT)",
    ):
        server.execute(sql)
    return Supervised(line.endpoint, apply_task(name, lanes=2), stream, (cut,))


def _campaign(
    line: BadLine,
    counted: _Counted,
    server: DatabaseServer,
    *,
    kind: str,
    numbers: slice,
    losses: Sequence[Loss],
) -> None:
    """Lose ``numbers`` of a kind one after the other, of each the next of ``losses`` in turn."""
    whole = _task(line, server, f"line{next(_names)}_{server.flavour}")
    counted.counts.clear()
    whole.run()
    assert whole.failures == []
    total = counted.counts[kind]
    _check(server, whole.task.name)
    chosen = range(1, total + 1)[numbers]
    for number, loss in zip(chosen, cycle(losses), strict=False):
        name = f"line{next(_names)}_{server.flavour}"
        supervised = _task(line, server, name)
        counted.lose(kind, number, loss)
        applier = supervised.run()
        counted.armed = None
        assert applier.mark.seq == supervised.stream.seq, (number, loss)
        assert set(supervised.codes) <= {"MR-5001"}, (number, loss, supervised.codes)
        _check(server, name)
    assert len(line.lost) == len(chosen)
    assert set(line.lost) == set(losses)


def _some(server: DatabaseServer, *, step: int) -> slice:
    """One in ``step``; each flavour begins at another, so that one run of the tests tries more of them."""
    return slice(step // 2 if server.flavour is Flavour.MYSQL else step // 6, None, step)


def test_lost_commit_request_or_answer_loses_no_row(
    line: BadLine, counted: _Counted, target_server: DatabaseServer
) -> None:
    """Commits of a run, fence, lanes, mark, intent and end of DDL: what it did is read, never assumed."""
    some = _some(target_server, step=3)
    _campaign(line, counted, target_server, kind="commit", numbers=some, losses=tuple(Loss))


@pytest.mark.chaos
@pytest.mark.parametrize("loss", Loss)
def test_any_lost_commit_request_or_answer_loses_no_row(
    line: BadLine, counted: _Counted, target_server: DatabaseServer, loss: Loss
) -> None:
    """As above: every commit of a run, and of each both."""
    _campaign(line, counted, target_server, kind="commit", numbers=slice(None), losses=[loss])


def test_connection_lost_in_a_statement_loses_no_row(
    line: BadLine, counted: _Counted, target_server: DatabaseServer
) -> None:
    """Statements of a run: executed or not, its target transaction is gone, and the next run does it anew."""
    some = _some(target_server, step=40)
    _campaign(line, counted, target_server, kind="any", numbers=some, losses=tuple(Loss))


@pytest.mark.chaos
@pytest.mark.parametrize("loss", Loss)
def test_connection_lost_in_any_statement_loses_no_row(
    line: BadLine, counted: _Counted, target_server: DatabaseServer, loss: Loss
) -> None:
    """As above: every statement of a run, and of each both."""
    _campaign(line, counted, target_server, kind="any", numbers=slice(None), losses=[loss])
