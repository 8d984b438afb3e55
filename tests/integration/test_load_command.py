"""`millrace task load`: the tables that wait after it, its questions, and what it refuses."""

import io
import json
from collections.abc import Iterator

import pytest
import yaml

from millrace.consumer.load import request
from millrace.deploy.servers import DatabaseServer
from millrace.errors import Fatal
from tests.fixtures.shell import APPLY, CAPTURE, SHOP, Shell
from tests.kit.apply.loads import waiting
from tests.kit.apply.local import apply_task, run_once
from tests.kit.apply.topic import RecordStream

EXCLUDED = "\nexclude: [{name}.left]\n"
TABLES = (
    "CREATE TABLE p (id INT PRIMARY KEY)",
    "CREATE TABLE c (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES p (id))",
    "CREATE TABLE t (id INT PRIMARY KEY)",
    "CREATE TABLE `left` (id INT PRIMARY KEY)",
)
OF_SOURCE = (
    "CREATE TABLE fresh (id INT PRIMARY KEY)",
    "CREATE TABLE uncaptured (id INT PRIMARY KEY)",
    "CREATE TABLE engine (id INT PRIMARY KEY) ENGINE=MyISAM",
    "CREATE VIEW v AS SELECT id FROM t",
)


@pytest.fixture
def target_server(mariadb_server: DatabaseServer) -> DatabaseServer:
    """The request does not depend on the flavour."""
    return mariadb_server


@pytest.fixture
def source_server(mysql_server: DatabaseServer, name: str) -> Iterator[DatabaseServer]:
    """It has the tables of the target, and more."""
    mysql_server.execute(f"CREATE DATABASE {name}")
    for sql in (*TABLES, *OF_SOURCE):
        mysql_server.execute(sql, db=name)
    yield mysql_server
    mysql_server.execute(f"DROP DATABASE {name}")


