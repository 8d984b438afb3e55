"""`millrace check` on real servers: a set with the least privileges passes, and each damage is found."""

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count

import pytest

from millrace.checks.requirement import Level, Requirement
from millrace.consumer.checks.target import TargetUse, check_target
from millrace.deploy.servers import DatabaseServer, DatabaseSet, KafkaServer
from millrace.deploy.servers.process import free_port
from millrace.drivers.mysql.grants import Role, needed_grants
from millrace.producer.checks.source import SourceUse, check_set, widest_row
from millrace.producer.checks.topic import check_topic_of
from millrace.producer.publish.config import publisher_config
from millrace.producer.publish.kafka import KafkaDriver
from millrace.producer.source.set_stream import Site
from millrace.producer.source.set_streams import Upstreams
from millrace.producer.task.capture import CaptureRunner
from millrace.schemas.documents import (
    Account,
    ApplyTask,
    Brokers,
    CaptureTask,
    Member,
    SecretPlace,
    SecretReference,
    SetDocument,
    TableFilter,
    Tls,
    TlsMode,
    TopicAddress,
    TopicOptions,
)
from millrace.schemas.gtid import Flavour, parse_gtid_set
from millrace.schemas.status import TaskReport, TaskState
from millrace.schemas.view.view import view_of_filter
from millrace.zk.client.session import Session
from millrace.zk.tree.reports import read_status
from millrace.zk.tree.store import Store
from tests.fixtures.servers import FLAVOURS, Pool
from tests.fixtures.shell import Shell
from tests.kit.apply.faults import Supervised
from tests.kit.apply.granted import privileged_stream
from tests.kit.apply.local import apply_task, endpoint_of
from tests.kit.control.control import scheduled, supervised
from tests.kit.waiting import eventually

PASSWORD = "MILLRACE_TEST_PASSWORD"
DATABASE, BEATS = "checked", "checked_ops"
PAUSE_S = 72 * 3600.0
_TOPICS = count(1)
# What the machine of the test is like does not matter, and kernels are elsewhere.
HOST = ("--ignore", "MR-4175", "--ignore", "MR-4176", "--ignore", "MR-4177")


def documents(
    source: DatabaseSet, target: DatabaseServer, kafka: KafkaServer, registry: str
) -> dict[str, str]:
    """A source set, a target set, and a task of each kind, by name."""
    members = ", ".join(f"{{host: 127.0.0.1, port: {one.port}}}" for one in source.members)
    account = f"password: env:{PASSWORD}\ntls: require-unverified\n"
    broker = f"kafka: {{bootstrap: '{kafka.bootstrap}'}}\n"
    return {
        "shop": f"set: shop\nmembers: [{members}]\nuser: check_source\n{account}heartbeat: {{database: {BEATS}}}\n",
        "copy": f"set: copy\nmembers: [{{host: 127.0.0.1, port: {target.port}}}]\nuser: check_target\n{account}",
        "shop-capture": f"task: shop-capture\nkind: capture\nset: shop\ntopic: checked-shop\n{broker}"
        f"registry: {registry}\ninclude: ['{DATABASE}.*']\n"
        "topic_settings: {replication_factor: 1, min_insync_replicas: 1}\n",
        "shop-copy": f"task: shop-copy\nkind: apply\ntarget: copy\ntopic: checked-shop\n{broker}",
    }


@pytest.fixture(scope="session")
def target_alike(source_set: DatabaseSet, pool: Pool) -> DatabaseServer:
    """The shared target of the source's flavor. It starts before ``shell`` hides the folder of the servers."""
    return pool.server(source_set.flavour, 101 + FLAVOURS.index(source_set.flavour))


