"""Safe mode over foreign keys with cascades, on real servers: exact, or refused, whatever the target has."""

import random
import re
from collections.abc import Iterator

import pytest

from millrace.deploy.servers import DatabaseServer
from millrace.drivers.mysql.connection import MySqlSession, connect
from millrace.errors import Fatal
from millrace.schemas.documents import ApplyTask, ConflictPolicy
from tests.kit.apply.family import COLUMNS, Family, State, create_tables, read_rows
from tests.kit.apply.local import (
    LocalRecords,
    apply_task,
    backwards,
    endpoint_of,
    ignore,
    run_once,
    started,
)
from tests.kit.apply.topic import RecordStream

_UP = "FOREIGN KEY (up) REFERENCES {{database}}.{parent} (id) {rules}"
_CASCADE, _NULL = "ON DELETE CASCADE", "ON DELETE SET NULL"


def _up(parent: str, rules: str) -> str:
    return _UP.format(parent=parent, rules=rules)


_SIDE = f"FOREIGN KEY (side) REFERENCES {{database}}.p (id) {_NULL}"
EXACT = {
    "deleted with the parent": {"p": "", "c": _up("p", _CASCADE)},
    "set to NULL": {"p": "", "c": _up("p", _NULL)},
    "two keys": {"p": "", "c": f"{_up('p', _CASCADE)}, {_SIDE}"},
    "a tree, set to NULL": {"p": _up("p", _NULL)},
}
REFUSED = {
    "three levels": {"p": "", "c": _up("p", _CASCADE), "g": _up("c", _CASCADE)},
    "a tree, deleted": {"p": _up("p", _CASCADE)},
}


@pytest.fixture
def source(name: str, target_server: DatabaseServer) -> Iterator[str]:
    """The name of the source's database."""
    made = f"{name}_source"
    target_server.execute(f"CREATE DATABASE {made}")
    yield made
    target_server.execute(f"DROP DATABASE {made}")


@pytest.fixture
def session(target_server: DatabaseServer) -> Iterator[MySqlSession]:
    """A session for both databases."""
    opened = connect(endpoint_of(target_server))
    yield opened
    opened.close()


def _load(session: MySqlSession, database: str, states: list[State], seed: int) -> None:
    """Each row from another moment, as if a load without a snapshot had read it."""
    chance = random.Random(seed)
    session.query("SET SESSION foreign_key_checks = 0")
    for name, row_id in sorted({key for state in states for key in state}, key=repr):
        if row := states[chance.randrange(len(states))].get((name, row_id)):
            session.query(f"INSERT INTO {database}.{name} VALUES (%s, %s, %s, %s)", row)
    session.query("SET SESSION foreign_key_checks = 1")
    session.commit()


def _apply(server: DatabaseServer, name: str, stream: RecordStream, until: str) -> None:
    applier = started(server, apply_task(name, safe_until=until))
    try:
        applier.process(LocalRecords(stream.values, window_rows=20, lane_order=backwards), ignore)
    finally:
        applier.close()


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.chaos)])
@pytest.mark.parametrize(
    ("shape", "logs"),
    [*((shape, False) for shape in EXACT), *((shape, True) for shape in (*EXACT, *REFUSED))],
)
def test_rows_that_a_cascade_changed_end_as_on_the_source(
    name: str,
    target_server: DatabaseServer,
    source: str,
    session: MySqlSession,
    *,
    shape: str,
    logs: bool,
    seed: int,
) -> None:
    """Random changes on a real source; the target has each row from another moment. Later rows are counted."""
    keys = (EXACT | REFUSED)[shape]
    for database in (source, name):
        create_tables(session, database, keys)
    chance = random.Random(seed)
    family = Family(session, source, name, tuple(keys), RecordStream(), logs)
    for _ in range(50):
        family.transaction(chance)
    until, states = family.stream.gtid_set, list(family.states)
    for _ in range(10):
        family.transaction(chance)
    _load(session, name, states, seed)
    _apply(target_server, name, family.stream, until)
    assert read_rows(session, name, tuple(keys)) == family.states[-1]


def _family(session: MySqlSession, source: str, name: str, keys: dict[str, str]) -> Family:
    for database in (source, name):
        create_tables(session, database, keys)
    return Family(session, source, name, tuple(keys), RecordStream())


def _parent_deleted_after_its_child_came(session: MySqlSession, source: str, name: str) -> Family:
    """The transaction of the DELETE is open."""
    family = _family(session, source, name, EXACT["deleted with the parent"])
    family.prepare("INSERT INTO {s}.p VALUES (1, NULL, NULL, 0)")
    family.execute("INSERT INTO {t} VALUES (2, 1, NULL, 0)", "c", 2)
    family.commit()
    family.execute("DELETE FROM {t} WHERE id = 1", "p", 1)
    return family


