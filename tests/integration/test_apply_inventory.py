"""After each DDL statement the inventory equals the target's, although only the changed tables are read again."""

from collections.abc import Iterator
from itertools import count

import pytest

from millrace.deploy.servers import DatabaseServer
from millrace.drivers.mysql import catalog
from millrace.drivers.mysql.actions import NO_ACTIONS, Action, Actions
from millrace.drivers.mysql.catalog import Inventory, read_inventory
from millrace.drivers.mysql.connection import MySqlSession, connect
from millrace.errors import Retryable
from tests.kit.apply.ddl_process import INSERT, script_for
from tests.kit.apply.local import LocalRecords, apply_task, endpoint_of, ignore, started
from tests.kit.apply.topic import RecordStream

_names = count(1)
_CHILDREN = [
    "CREATE TABLE {name}_c.child (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES {name}.a (id))",
    "RENAME TABLE a TO z",
    "ALTER TABLE z CHANGE id number INT",
    "DROP TABLE {name}_c.child",
    "CREATE TABLE {name}_c.child (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES {name}.z (number))",
    "DROP DATABASE {name}_c",
]


@pytest.fixture
def name(target_server: DatabaseServer) -> Iterator[str]:
    """Name of a database and task; dropped after the test."""
    made = f"known{next(_names)}"
    yield made
    for database in (f"{made}_c", made):
        target_server.execute(f"DROP DATABASE IF EXISTS {database}")


def _database_wide(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The queries about whole databases that follow."""
    asked: list[str] = []
    query = MySqlSession.query
    wide = (catalog.COLUMNS_SQL, catalog.UNIQUE_KEYS_SQL, catalog.FOREIGN_COLUMNS_SQL)

    def noting(session: MySqlSession, sql: str | bytes, *given: object) -> object:
        if sql in wide:
            asked.append(str(sql))
        return query(session, sql, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(MySqlSession, "query", noting)
    return asked


def _comparable(found: Inventory) -> tuple[object, ...]:
    return dict(found.tables), set(found.foreign_keys), found.alter_count


@pytest.mark.parametrize("times", [1, catalog.READS_MAX])
def test_tables_that_change_places_meanwhile_are_not_mixed(
    name: str, target_server: DatabaseServer, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    """Columns and keys are read one after the other. If they never fit, the error is MR-5023."""
    target_server.execute(f"CREATE DATABASE {name}")
    target_server.execute(f"CREATE TABLE {name}.a (id INT, k INT PRIMARY KEY)")
    target_server.execute(f"CREATE TABLE {name}.b (id INT PRIMARY KEY, v INT)")
    left = [
        f"RENAME TABLE {name}.a TO {name}.x, {name}.b TO {name}.a, {name}.x TO {name}.b"
    ] * times
    query = MySqlSession.query

    def swapping(session: MySqlSession, sql: str | bytes, *given: object) -> object:
        if left and sql == catalog.TABLE_KINDS_SQL and given == ((name,),):
            target_server.execute(left.pop())
        return query(session, sql, *given)  # type: ignore[arg-type]

    session = connect(endpoint_of(target_server))
    monkeypatch.setattr(MySqlSession, "query", swapping)
    if times == catalog.READS_MAX:
        with pytest.raises(Retryable) as caught:
            read_inventory(session)
        assert caught.value.code == "MR-5023"
    found = read_inventory(session)
    for table in (found.tables[name, "a"], found.tables[name, "b"]):
        assert {*table.unique_keys[0].columns} < {*table.columns}
    assert found.tables[name, "a"].unique_keys != found.tables[name, "b"].unique_keys
    session.close()


def test_ddl_reads_only_its_tables_again(
    name: str, target_server: DatabaseServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Statements of all kinds; only those about databases read a whole database."""
    stream = RecordStream(flavour=target_server.flavour)
    script = [f"CREATE DATABASE {name}", f"CREATE DATABASE {name}_c"]
    script += [sql for sql in script_for(target_server.flavour) if sql != INSERT]
    script = [
        *script[:3],
        *_CHILDREN,
        "RENAME TABLE z TO a",
        "ALTER TABLE a CHANGE number id INT",
        *script[3:],
    ]
    applier = started(target_server, apply_task(name))
    asked = _database_wide(monkeypatch)
    for statement in script:
        first = len(stream.values)
        sql = statement.format(name=name)
        stream.ddl(sql, database=name)
        asked.clear()
        applier.process(LocalRecords(stream.values[first:], first), ignore)
        assert not asked or "DATABASE" in sql, sql
        with_session = connect(endpoint_of(target_server))
        assert _comparable(applier.inventory) == _comparable(read_inventory(with_session)), sql
        with_session.close()
    applier.close()


def test_statement_of_another_session_is_noticed(name: str, target_server: DatabaseServer) -> None:
    """A key that an operator adds just before a CREATE TABLE of the topic is known afterwards."""
    stream = RecordStream(flavour=target_server.flavour)
    stream.ddl(f"CREATE DATABASE {name}")
    stream.ddl("CREATE TABLE a (id INT PRIMARY KEY, v INT)", database=name)
    applier = started(target_server, apply_task(name))
    applier.process(LocalRecords(stream.values), ignore)
    target_server.execute("ALTER TABLE a ADD UNIQUE KEY u (v)", db=name)
    first = len(stream.values)
    stream.ddl("CREATE TABLE b (id INT PRIMARY KEY)", database=name)
    applier.process(LocalRecords(stream.values[first:], first), ignore)
    assert len(applier.inventory.tables[name, "a"].unique_keys) == 2
    applier.close()


def test_hidden_rules_of_foreign_keys_are_read_from_the_table(
    name: str, target_server: DatabaseServer
) -> None:
    """SHOW CREATE TABLE and information_schema give the same actions and names."""
    target_server.execute(f"CREATE DATABASE {name}")
    rules = ("", " ON DELETE CASCADE", " ON UPDATE CASCADE ON DELETE SET NULL")
    target_server.execute("CREATE TABLE p (id INT PRIMARY KEY)", db=name)
    keys = ",".join(
        f"CONSTRAINT `of {number}` FOREIGN KEY (c{number}) REFERENCES p (id){rule}"
        for number, rule in enumerate(rules)
    )
    target_server.execute(f"CREATE TABLE t (c0 INT, c1 INT, c2 INT, {keys})", db=name)
    session = connect(endpoint_of(target_server))
    found = {key.name: key.actions for key in read_inventory(session).foreign_keys}
    ((_, text),) = target_server.execute(f"SHOW CREATE TABLE {name}.t")
    session.close()
    assert list(found.values()) == [
        NO_ACTIONS,
        Actions(on_delete=Action.CASCADE),
        Actions(Action.SET_NULL, Action.CASCADE),
    ]
    for number, rule in enumerate(found.values()):
        assert Actions.shown(str(text), f"CONSTRAINT `of {number}` FOREIGN KEY") == rule
    assert Actions.shown(str(text), "CONSTRAINT `other`").on_delete is Action.UNKNOWN
