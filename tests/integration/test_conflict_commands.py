"""`millrace conflict` on real targets: what it shows, what a replay and a discard do, and what they refuse."""

import json
from dataclasses import dataclass

import pytest

from millrace.consumer.target.conflicts import read_conflict, schema_of
from millrace.consumer.target.load_range import side_of
from millrace.consumer.target.progress import save_schemas
from millrace.consumer.write.resolve_conflict import discard, replay
from millrace.deploy.servers import DatabaseServer
from millrace.drivers.mysql.connection import connect
from millrace.errors import Fatal, Fenced
from millrace.schemas.documents import ConflictPolicy
from millrace.schemas.table.structure import Column, ColumnType, TypeCode
from tests.fixtures.shell import Shell, create_apply_task
from tests.kit.apply.local import LocalRecords, apply_task, endpoint_of, ignore, run_once, started
from tests.kit.apply.tables import ACCOUNTS_SQL, account, accounts, integer, table
from tests.kit.apply.topic import RecordStream


@dataclass(frozen=True)
class Commands:
    """Runs `millrace conflict WORD TASK …` for a task on a target."""

    shell: Shell
    task: str

    def __call__(self, word: str, *arguments: str, exit_code: int = 0) -> str:
        """Return the output."""
        return self.shell("conflict", word, self.task, *arguments, exit_code=exit_code)


@pytest.fixture
def conflict(
    shell: Shell, target_server: DatabaseServer, name: str, monkeypatch: pytest.MonkeyPatch
) -> Commands:
    """The commands for the apply task ``name``."""
    create_apply_task(shell, target_server, name, monkeypatch)
    return Commands(shell, name)


def _skipped(server: DatabaseServer, name: str) -> RecordStream:
    """Policy skip leaves out seq 1, an insert of the taken code 7, and seq 2, an update of a missing row."""
    server.execute(ACCOUNTS_SQL, db=name)
    server.execute(f"INSERT INTO {name}.accounts VALUES (5, 7, 'old', 50)")
    made, stream = accounts(name), RecordStream()
    stream.insert(made, account(1, code=7))
    stream.update(made, account(2), account(2, amount=9))
    stream.commit()
    run_once(server, apply_task(name, conflict=ConflictPolicy.SKIP), stream)
    return stream


def _blocked(server: DatabaseServer, name: str) -> RecordStream:
    """Blocked at seq 2, an update of the missing row 99."""
    server.execute(ACCOUNTS_SQL, db=name)
    made, stream = accounts(name), RecordStream()
    stream.insert(made, account(1))
    stream.update(made, account(99), account(99, amount=5))
    stream.insert(made, account(3))
    stream.commit()
    with pytest.raises(Fatal, match="MR-5010"):
        run_once(server, apply_task(name), stream)
    return stream


def _ids(server: DatabaseServer, name: str) -> list[object]:
    return [number for (number,) in server.execute(f"SELECT id FROM {name}.accounts ORDER BY id")]


@pytest.mark.guarantee("applied")
def test_conflict_shows_change_target_row_and_reason(
    conflict: Commands, target_server: DatabaseServer, name: str
) -> None:
    """In a table for people and as JSON; the list has one line for each, within its limit."""
    _skipped(target_server, name)
    found = json.loads(conflict("list", "--json"))
    assert [(row["seq"], row["op"], row["decision"]) for row in found] == [
        (1, "c", "skip"),
        (2, "u", "skip"),
    ]
    assert "1 of 2" in conflict("list", "--limit", "1")
    assert [row["seq"] for row in json.loads(conflict("list", "--from", "2", "--json"))] == [2]
    shown = json.loads(conflict("show", "1", "--json"))
    assert shown["record"]["after"] == account(1, code=7)
    assert shown["target_rows"] == [{"id": 5, "code": 7, "mail": "old", "amount": 50}]
    assert "Duplicate" in shown["why"]
    assert shown["time"].endswith("Z")
    lines = conflict("show", "1").splitlines()
    assert next(line.split() for line in lines if line.startswith("mail")) == [
        "mail",
        "Mail1",
        "old",
    ]
    assert "no row of the target was in the way" in conflict("show", "2")


