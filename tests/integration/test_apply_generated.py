"""Generated columns in target keys: a real server's binlog, applied to a real target of the same flavor.

MariaDB allows no generated column in a primary key and none that is NOT NULL, so no such key identifies a row there.
"""

from collections.abc import Iterator
from itertools import count

import pytest

from millrace.deploy.servers import DatabaseServer
from millrace.errors import Fatal
from millrace.schemas.documents import ConflictPolicy
from millrace.schemas.gtid import Flavour
from tests.kit.apply.local import apply_task, run_once
from tests.kit.apply.tables import integer, table
from tests.kit.apply.topic import RecordStream
from tests.kit.binlog.session import LoggedSession, logged
from tests.kit.capture.converter import raw_records

DATABASE = "generated_keys"
TABLES = {
    Flavour.MYSQL: {
        "own": "a INT, n INT, g INT AS (a + 1) STORED PRIMARY KEY",
        "shared": "t INT DEFAULT 7, a INT, n INT, g INT AS (a + 1) STORED, PRIMARY KEY (t, g)",
        "live": "a INT NOT NULL, n INT, g INT AS (a + 1) VIRTUAL NOT NULL UNIQUE",
    },
    Flavour.MARIADB: {
        "kept": "a INT, n INT, g INT AS (a + 1) PERSISTENT UNIQUE",
        "live": "a INT, n INT, g INT AS (a + 1) VIRTUAL UNIQUE",
        "beside": "a INT, n INT, g INT AS (a + 1) PERSISTENT UNIQUE, id INT DEFAULT 7, UNIQUE (id, g)",
    },
}
_tasks = count(1)


@pytest.fixture
def source(
    request: pytest.FixtureRequest, target_server: DatabaseServer
) -> Iterator[LoggedSession]:
    """A session on a server of the target's flavor, where the source tables are created."""
    server = request.getfixturevalue(f"{target_server.flavour}_server")
    with logged(server, DATABASE) as found:
        for name, columns in TABLES[target_server.flavour].items():
            found.run(f"CREATE TABLE {name} ({columns})")
        yield found
    target_server.execute(f"DROP DATABASE IF EXISTS {DATABASE}")


def _stream(source: LoggedSession) -> RecordStream:
    values = [v for batch in source.conversion().batches() for _, v in raw_records(batch)]
    return RecordStream(flavour=source.server.flavour, values=values)


def _change(source: LoggedSession) -> None:
    """In every table: change the key, change another column, shift keys through each other, delete rows."""
    for name in TABLES[source.server.flavour]:
        source.run(
            f"INSERT INTO {name} (a, n) VALUES (1, 0), (2, 0), (3, 0), (4, 0), (5, 0)",
            f"UPDATE {name} SET a = 10 WHERE a = 1",
            f"UPDATE {name} SET n = a",
            f"UPDATE {name} SET a = a + 1, n = n + 1 ORDER BY a DESC",
            f"DELETE FROM {name} WHERE a = 4",
            f"UPDATE {name} SET n = 100 WHERE a = 5",
        )


@pytest.mark.parametrize("policy", list(ConflictPolicy), ids=str)
def test_rows_with_a_generated_key_arrive(
    source: LoggedSession, target_server: DatabaseServer, policy: ConflictPolicy
) -> None:
    """In lanes and in one lane, under every policy, the target has the source's rows and no conflict is recorded."""
    _change(source)
    stream = _stream(source)
    for is_large in (True, False):
        task = f"generated{next(_tasks)}"
        run_once(target_server, apply_task(task, conflict=policy), stream, is_large=is_large)
        for name in TABLES[target_server.flavour]:
            question = f"SELECT * FROM {DATABASE}.{name} ORDER BY a"
            wanted = source.rows(question)
            assert len(wanted) == 4
            assert target_server.execute(question) == wanted, (name, is_large)
        assert not target_server.execute("SELECT * FROM millrace.conflict WHERE task = %s", (task,))
        target_server.execute(f"DROP DATABASE {DATABASE}")


@pytest.mark.parametrize(
    ("policy", "wanted"),
    [
        (ConflictPolicy.OVERWRITE, [(1, 10), (2, 20), (3, 0), (4, 1), (6, 0), (9, 0)]),
        (ConflictPolicy.SKIP, [(1, 0), (3, 0), (4, 1), (6, 0), (9, 0)]),
    ],
    ids=["overwrite", "skip"],
)
def test_conflict_on_a_generated_key_changes_one_row(
    name: str,
    target_server: DatabaseServer,
    policy: ConflictPolicy,
    wanted: list[tuple[object, ...]],
) -> None:
    """Only the rows in conflict are decided; the tenant's other rows stay. On MariaDB, g is a plain column."""
    is_mysql = target_server.flavour is Flavour.MYSQL
    g = "INT AS (a + 1) STORED" if is_mysql else "INT"
    columns = f"t INT, a INT, n INT, g {g}, PRIMARY KEY (t, g)"
    target_server.execute(f"CREATE TABLE r ({columns})", db=name)
    for a in (1, 3, 4, 5, 9):
        if is_mysql:
            target_server.execute(f"INSERT INTO {name}.r (t, a, n) VALUES (7, {a}, 0)")
        else:
            target_server.execute(f"INSERT INTO {name}.r VALUES (7, {a}, 0, {a + 1})")
    made = table(name, "r", *map(integer, "tang"), key=(0, 3))
    stream = RecordStream()
    stream.insert(made, _row(1, 10))
    stream.update(made, _row(2, 0), _row(2, 20))
    stream.delete(made, _row(8, 0))
    stream.update(made, _row(5, 0), _row(6, 0))
    stream.update(made, _row(4, 0), _row(4, 1))
    stream.commit()
    run_once(target_server, apply_task(name, conflict=policy), stream)
    assert target_server.execute(f"SELECT a, n FROM {name}.r ORDER BY a") == wanted
    found = target_server.execute(
        "SELECT seq, op FROM millrace.conflict WHERE task = %s ORDER BY seq", (name,)
    )
    assert found == [(1, "c"), (2, "u"), (3, "d")]


@pytest.mark.parametrize("policy", list(ConflictPolicy), ids=str)
def test_differently_generated_key_blocks_the_task(
    mysql_server: DatabaseServer, policy: ConflictPolicy
) -> None:
    """Otherwise a later change would find a different row by this key, which no policy allows."""
    database = f"otherwise_{policy}"
    columns = "t INT, a INT, n INT, g INT AS (a + 2) STORED, PRIMARY KEY (t, g)"
    mysql_server.execute(f"CREATE DATABASE {database}")
    mysql_server.execute(f"CREATE TABLE r ({columns})", db=database)
    mysql_server.execute("INSERT INTO r (t, a, n) VALUES (7, 4, 0)", db=database)
    made, stream = table(database, "r", *map(integer, "tang"), key=(0, 3)), RecordStream()
    stream.insert(made, _row(1, 0))
    stream.delete(made, _row(5, 0))  # its key equals that of the existing row
    stream.commit()
    with pytest.raises(Fatal) as caught:
        run_once(mysql_server, apply_task(database, conflict=policy), stream)
    assert (caught.value.code, caught.value.context["seq"]) == ("MR-5017", "1")
    assert mysql_server.execute("SELECT a FROM r", db=database) == [(4,)]
    mysql_server.execute(f"DROP DATABASE {database}")


def _row(a: int, n: int) -> dict[str, object]:
    return {"t": 7, "a": a, "n": n, "g": a + 1}