@pytest.fixture
def task(
    shell: Shell,
    source_server: DatabaseServer,
    target_server: DatabaseServer,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> str:
    """An apply task of this name, without progress; its target has four tables, two of them related."""
    for sql in TABLES:
        target_server.execute(sql, db=name)
    for role, server in (("SOURCE", source_server), ("TEST", target_server)):
        monkeypatch.setenv(f"MILLRACE_{role}_PASSWORD", server.password)
        made = yaml.safe_load(SHOP.replace("TEST", role)) | {
            "set": "origin" if role == "SOURCE" else "shop",
            "members": [{"host": server.host, "port": server.port}],
            "user": server.user,
            "tls": "require-unverified",
        }
        shell("set", "create", "-f", shell.file(yaml.safe_dump(made)))
    capture = CAPTURE.replace("set: shop", "set: origin\ntopic: shop")
    shell("task", "create", "-f", shell.file(capture + f"exclude: [{name}.uncaptured]\n"))
    document = APPLY.replace("shop-apply", name) + EXCLUDED.format(name=name)
    shell("task", "create", "-f", shell.file(document))
    return name


def _run(server: DatabaseServer, name: str) -> None:
    stream = RecordStream()
    stream.commit()
    run_once(server, apply_task(name), stream)


def test_requested_tables_wait_with_those_related_to_them(
    shell: Shell, task: str, target_server: DatabaseServer
) -> None:
    """A dry run and an answer other than yes change nothing."""
    _run(target_server, task)
    target_server.execute(f"INSERT INTO {task}.p VALUES (1)")
    shown = shell("task", "load", task, "--tables", f"{task}.p,{task}.fresh", "--dry-run")
    assert f"{task}.fresh: not on the target yet" in shown
    assert f"{task}.c: about" in shown
    assert waiting(target_server, task) == set()
    found = json.loads(shell("task", "load", task, "--tables", f"{task}.p", "--yes", "--json"))
    assert [(row["table"], row["asked"]) for row in found["tables"]] == [
        (f"{task}.c", False),
        (f"{task}.p", True),
    ]
    assert waiting(target_server, task) == {"p", "c"}
    shell("task", "load", task, "--all", "--yes")
    assert waiting(target_server, task) >= {"p", "c", "t"}
    assert "left" not in waiting(target_server, task)


def test_load_is_confirmed_before_rows_are_replaced(
    shell: Shell, task: str, target_server: DatabaseServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MR-4235; a table that the target does not have loses no rows."""
    _run(target_server, task)
    monkeypatch.setattr("sys.stdin", io.StringIO("no\n"))
    assert "MR-4235" in shell("task", "load", task, "--tables", f"{task}.t", exit_code=4)
    assert waiting(target_server, task) == set()
    words = ("--all", "--json")
    shown = shell("task", "load", task, *words, exit_code=4)
    assert "MR-4235" in shown
    assert "dry_run" not in shown
    monkeypatch.setattr("sys.stdin", io.StringIO("yes\n"))
    assert "1 table will be loaded" in shell("task", "load", task, "--tables", f"{task}.t")
    shell("task", "load", task, "--tables", f"{task}.fresh")
    assert waiting(target_server, task) == {"t", "fresh"}


def test_table_that_the_task_leaves_out_is_not_loaded(
    shell: Shell, task: str, target_server: DatabaseServer
) -> None:
    """MR-4236, also for a system table and for a name without its database; nothing waits."""
    _run(target_server, task)
    for wrong in (f"{task}.left", "mysql.user", "t"):
        tables = f"{task}.t,{wrong}"
        assert "MR-4236" in shell("task", "load", task, "--tables", tables, "--yes", exit_code=4)
    assert waiting(target_server, task) == set()


@pytest.mark.parametrize("wrong", ["nope", "frsh", "T"])
def test_table_that_does_not_exist_is_refused_with_near_names(
    shell: Shell, task: str, target_server: DatabaseServer, wrong: str
) -> None:
    """MR-4209, also for another case where servers compare it; nothing is stored for the other tables either."""
    _run(target_server, task)
    tables = f"{task}.p,{task}.{wrong}"
    shown = shell("task", "load", task, "--tables", tables, "--yes", exit_code=4)
    assert "MR-4209" in shown
    near = {"frsh": "fresh", "T": "t"}.get(wrong)
    assert near is None or f"did you mean {task}.{near}" in shown
    assert waiting(target_server, task) == set()


@pytest.mark.parametrize(
    ("table", "code"), [("v", "MR-4210"), ("uncaptured", "MR-4211"), ("engine", "MR-5095")]
)
def test_view_and_uncaptured_table_are_not_loaded(
    shell: Shell, task: str, target_server: DatabaseServer, table: str, code: str
) -> None:
    """Nor one of which the source can't be read consistently; nothing waits."""
    _run(target_server, task)
    shown = shell("task", "load", task, "--tables", f"{task}.{table}", "--yes", exit_code=4)
    assert code in shown
    assert waiting(target_server, task) == set()


def test_table_that_only_the_target_has_is_dropped(
    shell: Shell, task: str, target_server: DatabaseServer
) -> None:
    """Only if it is named: `--all` leaves a table of the target's own alone."""
    target_server.execute("CREATE TABLE own (id INT PRIMARY KEY)", db=task)
    _run(target_server, task)
    shown = shell("task", "load", task, "--tables", f"{task}.own", "--dry-run")
    assert "it is dropped on the target" in shown
    asked = ("task", "load", task, "--tables", f"{task}.own,{task}.t", "--dry-run", "--json")
    found = {row["table"]: row["on_source"] for row in json.loads(shell(*asked))["tables"]}
    assert found == {f"{task}.own": False, f"{task}.t": True}
    shell("task", "load", task, "--all", "--yes")
    assert waiting(target_server, task) >= {"p", "c", "t"}
    assert "own" not in waiting(target_server, task)


def test_load_without_a_capture_task_is_refused(
    shell: Shell, task: str, target_server: DatabaseServer
) -> None:
    """MR-4203: no one would load the tables."""
    _run(target_server, task)
    shell("task", "delete", "shop-capture")
    tables = f"{task}.t"
    assert "MR-4203" in shell("task", "load", task, "--tables", tables, "--yes", exit_code=4)
    assert waiting(target_server, task) == set()


def test_task_without_progress_loads_no_tables(shell: Shell, task: str) -> None:
    """MR-4237."""
    assert "MR-4237" in shell("task", "load", task, "--all", "--yes", exit_code=4)


def test_skipped_statement_and_its_load_are_one_decision(
    shell: Shell, task: str, target_server: DatabaseServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tables wait and the statement is skipped in one target transaction, or neither."""
    stream = RecordStream()
    stream.ddl("FROBNICATE t", database=task)
    stream.commit()
    with pytest.raises(Fatal, match="MR-5042"):
        run_once(target_server, apply_task(task), stream)

    def decision() -> object:
        sql = "SELECT decision FROM millrace.ddl_intent WHERE task = %s"
        ((found,),) = target_server.execute(sql, (task,))
        return found

    words = ("ddl", "skip", task, "1", "--load")
    assert "MR-4209" in shell(*words, f"{task}.nope", "--yes", exit_code=4)
    monkeypatch.setattr("sys.stdin", io.StringIO("no\n"))
    assert "MR-4235" in shell(*words, f"{task}.t", exit_code=4)
    with monkeypatch.context() as patch:
        patch.setattr(request, "fault_point", _killed)
        with pytest.raises(_KilledError):
            shell(*words, f"{task}.t", "--yes")
    assert (waiting(target_server, task), decision()) == (set(), "")
    assert f"{task}.t will be loaded" in shell(*words, f"{task}.t", "--yes")
    assert (waiting(target_server, task), decision()) == ({"t"}, "done")
    run_once(target_server, apply_task(task), stream)
    assert waiting(target_server, task) == {"t"}


class _KilledError(BaseException):
    """The process ends here."""


def _killed(_: str) -> None:
    raise _KilledError
