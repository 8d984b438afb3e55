"""A stack started with `up --secure`: rows pass, every command works, and no server answers a stranger."""

import json
import ssl
import stat
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pymysql
import pytest
from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError

from deploy.local.services import APPLY_TASK, SERVICES
from millrace.home_folder import local_stack_folder
from tests.kit import canaries
from tests.kit.control.page import fetched
from tests.kit.local_stack import metrics_address, run_millrace

NAME = "stack-secured"
REFUSED_S = 3.0


@pytest.fixture(scope="module")
def stack() -> Iterator[dict[str, Any]]:
    """The output of `millrace up --secure --json`."""
    run_millrace("down", "--name", NAME)
    done = run_millrace("up", "--secure", "--json", "--name", NAME)
    assert done.returncode == 0, done.stderr
    yield json.loads(done.stdout)
    run_millrace("down", "--name", NAME)


def test_every_command_works_in_a_secured_stack(stack: dict[str, Any]) -> None:
    """They find TLS files and logins without options. Rows arrive, and no requirement of `check` is open."""
    rows = "INSERT INTO mine.t VALUES (1, 'one'), (2, 'two')"
    create = "CREATE DATABASE mine; CREATE TABLE mine.t (id INT PRIMARY KEY, v VARCHAR(20))"
    _done("sql", "source", "-e", f"{create}; {rows}")
    _done("task", "wait", APPLY_TASK, "--timeout", "300")
    assert "two" in _done("sql", "target", "-e", "SELECT * FROM mine.t")
    assert "1 table, 2 rows: equal" in _done("compare", APPLY_TASK)
    assert "violations    0" in _done("topic", "verify", stack["topic"])
    tail = _done("topic", "tail", stack["topic"], "-n", "2", "--json")
    assert [json.loads(line)["source"]["table"] for line in tail.splitlines()] == ["t", "t"]
    tasks = json.loads(_done("status", "--json"))["tasks"]
    assert {task["state"] for task in tasks} == {"running"}
    assert "0 warn, 0 fail" in _done("check")
    assert _done("cluster", "secure", "--check") == ""
    assert json.loads(_done("up", "--secure", "--json", "--name", NAME)) == stack


def test_servers_of_a_secured_stack_refuse_strangers(stack: dict[str, Any]) -> None:
    """Each is asked by an independent client: in plain text, and where that differs, over TLS without a login."""
    for server in (*stack["source"], *stack["targets"]):
        login = {name: server[name] for name in ("host", "port", "user", "password")}
        with pytest.raises(pymysql.err.OperationalError, match=r"secure transport|3159"):
            pymysql.connect(**login, ssl_disabled=True)
        trusting = {"ssl_ca": stack["tls_ca"], "ssl_verify_identity": True}
        with pymysql.connect(**login, **trusting) as open_one, open_one.cursor() as cursor:
            assert cursor.execute("SHOW STATUS LIKE 'Ssl_cipher'") == 1
    with pytest.raises(KafkaException):
        AdminClient({"bootstrap.servers": stack["kafka"]}).list_topics(timeout=REFUSED_S)
    assert _asked_zookeeper(stack) == "refused"
    assert _asked_zookeeper(stack, **(tls := _tls(stack))) == "refused"
    password = (local_stack_folder(NAME) / "secrets" / "zookeeper-millrace").read_text()
    login = {"mechanism": "DIGEST-MD5", "username": "millrace", "password": password}
    assert _asked_zookeeper(stack, sasl_options=login, **tls) == "answered"
    context = ssl.create_default_context(cafile=stack["tls_ca"])
    with pytest.raises(OSError, match=r"closed|reset|disconnected"):
        urllib.request.urlopen(stack["registry"].replace("https", "http"), timeout=60)
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(f"{stack['registry']}/subjects", timeout=60, context=context)


def test_kafka_user_of_commands_may_only_read(stack: dict[str, Any]) -> None:
    """Its right to write the topic is refused by the broker, not by us."""
    folder = local_stack_folder(NAME)
    told: list[KafkaError | None] = []

    def note(error: KafkaError | None, _: Message) -> None:
        told.append(error)

    producer = Producer(
        {
            "bootstrap.servers": stack["kafka"],
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": stack["tls_ca"],
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "apply",
            "sasl.password": (folder / "secrets" / "kafka-apply").read_text(),
        }
    )
    producer.produce(stack["topic"], b"forged", on_delivery=note)
    assert producer.flush(60) == 0
    assert [error.code() for error in told if error] == [KafkaError.TOPIC_AUTHORIZATION_FAILED]


@pytest.mark.guarantee("secret")
def test_planted_secrets_of_a_secured_stack_stay_in_their_files(stack: dict[str, Any]) -> None:
    """Not in logs, ZooKeeper's and Kafka's data, processes and pages. ZooKeeper reads its own from one more file."""
    folder = local_stack_folder(NAME)
    secrets = {path.name: path.read_text() for path in (folder / "secrets").iterdir()}
    assert len(secrets) == 7
    assert folder.stat().st_mode & 0o077 == 0
    jaas = folder / "zookeeper" / "jaas.conf"
    kept = [f"{name}: {folder / 'secrets' / name}" for name in secrets]
    assert canaries.in_files(folder, secrets) == sorted(
        [*kept, f"zookeeper-millrace: {jaas}"], key=_path
    )
    keys = [*folder.glob("tls/*-key.pem"), folder / "zookeeper" / "key-store.pem"]
    private = [jaas, folder / "kafka" / "server.properties", *keys]
    assert len(private) == 5
    private += [folder / "secrets" / name for name in secrets]
    assert {stat.S_IMODE(path.stat().st_mode) for path in private} == {0o600}
    assert not (folder / "tls" / "ca-key.pem").exists()
    assert canaries.in_processes({"address": stack["zookeeper"]}) != []
    assert canaries.in_processes(secrets) == []
    pages = [fetched(metrics_address(folder / name / "log"), "/metrics") for name in SERVICES]
    assert [status for status, _ in pages] == [200] * len(SERVICES)
    printed = _done("task", "show", APPLY_TASK) + _done("set", "show", "shop")
    assert canaries.shown(printed + "".join(page for _, page in pages), secrets) == []


def _path(found: str) -> Path:
    return Path(found.partition(": ")[2])


def _done(*arguments: str) -> str:
    done = run_millrace(*arguments, MILLRACE_STACK=NAME)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _tls(stack: dict[str, Any]) -> dict[str, Any]:
    """kazoo's options for TLS without a login."""
    return {"use_ssl": True, "ca": stack["tls_ca"], "check_hostname": True}


def _asked_zookeeper(stack: dict[str, Any], **options: Any) -> str:
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
