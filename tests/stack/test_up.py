"""The local stack: the README's commands start it in the background, other commands find it, `down` removes it."""

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pymysql
import pytest

from consumer.spark.scratch import PREFIX
from deploy.local.background import records
from deploy.local.services import APPLY_TASK, CAPTURE_TASK, SERVICES
from deploy.servers.process import is_running, session_members
from drivers.kafka.reader import TopicReader
from millrace.cli.status.json_form import as_plain
from millrace.home_folder import STACK, home, local_stack_folder
from schemas.documents import Brokers
from tests.fixtures.servers import FLAVOURS
from tests.kit import canaries
from tests.kit.control.page import Scrape, fetched
from tests.kit.local_stack import metrics_address, run_millrace
from tests.kit.readme import script_of_a_stack, shell
from tests.kit.waiting import eventually
from zk.client.session import Session
from zk.tree.paths import Tree
from zk.view import read_cluster, views

NAME = "stack-test"
SERVERS = 6  # source primary and two replicas, target, Kafka, ZooKeeper


@pytest.fixture(
    scope="module",
    params=[FLAVOURS[0], *(pytest.param(each, marks=pytest.mark.chaos) for each in FLAVOURS[1:])],
    ids=str,
)
def readme_output(request: pytest.FixtureRequest) -> Iterator[str]:
    """The output of the README's commands, from `millrace up` on. The stack runs until `down`."""
    run_millrace("down", "--name", NAME)
    if request.param is not FLAVOURS[0]:
        assert run_millrace("up", "--name", NAME, "--flavour", request.param).returncode == 0
    yield shell(script_of_a_stack()[0], {STACK: NAME})
    run_millrace("down", "--name", NAME)


@pytest.fixture(scope="module")
def stack(readme_output: str) -> dict[str, Any]:
    """The output of `millrace up --json`, which finds the stack of the README."""
    done = run_millrace("up", "--json", "--name", NAME)
    assert done.returncode == 0, done.stderr + readme_output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_readme_commands_show_a_row_on_the_target(readme_output: str) -> None:
    """The block with `millrace up` creates a row, and shows it on the target and in the topic."""
    assert readme_output.count("hello") == 2, readme_output
    assert "shop-to-warehouse" in readme_output


def test_killed_server_is_restarted(stack: dict[str, Any]) -> None:
    """The keeper restarts a killed primary on the same port with its data."""
    primary = stack["source"][0]
    login = {name: primary[name] for name in ("host", "port", "user", "password")}
    with pymysql.connect(**login) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE DATABASE kept")
    record = next(
        one
        for one in records(local_stack_folder(NAME))
        if f"port {primary['port']}" in one.spec.name
    )
    os.kill(record.identity.pid, signal.SIGKILL)
    eventually(lambda: not is_running(record.identity))
    eventually(lambda: _answers(login))
    with pymysql.connect(**login) as connection, connection.cursor() as cursor:
        assert cursor.execute("SHOW DATABASES LIKE 'kept'") == 1


def test_every_database_a_user_creates_is_replicated(stack: dict[str, Any]) -> None:
    """Rows of a database created after `up` arrive, and the status names the chosen member and the reason."""
    for statement in (
        "CREATE DATABASE mine",
        "CREATE TABLE mine.t (id INT PRIMARY KEY, v VARCHAR(20))",
        "INSERT INTO mine.t VALUES (1, 'one'), (2, 'two')",
        "CREATE DATABASE another",
    ):
        _asked(stack["source"][0], statement)
    address = {"MILLRACE_ZOOKEEPER": stack["zookeeper"], "MILLRACE_CLUSTER": "default"}
    waited = run_millrace("task", "wait", "shop-to-warehouse", "--timeout", "300", **address)
    assert waited.returncode == 0, waited.stderr + run_millrace("status", **address).stdout
    target = stack["targets"][0]
    assert _asked(target, "SELECT * FROM mine.t ORDER BY id") == [(1, "one"), (2, "two")]
    assert _asked(target, "SHOW DATABASES LIKE 'another'") == [("another",)]
    status = json.loads(run_millrace("status", "--json", **address).stdout)
    read = next(t["source"] for t in status["tasks"] if t["task"] == "shop-capture")
    assert read["role"] == "replica"
    detail = run_millrace("status", "shop-capture", **address).stdout
    members = [line.split()[1] for line in detail.splitlines() if line.startswith("  member ")]
    assert sorted(members) == sorted(f"{one['host']}:{one['port']}" for one in stack["source"])
    assert f"{read['host']}:{read['port']}" in members


