"""Statements of the source under a view: the target's structures are those of the view after each of them.

The oracle is what the server lists of both.
"""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pytest

from millrace.consumer.target.intents import DONE, EXECUTE, decide_intent, list_intents
from millrace.consumer.turn.resident import forget
from millrace.consumer.write import ddl
from millrace.deploy.servers import DatabaseServer
from millrace.drivers.mysql.connection import connect
from millrace.errors import Fatal
from millrace.schemas.view.view import TableRule, View
from tests.kit.apply.local import apply_task, endpoint_of, run_once
from tests.kit.apply.tables import integer, table
from tests.kit.apply.topic import RecordStream
from tests.kit.apply.viewed_structure import Twins

STATEMENTS = (
    "ALTER TABLE orders_1 ADD total INT NOT NULL DEFAULT 5 AFTER note, ADD KEY n (note), ADD UNIQUE um (mail, id)",
    "ALTER TABLE {0}.orders_1 MODIFY mail VARCHAR(120) NOT NULL DEFAULT 'x', MODIFY note VARCHAR(99), ENGINE=InnoDB",
    "CREATE INDEX f ON orders_1 (free(4), mail)",
    "ALTER TABLE orders_1 CHANGE free liberal TEXT, DROP INDEX um, ADD (a INT, b INT, KEY ab (a, b))",
    "ALTER TABLE k_1 ADD secret INT UNIQUE, ADD KEY (kind), DROP note, ADD KEY m (mail)",
    "CREATE TABLE r_1 (id INT PRIMARY KEY, p INT, KEY (p))",
    "CREATE TABLE {0}.r_2 LIKE r_1",
    "ALTER TABLE r_2 ADD CONSTRAINT f FOREIGN KEY (p) REFERENCES r_1 (id)",
    "RENAME TABLE r_1 TO {0}.r_3, r_2 TO r_1",
    "ALTER TABLE r_3 RENAME TO r_2, ADD v VARCHAR(9)",
    "TRUNCATE r_1",
    "CREATE TABLE r_4 (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES {0}.r_2 (id)) COMMENT 'r_1'",
    "CREATE TABLE out_of_view (id INT)",
    "DROP TABLE r_4, out_of_view",
    "ALTER TABLE orders_1 RENAME COLUMN total TO sum, RENAME INDEX f TO g",
)


@pytest.fixture
def twins(name: str, target_server: DatabaseServer) -> Iterator[Twins]:
    """A task under a view, whose tables have rows."""
    house = f"{name}_house"
    target_server.execute(f"CREATE DATABASE {house} DEFAULT CHARSET utf8mb4")
    made = Twins(target_server, name, house)
    made.create()
    yield made
    target_server.execute(f"DROP DATABASE {house}")


@pytest.mark.both_flavours
def test_structures_are_those_of_the_view_after_each_statement(twins: Twins) -> None:
    """ALTER by its clauses, CREATE, RENAME, DROP and TRUNCATE by their names."""
    for sql in STATEMENTS:
        twins.execute(sql)
        assert twins.differences() == {}, sql
    found = twins.server.execute(f"SELECT own, id, email, shard, sum FROM {twins.house}.sales_1")
    assert found == [(7, 1, "a", "1", 5)]


@pytest.mark.parametrize("point", ["AFTER_INTENT", "AFTER_EXECUTE"])
@pytest.mark.parametrize(
    "sql",
    [
        "ALTER TABLE orders_1 ADD KEY (free), ADD KEY (note)",
        "RENAME TABLE r_1 TO r_9, r_2 TO r_1, r_9 TO r_2",
        "ALTER TABLE r_1 ADD KEY (v), RENAME TO r_3",
        "CREATE UNIQUE INDEX i ON k_1 (mail)",
    ],
)
def test_translated_statement_is_executed_once(
    twins: Twins, monkeypatch: pytest.MonkeyPatch, sql: str, point: str
) -> None:
    """Wherever the driver dies: the states of the target's tables decide."""
    for made in ("CREATE TABLE r_1 (v INT)", "CREATE TABLE r_2 (w INT)"):
        twins.execute(made)

    def die(passed: str) -> None:
        if passed == getattr(ddl, point):
            raise _KilledError

    with monkeypatch.context() as patch:
        patch.setattr(ddl, "fault_point", die)
        with pytest.raises(_KilledError):
            twins.execute(sql)
    forget(twins.name)
    twins.apply()
    assert twins.differences() == {}


class _KilledError(BaseException):
    """The driver ends here."""


