"""Debezium reads the same source into the same broker: one topic a table, JSON without schemas, at least once.

    before     the connector is created, started, and stopped once it has read a row, so that its position is saved
    a round    the backlog is written while it is stopped; then it is started, and the clock of all figures runs on
               the end of its topic until every change is there

The worker's JVM stays up from round to round. ``docs/bench.md`` says why each setting that is not a default was chosen.
"""

import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from millrace.deploy.bench.apply.sink.connect import (
    ConnectWorker,
    SinkJars,
    connector_jars,
    fetch_connector,
)
from millrace.deploy.bench.apply.workloads import Workload
from millrace.deploy.bench.capture.backlog import clock_of, end_clock
from millrace.deploy.bench.capture.topics import create_topic
from millrace.deploy.bench.figure import say
from millrace.deploy.bench.scene import Scene
from millrace.deploy.bench.subscriber import Topics
from millrace.deploy.servers import Account, DatabaseServer
from millrace.errors import Fatal
from millrace.schemas.gtid import Flavour

IVY_FILE = Path(__file__).with_name("ivy.xml")
VERSION = "3.6.1.Final"
PEER = f"debezium-mysql {VERSION}, tuned, JSON without schemas"
NAME, PREFIX = "peer", "dbz"
SERVER_ID = 7_654_321
START_S = 600.0
PROBE_S = 0.5
_PRIVILEGES = "SELECT, RELOAD, LOCK TABLES, SHOW DATABASES, REPLICATION SLAVE, REPLICATION CLIENT"
_JSON = "org.apache.kafka.connect.json.JsonConverter"
_PROBE = "bench_probe"
_SNAPSHOT = {
    "snapshot.mode": "initial_only",
    "snapshot.locking.mode": "none",
    "snapshot.fetch.size": "20480",
}


def fetch_debezium() -> SinkJars:
    """Fetch what is missing, with progress on standard error. Fatal MR-8003 if a download fails."""
    return fetch_connector("debezium-mysql", size_mb=45, ivy_file=IVY_FILE)


def debezium_jars(flavour: Flavour) -> SinkJars | None:
    """The files of Debezium; None, which standard error explains, on MariaDB or if a download fails."""
    if flavour is not Flavour.MYSQL:
        say(f"  no peer: {PEER} reads MySQL alone")
        return None
    return connector_jars(PEER, fetch_debezium)


@contextmanager
def debezium(scene: Scene, jars: SinkJars, tables: str) -> "Iterator[Debezium]":
    """A connector, stopped. ``tables``: regular expressions of ``database.table``, separated by commas."""
    if scene.source.flavour is not Flavour.MYSQL:
        raise Fatal("MR-8004", "the peer is Debezium's MySQL connector; the source is not MySQL")
    worker = ConnectWorker(scene.stack.folder / "connect", jars, scene.bootstrap)
    try:
        worker.start()
        peer = Debezium(scene, worker, tables)
        peer.prepare()
        yield peer
    finally:
        worker.discard()


def topics_of(bootstrap: str, workload: Workload, *, partitions: int = 1) -> Topics:
    """The connector's topics of a workload."""
    names = [f"{PREFIX}.{workload.database}.{table}" for table in workload.tables]
    return Topics(bootstrap, names, partitions)


class Debezium:
    """The connector; see the module."""

    def __init__(self, scene: Scene, worker: ConnectWorker, tables: str) -> None:
        self._scene = scene
        self._worker = worker
        self._tables = f"{tables},{_PROBE}[.]t"

    def prepare(self) -> None:
        """Create the connector, and stop it once it follows the binlog."""
        source, bootstrap = self._scene.source, self._scene.bootstrap
        account = Account("debezium", secrets.token_hex(12))
        source.create_account(account, _PRIVILEGES)
        probe = f"{PREFIX}.{_PROBE}.t"
        create_topic(bootstrap, probe)
        history = self._scene.stack.folder / "connect" / "history"
        self._worker.create(NAME, settings(source, account, tables=self._tables, history=history))
        source.execute(f"CREATE DATABASE {_PROBE}")
        source.execute(f"CREATE TABLE {_PROBE}.t (id INT NOT NULL AUTO_INCREMENT PRIMARY KEY)")
        self._worker.resume_tasks(NAME)
        with end_clock(bootstrap, probe) as clock:
            deadline = time.monotonic() + START_S
            while clock.end == 0:
                source.execute(f"INSERT INTO {_PROBE}.t VALUES ()")
                self._worker.check(NAME)
                if time.monotonic() > deadline:
                    raise Fatal("MR-8004", "Debezium read no row of the source")
                time.sleep(PROBE_S)
        self._worker.stop_tasks(NAME)

    def rate(self, changes: int, topics: Topics) -> float:
        """Changes per second while it reads a backlog of ``changes`` into topics that exist; then it is stopped."""
        with clock_of(topics.end) as clock:
            wanted = clock.end + changes
            self._worker.resume_tasks(NAME)
            clock.wait_for(partial(self._has_reached, wanted))
        self._worker.stop_tasks(NAME)
        return clock.rate()

    def _has_reached(self, wanted: int, end: int) -> bool:
        self._worker.check(NAME)
        return end >= wanted


def snapshot_rate(scene: Scene, jars: SinkJars, table: tuple[str, str], rows: int) -> float:
    """Rows per second of a snapshot by a connector that does nothing else."""
    database, name = table
    bootstrap, number = scene.bootstrap, secrets.token_hex(4)
    account = Account(f"debezium{number}", secrets.token_hex(12))
    scene.source.create_account(account, _PRIVILEGES)
    worker = ConnectWorker(scene.stack.folder / f"connect-{number}", jars, bootstrap)
    topic = f"{PREFIX}{number}.{database}.{name}"
    create_topic(bootstrap, topic)
    history = scene.stack.folder / f"connect-{number}" / "history"
    common = settings(scene.source, account, tables=f"{database}[.]{name}", history=history)
    try:
        worker.start()
        worker.create(NAME, {**common, "topic.prefix": f"{PREFIX}{number}", **_SNAPSHOT})
        with end_clock(bootstrap, topic) as clock:
            worker.resume_tasks(NAME)
            clock.wait_for(partial(_has_rows, worker, rows))
        return clock.rate()
    finally:
        worker.discard()


def _has_rows(worker: ConnectWorker, rows: int, end: int) -> bool:
    worker.check(NAME)
    return end >= rows


def settings(
    source: DatabaseServer, account: Account, *, tables: str, history: Path
) -> Mapping[str, str]:
    return {
        "connector.class": "io.debezium.connector.mysql.MySqlConnector",
        "tasks.max": "1",
        "database.hostname": source.host,
        "database.port": str(source.port),
        "database.user": account.user,
        "database.password": account.password,
        "database.server.id": str(SERVER_ID),
        "topic.prefix": PREFIX,
        "table.include.list": tables,
        "snapshot.mode": "no_data",
        "include.schema.changes": "false",
        "schema.history.internal": "io.debezium.storage.file.history.FileSchemaHistory",
        "schema.history.internal.file.filename": str(history),
        "max.batch.size": "20480",
        "max.queue.size": "81920",
        "poll.interval.ms": "10",
        "producer.override.linger.ms": "20",
        "producer.override.batch.size": "1048576",
        "producer.override.compression.type": "lz4",
        "producer.override.buffer.memory": "134217728",
        "key.converter": _JSON,
        "key.converter.schemas.enable": "false",
        "value.converter": _JSON,
        "value.converter.schemas.enable": "false",
    }
