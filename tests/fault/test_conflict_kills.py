"""`millrace conflict` dies by SIGKILL at each of its fault points: the change is applied, or left out, exactly once."""

import pytest

from millrace.consumer.write import resolve_conflict
from millrace.consumer.write.target_transaction import (
    AFTER_LANE_COMMIT,
    AFTER_MARK,
    BEFORE_LANE_COMMIT,
    BEFORE_MARK,
)
from millrace.deploy.servers import DatabaseServer
from millrace.errors import Fatal
from millrace.schemas.documents import ConflictPolicy, RefusedPolicy
from tests.kit.apply.local import apply_task, endpoint_of, run_once
from tests.kit.apply.tables import integer, table
from tests.kit.apply.topic import RecordStream
from tests.kit.forked import killed_at

POINTS = (resolve_conflict.BEFORE_COMMIT, resolve_conflict.AFTER_COMMIT)


def _is_committed(server: DatabaseServer, name: str, decision: str) -> bool:
    """Whether the conflict of seq 2 is no longer what it was."""
    sql = "SELECT decision FROM millrace.conflict WHERE task = %s AND seq = 2"
    return server.execute(sql, (name,)) != [(decision,)]


@pytest.mark.parametrize("point", POINTS)
def test_killed_replay_applies_the_change_exactly_once(
    target_server: DatabaseServer, name: str, point: str
) -> None:
    """The table has no key, so a change that is applied twice shows."""
    target_server.execute("CREATE TABLE bag (n INT, v INT)", db=name)
    target_server.execute(f"INSERT INTO {name}.bag VALUES (1, 0), (1, 0)")
    bag = table(name, "bag", integer("n"), integer("v"), key=())
    stream = RecordStream()
    stream.delete(bag, {"n": 1, "v": 0})
    stream.delete(bag, {"n": 2, "v": 0})  # not there
    stream.commit()
    run_once(target_server, apply_task(name, conflict=ConflictPolicy.SKIP), stream)
    target_server.execute(f"INSERT INTO {name}.bag VALUES (2, 0), (2, 0)")
    endpoint = endpoint_of(target_server)
    killed_at(f"{point}:kill", lambda: resolve_conflict.replay(endpoint, name, 2))
    if point == resolve_conflict.BEFORE_COMMIT:
        assert not _is_committed(target_server, name, "skip")
        resolve_conflict.replay(endpoint, name, 2)
    with pytest.raises(Fatal, match="MR-5061"):
        resolve_conflict.replay(endpoint, name, 2)
    rows = target_server.execute(f"SELECT n FROM {name}.bag ORDER BY n")
    assert rows == [(1,), (2,)]


@pytest.mark.parametrize("point", POINTS)
def test_killed_discard_leaves_the_change_out_exactly_once(
    target_server: DatabaseServer, name: str, point: str
) -> None:
    """Before the commit the task is still blocked; after it, the next run leaves out this change and no other."""
    target_server.execute("CREATE TABLE bag (n INT)", db=name)
    bag, stream = table(name, "bag", integer("n"), key=()), RecordStream()
    stream.insert(bag, {"n": 1})
    stream.delete(bag, {"n": 2})
    stream.insert(bag, {"n": 2})
    stream.commit()
    task, endpoint = apply_task(name), endpoint_of(target_server)
    with pytest.raises(Fatal, match="MR-5010"):
        run_once(target_server, task, stream)
    killed_at(f"{point}:kill", lambda: resolve_conflict.discard(endpoint, name, [2]))
    if point == resolve_conflict.BEFORE_COMMIT:
        assert not _is_committed(target_server, name, "stop")
        with pytest.raises(Fatal, match="MR-5010"):
            run_once(target_server, task, stream)
        assert resolve_conflict.discard(endpoint, name, [2]).left_out == [2]
    assert _is_committed(target_server, name, "stop")
    repeated = resolve_conflict.discard(endpoint, name, [2])
    assert (repeated.left_out, repeated.kept) == ([], [2])
    run_once(target_server, task, stream)
    run_once(target_server, task, stream)
    assert target_server.execute(f"SELECT n FROM {name}.bag ORDER BY n") == [(1,), (2,)]


def _refusing(server: DatabaseServer, name: str) -> RecordStream:
    """Seqs 1 and 3 are refused, and seqs 2 and 4 follow them. Another table without a key shows repeated rows."""
    server.execute("CREATE TABLE t (id INT PRIMARY KEY, v TINYINT)", db=name)
    server.execute("CREATE TABLE bag (n INT)", db=name)
    rows, bag = (
        table(name, "t", integer("id"), integer("v")),
        table(name, "bag", integer("n"), key=()),
    )
    stream = RecordStream()
    for number in (1, 2):
        stream.insert(rows, {"id": number, "v": 1000})
        stream.update(rows, {"id": number, "v": 1000}, {"id": number, "v": 1001})
    for number in range(200):
        stream.insert(bag, {"n": number})
    stream.commit()
    return stream


def _kept(server: DatabaseServer, name: str) -> list[object]:
    rows = server.execute("SELECT seq FROM millrace.aside WHERE task = %s ORDER BY seq", (name,))
    return [seq for (seq,) in rows]


@pytest.mark.parametrize("point", [BEFORE_LANE_COMMIT, AFTER_LANE_COMMIT, BEFORE_MARK, AFTER_MARK])
def test_killed_task_keeps_refused_rows_exactly_once(
    target_server: DatabaseServer, name: str, point: str
) -> None:
    """A change is kept or applied with its seq, in one target transaction."""
    stream = _refusing(target_server, name)
    task = apply_task(name, refused=RefusedPolicy.ASIDE)
    killed_at(f"{point}:kill", lambda: run_once(target_server, task, stream))
    run_once(target_server, task, stream)
    assert _kept(target_server, name) == [1, 2, 3, 4]
    assert target_server.execute(f"SELECT COUNT(*), SUM(n) FROM {name}.bag") == [(200, 19900)]
    assert target_server.execute(f"SELECT * FROM {name}.t") == []


@pytest.mark.parametrize("point", POINTS)
def test_killed_replay_applies_all_of_a_chain_or_nothing(
    target_server: DatabaseServer, name: str, point: str
) -> None:
    """The row and what follows it are on the target together, and their keys are free with them."""
    stream = _refusing(target_server, name)
    run_once(target_server, apply_task(name, refused=RefusedPolicy.ASIDE), stream)
    target_server.execute("ALTER TABLE t MODIFY v INT", db=name)
    endpoint = endpoint_of(target_server)
    killed_at(f"{point}:kill", lambda: resolve_conflict.replay(endpoint, name, 2))
    if point == resolve_conflict.BEFORE_COMMIT:
        assert _kept(target_server, name) == [1, 2, 3, 4]
        assert resolve_conflict.replay(endpoint, name, 1) == [1, 2]
    assert _kept(target_server, name) == [3, 4]
    keys = target_server.execute(
        "SELECT DISTINCT seq FROM millrace.aside_key WHERE task = %s ORDER BY seq", (name,)
    )
    assert keys == [(3,), (4,)]
    assert target_server.execute(f"SELECT id, v FROM {name}.t") == [(1, 1001)]
