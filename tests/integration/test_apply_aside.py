"""Rows that a real target refuses are kept aside with all later changes of their keys, and are replayed in order."""

import pytest

from millrace.consumer.target import aside as kept
from millrace.consumer.write import aside
from millrace.consumer.write.resolve_conflict import discard, discard_resolved, replay
from millrace.deploy.servers import DatabaseServer
from millrace.errors import Fatal
from millrace.schemas.documents import ApplyTask, Consistency, RefusedPolicy
from tests.kit.apply.local import LocalRecords, apply_task, endpoint_of, ignore, run_once, started
from tests.kit.apply.tables import account, accounts, integer, table, text
from tests.kit.apply.topic import RecordStream

NARROW = (
    "CREATE TABLE accounts (id INT PRIMARY KEY, code INT, mail VARCHAR(5), amount INT NOT NULL,"
    " UNIQUE KEY (code), UNIQUE KEY (mail)) DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci"
)
WIDE = "ALTER TABLE accounts MODIFY mail VARCHAR(20)"


def _task(name: str) -> ApplyTask:
    return apply_task(name, refused=RefusedPolicy.ASIDE)


def _kept(server: DatabaseServer, name: str) -> list[object]:
    rows = server.execute(
        "SELECT seq FROM millrace.conflict WHERE task = %s AND decision = 'aside' ORDER BY seq",
        (name,),
    )
    assert server.execute(
        "SELECT seq FROM millrace.aside WHERE task = %s ORDER BY seq", (name,)
    ) == list(rows)
    return [seq for (seq,) in rows]


def _rows(server: DatabaseServer, name: str) -> list[tuple[object, ...]]:
    return list(server.execute(f"SELECT id, code, amount FROM {name}.accounts ORDER BY id"))


def _history(name: str) -> RecordStream:
    """Seq 2 is refused. Seqs 3 and 4 change its row, and seq 5 takes the code that seq 4 frees."""
    made, stream = accounts(name), RecordStream()
    stream.insert(made, account(1, code=1))
    stream.insert(made, account(10, code=7))
    stream.update(made, account(10, code=7), account(10, code=7, amount=5))
    stream.update(made, account(10, code=7, amount=5), account(10, code=8, amount=5))
    stream.insert(made, account(2, code=7))
    stream.insert(made, account(3, code=9))
    stream.commit()
    return stream


def _continue(server: DatabaseServer, task: ApplyTask, stream: RecordStream, first: int) -> None:
    applier = started(server, task)
    try:
        applier.process(LocalRecords(stream.values[first:], first=first), ignore)
    finally:
        applier.close()


@pytest.mark.parametrize("is_large", [True, False], ids=["lanes", "one lane"])
def test_refused_row_waits_with_all_that_depend_on_it(
    name: str, target_server: DatabaseServer, *, is_large: bool
) -> None:
    """Over a restart, too; a replay applies them in order, and later changes of the keys are applied again."""
    target_server.execute(NARROW, db=name)
    made, stream, endpoint = accounts(name), _history(name), endpoint_of(target_server)
    run_once(target_server, _task(name), stream, is_large=is_large)
    assert _rows(target_server, name) == [(1, 1, 0), (3, 9, 0)]
    assert _kept(target_server, name) == [2, 3, 4, 5]
    first = len(stream.values)
    stream.update(made, account(2, code=7), account(2, code=7, amount=6))
    stream.update(made, account(1, code=1), account(1, code=1, amount=6))
    stream.commit()
    # the rows stay together if no more are to be kept
    _continue(target_server, apply_task(name), stream, first)
    assert _rows(target_server, name) == [(1, 1, 6), (3, 9, 0)]
    assert _kept(target_server, name) == [2, 3, 4, 5, 7]
    with pytest.raises(Fatal, match="MR-5011"):
        replay(endpoint, name, 5)
    assert discard_resolved(endpoint, name) == (0, 0)
    target_server.execute(WIDE, db=name)
    assert replay(endpoint, name, 5) == [2, 3, 4, 5, 7]
    assert _kept(target_server, name) == []
    assert not target_server.execute("SELECT 1 FROM millrace.aside_key WHERE task = %s", (name,))
    first = len(stream.values)
    stream.update(made, account(10, code=8, amount=5), account(10, code=8, amount=7))
    stream.commit()
    _continue(target_server, _task(name), stream, first)
    assert _rows(target_server, name) == [(1, 1, 6), (2, 7, 6), (3, 9, 0), (10, 8, 7)]


def test_keys_of_kept_rows_follow_the_structure_of_the_target(
    name: str, target_server: DatabaseServer
) -> None:
    """An operator adds a unique key: a row that shares its value with a kept one waits from then on."""
    target_server.execute(NARROW, db=name)
    made, stream = accounts(name), RecordStream()
    stream.insert(made, account(10, amount=4))
    stream.commit()
    run_once(target_server, _task(name), stream)
    target_server.execute("ALTER TABLE accounts ADD UNIQUE KEY (amount)", db=name)
    first = len(stream.values)
    stream.insert(made, account(2, amount=4))
    stream.insert(made, account(3, amount=3))
    stream.commit()
    _continue(target_server, _task(name), stream, first)
    assert _kept(target_server, name) == [1, 2]
    assert _rows(target_server, name) == [(3, None, 3)]


