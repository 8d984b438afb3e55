"""The local stack, with TLS and logins: it runs in the background, the README's commands find it, `down` removes it.

Rows pass, every command works, and no server answers a stranger. A stack without TLS and logins has the same start:
``test_kills.py`` breaks one, and ``--chaos`` starts one with the README's commands.
"""

import hmac
import json
import os
import signal
import ssl
import stat
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pymysql
import pytest
import yaml
from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError

from millrace.cli.status.json_form import as_plain
from millrace.consumer.spark.scratch import PREFIX
from millrace.deploy.local.background import records
from millrace.deploy.local.services import APPLY_TASK, CAPTURE_TASK, SERVICES
from millrace.deploy.servers.process import is_running, session_members
from millrace.errors import Retryable
from millrace.home_folder import STACK, home, local_stack_folder
from millrace.schemas.documents import PublishTask, parse_task
from millrace.zk.client.session import Session
from millrace.zk.ensemble import Ensemble
from millrace.zk.tree.paths import Tree
from millrace.zk.view import read_cluster, views
from tests.fixtures.servers import FLAVOURS
from tests.kit import canaries
from tests.kit.control.page import Scrape, fetched
from tests.kit.local_stack import metrics_address, run_forked, run_millrace
from tests.kit.publish.local import published
from tests.kit.readme import script_of_a_stack, shell
from tests.kit.waiting import eventually

NAME = "stack-test"
SERVERS = 6  # source primary and two replicas, target, Kafka, ZooKeeper
SECRETS = 7
REFUSED_S = 3.0

Stack = dict[str, Any]  # the output of `millrace up --json`


@pytest.fixture(
    scope="module",
    params=[FLAVOURS[0], *(pytest.param(each, marks=pytest.mark.chaos) for each in FLAVOURS[1:])],
    ids=str,
)
def stack(request: pytest.FixtureRequest) -> Iterator[Stack]:
    """The output of `millrace up --secure --json`. The stack runs until `down`."""
    run_millrace("down", "--name", NAME)
    up = ("up", "--secure", "--json", "--name", NAME, "--flavour", request.param)
    done = run_millrace(*up)
    assert done.returncode == 0, done.stderr
    yield json.loads(done.stdout)
    run_millrace("down", "--name", NAME)


def test_readme_commands_show_a_row_on_the_target(stack: Stack) -> None:
    """The block with `millrace up`, which finds the stack, creates a row, and shows it twice."""
    output = shell(script_of_a_stack()[0], {STACK: NAME})
    assert output.count("hello") == 2, output
    assert stack["tasks"]["apply"][0] in output


def test_killed_server_is_restarted(stack: Stack) -> None:
    """The keeper restarts a killed primary on the same port with its data."""
    primary = stack["source"][0]
    _asked(stack, primary, "CREATE DATABASE kept")
    record = next(
        one
        for one in records(local_stack_folder(NAME))
        if f"port {primary['port']}" in one.spec.name
    )
    os.kill(record.identity.pid, signal.SIGKILL)
    eventually(lambda: not is_running(record.identity))
    eventually(lambda: _answers(_login(stack, primary)))
    assert _asked(stack, primary, "SHOW DATABASES LIKE 'kept'") == [("kept",)]


def test_every_database_a_user_creates_is_replicated(stack: Stack) -> None:
    """Rows of a database created after `up` arrive, and the status names the chosen member and the reason."""
    for statement in (
        "CREATE DATABASE mine",
        "CREATE TABLE mine.t (id INT PRIMARY KEY, v VARCHAR(20))",
        "INSERT INTO mine.t VALUES (1, 'one'), (2, 'two')",
        "CREATE DATABASE another",
    ):
        _asked(stack, stack["source"][0], statement)
    _done("task", "wait", APPLY_TASK, "--timeout", "300")
    target = stack["targets"][0]
    assert _asked(stack, target, "SELECT * FROM mine.t ORDER BY id") == [(1, "one"), (2, "two")]
    assert _asked(stack, target, "SHOW DATABASES LIKE 'another'") == [("another",)]
    read = next(each["source"] for each in _tasks() if each["task"] == CAPTURE_TASK)
    assert read["role"] == "replica"
    detail = _done("status", CAPTURE_TASK)
    members = [line.split()[1] for line in detail.splitlines() if line.startswith("  member ")]
    assert sorted(members) == sorted(f"{one['host']}:{one['port']}" for one in stack["source"])
    assert f"{read['host']}:{read['port']}" in members