@pytest.mark.both_flavours
def test_set_with_the_printed_grants_passes_and_nothing_changes(
    source_set: DatabaseSet,
    target_alike: DatabaseServer,
    shell: Shell,
    kafka: KafkaServer,
    registry: str,
) -> None:
    """All requirements of all areas hold; no node, topic, table or row is made."""
    found = documents(source_set, target_alike, kafka, registry)
    for name, text in found.items():
        shell("task" if text.startswith("task") else "set", "create", "-f", shell.file(text))
        assert name in text
    try:
        for name, server in (("shop", source_set.primary), ("copy", target_alike)):
            printed = shell("grants", "print", name, "--flavour", str(server.flavour))
            for line in printed.splitlines():
                if not line.startswith("--"):
                    server.execute(line.rstrip(";").replace("…", "canary"))
        source_set.execute(f"CREATE DATABASE {BEATS}")
        source_set.wait_for_replicas()
        before = state_of(shell, source_set, target_alike)
        plain = json.loads(shell("check", "--json", *HOST))
        assert state_of(shell, source_set, target_alike) == before
        assert (plain["exit_code"], plain["warn"], plain["fail"]) == (0, 0, 0)
        areas = {one["area"] for one in plain["requirements"]}
        assert areas == {"source", "kafka", "registry", "zookeeper", "target", "host"}
        table = shell("check", "shop-capture", *HOST)
        assert "kafka topic checked-shop" in table
        assert "target" not in table
        assert all(len(line) <= 80 for line in table.splitlines())
    finally:
        source_set.execute(f"DROP DATABASE IF EXISTS {BEATS}")
        source_set.execute("DROP USER IF EXISTS check_source")
        target_alike.execute("DROP USER IF EXISTS check_target")


def state_of(shell: Shell, source: DatabaseSet, target: DatabaseServer) -> tuple[object, ...]:
    """All that a check could have changed."""
    with shell.ensemble.session() as session:
        nodes = list(_nodes(session, shell.ensemble.tree.root))
    databases = target.execute("SHOW DATABASES")
    return nodes, databases, [one.gtid_position() for one in (*source.members, target)]


def _nodes(session: Session, path: str) -> Iterator[tuple[str, object]]:
    yield path, session.get(path)
    for name in session.children(path):
        yield from _nodes(session, f"{path}/{name}")