def test_every_process_of_a_stack_shows_its_metrics(stack: dict[str, Any]) -> None:
    """They are ready, and the figures of the tasks are those of the status."""
    for statement in (
        "CREATE DATABASE measured",
        "CREATE TABLE measured.t (id INT PRIMARY KEY)",
        "INSERT INTO measured.t VALUES (1), (2)",
    ):
        _asked(stack["source"][0], statement)
    folder = local_stack_folder(NAME)
    at = {name: metrics_address(folder / name / "log") for name in SERVICES}
    eventually(lambda: all(fetched(each, "/readyz") == (200, "ok\n") for each in at.values()))
    assert all(fetched(each, "/livez") == (200, "ok\n") for each in at.values())
    address = {"MILLRACE_ZOOKEEPER": stack["zookeeper"], "MILLRACE_CLUSTER": "default"}

    def are_equal() -> bool:
        status = json.loads(_done(address, "status", "--json"))
        seqs = {task["task"]: task["seq"] for task in status["tasks"]}
        worker, apply = Scrape(at["worker"]), Scrape(at["apply"])
        return (
            worker.value("millrace_seq", task=CAPTURE_TASK) == seqs[CAPTURE_TASK] > 0
            and apply.value("millrace_seq", task=APPLY_TASK) == seqs[APPLY_TASK] > 0
            and worker.value("millrace_publish_lag_seconds", task=CAPTURE_TASK) == 0
            and apply.value("millrace_apply_lag_seconds", task=APPLY_TASK) == 0
        )

    eventually(are_equal, every_s=0.5, what="metrics and status are equal")
    found = {name: Scrape(each) for name, each in at.items()}
    for name, series, labels in (
        ("scheduler", "millrace_scheduler_leading", {}),
        ("registry", "millrace_registry_requests_total", {"method": "POST", "status": "200"}),
        ("worker", "millrace_state", {"task": CAPTURE_TASK, "state": "running"}),
        ("worker", "millrace_kafka_txn_total", {"result": "commit", "reason": ""}),
        ("worker", "millrace_kafka_txn_seconds_count", {}),
        ("worker", "millrace_relay_bytes", {"task": CAPTURE_TASK, "state": "used"}),
        ("apply", "millrace_state", {"task": APPLY_TASK, "state": "running"}),
        ("apply", "millrace_applied_rows_total", {"task": APPLY_TASK}),
    ):
        assert (found[name].value(series, **labels) or 0) > 0, series


BACKLOG_ROWS, BATCH_ROWS = 50_000, 5_000
# on each row of the target, so that applying the backlog lasts longer than two reports on any machine
SLOWLY = "CREATE TRIGGER late.slowly BEFORE INSERT ON late.t FOR EACH ROW DO SLEEP(0.001)"


@dataclass
class _Looks:
    """The stage ``applied`` of the apply task as often as it changes."""

    session: Session
    seen: list[dict[str, Any]] = field(default_factory=list)

    def is_caught_up(self) -> bool:
        cluster = read_cluster(self.session, Tree("default"))
        plain: Any = as_plain("default", cluster, views(cluster))
        (task,) = (each for each in plain["tasks"] if each["task"] == APPLY_TASK)
        stage = task["applied"]
        if task["state"] != "running" or stage["backlog"]["records"] is None:
            return False
        if not self.seen or self.seen[-1] != stage:
            self.seen.append(stage)
        return bool(stage["backlog"]["records"] == 0)


