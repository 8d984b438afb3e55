"""Commands about sets, tasks and status on a real ZooKeeper, and on servers for `compare`."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from functools import partialmethod

import pytest
import yaml

from millrace.cli import run
from millrace.cli.compare.text import NOT_WAITED
from millrace.cli.exits import ExitCode
from millrace.consumer.target.conflicts import Conflict, store_conflict
from millrace.deploy.servers import DatabaseServer
from millrace.drivers.mysql.connection import connect
from millrace.errors import Fatal
from millrace.schemas.documents import Directives, Member, TaskKind, Work
from millrace.schemas.plain import to_plain
from millrace.schemas.stages import Applied, Backlog, Published, Rates
from millrace.zk.client.session import Session
from millrace.zk.ensemble import Ensemble
from millrace.zk.run.runner import HeldLease
from millrace.zk.tree.store import Store
from tests.fixtures.shell import APPLY, CAPTURE, SHOP, Shell
from tests.kit.apply.local import apply_task, endpoint_of, run_once
from tests.kit.apply.topic import RecordStream
from tests.kit.control.control import ScriptedRunner
from tests.kit.waiting import eventually


def test_set_is_created_listed_and_shown(shell: Shell) -> None:
    """The output of `show` can be created again; it holds the secret only as a reference."""
    assert shell("set", "create", "-f", shell.file(SHOP)) == "set shop created\n"
    assert shell("set", "create", "-f", shell.file(SHOP)) == "set shop unchanged\n"
    assert "127.0.0.1:1" in shell("set", "list")
    shown = shell("set", "show", "shop")
    assert "canary" not in shown
    assert shell("set", "create", "-f", shell.file(shown)) == "set shop unchanged\n"
    assert json.loads(shell("set", "show", "shop", "--json")) == yaml.safe_load(shown)
    assert [s["set"] for s in json.loads(shell("set", "list", "--json"))] == ["shop"]
    other = shell.file(SHOP.replace("port: 1", "port: 2"))
    assert shell("set", "create", "-f", other, exit_code=4).startswith("MR-4103 ")
    assert shell("set", "create", "-f", other, "--replace") == "set shop replaced\n"


@pytest.mark.guarantee("secret")
def test_no_secret_reaches_zookeeper_or_the_output(shell: Shell) -> None:
    """A planted password is resolved only where it is used; no node and no output line contains it."""
    printed = [
        shell("set", "create", "-f", shell.file(SHOP)),
        shell("task", "create", "-f", shell.file(CAPTURE)),
        shell("task", "wait", "shop-capture", "--timeout", "0", exit_code=3),
        shell("set", "create", "-f", shell.file(SHOP.replace("env:", "canary")), exit_code=4),
        shell("status", "--json"),
        shell("set", "list", "--json"),
    ]
    with shell.ensemble.session() as session:
        contents = list(_all_contents(session, shell.ensemble.tree.root))
    assert any(b"env:MILLRACE_TEST_PASSWORD" in content for content in contents)
    assert not any(b"canary" in content for content in contents)
    assert not any("canary" in text for text in printed)


def _all_contents(session: Session, path: str) -> Iterator[bytes]:
    node = session.get(path)
    assert node is not None
    yield node.content
    for name in session.children(path):
        yield from _all_contents(session, f"{path}/{name}")


def test_invalid_document_is_refused_with_every_problem_and_fix(shell: Shell) -> None:
    """Each problem has its path, the value and what is expected; the file is named and nothing is created."""
    output = shell(
        "set", "create", "-f", shell.file("set: shop\nmembers: []\npasswort: x"), exit_code=4
    )
    assert output.startswith("MR-4101 ")
    assert "document.yaml" in output
    assert "members: found 0 entries, wanted a list of 1 to 64" in output
    assert "passwort: found an unknown field, wanted 'password' (nearest)" in output
    assert "user: found nothing" in output
    assert "Correct the fields that the message names" in output
    assert shell("set", "list").startswith("no sets")
    assert shell("set", "create", "-f", "/nope", exit_code=4).startswith("MR-4206 ")
    assert shell("set", "create", "-f", shell.file("a: ["), exit_code=4).startswith("MR-4102 ")
    assert shell("set", "show", "nope", exit_code=4).startswith("MR-4104 ")
    assert shell("task", "create", "-f", shell.file(CAPTURE), exit_code=4).startswith("MR-4104 ")


def test_task_commands_work_from_create_to_delete(shell: Shell) -> None:
    """Every command, with a worker that runs the task; status gives the reason at each step."""
    shell("set", "create", "-f", shell.file(SHOP))
    assert shell("task", "create", "-f", shell.file(CAPTURE)) == "task shop-capture created\n"
    assert "no capture worker is running" in shell("status")
    assert "pending" in shell("task", "list")
    with shell.running(ScriptedRunner()):
        eventually(lambda: _state(shell) == "running")
        assert shell("task", "pause", "shop-capture") == "task shop-capture paused\n"
        assert _state(shell) == "paused"
        output = shell("task", "show", "shop-captur", exit_code=4)
        assert output.startswith("MR-4104 there is no task 'shop-captur' in cluster ")
        assert "; did you mean 'shop-capture'?\n" in output
        assert "paused by " in shell("status")
        assert shell("task", "resume", "shop-capture") == "task shop-capture resumed\n"
        eventually(lambda: _state(shell) == "running")
        shown = json.loads(shell("task", "show", "shop-capture", "--json"))
        assert shown["document"]["topic"] == "shop"
        assert shown["status"]["seq"] == 7
        assert "gtid_set: 0-1-7" in shell("task", "show", "shop-capture")
        assert shell("task", "delete", "shop-capture") == "task shop-capture deleted\n"
    assert shell("task", "list").startswith("no tasks")
    assert shell("task", "delete", "shop-capture", exit_code=4).startswith("MR-4104 ")


def test_changed_start_without_effect_is_reported(shell: Shell) -> None:
    """Millrace reads `start` only for a topic without records, and this task has already published."""
    shell("set", "create", "-f", shell.file(SHOP))
    shell("task", "create", "-f", shell.file(CAPTURE))
    later = CAPTURE + "start: '0-1-3'\n"

    def replaced(text: str) -> str:
        return shell("task", "create", "-f", shell.file(text), "--replace", stream="err")

    assert replaced(later) == ""  # nothing is published yet
    with shell.running(ScriptedRunner()):
        eventually(lambda: _state(shell) == "running")
        output = replaced(CAPTURE)
        assert "`start` changed from 0-1-3 to first and has no effect" in output
        assert "The task resumes after 0-1-7, seq 7" in output
        assert replaced(CAPTURE + "exclude: [shop.t]\n") == ""
        assert replaced(later + "topic: another\n") == ""  # a new topic, where `start` is read


def test_apply_task_keeps_the_topic_of_its_progress(shell: Shell) -> None:
    """Another topic would block the task at its next start; before its first record the topic may change."""
    shell("set", "create", "-f", shell.file(SHOP))
    words = ("task", "create", "--replace", "-f")
    other = APPLY.replace("topic: shop", "topic: other")
    shell(*words, shell.file(other))
    assert "replaced" in shell(*words, shell.file(APPLY))
    with shell.running(ScriptedRunner(), kind=TaskKind.APPLY):
        eventually(lambda: _state(shell) == "running")
        refused = shell(*words, shell.file(other), exit_code=4)
    assert refused.startswith("MR-5022 shop-apply has applied the topic shop up to seq 7")
    assert "Set `topic` to shop" in refused
    assert "replaced" in shell(*words, shell.file(APPLY + "lanes: 2\n"))


def test_status_json_is_one_complete_object(shell: Shell) -> None:
    """The fields that scripts rely on."""
    shell("set", "create", "-f", shell.file(SHOP))
    shell("task", "create", "-f", shell.file(CAPTURE))
    with shell.running(ScriptedRunner()):
        eventually(lambda: _state(shell) == "running")
        plain = json.loads(shell("status", "--json"))
    assert plain["cluster"] == shell.ensemble.tree.cluster
    assert plain["scheduler"] == "s1"
    assert plain["workers"] == {"w1": "capture"}
    (task,) = plain["tasks"]
    assert task.pop("epoch") > 2**52
    assert task.pop("age_s") >= 0
    assert task.pop("silent_s") >= 0
    assert task == {
        "task": "shop-capture",
        "kind": "capture",
        "source": None,
        "switches": [],
        "relay": None,
        "published": {"seq": 7, "gtid_set": "0-1-7", **to_plain(Published())},
        "snapshot": None,
        "subscribers": [],
        "route": "set shop → topic shop",
        "assigned": "w1",
        "state": "running",
        "why": "waits for changes",
        "code": "",
        "fix": "",
        "next_try_s": 0.0,
        "gtid_set": "0-1-7",
        "seq": 7,
        "topic": "shop",
        "topic_end": 0,
        "worker": "w1",
        "warnings": [],
    }


def test_json_status_of_an_apply_task_has_its_stage(shell: Shell) -> None:
    """Lag, backlog, rates and ETA as the runner reported them, with the position on the target."""
    shell("set", "create", "-f", shell.file(SHOP))
    shell("task", "create", "-f", shell.file(APPLY))
    stage = Applied(
        lag_s=0.25,
        commit_ms=1_700_000_000_000,
        backlog=Backlog(70, 30, 7000),
        rates=Rates(1234.5, 67.8),
        eta_s=0.1,
    )
    with shell.running(ScriptedRunner(applied=stage), kind=TaskKind.APPLY):
        eventually(lambda: _state(shell) == "running")
        (task,) = json.loads(shell("status", "--json"))["tasks"]
        text = shell("status")
    assert task["applied"] == {
        "seq": 7,
        "gtid_set": "0-1-7",
        "consistent_gtid": "0-1-7",
        "time_to_loss_s": None,
        **to_plain(stage),
    }
    assert "lag 0.2 s | backlog 30 rows, 6.8 KiB | 1,234 rows/s | ETA 0 s" in text


def test_commands_without_an_ensemble_name_the_setting(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unset or wrong setting gives a code and a fix."""
    monkeypatch.setenv("MILLRACE_CLUSTER", "a/b")
    assert "MILLRACE_CLUSTER" in shell("status", exit_code=4)
    monkeypatch.delenv("MILLRACE_ZOOKEEPER")
    output = shell("status", exit_code=4)
    assert output.startswith("MR-4205 ")
    assert "export MILLRACE_ZOOKEEPER=" in output


