"""The target's primary dies around DDL of every kind and a replica takes over: each statement runs once, or blocks.

The promoted replica has the intent with the state of the old primary, whose InnoDB ids are others. It has executed the
statement (the primary died after it) or not (before it, or before it sent the statement).
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from millrace.consumer.target.intents import decide_intent
from millrace.consumer.write import ddl
from millrace.deploy.servers import DatabaseServer, ServerOptions, sql, start_set
from millrace.drivers.mysql.connection import MySqlSession, connect
from millrace.errors import Fatal
from millrace.schemas.gtid import Flavour
from tests.fixtures.servers import FLAVOURS, SERVICE, SMALL
from tests.kit.apply.ddl_process import INSERT, script_for
from tests.kit.apply.faults import Supervised
from tests.kit.apply.local import apply_task, endpoint_of
from tests.kit.apply.tables import integer, table
from tests.kit.apply.topic import RecordStream
from tests.kit.capture.promote import LINK

NAME = "moved"
# neither definitions nor presence show these on another server
BLOCK = ("RENAME TABLE a TO x, b TO a, x TO b", "EXCHANGE PARTITION")
# the same effect if they are executed twice; an empty table need not be truncated
REPEATABLE = (
    "TRUNCATE",
    "IF NOT EXISTS",
    "IF EXISTS",
    "OR REPLACE",
    "ENGINE=InnoDB",
    "ALTER DATABASE",
    "INVISIBLE",
)
SOME = (
    "CREATE TABLE a",
    "ADD INDEX (v)",
    "RENAME TABLE a TO x",
    "TRUNCATE TABLE a",
    "DROP TABLE p",
)


class _DeadError(Exception):
    """The primary died."""


@dataclass
class _Pair:
    """A primary and its replica, which take turns."""

    primary: DatabaseServer
    replica: DatabaseServer
    executed: Counter[bytes] = field(default_factory=Counter)

    def fail_over(self, *, kills: bool) -> None:
        """The replica has all that the primary has executed, and takes over; the old primary follows it."""
        old, new = self.primary, self.replica
        executed = old.gtid_position()
        assert new.wait_for_position(executed, timeout_s=60)
        if kills:
            old.kill()
        word = "SLAVE" if new.flavour is Flavour.MARIADB else "REPLICA"
        new.execute(f"STOP {word}")
        new.execute(f"RESET {word} ALL")
        new.execute("SET GLOBAL read_only = OFF")
        new.is_replica = False
        self.primary, self.replica = new, old

    def rejoin(self, *, killed: bool) -> None:
        """The old primary follows the new one."""
        old, new = self.replica, self.primary
        old.is_replica = True
        if killed:
            old.start()
        if old.flavour is Flavour.MARIADB:
            old.execute("SET GLOBAL gtid_slave_pos = %s", (old.gtid_position(),))
        old.follow(new.port, LINK)


@contextmanager
def _counted(pair: _Pair) -> Iterator[None]:
    query = MySqlSession.query

    def counting(session: MySqlSession, text: str | bytes, *given: Any) -> Any:
        if isinstance(text, bytes):
            pair.executed[text] += 1
        return query(session, text, *given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MySqlSession, "query", counting)
        yield


def _pair_of(folder: Path, flavour: Flavour) -> tuple[_Pair, Callable[[], None]]:
    options = ServerOptions(extra=SMALL[flavour])
    made = start_set(folder, flavour=flavour, replica_count=1, account=SERVICE, options=options)
    for number, member in enumerate(made.members):
        others = [f"CREATE TABLE shift.t{number}{each} (id INT)" for each in range(3 * number)]
        rights = f"GRANT ALL PRIVILEGES ON *.* TO '{SERVICE.user}'@'%'"
        link = f"'{LINK.user}'@'%'"
        linked = (
            f"CREATE USER {link} IDENTIFIED BY '{LINK.password}'",
            f"GRANT REPLICATION SLAVE ON *.* TO {link}",
        )
        sql.execute_unlogged(
            member.socket, [rights, *linked, "CREATE DATABASE shift", *others]
        )  # so ids of the members differ
    return _Pair(made.primary, made.replicas[0]), made.discard


EACH = (ddl.AFTER_INTENT, ddl.AFTER_EXECUTE)


@pytest.mark.parametrize(
    ("flavour", "points"),
    [
        pytest.param(Flavour.MARIADB, (), id="some-mariadb"),
        *(
            pytest.param(
                flavour, points, marks=pytest.mark.chaos, id=f"{'-'.join(points)}-{flavour}"
            )
            for flavour in FLAVOURS
            for points in (*((point,) for point in EACH), EACH)
        ),
    ],
)
@pytest.mark.guarantee("ddl")
def test_promoted_target_executes_each_ddl_statement_once(
    tmp_path: Path, flavour: Flavour, points: tuple[str, ...]
) -> None:
    """The primary dies at these points of each statement; (): at one point of some statements, without restarts."""
    pair, discard = _pair_of(tmp_path / "pair", flavour)
    try:
        script = script_for(flavour)
        stream = RecordStream(flavour=flavour)
        stream.ddl(f"CREATE DATABASE {NAME}")
        row = table(NAME, "a", integer("id"), integer("v"))
        blocked = []
        with _counted(pair):
            for number, text in enumerate(script):
                if text == INSERT:
                    stream.insert(row, {"id": 1, "v": 1})
                    stream.commit()
                    continue
                stream.ddl(text.format(name=NAME), database=NAME)
                if points or any(part in text for part in SOME):
                    task = Supervised(endpoint_of(pair.primary), apply_task(NAME), stream)
                    for point in points or (EACH[number % 2],):
                        blocked += _die(pair, task, point, kills=bool(points))
                    blocked += _resumed(
                        pair, task, is_done=(points or (EACH[number % 2],))[-1] == EACH[1]
                    )
            Supervised(endpoint_of(pair.primary), apply_task(NAME), stream).run()
        for text in script:
            if text != INSERT and not any(part in text for part in REPEATABLE):
                assert pair.executed[text.format(name=NAME).encode()] == 1, text
        for message in blocked:
            assert any(part in message for part in BLOCK), message
            assert message.count("on server") == 2
        assert _tables(pair.primary, NAME) == _expected(pair.primary, script)
    finally:
        discard()


def _die(pair: _Pair, task: Supervised, point: str, *, kills: bool) -> list[str]:
    """One run that ends at ``point``, and a failover. Returns what blocked it before."""

    def die(passed: str) -> None:
        if passed == point:
            raise _DeadError

    blocked = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ddl, "fault_point", die)
        try:
            task.run_once()
        except Fatal as exc:
            blocked = [_decided(pair, exc, is_done=False)]
            with pytest.raises(_DeadError):
                task.run_once()
        except _DeadError:
            pass
    pair.fail_over(kills=kills)
    pair.rejoin(killed=kills)
    task.endpoint = endpoint_of(pair.primary)
    return blocked


def _resumed(pair: _Pair, task: Supervised, *, is_done: bool) -> list[str]:
    """Run to the end; an operator decides about a statement that blocks. Returns the message."""
    try:
        task.run()
    except Fatal as exc:
        blocked = _decided(pair, exc, is_done=is_done)
        task.run()
        return [blocked]
    return []


def _decided(pair: _Pair, exc: Fatal, *, is_done: bool) -> str:
    assert exc.code == "MR-5040"
    session = connect(endpoint_of(pair.primary))
    decision = "done" if is_done else "execute"
    decide_intent(session, NAME, seq=int(exc.context["seq"]), decision=decision)
    session.close()
    return exc.message


def _expected(server: DatabaseServer, script: list[str]) -> dict[str, object]:
    expected = f"{NAME}_expected"
    server.execute(f"CREATE DATABASE {expected}")
    for text in script:
        made = "INSERT INTO a VALUES (1, 1)" if text == INSERT else text.format(name=expected)
        server.execute(made, db=expected)
    return _tables(server, expected)


def _tables(server: DatabaseServer, database: str) -> dict[str, object]:
    found: dict[str, object] = {}
    for (which,) in server.execute("SHOW TABLES", db=database):
        shown = server.execute(f"SHOW CREATE TABLE {which}", db=database)[0][1]
        found[str(which)] = (shown, server.execute(f"SELECT * FROM {which}", db=database))
    found["databases"] = len(server.execute(f"SHOW DATABASES LIKE '{database}%'"))
    return found
