"""Random statements on a source under a view, whose driver dies at the fault points: the structures stay equal.

After each statement the server's own lists are compared. A statement that waits gets the operator's answer: agreed to
if it has a text, else the tables are made again.
"""

import random
from collections import Counter
from collections.abc import Generator
from contextlib import closing
from itertools import count

import pymysql
import pytest

from millrace.consumer.target.intents import ASKED, EXECUTE, decide_intent, read_intent
from millrace.consumer.turn.resident import forget
from millrace.consumer.write import ddl
from millrace.deploy.servers import DatabaseServer
from millrace.drivers.mysql.connection import connect
from millrace.errors import Fatal
from tests.kit.apply.local import endpoint_of
from tests.kit.apply.viewed_structure import Twins

STATEMENTS = 250
POINTS = (ddl.BEFORE_INTENT, ddl.AFTER_INTENT, ddl.AFTER_EXECUTE)
COLUMNS = ("kind", "mail", "card", "note", "free", "x", "y", "z")
KEYS = ("k1", "k2", "k3")
TABLES = ("orders_1", "orders_1", "orders_1", "k_1", "k_1", "r_1", "r_2", "r_3")
TYPES = (
    "INT",
    "BIGINT",
    "VARCHAR(30)",
    "VARCHAR(90) NOT NULL DEFAULT 'a'",
    "INT NOT NULL DEFAULT 5",
)
_names = count(1)


class _KilledError(BaseException):
    """The driver ends here."""


def _clause(chance: random.Random) -> str:
    column, other = chance.choice(COLUMNS), chance.choice(COLUMNS)
    kind, key = chance.choice(TYPES), chance.choice(KEYS)
    place = chance.choice(("", "", " FIRST", f" AFTER {other}"))
    return chance.choice(
        (
            f"ADD {column} {kind}{place}",
            f"ADD COLUMN ({column} {kind}, KEY {key} ({column}))",
            f"DROP COLUMN {column}",
            f"MODIFY {column} {kind}{place}",
            f"CHANGE {column} {other} {kind}",
            f"RENAME COLUMN {column} TO {other}",
            f"ALTER {column} SET DEFAULT 7",
            f"ADD KEY {key} ({column}, {other})",
            f"ADD UNIQUE {key} ({column}, id)",
            f"DROP KEY {key}",
            f"RENAME KEY {key} TO {chance.choice(KEYS)}",
            "COMMENT 'mail'",
        )
    )


def _statement(chance: random.Random) -> str:
    table, other = chance.choice(TABLES), f"r_{chance.randrange(1, 5)}"
    clauses = ", ".join(_clause(chance) for _ in range(chance.choice((1, 1, 2, 3))))
    return chance.choice(
        (
            *([f"ALTER TABLE {table} {clauses}"] * 8),
            f"CREATE INDEX {chance.choice(KEYS)} ON {table} ({chance.choice(COLUMNS)})",
            f"CREATE TABLE {other} (id INT PRIMARY KEY, kind INT, mail VARCHAR(9), x INT, KEY k1 (x))",
            f"CREATE TABLE {other} LIKE {table}",
            f"ALTER TABLE {table} RENAME TO {other}",
            f"RENAME TABLE {table} TO r_9, {other} TO {table}, r_9 TO {other}",
            f"DROP TABLE {other}",
            f"DROP TABLE IF EXISTS {other}, away",
            f"TRUNCATE {other}",
            f"ALTER TABLE {other} ADD FOREIGN KEY (x) REFERENCES {table} (id)",
        )
    )


def _scene(server: DatabaseServer) -> Generator[Twins, None, None]:
    """New databases each time it is asked for the next."""
    while True:
        name = f"random{next(_names)}"
        for database in (name, f"{name}_house"):
            server.execute(f"CREATE DATABASE {database} DEFAULT CHARSET utf8mb4")
        twins = Twins(server, name, f"{name}_house")
        twins.create()
        yield twins
        server.execute(f"DROP DATABASE {name}_house")
        server.execute(f"DROP DATABASE {name}")


@pytest.mark.both_flavours
@pytest.mark.parametrize("seed", range(3))
def test_structures_follow_random_statements(
    target_server: DatabaseServer, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Each is executed once, wherever the driver dies."""
    chance, outcomes = random.Random(seed), Counter[str]()
    scenes = _scene(target_server)
    twins = next(scenes)
    die_at: list[str] = []

    def die(passed: str) -> None:
        if die_at and passed == die_at[0]:
            die_at.pop()
            raise _KilledError

    monkeypatch.setattr(ddl, "fault_point", die)
    while sum(outcomes.values()) < STATEMENTS:
        sql = _statement(chance)
        try:
            target_server.execute(sql, db=twins.name)
        except pymysql.Error:
            continue  # the source does not log it
        twins.stream.ddl(sql, database=twins.name)
        die_at[:] = [chance.choice(POINTS)] if chance.random() < 0.5 else []
        outcome = _applied(twins)
        outcomes[outcome] += 1
        if outcome in ("executed", "agreed"):
            assert twins.differences() == {}, sql
        else:
            twins = next(scenes)
    scenes.close()
    assert outcomes["executed"] > STATEMENTS / 3, outcomes
    assert outcomes["agreed"] > 0, outcomes


def _applied(twins: Twins) -> str:
    """How the statement was applied: executed, agreed, or without a text for the target."""
    outcome = "executed"
    while True:
        try:
            twins.apply()
        except _KilledError:
            forget(twins.name)
            continue
        except Fatal as exc:
            if exc.code == "MR-5041":  # such as a key that was left out
                return "refused"
            if exc.code != "MR-5042":
                raise
            seq = twins.stream.seq
            with closing(connect(endpoint_of(twins.server))) as session:
                if read_intent(session, twins.name, seq).decision != ASKED:
                    return "waits"
                decide_intent(session, twins.name, seq=seq, decision=EXECUTE)
            outcome = "agreed"
            continue
        return outcome