def test_every_command_works_in_a_secured_stack(stack: Stack) -> None:
    """They find TLS files and logins without options, and no requirement of `check` is open."""
    assert "violations    0" in _done("topic", "verify", stack["topic"])
    tail = _done("topic", "tail", stack["topic"], "-n", "2", "--json")
    assert len([json.loads(line)["source"] for line in tail.splitlines()]) == 2
    assert {task["state"] for task in _tasks()} == {"running"}
    assert "0 warn, 0 fail" in _done("check")
    assert _done("cluster", "secure", "--check") == ""


def test_every_process_of_a_stack_shows_its_metrics(stack: Stack) -> None:
    """They are ready, and the figures of the tasks are those of the status."""
    for statement in (
        "CREATE DATABASE measured",
        "CREATE TABLE measured.t (id INT PRIMARY KEY)",
        "INSERT INTO measured.t VALUES (1), (2)",
    ):
        _asked(stack, stack["source"][0], statement)
    folder = local_stack_folder(NAME)
    at = {name: metrics_address(folder / name / "log") for name in SERVICES}
    eventually(lambda: all(fetched(each, "/readyz") == (200, "ok\n") for each in at.values()))
    assert all(fetched(each, "/livez") == (200, "ok\n") for each in at.values())

    def are_equal() -> bool:
        seqs = {task["task"]: task["seq"] for task in _tasks()}
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


def test_status_shows_how_a_backlog_shrinks(stack: Stack) -> None:
    """The source commits while the apply task is paused. After its resume the backlog and the lag fall to 0.

    Whether an ETA comes true depends on the machine: tests/unit/test_pace.py checks how it is computed.
    """
    source = stack["source"][0]
    _asked(stack, source, "CREATE DATABASE late")
    _asked(stack, source, "CREATE TABLE late.t (id INT PRIMARY KEY, v VARCHAR(40))")
    _done("task", "wait", APPLY_TASK, "--timeout", "300")
    _done("task", "pause", APPLY_TASK)
    _asked(stack, stack["targets"][0], SLOWLY)
    for first in range(0, BACKLOG_ROWS, BATCH_ROWS):
        rows = ",".join(f"({n},'{n:040}')" for n in range(first, first + BATCH_ROWS))
        _asked(stack, source, f"INSERT INTO late.t VALUES {rows}")
    _done("task", "wait", CAPTURE_TASK, "--timeout", "300")
    _done("task", "resume", APPLY_TASK)
    with closing(_ensemble().open()) as session:
        looks = _Looks(session)
        eventually(looks.is_caught_up, every_s=0.25, what="the backlog is applied")
        eventually(lambda: looks.is_caught_up() and looks.seen[-1]["lag_s"] == 0.0)
    backlogs = [stage["backlog"]["records"] for stage in looks.seen]
    assert max(backlogs) > 0.2 * BACKLOG_ROWS
    lags = [stage["lag_s"] for stage in looks.seen if stage["lag_s"] is not None]
    assert max(lags) > lags[-1] == 0.0
    begun = [
        stage for stage in looks.seen if BATCH_ROWS < stage["backlog"]["records"] < BACKLOG_ROWS
    ]
    assert begun, looks.seen
    # on a slow machine one turn may last longer than the ten seconds
    assert any(stage["rows_s"]["over_10_s"] > 0 and stage["eta_s"] > 0 for stage in begun)
    line = "lag 0.0 s | backlog 0 | "  # a control record waits now and then
    eventually(lambda: line in _done("status"), what="the line of a caught-up task")