def test_conflict_shows_bytes_and_long_values_of_the_target_row(
    conflict: Commands, target_server: DatabaseServer, name: str
) -> None:
    """Bytes that are not UTF-8 and values that are cut make no conflict unreadable."""
    target_server.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, b VARBINARY(8), v LONGTEXT, g POINT)", db=name
    )
    target_server.execute(
        f"INSERT INTO {name}.t VALUES (1, x'ff00', REPEAT('x', 5000), ST_GeomFromText('POINT(1 2)'))"
    )
    made = table(name, "t", integer("id"), Column("b", ColumnType(TypeCode.VARCHAR, 8), True))
    stream = RecordStream()
    stream.insert(made, {"id": 1, "b": b"\xfe"})
    stream.commit()
    run_once(target_server, apply_task(name, conflict=ConflictPolicy.OVERWRITE), stream)
    (row,) = json.loads(conflict("show", "1", "--json"))["target_rows"]
    assert row["b"] == {"base64": "/wA="}
    assert len(row["v"]) == 1001
    assert row["g"].startswith("0000")
    assert "0xff00" in conflict("show", "1")


def test_replay_applies_the_change_once(
    conflict: Commands, target_server: DatabaseServer, name: str
) -> None:
    """While the row is in its way, a replay changes nothing; afterwards it applies the change and ends the conflict."""
    _skipped(target_server, name)
    refused = conflict("replay", "1", exit_code=4)
    assert refused.startswith("MR-5010 ")
    assert "repeat the command" in refused
    assert _ids(target_server, name) == [5]
    target_server.execute(f"DELETE FROM {name}.accounts")
    assert "seq 1 applied" in conflict("replay", "1")
    assert _ids(target_server, name) == [1]
    assert conflict("replay", "1", exit_code=4).startswith("MR-5061 ")
    assert [row["seq"] for row in json.loads(conflict("list", "--json"))] == [2]


def test_discard_deletes_resolved_conflicts(
    conflict: Commands, target_server: DatabaseServer, name: str
) -> None:
    """By seq, all or nothing, or all at once; the target's rows stay."""
    _skipped(target_server, name)
    assert conflict("discard", "1", "9", exit_code=4).startswith("MR-5061 ")
    assert "seq 1 discarded" in conflict("discard", "1")
    assert "1 conflict discarded" in conflict("discard", "--all")
    assert conflict("list").strip() == "no conflicts"
    assert _ids(target_server, name) == [5]


@pytest.mark.guarantee("applied")
def test_blocking_change_is_shown_and_left_out_once(
    conflict: Commands, target_server: DatabaseServer, name: str
) -> None:
    """A discard needs a stopped task; the next run applies every other change, and the record stays as skipped."""
    stream = _blocked(target_server, name)
    assert _ids(target_server, name) == []
    shown = json.loads(conflict("show", "2", "--json"))
    assert (shown["decision"], shown["record"]["after"]["amount"]) == ("stop", 5)
    assert shown["target_rows"] == []
    assert "millrace conflict discard" in conflict("show", "2")
    assert conflict("replay", "2", exit_code=4).startswith("MR-5062 ")
    assert conflict("discard", "2", exit_code=4).startswith("MR-5063 ")
    assert "0 conflicts" in conflict("discard", "--all")
    conflict.shell("task", "pause", name)
    assert "task resume" in conflict("discard", "2")
    for again in (("2",), ("--all",)):  # it is the only trace of the change
        assert "kept; the task has not passed it yet" in conflict("discard", *again)
    assert json.loads(conflict("show", "2", "--json"))["decision"] == "skip"
    assert conflict("replay", "2", exit_code=4).startswith("MR-5062 ")
    run_once(target_server, apply_task(name), stream)
    assert _ids(target_server, name) == [1, 3]
    assert json.loads(conflict("show", "2", "--json"))["decision"] == "skip"
    target_server.execute(f"INSERT INTO {name}.accounts VALUES (99, NULL, 'Mail99', 0)")
    conflict("replay", "2")
    assert target_server.execute(f"SELECT amount FROM {name}.accounts WHERE id = 99") == [(5,)]


def test_discard_fences_a_run_that_has_read_its_progress(
    target_server: DatabaseServer, name: str
) -> None:
    """Such a run would apply the change that is left out; the discard ends it before it writes."""
    stream = _blocked(target_server, name)
    running = started(target_server, apply_task(name))
    # the start forgot the blocking change; this is a discard that began before it
    row = (name, 2, "", "t", "u", "stop", "", b"")
    sql = (
        "INSERT INTO millrace.conflict (task, seq, gtid, table_name, op, decision, detail, record)"
    )
    target_server.execute(f"{sql} VALUES (%s, %s, %s, %s, %s, %s, %s, %s)", row)
    target_server.execute(f"INSERT INTO {name}.accounts VALUES (99, NULL, 'Mail99', 0)")
    assert discard(endpoint_of(target_server), name, [2]).left_out == [2]
    with pytest.raises(Fenced):
        running.process(LocalRecords(stream.values), ignore)
    running.close()
    run_once(target_server, apply_task(name), stream)
    assert target_server.execute(f"SELECT amount FROM {name}.accounts WHERE id = 99") == [(0,)]