def test_statement_waits_for_kept_rows_of_its_table(
    name: str, target_server: DatabaseServer
) -> None:
    """Those of a table that it empties are void; a discard leaves out one change."""
    target_server.execute(NARROW, db=name)
    target_server.execute("CREATE TABLE other (id INT PRIMARY KEY)", db=name)
    stream = _history(name)
    stream.ddl(f"ALTER TABLE {name}.other ADD v INT")
    stream.ddl(f"ALTER TABLE {name}.accounts COMMENT 'x'")
    stream.commit()
    with pytest.raises(Fatal, match=r"MR-5046 .*4 of .*accounts"):
        run_once(target_server, _task(name), stream)
    assert discard(endpoint_of(target_server), name, [2]).kept == []
    assert _kept(target_server, name) == [3, 4, 5]
    discard(endpoint_of(target_server), name, [3, 4])
    assert replay(endpoint_of(target_server), name, 5) == [5]
    run_once(target_server, _task(name), stream)
    assert _rows(target_server, name) == [(1, 1, 0), (2, 7, 0), (3, 9, 0)]


def test_kept_rows_of_an_emptied_table_are_void(name: str, target_server: DatabaseServer) -> None:
    """A TRUNCATE deletes on the source what they would change."""
    target_server.execute(NARROW, db=name)
    made, stream = accounts(name), _history(name)
    stream.ddl(f"TRUNCATE TABLE {name}.accounts")
    stream.insert(made, account(2, code=7))
    stream.commit()
    run_once(target_server, _task(name), stream)
    assert _kept(target_server, name) == []
    assert _rows(target_server, name) == [(2, 7, 0)]


def test_child_of_a_kept_parent_waits(name: str, target_server: DatabaseServer) -> None:
    """It waits in the other table; without the parent, the target would refuse it."""
    target_server.execute("CREATE TABLE p (id INT PRIMARY KEY, v TINYINT)", db=name)
    target_server.execute(
        "CREATE TABLE c (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES p (id))", db=name
    )
    parent = table(name, "p", integer("id"), integer("v", nullable=True))
    child = table(name, "c", integer("id"), integer("p", nullable=True))
    stream = RecordStream()
    stream.insert(parent, {"id": 1, "v": 1000})
    stream.insert(parent, {"id": 2, "v": 1})
    stream.insert(child, {"id": 1, "p": 1})
    stream.insert(child, {"id": 2, "p": 2})
    stream.commit()
    run_once(target_server, _task(name), stream)
    assert _kept(target_server, name) == [1, 3]
    target_server.execute("ALTER TABLE p MODIFY v INT", db=name)
    assert replay(endpoint_of(target_server), name, 3) == [1, 3]
    assert target_server.execute(f"SELECT id, p FROM {name}.c ORDER BY id") == [(1, 1), (2, 2)]


def test_row_larger_than_a_statement_is_kept(name: str, target_server: DatabaseServer) -> None:
    """Its record is stored in parts. A CHECK of the target refuses another row."""
    target_server.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, v LONGTEXT, CHECK (id <> 3)) DEFAULT CHARSET=utf8mb4",
        db=name,
    )
    big, stream = table(name, "t", integer("id"), text("v", 1 << 22)), RecordStream()
    limit = target_server.execute("SELECT @@GLOBAL.max_allowed_packet")[0][0]
    stream.insert(big, {"id": 1, "v": "x'" * 600_000})
    stream.insert(big, {"id": 2, "v": "small"})
    stream.insert(big, {"id": 3, "v": "refused"})
    stream.commit()
    target_server.execute("SET GLOBAL max_allowed_packet = 1048576")
    try:
        run_once(target_server, _task(name), stream)
        assert _kept(target_server, name) == [1, 3]
    finally:
        target_server.execute("SET GLOBAL max_allowed_packet = %s", (limit,))
    with pytest.raises(Fatal, match="MR-5011"):
        replay(endpoint_of(target_server), name, 3)
    assert replay(endpoint_of(target_server), name, 1) == [1]
    rows = target_server.execute(f"SELECT id, LENGTH(v) FROM {name}.t ORDER BY id")
    assert rows == [(1, 1_200_000), (2, 5)]
    assert not target_server.execute("SELECT 1 FROM millrace.aside_part WHERE task = %s", (name,))


def test_too_many_kept_rows_stop_the_task(
    name: str, target_server: DatabaseServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names the first row that is not kept; nothing of its part is applied."""
    monkeypatch.setattr(aside, "ROWS_MAX", 3)
    target_server.execute(NARROW, db=name)
    with pytest.raises(Fatal, match=r"MR-5045 .*seq 5"):
        run_once(target_server, _task(name), _history(name), is_large=False)
    assert _kept(target_server, name) == []
    assert kept.ROWS_MAX > 3


def test_kept_rows_must_go_before_the_task_is_transactional(
    name: str, target_server: DatabaseServer
) -> None:
    """A source transaction would be applied without them."""
    target_server.execute(NARROW, db=name)
    run_once(target_server, _task(name), _history(name))
    with pytest.raises(Fatal, match="MR-5046"):
        started(target_server, apply_task(name, consistency=Consistency.TRANSACTIONAL))