PUBLISHED = """
task: public
kind: publish
topic: shop
start: snapshot
tables:
  - {{from: pub.*, columns: {{drop: [note]}}, mask: {{mail: "hmac-sha256(file:{key})"}}}}
partitions: 3
slots: 2
compression: none
records: {{format: json}}
"""
PLANTED = {"mail": "planted@example.org", "note": "planted-note-7f1"}


def test_publish_task_delivers_exactly_the_view(stack: Stack, tmp_path: Path) -> None:
    """Rows that exist and new ones, also of a new table, over the death of the driver; no hidden value is anywhere."""
    source, folder = stack["source"][0], local_stack_folder(NAME)
    mail, note = PLANTED.values()
    rows = ",".join(f"({number},'{mail}{number}','{note}',0)" for number in range(1, 201))
    for statement in (
        "CREATE DATABASE pub",
        "CREATE TABLE pub.a (id INT PRIMARY KEY, mail VARCHAR(60), note VARCHAR(60), v INT)",
        f"INSERT INTO pub.a VALUES {rows}",
    ):
        _asked(stack, source, statement)
    _done("task", "wait", APPLY_TASK, "--timeout", "300")
    key = tmp_path / "salt"
    key.write_text("a key for masks")
    document = yaml.safe_load(PUBLISHED.format(key=key))
    applied = yaml.safe_load((folder / f"{APPLY_TASK}.yaml").read_text())
    document |= {name: applied[name] for name in ("kafka", "registry")}
    path = tmp_path / "public.yaml"
    path.write_text(yaml.safe_dump(document))
    _done("task", "create", "-f", str(path))
    task = parse_task(document)
    assert isinstance(task, PublishTask)
    _wait_for_rows(stack, task, "a")
    driver = next(one for one in records(folder) if one.spec.name == "millrace apply")
    for round_ in range(3):
        _asked(stack, source, f"UPDATE pub.a SET v = v + 1 WHERE id > {round_ * 50}")
        _asked(stack, source, f"UPDATE pub.a SET id = id + 1000 WHERE id = {7 + round_}")
        if round_ == 1:
            os.kill(driver.identity.pid, signal.SIGKILL)
            _asked(stack, source, "CREATE TABLE pub.b LIKE pub.a")
            _asked(stack, source, "INSERT INTO pub.b SELECT * FROM pub.a")
    _asked(stack, source, "DELETE FROM pub.a WHERE id % 3 = 0")
    for name in ("a", "b"):
        _wait_for_rows(stack, task, name)
    verified = _done("topic", "verify", "--task", "public")
    assert verified.count(": whole") == 2
    kept = list((folder / "kafka").rglob("public.pub.*/*.log"))
    octets = b"".join(path.read_bytes() for path in kept)
    assert len(octets) > 10_000
    shown = [
        _done("status"),
        _done("task", "show", "public"),
        (folder / "apply" / "log").read_text(),
    ]
    for value in PLANTED.values():
        assert value.encode() not in octets
        assert value not in "".join(shown)
    _done("task", "delete", "public")


def _wait_for_rows(stack: Stack, task: PublishTask, table: str) -> None:
    """The subscriber's rows are those that the view makes of the source."""

    def state() -> dict[int, object]:
        rows: dict[int, object] = {}
        for record in published(task, [f"public.pub.{table}"]):
            if record.value is None:
                rows.pop(record.key["id"], None)
            else:
                rows[record.key["id"]] = record.value
        return rows

    def masked(mail: str) -> str:
        return hmac.new(b"a key for masks", mail.encode(), "sha256").hexdigest()

    def is_there() -> bool:
        selected = _asked(stack, stack["source"][0], f"SELECT id, mail, v FROM pub.{table}")
        wanted = {id_: {"id": id_, "mail": masked(mail), "v": v} for id_, mail, v in selected}
        with suppress(Retryable):  # a partition that was just made has no leader yet
            return state() == wanted
        return False

    eventually(is_there, every_s=0.5, what=f"rows of {table}")