def test_resumed_task_forgets_the_change_that_blocked_it(
    target_server: DatabaseServer, name: str
) -> None:
    """The operator corrected the row, so the change is applied and is no conflict."""
    stream = _blocked(target_server, name)
    target_server.execute(f"INSERT INTO {name}.accounts VALUES (99, NULL, 'Mail99', 0)")
    run_once(target_server, apply_task(name), stream)
    assert _ids(target_server, name) == [1, 3, 99]
    assert not target_server.execute("SELECT * FROM millrace.conflict WHERE task = %s", (name,))


def test_conflict_keeps_the_schema_of_its_record(target_server: DatabaseServer, name: str) -> None:
    """A rebuilt registry gives the id to another schema; the record is still read with its own."""
    _skipped(target_server, name)
    session = connect(endpoint_of(target_server))
    found = read_conflict(session, name, 1).conflict
    text = schema_of(session, name, found)
    schema_id = int.from_bytes(found.record[1:5], "big")
    save_schemas(session, name, {schema_id: "another"})
    save_schemas(session, name, {schema_id: "a third"})
    assert schema_of(session, name, found) == text
    session.close()


def test_replay_waits_for_open_target_transactions_of_the_task(
    target_server: DatabaseServer, name: str
) -> None:
    """It runs between two of them, so no lane sees a part of it; it does not raise the fence."""
    _skipped(target_server, name)
    target_server.execute(f"DELETE FROM {name}.accounts")
    fence = f"SELECT run FROM millrace.fence WHERE task = '{name}'"
    before = target_server.execute(fence)
    lane = connect(endpoint_of(target_server))
    lane.query(f"{fence} LOCK IN SHARE MODE")
    lane.query("SET SESSION innodb_lock_wait_timeout = 1")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("millrace.drivers.mysql.connection.LOCK_WAIT_S", 1)
        with pytest.raises(Exception, match="MR-5005"):
            replay(endpoint_of(target_server), name, 1)
    lane.close()
    replay(endpoint_of(target_server), name, 1)
    assert target_server.execute(fence) == before
    assert _ids(target_server, name) == [1]


def test_rows_of_a_load_are_found_under_the_task(
    conflict: Commands, target_server: DatabaseServer, name: str
) -> None:
    """Conflicts and waiting statements of the side stream; each command says of which stream they are."""
    _skipped(target_server, name)
    for table_name in ("fence", "progress", "record_schema", "conflict"):
        sql = f"UPDATE millrace.{table_name} SET task = %s WHERE task = %s"
        target_server.execute(sql, (side_of(name), name))
    assert {row["stream"] for row in json.loads(conflict("list", "--json"))} == {"load"}
    assert " load " in conflict("list")
    assert json.loads(conflict("show", "2", "--json"))["stream"] == "load"
    assert "load" in conflict("show", "2")
    target_server.execute(f"INSERT INTO {name}.accounts VALUES (2, NULL, 'Mail2', 0)")
    conflict("replay", "2")
    assert target_server.execute(f"SELECT amount FROM {name}.accounts WHERE id = 2") == [(9,)]
    assert "seq 1 discarded" in conflict("discard", "1")
    assert conflict("list").strip() == "no conflicts"
    sql = "INSERT INTO millrace.ddl_intent (task, seq, sql_text, state_text, decision)"
    target_server.execute(f"{sql} VALUES (%s, 9, 'ALTER', '', '')", (side_of(name),))
    none = conflict.shell("ddl", "end", name, "9", exit_code=4)
    assert none.startswith("MR-5043 the target executes no statement")
    done = conflict.shell("ddl", "skip", name, "9")
    assert "seq 9 of the tables that are loaded is skipped" in done
    sql = "SELECT decision FROM millrace.ddl_intent WHERE task = %s"
    assert target_server.execute(sql, (side_of(name),)) == [("done",)]
    target_server.execute("DELETE FROM millrace.ddl_intent WHERE task = %s", (side_of(name),))


def test_conflict_commands_refuse_other_tasks(shell: Shell, conflict: Commands, name: str) -> None:
    """A capture task has no conflicts; a task that has not run has none yet."""
    capture = "task: c\nkind: capture\nset: shop\nkafka: {bootstrap: 'k:1'}\nregistry: http://r:1\n"
    shell("task", "create", "-f", shell.file(capture))
    assert shell("conflict", "list", "c", exit_code=4).startswith("MR-5061 ")
    assert conflict("show", "1", exit_code=4).startswith("MR-5061 ")