def test_generation_is_shown_and_raised(shell: Shell) -> None:
    """After an ensemble was rebuilt, the command raises epochs above all earlier ones."""
    assert shell("cluster", "show").endswith("generation 1\n")
    assert shell("cluster", "raise-generation").endswith("generation 2\n")


def test_every_code_can_be_explained(shell: Shell) -> None:
    """Works offline, with cause and fix; an unknown code is an error."""
    assert "raise-generation" in shell("explain", "MR-4006")
    assert shell("explain", "4006") == shell("explain", "mr-4006")
    assert "MR-4101" in shell("explain")
    assert shell("explain", "MR-0", exit_code=4).startswith("MR-4207 ")


SAFELY = (
    "SET foreign_key_checks=0, sql_mode='NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES', time_zone='+00:00', NAMES utf8mb4;"
    " {} SET foreign_key_checks=1, sql_mode=DEFAULT, time_zone=DEFAULT;"
)
REPAIRS = (
    SAFELY.format("UPDATE `cli_compared`.`t` SET `id` = 2, `v` = 'two' WHERE `id` IN (2) LIMIT 1;"),
    SAFELY.format("INSERT INTO `cli_compared`.`t` (`id`, `v`) VALUES (3, 'three');"),
)
DIFFERENCES = [
    {
        "table": "cli_compared.t",
        "what": "different",
        "key": "2",
        "source": "`id`=2, `v`='two'",
        "target": "`id`=2, `v`='zwei'",
        "repair": REPAIRS[0],
        "note": None,
    },
    {
        "table": "cli_compared.t",
        "what": "missing",
        "key": "3",
        "source": "`id`=3, `v`='three'",
        "target": None,
        "repair": REPAIRS[1],
        "note": None,
    },
]