@pytest.mark.parametrize("is_large", [True, False], ids=["lanes", "one lane"])
def test_child_of_a_deleted_parent_does_not_come_back(
    name: str,
    target_server: DatabaseServer,
    source: str,
    session: MySqlSession,
    *,
    is_large: bool,
) -> None:
    """The target is ahead: parent and child are gone when the child's INSERT is repeated, then the parent's DELETE."""
    family = _parent_deleted_after_its_child_came(session, source, name)
    family.commit()
    until = family.stream.gtid_set
    run_once(target_server, apply_task(name, safe_until=until), family.stream, is_large=is_large)
    assert family.rows == read_rows(session, name, ("p", "c")) == {}


def test_cascade_is_repeated_beside_a_conflict(
    name: str, target_server: DatabaseServer, source: str, session: MySqlSession
) -> None:
    """The conflict of a row after the range makes the task write all rows of its part one by one."""
    family = _parent_deleted_after_its_child_came(session, source, name)
    family.execute("INSERT INTO {t} VALUES (3, NULL, NULL, 0)", "p", 3)
    family.commit()
    until = family.stream.gtid_set
    family.execute("DELETE FROM {t} WHERE id = 3", "p", 3)
    family.commit()
    family.stream.delete(family.schema("p"), dict.fromkeys(COLUMNS, 4))
    family.commit()
    task = apply_task(name, safe_until=until, conflict=ConflictPolicy.SKIP)
    run_once(target_server, task, family.stream, is_large=False)
    assert read_rows(session, name, ("p", "c")) == {}
    assert target_server.execute(
        "SELECT COUNT(*) FROM millrace.conflict WHERE task = %s", (name,)
    ) == [(1,)]


def _refused(server: DatabaseServer, task: ApplyTask, stream: RecordStream) -> str:
    with pytest.raises(Fatal) as caught:
        run_once(server, task, stream)
    assert caught.value.code == "MR-5025"
    return caught.value.message


@pytest.mark.parametrize("shape", REFUSED)
def test_cascade_over_several_levels_blocks_the_task(
    name: str, target_server: DatabaseServer, source: str, session: MySqlSession, shape: str
) -> None:
    """No row of the window is written. After the range the target's own cascade does it."""
    family = _family(session, source, name, REFUSED[shape])
    family.execute("INSERT INTO {t} VALUES (1, NULL, NULL, 0)", "p", 1)
    family.execute("DELETE FROM {t} WHERE id = 1", "p", 1)
    family.commit()
    task = apply_task(name, safe_until=family.stream.gtid_set)
    assert re.search(
        r"p: a deletion cascades by constraint .+, and on by constraint .+ of ",
        _refused(target_server, task, family.stream),
    )
    assert read_rows(session, name, tuple(family.names)) == {}
    run_once(target_server, apply_task(name), family.stream)


@pytest.mark.parametrize("rule", ["CASCADE", "SET NULL", "NO ACTION"])
def test_changed_key_that_rows_follow_blocks_the_task(
    name: str, target_server: DatabaseServer, source: str, session: MySqlSession, rule: str
) -> None:
    """Only if the foreign key acts on it: ON DELETE CASCADE alone changes no row."""
    keys = {"p": "", "c": _up("p", f"{_CASCADE} ON UPDATE {rule}")}
    family = _family(session, source, name, keys)
    parent = family.schema("p")
    row = dict.fromkeys(COLUMNS, 1)
    family.stream.insert(parent, row)
    family.stream.update(parent, row, {**row, "v": 2})
    family.stream.update(parent, {**row, "v": 2}, {**row, "id": 3})
    family.commit()
    task = apply_task(name, safe_until=family.stream.gtid_set)
    if rule == "NO ACTION":
        run_once(target_server, task, family.stream)
        assert list(read_rows(session, name, ("p", "c"))) == [("p", 3)]
    else:
        assert f"ON UPDATE {rule}" in _refused(target_server, task, family.stream)


@pytest.mark.parametrize("policy", ConflictPolicy)
def test_later_row_of_a_deleted_parent_blocks_the_task(
    name: str,
    target_server: DatabaseServer,
    source: str,
    session: MySqlSession,
    policy: ConflictPolicy,
) -> None:
    """By a foreign key without a cascade; no conflict policy leaves the DELETE or its cascade out."""
    keys = {"p": "", "c": _up("p", _CASCADE), "d": _up("p", "")}
    family = _family(session, source, name, keys)
    family.execute("INSERT INTO {t} VALUES (1, NULL, NULL, 0)", "p", 1)
    family.execute("DELETE FROM {t} WHERE id = 1", "p", 1)
    family.execute("INSERT INTO {t} VALUES (1, NULL, NULL, 1)", "p", 1)
    family.execute("INSERT INTO {t} VALUES (2, 1, NULL, 0)", "d", 2)
    family.commit()
    _load(session, name, [family.rows], 0)
    task = apply_task(name, safe_until=family.stream.gtid_set, conflict=policy)
    assert "delete of a row of" in _refused(target_server, task, family.stream)
    assert read_rows(session, name, tuple(keys)) == family.rows
