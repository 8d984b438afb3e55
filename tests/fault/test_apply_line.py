"""The connection to the target breaks at every statement, before or after its execution: rows and DDL apply once.

The run that lost its connection does not know the outcome; the next one raises the fence and reads it.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import count, cycle
from typing import Any

import pytest

from millrace.consumer.write import row_writer
from millrace.deploy.servers import DatabaseServer
from millrace.drivers.mysql.connection import MySqlSession
from millrace.schemas.gtid import Flavour
from tests.kit.apply.faults import BadLine, Loss, Supervised
from tests.kit.apply.local import apply_task
from tests.kit.apply.tables import integer, table, text
from tests.kit.apply.topic import RecordStream

ROWS = 12

_names = count(1)


class _Counted:
    """Counts the calls of sessions by kind, and makes the proxy lose the N-th of a kind."""

    def __init__(self, line: BadLine, monkeypatch: pytest.MonkeyPatch) -> None:
        self.counts: Counter[str] = Counter()
        self.armed: tuple[str, int, Loss] | None = None
        self._line = line
        for kind in ("query", "run", "load", "commit"):
            method = getattr(MySqlSession, kind)
            monkeypatch.setattr(MySqlSession, kind, self._counting(kind, method))

    def _counting(self, kind: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def counted(session: MySqlSession, *arguments: object, **named: object) -> object:
            for name in (kind, "any"):
                self.counts[name] += 1
                if self.armed is not None and self.armed[:2] == (name, self.counts[name]):
                    self._line.lose(self.armed[2])
            return method(session, *arguments, **named)

        return counted

    def lose(self, kind: str, number: int, what: Loss) -> None:
        self.counts.clear()
        self.armed = (kind, number, what)


@pytest.fixture
def line(target_server: DatabaseServer) -> Iterator[BadLine]:
    """The connection to the target."""
    with BadLine(target_server) as made:
        yield made


@pytest.fixture
def counted(line: BadLine, monkeypatch: pytest.MonkeyPatch) -> _Counted:
    """The calls on that connection."""
    return _Counted(line, monkeypatch)


def _history(name: str) -> tuple[RecordStream, int]:
    """One micro-batch for one lane; a second one with rows for two lanes, DDL, and rows for one lane."""
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
    """Lose the calls ``numbers`` of a kind, one per run, with ``losses`` in turn."""
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
    """Every ``step``-th call; each flavour begins at another one, so that one test run covers more of them."""
    return slice(step // 2 if server.flavour is Flavour.MYSQL else step // 6, None, step)


def test_lost_commit_request_or_answer_loses_no_row(
    line: BadLine, counted: _Counted, target_server: DatabaseServer
) -> None:
    """Commits of fence, lanes, mark, DDL intent and DDL end: the next run reads the outcome and assumes nothing."""
    some = _some(target_server, step=3)
    _campaign(line, counted, target_server, kind="commit", numbers=some, losses=tuple(Loss))


@pytest.mark.chaos
@pytest.mark.parametrize("loss", Loss)
def test_any_lost_commit_request_or_answer_loses_no_row(
    line: BadLine, counted: _Counted, target_server: DatabaseServer, loss: Loss
) -> None:
    """As above, for every commit of a run."""
    _campaign(line, counted, target_server, kind="commit", numbers=slice(None), losses=[loss])


def test_connection_lost_in_a_statement_loses_no_row(
    line: BadLine, counted: _Counted, target_server: DatabaseServer
) -> None:
    """Whether the statement was executed or not, its target transaction is lost, and the next run repeats it."""
    some = _some(target_server, step=40)
    _campaign(line, counted, target_server, kind="any", numbers=some, losses=tuple(Loss))


def test_connection_lost_in_a_load_loses_no_row(
    line: BadLine,
    counted: _Counted,
    target_server: DatabaseServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Either the server does not get the LOAD DATA, or its request for the rows is lost."""
    monkeypatch.setattr(row_writer, "LOAD_ROWS_MIN", 1)
    _campaign(line, counted, target_server, kind="load", numbers=slice(None), losses=tuple(Loss))


@pytest.mark.chaos
@pytest.mark.parametrize("loss", Loss)
def test_connection_lost_in_any_statement_loses_no_row(
    line: BadLine, counted: _Counted, target_server: DatabaseServer, loss: Loss
) -> None:
    """As above, for every statement of a run."""
    _campaign(line, counted, target_server, kind="any", numbers=slice(None), losses=[loss])