@pytest.fixture
def two_sets(
    shell: Shell,
    mariadb_server: DatabaseServer,
    target_server: DatabaseServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The sets shop and warehouse, of one server each."""
    monkeypatch.setenv("MILLRACE_TEST_PASSWORD", mariadb_server.password)
    for name, server in (("shop", mariadb_server), ("warehouse", target_server)):
        shell("set", "create", "-f", shell.file(_document_of_one(name, server)))


def _create_tasks(shell: Shell, include: str = "*.*") -> None:
    """Capture of these tables from shop, and apply to warehouse."""
    shell("task", "create", "-f", shell.file(f'{CAPTURE}include: ["{include}"]\n'))
    shell("task", "create", "-f", shell.file(APPLY.replace("target: shop", "target: warehouse")))


@pytest.mark.usefixtures("two_sets")
def test_repair_waits_for_the_task_and_is_confirmed(shell: Shell) -> None:
    """It excludes --now, and changes nothing without a yes."""
    _create_tasks(shell)
    for option in ("--repair", "--resume"):
        assert "MR-5125" in shell("compare", "shop-apply", "--now", option, exit_code=4)
    assert "MR-5127" in shell("compare", "shop-apply", "--repair", "--json", exit_code=4)


@pytest.mark.usefixtures("two_sets")
def test_compare_exits_with_1_and_names_the_difference(
    shell: Shell,
    mariadb_server: DatabaseServer,
    target_server: DatabaseServer,
) -> None:
    """Exit code 0 while all rows are equal, 1 otherwise; the same result as text and as one JSON object."""
    for server in (mariadb_server, target_server):
        server.execute("DROP DATABASE IF EXISTS cli_compared")
        server.execute("CREATE DATABASE cli_compared COLLATE utf8mb4_general_ci")
        server.execute("CREATE TABLE cli_compared.t (id INT PRIMARY KEY, v VARCHAR(20))")
        server.execute("INSERT INTO cli_compared.t VALUES (1, 'one'), (2, 'two'), (3, 'three')")
    _create_tasks(shell, "cli_compared.*")
    counts = "1 table, 3 rows: "
    assert shell("compare", "shop-apply", "--now").endswith(f"{counts}equal\n")
    assert json.loads(shell("compare", "shop-apply", "--now", "--json")) == {
        "task": "shop-apply",
        "source": f"{mariadb_server.host}:{mariadb_server.port}",
        "why_primary": None,
        "tables": 1,
        "rows": 3,
        "differences": 0,
        "unsettled": 0,
        "waited": False,
        "repaired": 0,
        "structure_differences": 0,
        "is_equal": True,
        "details": [],
        "left_out": [],
        "kept_aside": [],
        "columns_left_out": [],
        "structure": [],
    }
    target_server.execute("UPDATE cli_compared.t SET v = 'zwei' WHERE id = 2")
    target_server.execute("DELETE FROM cli_compared.t WHERE id = 3")
    words = shell("compare", "shop-apply", "--now", exit_code=1, stream="out")
    assert words.splitlines() == [
        NOT_WAITED,
        "cli_compared.t: different: 2",
        "  source  `id`=2, `v`='two'",
        "  target  `id`=2, `v`='zwei'",
        f"  repair  {REPAIRS[0]}",
        "cli_compared.t: missing: 3",
        "  source  `id`=3, `v`='three'",
        f"  repair  {REPAIRS[1]}",
        f"{counts}2 differences",
    ]
    assert json.loads(
        shell("compare", "shop-apply", "--now", "--json", exit_code=1, stream="out")
    ) == {
        "task": "shop-apply",
        "source": f"{mariadb_server.host}:{mariadb_server.port}",
        "why_primary": None,
        "tables": 1,
        "rows": 3,
        "differences": 2,
        "unsettled": 0,
        "waited": False,
        "repaired": 0,
        "structure_differences": 0,
        "is_equal": False,
        "details": DIFFERENCES,
        "left_out": [],
        "kept_aside": [],
        "columns_left_out": [],
        "structure": [],
    }
    target_server.execute("DELETE FROM cli_compared.t")
    target_server.execute("INSERT INTO cli_compared.t VALUES (1, 'one'), (2, 'two'), (3, 'three')")
    target_server.execute("ALTER TABLE cli_compared.t ADD more INT")
    listed = [
        "cli_compared.t: structure: column more",
        "  source  -",
        "  target  int NULL DEFAULT NULL",
        f"{counts}rows equal, 1 difference of structure",
    ]
    now = ("compare", "shop-apply", "--now")
    assert shell(*now).splitlines() == listed
    assert shell(*now, "--structure", "fail", exit_code=1, stream="out").splitlines() == listed
    assert shell(*now, "--structure", "ignore").splitlines() == [f"{counts}equal"]
    for server in (mariadb_server, target_server):
        server.execute("DROP DATABASE cli_compared")


@pytest.mark.usefixtures("two_sets")
def test_compare_of_a_blocked_task_names_the_tables_to_load(
    shell: Shell,
    mariadb_server: DatabaseServer,
    target_server: DatabaseServer,
) -> None:
    """A row that differs blocks the task, and the comparison waits for the task: only a load helps."""

    def script(task: Work, _lease: HeldLease, _stop: threading.Event) -> None:
        raise Fatal("MR-5010", "row 9 is missing", fix="Correct the row.")

    _create_tasks(shell)
    run_once(target_server, apply_task("shop-apply"), RecordStream())
    with closing(connect(endpoint_of(target_server))) as session:
        for seq, (table, decision) in enumerate((("shop.old", "skip"), ("shop.orders", "stop"))):
            found = Conflict(seq, "", table, "u", "it is missing", b"", "")
            store_conflict(session, "shop-apply", found, decision=decision, bytes_max=1 << 20)
        session.commit()
    with shell.running(ScriptedRunner(script, gtid_set=""), kind=TaskKind.APPLY):
        output = shell("compare", "shop-apply", "--repair", "--yes", exit_code=4)
    assert output.startswith("MR-4202 ")
    assert "MR-5010 row 9 is missing" in output
    assert "millrace task load shop-apply --tables shop.orders`" in output
    target_server.execute("DELETE FROM millrace.conflict WHERE task = 'shop-apply'")


@pytest.mark.chaos
@pytest.mark.usefixtures("two_sets")
def test_compare_in_spark_prints_the_same(
    shell: Shell,
    mariadb_server: DatabaseServer,
    target_server: DatabaseServer,
) -> None:
    """With a master the command is a Spark driver; only the result is on standard output, and it ends."""
    for server in (mariadb_server, target_server):
        server.execute("CREATE DATABASE IF NOT EXISTS cli_spark")
    mariadb_server.execute("CREATE TABLE cli_spark.t (id INT PRIMARY KEY)")
    mariadb_server.execute("INSERT INTO cli_spark.t VALUES (1), (2)")
    target_server.execute("CREATE TABLE cli_spark.t (id INT PRIMARY KEY)")
    target_server.execute("INSERT INTO cli_spark.t VALUES (2)")
    _create_tasks(shell, "cli_spark.*")
    wanted = shell("compare", "shop-apply", "--now", "--json", exit_code=1, stream="out")
    environment = {name: value for name, value in os.environ.items() if name != "MILLRACE_HOME"}
    command = (sys.executable, "-m", "millrace", "compare", "shop-apply", "--now", "--json")
    done = subprocess.run(
        (*command, "--master", "local[1]", "--conf", "spark.driver.memory=600m"),
        check=False,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert (done.returncode, done.stdout) == (1, wanted), done.stderr[-3000:]
    assert json.loads(wanted)["differences"] == 1
    for server in (mariadb_server, target_server):
        server.execute("DROP DATABASE cli_spark")


def _state(shell: Shell) -> str:
    (task,) = json.loads(shell("task", "list", "--json"))
    return str(task["state"])


def _document_of_one(name: str, server: DatabaseServer) -> str:
    members = [{"host": server.host, "port": server.port}]
    plain = {**yaml.safe_load(SHOP), "set": name, "members": members, "user": server.user}
    return yaml.safe_dump({**plain, "tls": "require-unverified"})


def test_verify_finds_the_broker_in_the_task_document(shell: Shell) -> None:
    """`topic verify` reads the broker from the task document; here that broker is unreachable."""
    shell("set", "create", "-f", shell.file(SHOP))
    shell("task", "create", "-f", shell.file(CAPTURE))
    topic = yaml.safe_load(CAPTURE).get("topic", "shop")
    assert "MR-3502" in shell("topic", "verify", "unheard-of", exit_code=4)
    assert "MR-3501" in shell("topic", "verify", topic, exit_code=3)


def test_command_reports_an_unreachable_ensemble(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An exit code that asks for another try, the error code, and what to check."""
    monkeypatch.setenv("MILLRACE_ZOOKEEPER", "127.0.0.1:1")
    impatient = partialmethod(Ensemble.open, connect_timeout_s=0.3)
    monkeypatch.setattr(Ensemble, "open", impatient)
    assert run(["status", "--json"]) == ExitCode.RETRY
    output = capsys.readouterr().err
    assert "MR-4001" in output
    assert "MILLRACE_ZOOKEEPER" in output


def test_replica_commands_direct_the_stream(shell: Shell) -> None:
    """Wishes are kept in ZooKeeper, where the worker reads them; `list` asks the members while no worker reads them."""
    shell("set", "create", "-f", shell.file(SHOP))
    assert shell("replica", "drain", "shop", "127.0.0.1:1") == (
        "set shop: 127.0.0.1:1 is drained\n"
        "every member is drained: a running stream keeps the one that it reads\n"
    )
    assert shell("replica", "pin", "shop", "127.0.0.1") == "set shop: 127.0.0.1:1 is pinned\n"
    with shell.ensemble.session() as session:
        store = Store(session, shell.ensemble.tree)
        member = Member("127.0.0.1", 1)
        assert store.directives("shop") == Directives(member, frozenset({member}))
        (listed,) = json.loads(shell("replica", "list", "shop", "--json"))
        assert (listed["host"], listed["port"], listed["reachable"]) == ("127.0.0.1", 1, False)
        assert "MR-1001" in listed["why"]
        assert listed["age_s"] == 0.0
        output = shell("replica", "list", "shop")
        assert "drained" in output
        assert "has asked the members just now" in output
        shell("replica", "undrain", "shop", "127.0.0.1:1")
        shell("replica", "unpin", "shop", "127.0.0.1:1")
        assert store.directives("shop") == Directives()
    for former in ("pin", "drain"):
        shell("replica", former, "shop", "127.0.0.1:1")
    shell("set", "create", "--replace", "-f", shell.file(SHOP.replace("port: 1}", "port: 2}")))
    for ending in ("unpin", "undrain"):
        shell("replica", ending, "shop", "127.0.0.1:1")
        assert shell("replica", ending, "shop", "db9:3306", exit_code=4).startswith("MR-4110 ")
    with shell.ensemble.session() as session:
        assert Store(session, shell.ensemble.tree).directives("shop") == Directives()
    shell("set", "create", "--replace", "-f", shell.file(SHOP))
    unknown = shell("replica", "drain", "shop", "db9:3306", exit_code=4)
    assert unknown.startswith("MR-4110 ")
    assert "127.0.0.1:1" in unknown
    assert shell("replica", "pin", "none", "db9:3306", exit_code=4).startswith("MR-4104 ")
