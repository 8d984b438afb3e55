"""Commands that only read: nothing differs afterwards on the servers, in Kafka, or in ZooKeeper.

The broker creates topics automatically, as Kafka does by default. The servers write their general logs. ZooKeeper's
tree is compared with its versions and the counters of children, which shows nodes that were created and removed too.
"""

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]
from kazoo.client import KazooClient

from millrace.cli import COMMANDS, load_command, run
from millrace.deploy.servers import DatabaseServer, DatabaseSet, KafkaServer
from millrace.errors import Fatal
from millrace.producer.source.set_stream import Site
from millrace.producer.source.set_streams import Upstreams
from millrace.producer.task.capture import CaptureRunner
from millrace.schemas.documents import ConflictPolicy
from millrace.schemas.gtid import parse_gtid_set
from millrace.zk.ensemble import Ensemble
from millrace.zk.tree.reports import read_status
from millrace.zk.tree.store import Store
from tests.fixtures.servers import FLAVOURS, Pool
from tests.fixtures.shell import Shell
from tests.kit.apply.local import apply_task, run_once
from tests.kit.apply.tables import ACCOUNTS_SQL, account, accounts
from tests.kit.apply.topic import RecordStream
from tests.kit.binlog.session import session
from tests.kit.control.control import scheduled, supervised
from tests.kit.kafka_topics import ANSWER_S
from tests.kit.registry_process import started as started_registry
from tests.kit.waiting import eventually

DATABASE = "only_read"
RELAY = "RELAY"  # stands for the relay directory
FOLDER = "FOLDER"
CONNECTOR = "CONNECTOR"
TOPIC = "TOPIC"
GTID = "GTID"
URL = "URL"  # of the source's primary
# Arguments of each command that claims to change nothing, and its exit code in the state of the test.
READING: dict[str, tuple[str, int]] = {
    "try": (f"{URL} --from first -n 1", 0),
    "set list": ("", 0),
    "set show": ("shop", 0),
    "set history": ("shop", 0),
    "set diff": ("shop 1 1", 0),
    "task list": ("", 0),
    "task show": ("read-capture", 0),
    "task history": ("read-capture", 0),
    "task diff": ("read-capture 1 1", 0),
    "task wait": (f"read-capture --gtid {GTID} --timeout 0.1", 0),
    "plan": (f"-f {FOLDER}", 0),
    "export": ("-", 0),
    "import": (CONNECTOR, 0),
    "schema": ("set", 0),
    "status": ("--json", 0),
    "top": ("", 0),
    "check": ("--json", 1),
    "grants print": ("shop --flavour mariadb", 0),
    "doctor": ("", 1),
    "topic tail": (f"{TOPIC} --no-follow", 0),
    "topic verify": (TOPIC, 0),
    "compare": ("read-copy --now", 1),
    "replica list": ("shop", 0),
    "relay status": ("shop", 0),
    "relay list": (f"shop --relay-dir {RELAY}", 0),
    "relay verify": (f"shop --relay-dir {RELAY}", 0),
    "relay dump": (f"shop --relay-dir {RELAY}", 0),
    "subscriber list": ("", 0),
    "acl print": ("read-capture", 0),
    "cluster show": ("", 0),
    "explain": ("MR-1001", 0),
    "worker list": ("", 0),
    "conflict list": ("read-copy", 0),
    "conflict show": ("read-copy 1", 0),
    "ddl list": ("", 0),
    "ddl show": ("read-copy 2", 0),
}
# They change something, or run processes.
CHANGING = {
    "": "demo up down sql bench registry scheduler apply worker",
    "set": "create delete rollback",
    "task": "create pause move load snapshot resume delete rollback",
    "replica": "pin unpin drain undrain",
    "relay": "start stop pause resume serve purge",
    "cluster": "raise-generation secure",
    "worker": "drain undrain",
    "conflict": "replay discard",
    "ddl": "skip apply end",
    "topic": "rebuild",
    "subscriber": "add remove",
    "unsafe": "skip-gtid reset-position adopt-topic follow-topic withdraw",
}
_READS = re.compile(
    r"\s*(?!.*\b(GLOBAL|PERSIST)\b\s*[^.\s@]*\s*=)(?!.*\bFOR UPDATE\b)(?!.*\bINTO\s+(OUTFILE|DUMPFILE)\b)"
    r"(SELECT|WITH|\(?SELECT|SHOW|EXPLAIN|DESCRIBE|SET|USE|START TRANSACTION|BEGIN|COMMIT|ROLLBACK)\b",
    re.IGNORECASE | re.DOTALL,
)


def commands() -> Iterator[str]:
    """Every command of the command line, such as ``task show``."""
    for name in COMMANDS:
        command = load_command(name)
        inner = getattr(command, "commands", {})
        yield from (f"{name} {one}" for one in inner)
        if not inner or getattr(command, "invoke_without_command", False):
            yield name