def test_status_shows_how_a_backlog_shrinks(stack: dict[str, Any]) -> None:
    """The source commits while the apply task is paused. After its resume the backlog and the lag fall to 0.

    Whether an ETA comes true depends on the machine: tests/unit/test_pace.py checks how it is computed.
    """
    address = {"MILLRACE_ZOOKEEPER": stack["zookeeper"], "MILLRACE_CLUSTER": "default"}
    source = stack["source"][0]
    _asked(source, "CREATE DATABASE late")
    _asked(source, "CREATE TABLE late.t (id INT PRIMARY KEY, v VARCHAR(40))")
    _done(address, "task", "wait", APPLY_TASK, "--timeout", "300")
    _done(address, "task", "pause", APPLY_TASK)
    _asked(stack["targets"][0], SLOWLY)
    for first in range(0, BACKLOG_ROWS, BATCH_ROWS):
        rows = ",".join(f"({n},'{n:040}')" for n in range(first, first + BATCH_ROWS))
        _asked(source, f"INSERT INTO late.t VALUES {rows}")
    _done(address, "task", "wait", CAPTURE_TASK, "--timeout", "300")
    _done(address, "task", "resume", APPLY_TASK)
    with closing(Session.open(stack["zookeeper"])) as session:
        looks = _Looks(session)
        eventually(looks.is_caught_up, every_s=0.1, what="the backlog is applied")
        eventually(lambda: looks.is_caught_up() and looks.seen[-1]["lag_s"] == 0.0)
    backlogs = [stage["backlog"]["records"] for stage in looks.seen]
    assert max(backlogs) > 0.2 * BACKLOG_ROWS
    lags = [stage["lag_s"] for stage in looks.seen if stage["lag_s"] is not None]
    assert max(lags) > lags[-1] == 0.0
    begun = [
        stage for stage in looks.seen if BATCH_ROWS < stage["backlog"]["records"] < BACKLOG_ROWS
    ]
    assert begun, looks.seen
    assert all(stage["rows_s"]["over_10_s"] > 0 and stage["eta_s"] > 0 for stage in begun)
    line = "lag 0.0 s | backlog 0 | "  # a control record waits now and then
    eventually(lambda: line in _done(address, "status"), what="the line of a caught-up task")


@pytest.mark.guarantee("secret")
def test_planted_passwords_are_found_nowhere(stack: dict[str, Any]) -> None:
    """After rows have passed: not in logs, ZooKeeper's and Kafka's files, relay, Spark's folders, processes, output.

    Only in the files that the documents name, and only their owner can read these.
    """
    folder = local_stack_folder(NAME)
    secrets = {path.name: path.read_text() for path in (folder / "secrets").iterdir()}
    assert len(secrets) >= 2
    assert folder.stat().st_mode & 0o077 == 0
    address = {"MILLRACE_ZOOKEEPER": stack["zookeeper"], "MILLRACE_CLUSTER": "default"}
    eventually(lambda: '"running"' in _done(address, "status", "--json"))
    logs = [record.spec.log for record in records(folder)]
    assert [log for log in logs if not log.stat().st_size and "ZooKeeper" not in str(log)] == []
    kept = [f"{name}: {folder / 'secrets' / name}" for name in sorted(secrets)]
    assert canaries.in_files(folder, secrets) == kept
    drivers = Path("/dev/shm").glob(f"{PREFIX}*")
    assert [found for driver in drivers for found in canaries.in_files(driver, secrets)] == []
    assert canaries.in_processes({"address": stack["zookeeper"]}) != []
    assert canaries.in_processes(secrets) == []
    printed = [
        _done(address, *command)
        for command in (
            ("status", "--json"),
            ("status",),
            ("set", "show", "shop"),
            ("set", "show", "warehouse"),
            ("task", "show", APPLY_TASK),
            ("replica", "list", "shop", "--json"),
            ("relay", "status", "shop", "--json"),
        )
    ]
    pages = [fetched(metrics_address(folder / name / "log"), "/metrics") for name in SERVICES]
    assert [status for status, _ in pages] == [200] * len(SERVICES)
    printed += [page for _, page in pages]
    assert canaries.shown("".join(printed), secrets) == []


