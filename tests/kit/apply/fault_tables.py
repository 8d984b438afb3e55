"""Rows of three tables on a target: the load for tests of target faults.

Tables ``a`` and ``b`` have a primary key. Table ``bag`` has no key, so a row that is applied twice shows.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

import pytest

from millrace.deploy.servers import DatabaseServer
from millrace.drivers.mysql.connection import Endpoint, MySqlSession, connect
from millrace.errors import MillraceError
from tests.kit.apply.faults import Supervised
from tests.kit.apply.local import apply_task, endpoint_of
from tests.kit.apply.tables import integer, table, text
from tests.kit.apply.topic import RecordStream

ROWS = 20
CANARY = "canary-7h3k"
_names = count(1)


@contextmanager
def tables_on(server: DatabaseServer) -> Iterator[str]:
    """The tables in a new database, which is dropped after the block; returns its name."""
    name = f"fault{next(_names)}_{server.flavour}"
    create_tables(server, name)
    yield name
    server.execute(f"DROP DATABASE {name}")


def create_tables(server: DatabaseServer, name: str) -> None:
    """The tables in a new database."""
    server.execute(f"CREATE DATABASE {name}")
    server.execute("CREATE TABLE a (id INT PRIMARY KEY, n INT, note VARCHAR(20))", db=name)
    server.execute("CREATE TABLE b (id INT PRIMARY KEY, n INT, note VARCHAR(20))", db=name)
    server.execute("CREATE TABLE bag (n INT)", db=name)


def row_stream(name: str) -> RecordStream:
    """Inserts into all three tables in turn, and one update of each row of ``a`` and ``b``."""
    stream = RecordStream()
    bag = table(name, "bag", integer("n"), key=())
    for which in "ab":
        made = table(name, which, integer("id"), integer("n"), text("note"))
        for number in range(ROWS):
            row = {"id": number, "n": 0, "note": CANARY}
            stream.insert(made, row)
            stream.update(made, row, row | {"n": 1})
            stream.insert(bag, {"n": number})
    stream.commit()
    return stream


def check_rows(server: DatabaseServer, name: str) -> None:
    """Each row is there once, with its last update."""
    for which in "ab":
        assert server.execute(f"SELECT COUNT(*), SUM(n) FROM {name}.{which}") == [(ROWS, ROWS)]
    found = server.execute(f"SELECT COUNT(*), SUM(n) FROM {name}.bag")
    assert found == [(2 * ROWS, ROWS * (ROWS - 1))]


def supervised(
    endpoint: Endpoint, name: str, *, is_large: bool = True, lanes: int = 3
) -> Supervised:
    """A task that applies ``row_stream`` as one micro-batch."""
    return Supervised(
        endpoint,
        apply_task(name, lanes=lanes),
        row_stream(name),
        is_large=lambda _: is_large,
    )


def assert_refused(task: Supervised, branch: type[MillraceError], code: str) -> MillraceError:
    """A run ends with this error, which has a fix and shows no value of a row."""
    with pytest.raises(branch) as caught:
        task.run_once()
    assert caught.value.code == code, caught.value
    assert caught.value.fix
    assert CANARY not in str(caught.value)
    return caught.value


@contextmanager
def other_session(server: DatabaseServer, database: str) -> Iterator[MySqlSession]:
    """A session of another client."""
    session = connect(endpoint_of(server), database=database)
    try:
        yield session
    finally:
        session.close()