def test_every_command_reads_or_changes() -> None:
    """A new command is added to one of the lists."""
    changing = {
        f"{group} {name}".strip() for group, names in CHANGING.items() for name in names.split()
    }
    assert set(commands()) == set(READING) | changing


class AutomaticKafka(KafkaServer):
    """A broker with Kafka's own default, and more than one partition for such topics."""

    creates_topics = True


@dataclass(frozen=True)
class Recording:
    """The things that can change: the servers' statements, Kafka's topics with their ends, and ZooKeeper's tree."""

    servers: tuple[DatabaseServer, ...]
    kafka: AdminClient
    ensemble: Ensemble

    def kafka_ends(self) -> dict[str, object]:
        """The topics with the ends of their partitions, without Kafka's own, which it creates for any reader."""
        topics = self.kafka.list_topics(timeout=ANSWER_S).topics
        places = [
            TopicPartition(name, number)
            for name, topic in topics.items()
            if not name.startswith("__")
            for number in topic.partitions
        ]
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        asked = self.kafka.list_offsets(dict.fromkeys(places, latest)) if places else {}
        return {f"{one.topic}/{one.partition}": asked[one].result(ANSWER_S).offset for one in asked}

    def nodes(self) -> dict[str, object]:
        """Contents, versions, and the counter of changes of each node's children."""
        client = KazooClient(self.ensemble.hosts)
        client.start(ANSWER_S)
        found: dict[str, object] = {}
        waiting = [self.ensemble.tree.root]
        while waiting:
            path = waiting.pop()
            content, stat = client.get(path)
            found[path] = (content, stat.version, stat.cversion, stat.pzxid, stat.czxid)
            waiting += [f"{path}/{name}" for name in client.get_children(path)]
        client.stop()
        client.close()
        return found

    def writes(self) -> list[str]:
        """The statements since the last call that do more than read."""
        found: list[str] = []
        for server in self.servers:
            rows = server.execute(
                "SELECT argument FROM mysql.general_log WHERE command_type IN ('Query', 'Execute')"
            )
            texts = [one.decode() if isinstance(one, bytes) else str(one) for (one,) in rows]
            found += [one for one in texts if not _READS.match(one)]
            _empty_log(server)
            server.execute("SET GLOBAL general_log = ON")
        return [one for one in found if not one.startswith("SET GLOBAL general_log")]

    @contextmanager
    def logging(self) -> Iterator[None]:
        """The servers write their general logs into tables during the block."""
        former = [one.execute("SELECT @@GLOBAL.log_output")[0][0] for one in self.servers]
        try:
            for server in self.servers:
                server.execute("SET GLOBAL log_output = 'TABLE'")
                server.execute("SET GLOBAL general_log = ON")
            self.writes()
            yield
        finally:
            for server, output in zip(self.servers, former, strict=True):
                _empty_log(server)
                server.execute("SET GLOBAL log_output = %s", (output,))


def _empty_log(server: DatabaseServer) -> None:
    """Stop the log and empty it, without a transaction of a replica's own."""
    server.execute("SET GLOBAL general_log = OFF")
    with session(server) as cursor:
        cursor.execute("SET sql_log_bin = 0")
        cursor.execute("TRUNCATE mysql.general_log")


@pytest.fixture(scope="module")
def automatic_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    """It starts before ``shell`` hides the folder of the servers."""
    server = AutomaticKafka(tmp_path_factory.mktemp("automatic") / "kafka")
    server.start()
    yield server
    server.discard()


@pytest.fixture(scope="session")
def target_alike(source_set: DatabaseSet, pool: Pool) -> DatabaseServer:
    """The shared target of the source's flavor. It starts before ``shell`` hides the folder of the servers."""
    return pool.server(source_set.flavour, 101 + FLAVOURS.index(source_set.flavour))