def test_servers_of_a_secured_stack_refuse_strangers(stack: Stack) -> None:
    """Each is asked by an independent client: in plain text, and where that differs, over TLS without a login."""
    for server in (*stack["source"], *stack["targets"]):
        login = {name: server[name] for name in ("host", "port", "user", "password")}
        with pytest.raises(pymysql.err.OperationalError, match=r"secure transport|3159"):
            pymysql.connect(**login, ssl_disabled=True)
        assert _asked(stack, server, "SHOW STATUS LIKE 'Ssl_cipher'")[0][1]
    with pytest.raises(KafkaException):
        AdminClient({"bootstrap.servers": stack["kafka"]}).list_topics(timeout=REFUSED_S)
    tls = {"use_ssl": True, "ca": stack["tls_ca"], "check_hostname": True}
    assert _asked_zookeeper(stack) == "refused"
    assert _asked_zookeeper(stack, **tls) == "refused"
    password = _secret("zookeeper-millrace")
    login = {"mechanism": "DIGEST-MD5", "username": "millrace", "password": password}
    assert _asked_zookeeper(stack, sasl_options=login, **tls) == "answered"
    context = ssl.create_default_context(cafile=stack["tls_ca"])
    with pytest.raises(OSError, match=r"closed|reset|disconnected"):
        urllib.request.urlopen(stack["registry"].replace("https", "http"), timeout=60)
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(f"{stack['registry']}/subjects", timeout=60, context=context)


def test_kafka_user_of_commands_may_only_read(stack: Stack) -> None:
    """Its right to write the topic is refused by the broker, not by us."""
    errors: list[KafkaError | None] = []

    def note(error: KafkaError | None, _: Message) -> None:
        errors.append(error)

    producer = Producer(
        {
            "bootstrap.servers": stack["kafka"],
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": stack["tls_ca"],
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "apply",
            "sasl.password": _secret("kafka-apply"),
        }
    )
    producer.produce(stack["topic"], b"forged", on_delivery=note)
    assert producer.flush(60) == 0
    assert [error.code() for error in errors if error] == [KafkaError.TOPIC_AUTHORIZATION_FAILED]


