"""`millrace ddl` on real targets: what it shows, the three answers, and what it refuses."""

import json
from contextlib import closing
from dataclasses import replace

import pytest

from millrace.consumer.target.intents import EXECUTE, decide_intent
from millrace.consumer.turn.resident import forget
from millrace.consumer.write import ddl
from millrace.deploy.servers import DatabaseServer
from millrace.drivers.mysql.connection import connect
from millrace.errors import Fatal
from millrace.schemas.view.view import TableRule, View
from tests.fixtures.shell import Shell, create_apply_task
from tests.kit.apply.local import apply_task, endpoint_of, run_once
from tests.kit.apply.tables import ACCOUNTS_SQL, account, accounts
from tests.kit.apply.topic import RecordStream


def _blocked(server: DatabaseServer, name: str, sql: str = "FROBNICATE accounts") -> RecordStream:
    """Blocked at seq 2, between two rows."""
    server.execute(ACCOUNTS_SQL, db=name)
    stream = RecordStream(flavour=server.flavour)
    stream.insert(accounts(name), account(1))
    stream.ddl(sql, database=name)
    stream.insert(accounts(name), account(2))
    stream.commit()
    with pytest.raises(Fatal, match=r"MR-504[12]"):
        run_once(server, apply_task(name), stream)
    return stream


def _columns(server: DatabaseServer, name: str) -> list[object]:
    return [row[0] for row in server.execute(f"SHOW COLUMNS FROM {name}.accounts")]


def _finish(server: DatabaseServer, name: str, stream: RecordStream) -> None:
    """Resume: both rows are there, and no statement waits."""
    run_once(server, apply_task(name), stream)
    found = server.execute(f"SELECT id FROM {name}.accounts ORDER BY id")
    assert found == [(1,), (2,)]
    assert not server.execute("SELECT * FROM millrace.ddl_intent WHERE task = %s", (name,))


def test_operator_decides_about_a_statement(
    shell: Shell, target_server: DatabaseServer, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is listed with its reason; a text of the operator is executed in its place, if a crash can be decided."""
    create_apply_task(shell, target_server, name, monkeypatch)
    assert shell("ddl", "list").strip() == "no statements wait"
    stream = _blocked(target_server, name)
    (listed,) = json.loads(shell("ddl", "list", "--json"))
    assert (listed["task"], listed["seq"], listed["stream"]) == (name, 2, "main")
    assert listed["reason"].startswith("MR-5042 ")
    assert "FROBNICATE accounts" in shell("ddl", "list", name)
    shown = json.loads(shell("ddl", "show", name, "2", "--json"))
    assert shown["sql"] == "FROBNICATE accounts"
    assert shown["answers"] == [
        f"millrace ddl skip {name} 2",
        f"millrace ddl apply {name} 2",
        f"millrace ddl apply {name} 2 --sql STATEMENT",
    ]
    for wrong in (
        "ALTER TABLE accounts ADD COLUMN extra INT",
        f"DELETE FROM {name}.accounts",
        f"DROP TABLE {name}.a; DROP TABLE {name}.b",
        "DROP TABLE millrace.progress",
        f"CREATE TABLE {name}.b SELECT * FROM {name}.accounts",
    ):
        refused = shell("ddl", "apply", name, "2", "--sql", wrong, exit_code=4)
        assert refused.startswith("MR-5044 ")
    own = f"ALTER TABLE {name}.accounts ADD COLUMN extra INT;"
    shell("ddl", "apply", name, "2", "--sql", own)
    assert "will be executed" in shell("ddl", "list", name)
    assert own in shell("ddl", "show", name, "2")
    _finish(target_server, name, stream)
    assert _columns(target_server, name)[-1] == "extra"
    assert shell("ddl", "show", name, "2", exit_code=4).startswith("MR-5043 ")


def test_refused_statement_is_shown_with_its_tables(
    shell: Shell, target_server: DatabaseServer, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their state before it and now; resuming tries it again, and skipping it passes it."""
    create_apply_task(shell, target_server, name, monkeypatch)
    stream = _blocked(target_server, name, "ALTER TABLE accounts DROP COLUMN nonsense")
    target_server.execute(f"ALTER TABLE {name}.accounts ADD COLUMN later INT")
    shown = json.loads(shell("ddl", "show", name, "2", "--json"))
    (state,) = shown["objects"]
    assert state["name"] == f"{name}.accounts"
    assert "later" not in state["before"]
    assert "`later` int" in state["now"]
    assert shown["reason"].startswith("MR-5041 ")
    assert shown["answers"][0] == f"millrace task resume {name}"
    assert f"{name}.accounts now:" in shell("ddl", "show", name, "2")
    shell("ddl", "skip", name, "2")
    _finish(target_server, name, stream)


def test_statement_that_is_none_of_the_target_is_not_applied(
    shell: Shell, target_server: DatabaseServer, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MR-5044 under a view, and no command shows a text that names a hidden column."""
    create_apply_task(shell, target_server, name, monkeypatch)
    target_server.execute(ACCOUNTS_SQL, db=name)
    stream = RecordStream(flavour=target_server.flavour)
    stream.ddl(f"ALTER TABLE {name}.people FROBNICATE planted")
    stream.commit()
    rule = TableRule(f"{name}.people", f"{name}.accounts", drop=("planted",))
    task = replace(apply_task(name), view=View((rule,)))
    with pytest.raises(Fatal, match="MR-5042"):
        run_once(target_server, task, stream)
    (listed,) = json.loads(shell("ddl", "list", "--json"))
    assert "planted" not in str(listed)
    assert "planted" not in shell("ddl", "show", name, "1")
    assert shell("ddl", "apply", name, "1", exit_code=4).startswith("MR-5044 ")
    assert f"`millrace ddl apply {name} 1 --sql" in shell("ddl", "apply", name, "1", exit_code=4)
    own = f"ALTER TABLE {name}.accounts ADD COLUMN extra INT"
    shell("ddl", "apply", name, "1", "--sql", own)
    run_once(target_server, task, stream)
    assert _columns(target_server, name)[-1] == "extra"


@pytest.mark.both_flavours
@pytest.mark.parametrize("point", ["BEFORE_INTENT", "AFTER_INTENT", "AFTER_EXECUTE"])
def test_statement_of_the_operator_is_executed_once(
    target_server: DatabaseServer, name: str, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    """Wherever the driver dies: the states of the tables in the operator's text decide."""
    stream = _blocked(target_server, name)
    own = f"ALTER TABLE {name}.accounts ADD INDEX (amount)"
    with closing(connect(endpoint_of(target_server))) as session:
        decide_intent(session, name, seq=2, decision=EXECUTE, own_sql=own)

    def die(passed: str) -> None:
        if passed == getattr(ddl, point):
            raise _KilledError

    with monkeypatch.context() as patch:
        patch.setattr(ddl, "fault_point", die)
        with pytest.raises(_KilledError):
            run_once(target_server, apply_task(name), stream)
    forget(name)
    _finish(target_server, name, stream)
    keys = target_server.execute(f"SHOW INDEX FROM {name}.accounts WHERE Column_name = 'amount'")
    assert len(keys) == 1


class _KilledError(BaseException):
    """The driver ends here."""