def test_statement_that_may_change_rows_of_the_view_waits(
    twins: Twins, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is executed once, after an operator has agreed, and never by itself."""
    sql = "ALTER TABLE orders_1 MODIFY kind VARCHAR(9), ADD KEY (free)"
    with pytest.raises(Fatal, match=r"MR-5042.*kind: where uses it"):
        twins.execute(sql)
    for _ in range(2):
        with pytest.raises(Fatal, match="MR-5042"):
            twins.apply()
    with closing(connect(endpoint_of(twins.server))) as session:
        (waiting,) = list_intents(session, [twins.name])
        assert waiting.decision == "asked"
        assert waiting.sql.startswith(f"ALTER TABLE `{twins.house}`.`sales_1` MODIFY kind")
        decide_intent(session, twins.name, seq=waiting.seq, decision=EXECUTE)

    def die(passed: str) -> None:
        if passed == ddl.AFTER_EXECUTE:
            raise _KilledError

    with monkeypatch.context() as patch:
        patch.setattr(ddl, "fault_point", die)
        with pytest.raises(_KilledError):
            twins.apply()
    forget(twins.name)
    twins.apply()
    assert twins.differences() == {}


def test_hidden_text_is_not_stored_or_shown(twins: Twins) -> None:
    """A comment, clauses of a column that is left out, a view, and a statement that blocks."""
    twins.execute(
        "ALTER TABLE orders_1 MODIFY note TEXT COMMENT 'planted', ADD x INT /* planted */"
    )
    twins.execute("CREATE VIEW v AS SELECT 'planted' AS p, note FROM orders_1")
    with pytest.raises(Fatal, match="the view masks card") as caught:
        twins.execute("ALTER TABLE orders_1 ALTER card SET DEFAULT 'planted'")
    assert "planted" not in f"{caught.value} {caught.value.fix}"
    server = twins.server
    for (made,) in server.execute("SHOW TABLES IN millrace"):
        rows = server.execute(f"SELECT * FROM millrace.{made}")
        assert not any("planted" in str(row) and str(row[0]) == twins.name for row in rows), made
    assert "planted" not in str(server.execute(f"SHOW CREATE TABLE {twins.house}.sales_1"))
    with closing(connect(endpoint_of(server))) as session:
        decide_intent(session, twins.name, seq=twins.stream.seq, decision=DONE)
    server.execute(f"DROP VIEW {twins.name}.v")
    twins.apply()
    assert twins.differences() == {}


@pytest.mark.parametrize("is_viewed", [True, False])
def test_rows_of_another_task_are_not_removed(twins: Twins, is_viewed: bool) -> None:
    """DROP and TRUNCATE wait for an operator if another task writes the table."""
    other = f"{twins.name}-other"
    task = apply_task(other)
    database = f"{twins.name}_b" if is_viewed else twins.house
    if is_viewed:
        task = replace(task, view=View((TableRule(f"{database}.*", f"{twins.house}.{{1}}"),)))
    stream = RecordStream()
    stream.insert(table(database, "s_1", integer("id")), {"id": 5})
    stream.commit()
    twins.execute("CREATE TABLE r_1 (id INT PRIMARY KEY)")
    run_once(twins.server, task, stream)
    twins.execute("ALTER TABLE r_1 ADD v INT")
    for sql in ("TRUNCATE r_1", "DROP TABLE r_1"):
        with pytest.raises(Fatal, match=rf"MR-5042.*{other} may write the same table"):
            twins.execute(sql)
        assert twins.server.execute(f"SELECT id FROM {twins.house}.s_1") == [(5,)]
        with closing(connect(endpoint_of(twins.server))) as session:
            decide_intent(session, twins.name, seq=twins.stream.seq, decision=DONE)
        twins.apply()


def test_rows_of_an_unknown_table_are_not_removed(twins: Twins) -> None:
    """DROP TABLE IF EXISTS is logged, too, if the source does not have the table."""
    twins.server.execute(f"CREATE TABLE {twins.house}.s_9 (id INT PRIMARY KEY)")
    twins.server.execute(f"INSERT INTO {twins.house}.s_9 VALUES (5)")
    with pytest.raises(Fatal, match=r"MR-5042.*s_9 has rows, and the topic had none of it"):
        twins.execute("DROP TABLE IF EXISTS r_9")
    assert twins.server.execute(f"SELECT id FROM {twins.house}.s_9") == [(5,)]
    with closing(connect(endpoint_of(twins.server))) as session:
        decide_intent(session, twins.name, seq=twins.stream.seq, decision=EXECUTE)
    twins.apply()
    assert twins.differences() == {}