@pytest.mark.guarantee("secret")
def test_planted_passwords_are_found_nowhere(stack: Stack) -> None:
    """After rows have passed: not in logs, ZooKeeper's and Kafka's files, relay, Spark's folders, processes, output.

    Only in the files that the documents name, and in one that ZooKeeper reads. Only their owner can read these.
    """
    folder = local_stack_folder(NAME)
    secrets = {path.name: path.read_text() for path in (folder / "secrets").iterdir()}
    assert len(secrets) == SECRETS
    assert folder.stat().st_mode & 0o077 == 0
    eventually(lambda: "running" in {task["state"] for task in _tasks()})
    logs = [record.spec.log for record in records(folder)]
    assert [log for log in logs if not log.stat().st_size and "ZooKeeper" not in str(log)] == []
    jaas = folder / "zookeeper" / "jaas.conf"
    places = [(name, folder / "secrets" / name) for name in secrets]
    kept = [f"{name}: {path}" for name, path in (*places, ("zookeeper-millrace", jaas))]
    assert sorted(canaries.in_files(folder, secrets)) == sorted(kept)
    keys = [*folder.glob("tls/*-key.pem"), folder / "zookeeper" / "key-store.pem"]
    private = [jaas, folder / "kafka" / "server.properties", *keys]
    assert len(private) == 5
    private += [path for _, path in places]
    assert {stat.S_IMODE(path.stat().st_mode) for path in private} == {0o600}
    assert not (folder / "tls" / "ca-key.pem").exists()
    drivers = Path("/dev/shm").glob(f"{PREFIX}*")
    lines = [line for driver in drivers for line in canaries.in_files(driver, secrets)]
    logins = [
        Path(line.removeprefix("kafka-apply: ")) for line in lines
    ]  # of Kafka's client in the JVM
    assert [path.parts[-2:] for path in logins] == [("secrets", "jaas")]
    assert logins[0].parent.stat().st_mode & 0o077 == 0
    assert canaries.in_processes({"address": stack["zookeeper"]}) != []
    assert canaries.in_processes(secrets) == []
    printed = [
        _done(*command)
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


def test_up_prints_all_addresses_and_down_stops_everything(stack: Stack) -> None:
    """The output is one object with known fields; every server answers; `down` leaves no process."""
    assert set(stack) == {
        *("source", "targets", "kafka", "zookeeper", "registry"),
        *("home", "relay_dir", "topic", "tasks", "tls_ca"),
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
        assert _asked(stack, server, "SELECT @@read_only") == [(int(server["role"] == "replica"),)]
        grants = " ".join(grant for (grant,) in _asked(stack, server, "SHOW GRANTS"))
        assert "WITH GRANT OPTION" in grants, "users of the stack cannot create accounts"
    assert stack["tasks"] == {"capture": ["shop-capture"], "apply": ["shop-to-warehouse"]}
    with closing(_ensemble().open()) as session:
        tasks = read_cluster(session, Tree("default")).tasks
    assert sorted(tasks) == sorted(name for names in stack["tasks"].values() for name in names)
    login = {"Authorization": f"Bearer {_secret('registry-token')}"}
    request = urllib.request.Request(f"{stack['registry']}/subjects", headers=login)
    context = ssl.create_default_context(cafile=stack["tls_ca"])
    with urllib.request.urlopen(request, timeout=60, context=context) as answer:
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
def test_readme_commands_start_a_plain_stack() -> None:
    """The whole block as a reader pastes it: `up` starts the stack, without TLS and logins."""
    name = {STACK: "stack-plain"}
    try:
        assert shell(script_of_a_stack()[0], name).count("hello") == 2
        shell(script_of_a_stack()[1], name)
        assert not local_stack_folder(name[STACK]).exists()
    finally:
        run_millrace("down", **name)


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


def _done(*arguments: str) -> str:
    status, output = run_forked(*arguments, **{STACK: NAME})
    assert status == 0, output
    return output


def _tasks() -> list[dict[str, Any]]:
    """The tasks of `millrace status --json`."""
    status: dict[str, list[dict[str, Any]]] = json.loads(_done("status", "--json"))
    return status["tasks"]


def _secret(name: str) -> str:
    return (local_stack_folder(NAME) / "secrets" / name).read_text()


def _ensemble() -> Ensemble:
    """ZooKeeper, with the login that commands use."""
    variables = (local_stack_folder(NAME) / "environment.json").read_text()
    return Ensemble.from_environment(json.loads(variables))


def _login(stack: Stack, server: dict[str, Any]) -> dict[str, Any]:
    """PyMySQL's options, with a verified certificate."""
    login = {name: server[name] for name in ("host", "port", "user", "password")}
    return {**login, "ssl_ca": stack["tls_ca"], "ssl_verify_identity": True}


def _asked(stack: Stack, server: dict[str, Any], statement: str) -> list[tuple[Any, ...]]:
    login = _login(stack, server)
    with pymysql.connect(**login, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute(statement)
        return list(cursor.fetchall())


def _answers(login: dict[str, Any]) -> bool:
    connection = pymysql.connect(**login, defer_connect=True)
    try:
        connection.connect()
    except pymysql.err.OperationalError:
        return False
    connection.close()
    return True


def _asked_zookeeper(stack: Stack, **options: Any) -> str:
    """Whether ZooKeeper answers a raw client's question for the names at its root."""
    client = KazooClient(hosts=stack["zookeeper"], connection_retry={"max_tries": 1}, **options)
    try:
        client.start(timeout=REFUSED_S)
        assert client.get_children("/")
    except (KazooException, KazooTimeoutError):
        return "refused"
    else:
        return "answered"
    finally:
        client.stop()
        client.close()