def test_reading_commands_change_nothing(
    source_set: DatabaseSet,
    target_alike: DatabaseServer,
    automatic_kafka: KafkaServer,
    shell: Shell,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """First without topic and progress, then with a captured topic and conflicts on the target."""
    monkeypatch.setenv("MILLRACE_TEST_PASSWORD", source_set.password)
    source_set.execute(f"CREATE DATABASE {DATABASE}")
    source_set.execute(f"CREATE TABLE {DATABASE}.t (id INT PRIMARY KEY)")
    source_set.wait_for_replicas()
    relay = tmp_path / "relay"
    kafka, topic = automatic_kafka, f"read-{source_set.flavour}"
    with ExitStack() as ends:
        ends.callback(source_set.execute, f"DROP DATABASE {DATABASE}")
        ends.callback(target_alike.execute, f"DROP DATABASE IF EXISTS {DATABASE}")
        registry, _ = ends.enter_context(started_registry(kafka, "schemas"))
        shell("set", "create", "-f", shell.file(_set("shop", *source_set.members)))
        shell("set", "create", "-f", shell.file(_set("copy", target_alike)))
        broker = (
            f"kafka: {{bootstrap: '{kafka.bootstrap}'}}\nregistry: {registry}\ntopic: {topic}\n"
        )
        include = f"include: ['{DATABASE}.*']\n"
        shell(
            "task",
            "create",
            "-f",
            shell.file(
                f"task: read-capture\nkind: capture\nset: shop\nstart: '{source_set.primary.gtid_position()}'\n"
                f"{broker}{include}topic_settings: {{replication_factor: 1, min_insync_replicas: 1}}\n"
            ),
        )
        copy = f"task: read-copy\nkind: apply\ntarget: copy\n{broker}{include}"
        shell("task", "create", "-f", shell.file(copy))
        shell(
            *("subscriber", "add", "reports", "--task", "read-capture"),
            *("--group", "reports", "--principal", "User:reports"),
        )
        documents = tmp_path / "documents"
        shell("export", str(documents))
        recording = Recording(
            (*source_set.members, target_alike),
            AdminClient({"bootstrap.servers": kafka.bootstrap}),
            shell.ensemble,
        )
        places = {
            RELAY: str(relay),
            FOLDER: str(documents),
            CONNECTOR: shell.file("connector.class: MySqlConnector"),
            TOPIC: topic,
            URL: _url(source_set),
            GTID: source_set.primary.gtid_position(),
        }
        ends.enter_context(recording.logging())
        _assert_unchanged(recording, shell, places, exit_codes=False)
        _capture(source_set, shell.ensemble, relay)
        _conflicts(target_alike)
        recording.writes()
        _assert_unchanged(recording, shell, places, exit_codes=True)


def _set(name: str, *members: DatabaseServer) -> str:
    addresses = ", ".join(f"{{host: 127.0.0.1, port: {one.port}}}" for one in members)
    account = (
        f"user: {members[0].user}\npassword: env:MILLRACE_TEST_PASSWORD\ntls: require-unverified\n"
    )
    return f"set: {name}\nmembers: [{addresses}]\n{account}"


def _url(source: DatabaseSet) -> str:
    password, port = source.password, source.primary.port
    return f"mysql://{source.primary.user}:{password}@127.0.0.1:{port}/{DATABASE}"


def _capture(source: DatabaseSet, ensemble: Ensemble, relay: Path) -> None:
    """Publish some rows, and stop."""
    for number in range(3):
        source.execute(f"INSERT INTO {DATABASE}.t VALUES ({number})")
    wanted = parse_gtid_set(source.flavour, source.primary.gtid_position())
    with ensemble.session() as own, ensemble.session() as other:

        def is_published() -> bool:
            saved = read_status(other, ensemble.tree, "read-capture")
            reached = saved.report.gtid_set if saved is not None else ""
            return parse_gtid_set(source.flavour, reached).includes(wanted)

        runner = CaptureRunner(Store(own, ensemble.tree), Upstreams(Site(root=relay)), "w1")
        with supervised(own, ensemble.tree, runner), scheduled(other, ensemble.tree):
            eventually(is_published, what="the rows are published")


def _conflicts(target: DatabaseServer) -> None:
    """A conflict of ``read-copy`` at seq 1, and a statement that waits at seq 2."""
    target.execute(f"CREATE DATABASE {DATABASE}")
    target.execute(ACCOUNTS_SQL, db=DATABASE)
    target.execute(f"INSERT INTO {DATABASE}.accounts VALUES (5, 7, 'old', 50)")
    stream = RecordStream(flavour=target.flavour)
    stream.insert(accounts(DATABASE), account(1, code=7))
    stream.commit()
    stream.ddl("FROBNICATE accounts", database=DATABASE)
    with pytest.raises(Fatal, match="MR-5042"):
        run_once(target, apply_task("read-copy", conflict=ConflictPolicy.SKIP), stream)


def _assert_unchanged(
    recording: Recording, shell: Shell, places: dict[str, str], *, exit_codes: bool
) -> None:
    """Each command alone, so that a failure names the one that changed something."""
    changed: dict[str, object] = {}
    for command, (words, exit_code) in READING.items():
        arguments = [places.get(word, word) for word in words.split()]
        before = recording.kafka_ends(), recording.nodes()
        code = run([*command.split(), *arguments])
        output = shell.capsys.readouterr()
        if exit_codes and code != exit_code:
            changed[command] = f"exit code {code}: {output}"
        after = recording.kafka_ends(), recording.nodes()
        writes = recording.writes()
        if after != before or writes:
            differing = [
                set(a.items()) ^ set(b.items()) for a, b in zip(before, after, strict=True)
            ]
            changed[command] = (differing, writes)
    assert changed == {}