def _done(address: dict[str, str], *arguments: str) -> str:
    done = run_millrace(*arguments, **address)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_up_prints_all_addresses_and_down_stops_everything(stack: dict[str, Any]) -> None:
    """The output is one object with known fields; every server answers; `down` leaves no process."""
    assert set(stack) == {
        *("source", "targets", "kafka", "zookeeper", "registry"),
        *("home", "relay_dir", "topic", "tasks"),
    }
    servers = [*stack["source"], *stack["targets"]]
    assert [(server["set"], server["role"]) for server in servers] == [
        ("shop", "primary"),
        ("shop", "replica"),
        ("shop", "replica"),
        ("warehouse", "primary"),
    ]
    for server in servers:
        assert set(server) == {"set", "role", "host", "port", "user", "password"}
        assert _asked(server, "SELECT @@read_only") == [(int(server["role"] == "replica"),)]
        grants = " ".join(grant for (grant,) in _asked(server, "SHOW GRANTS"))
        assert "WITH GRANT OPTION" in grants, "users of the stack cannot create accounts"
    assert stack["tasks"] == {"capture": ["shop-capture"], "apply": ["shop-to-warehouse"]}
    with closing(TopicReader(Brokers(stack["kafka"]), stack["topic"])) as reader:
        assert reader.ends().stable > 0
    with closing(Session.open(stack["zookeeper"])) as session:
        tasks = read_cluster(session, Tree("default")).tasks
    assert sorted(tasks) == sorted(name for names in stack["tasks"].values() for name in names)
    with urllib.request.urlopen(f"{stack['registry']}/subjects", timeout=60) as answer:
        assert any("millrace" in subject for subject in json.load(answer))
    assert list(Path(stack["relay_dir"]).glob("shop/*.000001/mysql-bin.000001"))
    assert stack["home"] == str(home())
    started = records(local_stack_folder(NAME))
    assert all(is_running(record.identity) for record in started)
    assert json.loads(run_millrace("up", "--json", "--name", NAME).stdout) == stack
    shell(script_of_a_stack()[1], {STACK: NAME})
    assert not any(session_members(record.identity) for record in started)
    assert not local_stack_folder(NAME).exists()


@pytest.mark.chaos
def test_interrupted_up_stops_what_it_started(tmp_path: Path) -> None:
    """Ctrl-C during the start gives exit code 130 and leaves no process. Logs stay until `down` removes them."""
    name, log = "stack-interrupted", tmp_path / "log"
    command = [sys.executable, "-m", "millrace", "up", "--name", name]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, process_group=0)
        try:
            folder = local_stack_folder(name)
            eventually(
                lambda: any(record.spec.name == "millrace registry" for record in records(folder)),
                what="the service is being started",
            )
            started = records(folder)
            os.killpg(process.pid, signal.SIGINT)
            assert process.wait(timeout=180) == 130
            assert not any(session_members(record.identity) for record in started)
            assert not _programs_in(folder)
        finally:
            process.kill()
            down = run_millrace("down", "--name", name)
    assert len(started) > SERVERS
    assert "Traceback" not in log.read_text()
    assert down.returncode == 0
    assert not folder.exists()


def _programs_in(folder: Path) -> list[str]:
    """Command lines that name the folder, of recorded and unrecorded processes."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        found += [line] if f"{folder}/" in line else []
    return found


def _asked(server: dict[str, Any], statement: str) -> list[tuple[Any, ...]]:
    login = {name: server[name] for name in ("host", "port", "user", "password")}
    with pymysql.connect(**login, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute(statement)
        return list(cursor.fetchall())


def _answers(login: dict[str, object]) -> bool:
    connection = pymysql.connect(**login, defer_connect=True)  # type: ignore[call-overload]
    try:
        connection.connect()
    except pymysql.err.OperationalError:
        return False
    connection.close()
    return True
