"""A target server dies at every fault point of apply: the next run finds out what the server kept."""

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import pytest

from millrace import faults
from millrace.consumer.write.target_transaction import AFTER_LANE_COMMIT, AFTER_MARK
from millrace.deploy.servers import DatabaseServer
from millrace.drivers.mysql.connection import MySqlSession
from millrace.errors import Retryable
from millrace.schemas.gtid import Flavour
from tests.fixtures.servers import FLAVOURS, SERVICE, TARGET_PRIVILEGES
from tests.kit.apply.fault_tables import CANARY, ROWS, assert_refused, check_rows, create_tables
from tests.kit.apply.faults import Supervised
from tests.kit.apply.local import apply_task, endpoint_of
from tests.kit.apply.tables import integer, table, text
from tests.kit.apply.topic import RecordStream
from tests.kit.faults.campaign import POINTS

# not passed by a causal run with a current procedure; the campaign provokes and kills them
ELSEWHERE = ("apply.procedure_dropped", "apply.inside_large_transaction")
APPLY_POINTS = [p for p in POINTS if p.startswith("apply.") and p not in ELSEWHERE]

Mortal = Callable[[Flavour], DatabaseServer]
STATEMENTS = ("ALTER TABLE bag ADD INDEX (n)", "ALTER TABLE b ADD INDEX (n), COMMENT 'twice'")
_STATEMENT_BYTES = {sql.encode() for sql in STATEMENTS}
_names = count(1)

ENDS = ("kill", "stop")  # kill -9, and a clean stop
EVERY = tuple(itertools.product(APPLY_POINTS, ENDS, FLAVOURS))
SOON = tuple(  # kill -9 at each point once, MySQL at every fourth: it starts for longer; all others are chaos
    (point, "kill", FLAVOURS[-1 if place % 4 == 1 else 0])
    for place, point in enumerate(APPLY_POINTS)
)


@pytest.fixture(scope="module")
def mortal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mortal]:
    """A server of each flavour that tests may end; it runs when a test begins."""
    made: dict[Flavour, DatabaseServer] = {}

    def running(flavour: Flavour) -> DatabaseServer:
        if flavour not in made:
            folder = tmp_path_factory.mktemp("mortal") / flavour
            made[flavour] = DatabaseServer.of(flavour, folder)
            made[flavour].start()
            made[flavour].create_account(SERVICE, TARGET_PRIVILEGES)
        if not made[flavour].is_alive():  # after a failed test
            made[flavour].start()
        return made[flavour]

    yield running
    for server in made.values():
        server.discard()


@dataclass
class _Passages:
    """Counts passed fault points and executed statements; calls ``act`` at passage ``number`` of ``point``."""

    point: str = ""
    number: int = 0
    act: Callable[[], object] = bool
    passed: Counter[str] = field(default_factory=Counter)
    executed: Counter[str] = field(default_factory=Counter)

    def __call__(self, point: str) -> None:
        self.passed[point] += 1
        if (point, self.passed[point]) == (self.point, self.number):
            self.act()

    @contextmanager
    def seen(self) -> Iterator[None]:
        """Count in the block."""
        query = MySqlSession.query

        def counting(session: MySqlSession, sql: str | bytes, *given: Any) -> Any:
            found = query(session, sql, *given)
            if sql in _STATEMENT_BYTES:
                self.executed[sql.decode()] += 1
            return found

        with pytest.MonkeyPatch.context() as patch, faults.watched(self):
            patch.setattr(MySqlSession, "query", counting)
            yield


def _long_task(server: DatabaseServer) -> Supervised:
    """The rows of ``row_stream`` in four micro-batches for two lanes; two of them end with a statement."""
    name = f"mortal{next(_names)}"
    create_tables(server, name)
    stream, cuts = RecordStream(), []
    tables = [table(name, which, integer("id"), integer("n"), text("note")) for which in "ab"]
    bag = table(name, "bag", integer("n"), key=())
    for made in (*tables, bag):
        stream.introduce(made)
    stream.commit()
    for part in range(4):
        cuts.append(len(stream.values))
        for number in range(part, ROWS, 4):
            row = {"id": number, "n": 0, "note": CANARY}
            for made in tables:
                stream.insert(made, row)
                stream.update(made, row, row | {"n": 1})
                stream.insert(bag, {"n": number})
        stream.commit()
        if part in (1, 2):
            stream.ddl(STATEMENTS[part - 1], database=name)
    endpoint = endpoint_of(server)
    return Supervised(endpoint, apply_task(name, lanes=2), stream, cuts)


def _kill_and_check(server: DatabaseServer, point: str, end: str, number: int) -> None:
    """The server dies at passage ``number`` of ``point`` and is down for one run."""
    task = _long_task(server)
    death = _Passages(point, number, getattr(server, end))
    with death.seen():
        try:
            applier = task.run_once()
        except Retryable as failure:
            task.failures.append(failure)
        else:  # after the last mark nothing is left to do
            assert point in (AFTER_MARK, AFTER_LANE_COMMIT)
            assert applier.mark.seq == task.stream.seq
        assert not server.is_alive(), f"{point} is passed fewer than {number} times"
        assert set(task.codes) <= {"MR-5001"}, task.failures
        assert_refused(task, Retryable, "MR-5001")
        server.start()
        task.run()
    name = task.task.name
    assert len(task.failures) <= 1, task.failures
    check_rows(server, name)
    assert death.executed == dict.fromkeys(STATEMENTS, 1)
    for which in ("bag", "b"):  # a second execution would add a second index
        found = server.execute(f"SHOW INDEX FROM {which} WHERE Column_name = 'n'", db=name)
        assert len(found) == 1
    left = "(SELECT task FROM millrace.ddl_intent) UNION ALL (SELECT task FROM millrace.applied)"
    assert server.execute(left) == []
    server.execute(f"DROP DATABASE {name}")


def _passages(server: DatabaseServer, point: str) -> int:
    """How often a run without a fault passes ``point``."""
    task, whole = _long_task(server), _Passages()
    with whole.seen():
        task.run()
    server.execute(f"DROP DATABASE {task.task.name}")
    assert whole.passed[point], f"{point} is registered but never passed here"
    return whole.passed[point]


@pytest.mark.parametrize(("point", "end", "flavour"), SOON)
def test_target_dying_at_a_fault_point_loses_no_row(
    mortal: Mortal, point: str, end: str, flavour: Flavour
) -> None:
    """At points of lanes, mark and DDL: the run reports MR-5001, the next one reads what the server kept."""
    server = mortal(flavour)
    # the last but one pass: one of two lanes that wait for the mark has committed
    _kill_and_check(server, point, end, max(_passages(server, point) - 1, 1))


@pytest.mark.chaos
@pytest.mark.parametrize(("point", "end", "flavour"), EVERY)
def test_target_dying_at_any_fault_point_pass_loses_no_row(
    mortal: Mortal, point: str, end: str, flavour: Flavour
) -> None:
    """As above, at each pass of a run in turn."""
    server = mortal(flavour)
    for number in range(1, _passages(server, point) + 1):
        _kill_and_check(server, point, end, number)
