"""The secrets of Kafka are found nowhere but in their files, and a rotated one takes effect without a restart."""

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from millrace.deploy.servers import DatabaseServer
from millrace.deploy.servers.process import free_port
from millrace.drivers.kafka.acls import apply_acls, commands
from millrace.schemas.documents import (
    Account,
    ApplyTask,
    ClientCertificate,
    SecretPlace,
    SecretReference,
    SetDocument,
    TopicAddress,
)
from millrace.zk.client.session import Session
from millrace.zk.tree.reports import read_status
from millrace.zk.tree.store import Store
from tests.fixtures.shell import Shell
from tests.kit.apply.topic import RecordStream, TopicWriter
from tests.kit.control.control import scheduled
from tests.kit.relay.relay import UNVERIFIED, member_of
from tests.kit.secure_kafka import CANARY, PASSWORD, USER, SecureKafka
from tests.kit.waiting import eventually

pytestmark = pytest.mark.chaos

START_S = 120.0
LOG4J = """\
rootLogger.level = info
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %c: %m%n
logger.kafka.name = org.apache.kafka
logger.kafka.level = debug
"""


@contextmanager
def _driver(shell: Shell, folder: Path, ui_port: int) -> Iterator[subprocess.Popen[bytes]]:
    """`millrace apply` with every log of Spark: its UI, event logs and the values of all settings."""
    events = folder / "events"
    events.mkdir()
    spark = {
        "spark.ui.enabled": "true",
        "spark.ui.port": str(ui_port),
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": events.as_uri(),
        "spark.eventLog.compress": "false",
        "spark.log.level": "DEBUG",
    }
    options = [word for name, value in spark.items() for word in ("--conf", f"{name}={value}")]
    program = (sys.executable, "-m", "millrace", "apply", "--name", "a1", *options)
    log4j = folder / "log4j2.properties"
    log4j.write_text(LOG4J)
    java = f"{os.environ['JDK_JAVA_OPTIONS']} -Dlog4j2.configurationFile={log4j}"
    environment = {**os.environ, "MILLRACE_LOG_LEVEL": "debug", "JDK_JAVA_OPTIONS": java}
    environment.pop("MILLRACE_HOME")  # the test's own has no jars
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(program, stdout=log, stderr=log, env=environment)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(START_S)


def _processes() -> Iterator[bytes]:
    """Arguments and environment of every process."""
    for process in Path("/proc").glob("[0-9]*"):
        for name in ("cmdline", "environ"):
            with suppress(OSError):
                yield (process / name).read_bytes()


def _nodes(session: Session, path: str) -> Iterator[bytes]:
    node = session.get(path)
    if node is not None:
        yield node.content
    for child in session.children(path):
        yield from _nodes(session, f"{path}/{child}")


def _pages(ui_port: int) -> Iterator[bytes]:
    """Spark's UI and its REST API."""
    base = f"http://127.0.0.1:{ui_port}"
    (application,) = json.loads(_page(f"{base}/api/v1/applications"))
    api = f"{base}/api/v1/applications/{application['id']}"
    for name in ("environment", "jobs", "stages", "sql?details=true", "executors"):
        yield _page(f"{api}/{name}")
    for name in ("environment", "jobs", "StreamingQuery", "SQL"):
        yield _page(f"{base}/{name}/")


def _page(url: str) -> bytes:
    with urllib.request.urlopen(url) as answer:
        content: bytes = answer.read()
        return content


def test_planted_secrets_are_found_nowhere(
    shell: Shell,
    secure_kafka: SecureKafka,
    mariadb_server: DatabaseServer,
    target_password: None,
    tmp_path: Path,
) -> None:
    """A task first has a wrong password, then the right one. Password and key are in no log, node, process or page."""
    stream = RecordStream()
    writer = TopicWriter(secure_kafka.server.bootstrap, stream)
    stream.ddl("CREATE DATABASE planted")
    writer.publish()
    for command in commands(apply_acls(writer.topic), principal=f"User:{USER}", bootstrap="b:1"):
        secure_kafka.kafka_acls(command)
    brokers = secure_kafka.brokers()
    assert brokers.sasl is not None
    secret = secure_kafka.secret("planted", f"{CANARY}, but wrong")
    key = SecretReference(SecretPlace.FILE, str(secure_kafka.client.key))
    own = ClientCertificate(str(secure_kafka.client.certificate), key)
    brokers = replace(brokers, sasl=replace(brokers.sasl, secret=secret), certificate=own)
    account = Account(mariadb_server.user, secure_kafka.secret("target", mariadb_server.password))
    target = SetDocument(
        name="target", members=(member_of(mariadb_server),), account=account, tls=UNVERIFIED
    )
    address = TopicAddress(topic=writer.topic, brokers=brokers)
    ui_port = free_port()
    ensemble = shell.ensemble
    with (
        ensemble.session() as session,
        scheduled(session, ensemble.tree),
        _driver(shell, tmp_path, ui_port),
    ):
        store = Store(session, ensemble.tree)
        store.create_set(target)
        store.create_task(ApplyTask(name="planted", source=address, target="target"))

        def reported(claim: str) -> bool:
            status = read_status(session, ensemble.tree, "planted")
            if status is None:
                return False
            report = status.report
            return claim in (report.code, str(report.seq))

        eventually(lambda: reported("MR-7001"), what="the wrong password is reported")
        secure_kafka.secret("planted", PASSWORD)
        eventually(lambda: reported(str(stream.seq)), what="the records are applied")
        status = shell("status", "--json")
        found = [*_nodes(session, ensemble.tree.root), *_pages(ui_port), *_processes()]
    found += [status.encode(), (tmp_path / "log").read_bytes()]
    found += [path.read_bytes() for path in (tmp_path / "events").rglob("*") if path.is_file()]
    everything = b"\n".join(found)
    for expected in (b"sasl.jaas.config", b"SparkListenerApplicationStart", b"MR-7001", b"planted"):
        assert expected in everything
    assert CANARY.encode() not in everything
    secret_line = secure_kafka.client.key.read_text().splitlines()[1]
    assert secret_line.encode() not in everything
    mariadb_server.execute("DROP DATABASE planted")