def test_documents_need_not_be_in_zookeeper(
    shell: Shell,
    single_server: DatabaseServer,
    kafka: KafkaServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The set of a task comes from another file; without it, or with an unknown name, the check fails."""
    port, broker = single_server.port, kafka.bootstrap
    task = f"task: t\nkind: capture\nset: one\ntopic: checked-files\nkafka: {{bootstrap: '{broker}'}}\nregistry: http://127.0.0.1:1\n"
    alone = json.loads(shell("check", "-f", shell.file(task), "--json", exit_code=2, stream="out"))
    assert {one["code"] for one in alone["requirements"]} >= {"MR-4104", "MR-6020"}
    shell.file(task)
    one = shell.folder / "set.yaml"
    one.write_text(
        f"set: one\nmembers: [{{host: 127.0.0.1, port: {port}}}]\nuser: {single_server.user}\n"
        f"password: env:{PASSWORD}\ntls: require-unverified\n"
    )
    monkeypatch.setenv(PASSWORD, single_server.password)
    files = ("-f", str(shell.folder / "document.yaml"), "-f", str(one))
    both = json.loads(shell("check", *files, "--json", *HOST, exit_code=2, stream="out"))
    found = {(one["level"], one["code"]) for one in both["requirements"]}
    assert found == {("ok", ""), ("warn", "MR-4161"), ("warn", "MR-3021"), ("fail", "MR-6020")}
    ignored = ("--ignore", "MR-6020", "--ignore", "MR-4161", "--ignore", "MR-3021")
    counts = shell("check", *files, *HOST, *ignored).splitlines()[-1]
    assert ", 0 warn, 0 fail, " in counts  # the machine of the test may add ignored findings
    assert int(counts.split()[-2]) >= 3
    assert counts.endswith(" ignored")
    assert "MR-4104" in shell("check", "nothing", exit_code=4)
    assert "MR-4207" in shell("check", "--ignore", "MR-0000", exit_code=4)


def test_ensemble_with_a_silent_server_or_other_bounds_is_found(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other server answers, so the documents are read."""
    monkeypatch.setenv("MILLRACE_ZOOKEEPER", f"{shell.ensemble.hosts},127.0.0.1:{free_port()}")
    monkeypatch.setenv("MILLRACE_ZOOKEEPER_TIMEOUT_S", "600")
    plain = json.loads(shell("check", "--json", *HOST, exit_code=1, stream="out"))
    codes = {one["code"] for one in plain["requirements"]}
    assert codes == {"", "MR-4169", "MR-4170"}


def set_of(servers: tuple[DatabaseServer, ...], monkeypatch: pytest.MonkeyPatch) -> SetDocument:
    """The set document of these servers, with the service's account."""
    monkeypatch.setenv(PASSWORD, servers[0].password)
    return SetDocument(
        name="shop",
        members=tuple(Member("127.0.0.1", server.port) for server in servers),
        account=Account(servers[0].user, SecretReference(SecretPlace.ENVIRONMENT, PASSWORD)),
        tls=Tls(TlsMode.REQUIRE_UNVERIFIED),
    )


def findings(found: Iterator[Requirement]) -> dict[str, Requirement]:
    """Warnings and failures by code."""
    return {one.code: one for one in found if one.level is not Level.OK}


@contextmanager
def variable(server: DatabaseServer, name: str, value: object) -> Iterator[None]:
    """Change a global variable during the block."""
    ((before,),) = server.execute(f"SELECT @@GLOBAL.{name}")
    is_format = name == "binlog_format" and server.flavour is Flavour.MYSQL
    if is_format:
        server.execute("STOP REPLICA SQL_THREAD")
    server.execute(f"SET GLOBAL {name} = %s", (value,))
    try:
        yield
    finally:
        server.execute(f"SET GLOBAL {name} = %s", (before,))
        if is_format:
            server.execute("START REPLICA SQL_THREAD")


DAMAGES = (
    ("binlog_format", "STATEMENT", "MR-1012"),
    ("binlog_row_image", "MINIMAL", "MR-1013"),
    ("binlog_row_metadata", "MINIMAL", "MR-1014"),
    ("binlog_checksum", "NONE", "MR-1019"),
    ("binlog_expire_logs_seconds", 3600, "MR-4162"),
    ("server_id", 1, "MR-4160"),
)


@pytest.mark.both_flavours
@pytest.mark.parametrize(("name", "value", "code"), DAMAGES, ids=[code for *_, code in DAMAGES])
def test_damaged_source_member_is_found(
    source_set: DatabaseSet,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    value: object,
    code: str,
) -> None:
    """A member that can't be read is a warning while another one can; the set's other members stay ok."""
    document = set_of(source_set.members, monkeypatch)
    use = SourceUse(pause_s=PAUSE_S)
    assert findings(check_set(document, use)) == {}
    replica = source_set.replicas[1]
    with variable(replica, name, value):
        (found,) = findings(check_set(document, use)).values()
    assert found.code == code
    assert found.level is (Level.FAIL if code == "MR-4160" else Level.WARN)
    if code != "MR-4160":
        assert found.subject.name == f"127.0.0.1:{replica.port}"


def test_tables_of_a_source_are_measured(
    source_set: DatabaseSet, monkeypatch: pytest.MonkeyPatch, kafka: KafkaServer
) -> None:
    """Those of the tasks only: a table without a primary key, and the widest row that the columns allow."""
    document = set_of(source_set.members, monkeypatch)
    task = replace(capture_task(kafka), tables=TableFilter((f"{DATABASE}.*",), (f"{DATABASE}.x*",)))
    run = source_set.execute
    try:
        run(f"CREATE DATABASE {DATABASE}")
        run(f"CREATE TABLE {DATABASE}.keyless (id INT, name VARCHAR(100) CHARACTER SET utf8mb4)")
        run(f"CREATE TABLE {DATABASE}.narrow (id INT PRIMARY KEY)")
        run(f"CREATE TABLE {DATABASE}.x_excluded (id INT, body LONGTEXT)")
        source_set.wait_for_replicas()
        found = findings(check_set(document, SourceUse([task])))
        assert {code: one.found for code, one in found.items()} == {
            "MR-4164": f"none in {DATABASE}.keyless"
        }
        tables = widest_row(document, task.tables)
        assert (tables.count, tables.widest) == (2, f"{DATABASE}.keyless")
        assert tables.row_bytes_max == 8 + 4 * 100
        run(f"CREATE TABLE {DATABASE}.wide (id INT PRIMARY KEY, body LONGTEXT, more JSON)")
        source_set.wait_for_replicas()
        ((packet_bytes,),) = run("SELECT @@max_allowed_packet")
        assert widest_row(document, task.tables).row_bytes_max == packet_bytes
    finally:
        run(f"DROP DATABASE IF EXISTS {DATABASE}")
        source_set.wait_for_replicas()


def test_silent_member_is_found_and_hides_no_other(
    single_server: DatabaseServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It accepts connections and never answers; it costs one time limit."""
    document = set_of((single_server,), monkeypatch)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        member = Member("127.0.0.1", silent.getsockname()[1])
        both = replace(document, members=(member, *document.members))
        found = [one for one in check_set(both, SourceUse()) if one.code != "MR-4161"]
    warned = {(one.code, one.subject.name) for one in found if one.level is not Level.OK}
    assert warned == {("MR-1006", str(member))}
    assert "binlog_format" in {one.what for one in found}


@pytest.mark.both_flavours
def test_damaged_target_is_found(
    target_server: DatabaseServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Privileges, triggers, tables without a key, engines, settings, and a server that takes no writes."""
    document = set_of((target_server,), monkeypatch)
    address = TopicAddress(topic="checked", brokers=Brokers("127.0.0.1:1"))
    task = ApplyTask(
        name="checked",
        source=address,
        target="shop",
        view=view_of_filter(TableFilter((f"{DATABASE}.*",))),
    )
    use = TargetUse([task])
    assert set(findings(check_target(document, use))) == {
        "MR-4161"
    }  # its account has all privileges
    run = target_server.execute
    try:
        run(f"CREATE DATABASE {DATABASE}")
        run(f"CREATE TABLE {DATABASE}.keyless (id INT)")
        run(f"CREATE TABLE {DATABASE}.old (id INT PRIMARY KEY) ENGINE=MyISAM")
        run(
            f"CREATE TRIGGER {DATABASE}.again BEFORE INSERT ON {DATABASE}.keyless FOR EACH ROW SET NEW.id = 1"
        )
        run("CREATE USER check_poor IDENTIFIED BY 'canary'")
        run(f"GRANT SELECT, TRIGGER ON {DATABASE}.* TO check_poor")
        monkeypatch.setenv(PASSWORD, "canary")
        poor = replace(document, account=replace(document.account, user="check_poor"))
        with variable(target_server, "local_infile", 0):
            found = findings(check_target(poor, use))
        assert set(found) == {"MR-4164", "MR-4171", "MR-5007", "MR-5015", "MR-5018"}
        for statement in found["MR-5007"].fix.split(";")[:-1]:
            run(statement.strip())
        assert set(findings(check_target(poor, use))) == {"MR-4164", "MR-5015", "MR-5018"}
        run("GRANT ALL PRIVILEGES ON *.* TO check_poor WITH GRANT OPTION")
        found = findings(check_target(poor, use))
        for statement in found["MR-4161"].fix.split(";")[:-1]:
            run(statement.strip())
        assert set(findings(check_target(poor, use))) == {"MR-4164", "MR-5015", "MR-5018"}
    finally:
        run(f"DROP DATABASE IF EXISTS {DATABASE}")
        run("DROP USER IF EXISTS check_poor")


def test_tables_are_compared_with_the_schemas_of_the_task(
    target_server: DatabaseServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A missing column is found before the next row needs it; a table that the topic dropped is no finding."""
    document = set_of((target_server,), monkeypatch)
    task = apply_task("checked-schemas", lanes=1)
    stream = privileged_stream(target_server.flavour, DATABASE)
    use = TargetUse([task])
    run = target_server.execute
    try:
        Supervised(endpoint_of(target_server), task, stream).run()
        before = findings(check_target(document, use))
        run(f"ALTER TABLE {DATABASE}.parent DROP COLUMN body")
        found = findings(check_target(document, use))
        # an account that can't see the database: its name is known from the task's schemas
        run("CREATE USER check_blind IDENTIFIED BY 'canary'")
        for grant in needed_grants(Role.TARGET, target_server.flavour):
            run(grant.sql("check_blind").rstrip(";"))
        monkeypatch.setenv(PASSWORD, "canary")
        blind = replace(document, account=replace(document.account, user="check_blind"))
        hidden = findings(check_target(blind, use))["MR-5007"]
        for statement in hidden.fix.split(";")[:-1]:
            run(statement.strip())
        seen = findings(check_target(blind, use))
    finally:
        run(f"DROP DATABASE IF EXISTS {DATABASE}")
        run("DROP USER IF EXISTS check_blind")
    assert (hidden.level, f" on {DATABASE}" in hidden.found.replace("\\", "")) == (Level.FAIL, True)
    assert "MR-5007" not in seen
    assert {"MR-5012", "MR-5013"}.isdisjoint(before)
    assert f"{DATABASE}.parent has no column body" in found["MR-5013"].found
    assert found["MR-5013"].level is Level.WARN


def test_target_without_a_writable_primary_fails(
    single_server: DatabaseServer,
    monkeypatch: pytest.MonkeyPatch,
    shell: Shell,
    kafka: KafkaServer,
) -> None:
    """A read-only server, by the command; other areas are checked all the same."""
    port = single_server.port
    for text in (
        f"set: copy\nmembers: [{{host: 127.0.0.1, port: {port}}}]\nuser: {single_server.user}\n"
        f"password: env:{PASSWORD}\ntls: require-unverified\n",
        f"task: t\nkind: apply\ntarget: copy\ntopic: absent\nkafka: {{bootstrap: '{kafka.bootstrap}'}}\n",
    ):
        shell("task" if text.startswith("task") else "set", "create", "-f", shell.file(text))
    monkeypatch.setenv(PASSWORD, single_server.password)
    with variable(single_server, "read_only", 1):
        output = shell("check", *HOST, exit_code=2, stream="out")
    assert "MR-5003" in output
    assert "MR-3501" in output
    assert "2 fail" in output


def capture_task(kafka: KafkaServer) -> CaptureTask:
    """A task with a new topic."""
    address = TopicAddress(topic=f"checked-{next(_TOPICS)}", brokers=Brokers(kafka.bootstrap))
    asked = TopicOptions(replication_factor=1, min_insync_replicas=1)
    return CaptureTask(name="checked", set_name="shop", output=address, topic_options=asked)


def test_topic_is_checked_without_a_trace(kafka: KafkaServer) -> None:
    """A missing topic is not created. The dry run fences no running task and moves no offset of its topic."""
    task = capture_task(kafka)
    driver = KafkaDriver(publisher_config(task, flavour=Flavour.MYSQL, epoch=1, worker="w"))
    assert findings(check_topic_of(task, pause_s=0.0)) == {}
    assert driver.admin().settings() is None
    driver.admin().create(2**20)
    running = driver.transactions(2**20)
    running.init()
    partition = driver.partition()
    try:
        before = partition.all_ends()
        found = {one.what: one for one in check_topic_of(task, pause_s=PAUSE_S)}
        assert {one.level for one in found.values()} == {Level.OK}
        assert "aborted" in found["Kafka transaction"].found
        assert partition.all_ends() == before
        running.begin()
        running.add([(None, b"still the owner")])
        running.commit()
    finally:
        running.discard()
        partition.close()


def test_damaged_topic_is_found(kafka: KafkaServer) -> None:
    """Retention, replication, too many partitions, and another writer's transaction that stays open."""
    task = capture_task(kafka)
    kept = replace(task.topic_options, retention_ms=3_600_000)
    short = replace(task, topic_options=kept)
    driver = KafkaDriver(publisher_config(short, flavour=Flavour.MYSQL, epoch=1, worker="w"))
    driver.admin().create(2**20)
    careless = replace(task, topic_options=TopicOptions())
    assert set(findings(check_topic_of(careless, pause_s=PAUSE_S))) == {"MR-3021", "MR-4165"}
    other = publisher_config(task, flavour=Flavour.MYSQL, epoch=1, worker="w")
    foreign = KafkaDriver(replace(other, transactional_id="someone-else")).transactions(2**20)
    try:
        foreign.init()
        foreign.begin()
        foreign.add([(None, b"x")])
        foreign.flush()
        (found,) = findings(check_topic_of(task, pause_s=0.0)).values()
        assert found.code == "MR-3013"
        assert "someone-else" in found.found
    finally:
        foreign.abort()
        foreign.discard()


def test_check_leaves_a_running_task_alone(
    single_server: DatabaseServer,
    shell: Shell,
    kafka: KafkaServer,
    registry: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its owner keeps lease and producer, publishes on, and its position is what the check compares."""
    topic, database = f"checked-{next(_TOPICS)}", "checked_live"
    single_server.execute(f"CREATE DATABASE {database}")
    single_server.execute(f"CREATE TABLE {database}.t (id INT PRIMARY KEY)")
    for text in (
        f"set: shop\nmembers: [{{host: 127.0.0.1, port: {single_server.port}}}]\nuser: {single_server.user}\n"
        f"password: env:{PASSWORD}\ntls: require-unverified\n",
        f"task: live\nkind: capture\nset: shop\ntopic: {topic}\nregistry: {registry}\n"
        f"kafka: {{bootstrap: '{kafka.bootstrap}'}}\ninclude: ['{database}.*']\n"
        f"start: '{single_server.gtid_position()}'\n"
        "topic_settings: {replication_factor: 1, min_insync_replicas: 1}\n",
    ):
        shell("task" if text.startswith("task") else "set", "create", "-f", shell.file(text))
    monkeypatch.setenv(PASSWORD, single_server.password)
    ensemble, numbers = shell.ensemble, count(1)

    def report_after(rows: int, session: Session) -> TaskReport:
        """Commit rows, and wait until the task has published them."""
        for _ in range(rows):
            single_server.execute(f"INSERT INTO {database}.t VALUES ({next(numbers)})")
        flavour, wanted = single_server.flavour, single_server.gtid_position()

        def is_published() -> bool:
            saved = read_status(session, ensemble.tree, "live")
            reports[:] = [saved.report] if saved is not None else []
            reached = parse_gtid_set(flavour, reports[0].gtid_set if reports else "")
            return reached.includes(parse_gtid_set(flavour, wanted))

        reports: list[TaskReport] = []
        eventually(is_published, what="the rows are published")
        return reports[0]

    try:
        with ensemble.session() as own, ensemble.session() as other:
            store = Store(own, ensemble.tree)
            runner = CaptureRunner(store, Upstreams(Site(root=shell.folder / "relay")), "w1")
            with supervised(own, ensemble.tree, runner), scheduled(other, ensemble.tree):
                before = report_after(5, other)
                for _ in range(3):
                    plain = json.loads(
                        shell("check", "live", "--json", *HOST, exit_code=1, stream="out")
                    )
                    assert plain["fail"] == 0
                    assert "position of live" in {one["what"] for one in plain["requirements"]}
                    after = report_after(5, other)
    finally:
        single_server.execute(f"DROP DATABASE {database}")
    assert after.state is TaskState.RUNNING
    assert after.epoch == before.epoch
    assert after.published is not None
    assert after.published.renewed == 0
