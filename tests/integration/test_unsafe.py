"""`millrace unsafe` on real servers: ways out of states that block a capture task. The topic names each gap."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import groupby

import pytest

from millrace.consumer.target.intents import decide_intent
from millrace.consumer.target.progress import Mark
from millrace.consumer.task.runner import followed, same_topic
from millrace.consumer.task.start import take_over
from millrace.deploy.servers import DatabaseServer, KafkaServer, sql
from millrace.drivers.kafka.reader import TopicIdentity, TopicReader, TopicRecord
from millrace.drivers.mysql.connection import connect
from millrace.errors import Fatal, Retryable
from millrace.schemas.documents import ApplyTask, Brokers, SetDocument
from millrace.schemas.gtid import Flavour, GtidSet
from millrace.schemas.record.gap import Gap
from millrace.schemas.status import TaskReport, TaskState
from tests.fixtures.servers import NewServer
from tests.fixtures.shell import Shell
from tests.kit.apply.local import (
    LocalApplier,
    LocalRecords,
    apply_task,
    endpoint_of,
    ignore,
    run_once,
    started,
)
from tests.kit.apply.topic import RecordStream
from tests.kit.capture.task_stage import TASK, TaskStage, use_memory_registry
from tests.kit.document_programs import checked
from tests.kit.fix_commands import printed
from tests.kit.publisher.rig import Rig, topic_named
from tests.kit.relay.relay import UNVERIFIED, flush, member_of, purge_to

WHY = ("--reason", "the test lost them", "--yes")


class Scene(TaskStage):
    """A capture task, and the operator's shell."""

    shell: Shell

    def unsafe(self, command: str, *words: str, exit_code: int = 0) -> str:
        """Run ``millrace unsafe``."""
        return self.shell("unsafe", command, TASK, *words, exit_code=exit_code)

    def decide_as_printed(self, fix: str, command: str, **filled: str) -> str:
        """Run the ``millrace unsafe`` command of a fix as it is printed; the operator types yes, and fills places."""
        (words,) = (one for one in printed(fix) if one[:2] == ["unsafe", command])
        return self.shell(*(filled.get(word.replace("-", "_"), word) for word in words), "--yes")

    def wait_blocked(self, code: str) -> TaskReport:
        """Wait until the task is blocked with this code."""
        return self.wait(
            lambda r: (r.state, r.code) == (TaskState.BLOCKED, code), f"blocked: {code}"
        )

    def gaps(self) -> list[Gap]:
        """The gaps that `millrace topic verify` names; it must find no violation."""
        found = self.rig.verdict()
        assert found.violations == []
        return [named.gap for named in found.gaps]

    def check_independently(self) -> dict[str, int]:
        """The result of the checker in docs/subscribers.md, which uses no code of Millrace."""
        done = checked(self.rig.bootstrap, self.rig.topic, self.shell.folder)
        assert done.returncode == 0, done.stderr
        found: dict[str, int] = json.loads(done.stdout)
        return found


def scene_on(
    server: DatabaseServer, kafka: KafkaServer, shell: Shell, name: str, stack: ExitStack
) -> Scene:
    """No worker is running yet."""
    rig = Rig(kafka.bootstrap, topic_named("unsafe", name))
    found = Scene(server, shell.ensemble, rig, shell.folder, stack)
    found.shell = shell
    return found


@pytest.fixture(autouse=True)
def memory_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Schema ids come from memory."""
    use_memory_registry(monkeypatch)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """Ends everything in reverse order."""
    with ExitStack() as ends:
        yield ends


@pytest.fixture
def scene(
    single_server: DatabaseServer,
    kafka: KafkaServer,
    shell: Shell,
    request: pytest.FixtureRequest,
    stack: ExitStack,
) -> Scene:
    """A task of the shared server of each flavor."""
    return scene_on(single_server, kafka, shell, request.node.name, stack)


def topic_records(scene: Scene) -> list[TopicRecord]:
    """Every committed record of the topic."""
    reader = TopicReader(Brokers(scene.rig.bootstrap), scene.rig.topic)
    ends = reader.ends()
    found = [record for chunk in reader.chunks(ends.low, ends.stable) for record in chunk]
    reader.close()
    return found


def topic_values(scene: Scene) -> list[bytes]:
    """Every committed value of the topic."""
    return [record.value for record in topic_records(scene)]


def purge(server: DatabaseServer) -> str:
    """Purge all closed binlog files; returns the position after them."""
    purge_to(server, flush(server))
    return server.gtid_position()


@pytest.fixture(params=[Flavour.MARIADB, pytest.param(Flavour.MYSQL, marks=pytest.mark.chaos)])
def lone_server(request: pytest.FixtureRequest, new_server: NewServer) -> DatabaseServer:
    """A server for this test, whose binlogs may be purged."""
    return new_server(request.param)


def test_task_continues_after_purged_binlogs_with_a_named_gap(
    lone_server: DatabaseServer,
    mariadb_server: DatabaseServer,
    kafka: KafkaServer,
    shell: Shell,
    stack: ExitStack,
) -> None:
    """MR-1031 ends with `reset-position`; an apply task stops at the gap, and continues after `--done`."""
    server = lone_server
    scene = scene_on(server, kafka, shell, "purged", stack)
    scene.run_once("w1", 3)
    before = server.gtid_position()
    scene.write(2)
    after = purge(server)
    scene.write(4)
    with scene.worker("w1"):  # its relay log ends before the purged files
        scene.wait_blocked("MR-1031")
        plan = json.loads(scene.unsafe("reset-position", "--gtid", after, "--dry-run", "--json"))
        assert (plan["now"]["seq"], plan["then"]["seq"], plan["gap_seq"]) == (3, 4, 4)
        missing = difference(server.flavour, before, after)
        assert plan["missing"] == missing
        assert all("MR-1031" in why for why in plan["members"].values())
        error = scene.unsafe("reset-position", "--gtid", before, *WHY, exit_code=4)
        assert error.startswith("MR-4185 ")
        unconfirmed = scene.unsafe("reset-position", "--gtid", after, exit_code=4)
        assert unconfirmed.startswith("MR-4187 ")
        assert scene.rig.verdict().last_seq == 3
        scene.unsafe("reset-position", "--gtid", after, *WHY)
        scene.rig.wait_seq(8)
    (gap,) = scene.gaps()
    assert (gap.kind, gap.missing) == ("reset-position", missing)
    assert scene.check_independently()["seq"] == 8
    assert_apply_stops_at_the_gap(mariadb_server, scene)


@pytest.fixture
def new_mysql(new_server: NewServer) -> DatabaseServer:
    """A MySQL for this test, whose settings may be changed."""
    return new_server(Flavour.MYSQL)


def difference(flavour: Flavour, before: str, after: str) -> str:
    """The transactions between two positions of one server, as text."""
    if flavour is Flavour.MARIADB:
        first, last = (int(gtid.rpartition("-")[2]) for gtid in (before, after))
        return after if last == first + 1 else f"the transactions after {before} up to {after}"
    return str(GtidSet.parse(after) - GtidSet.parse(before))


def assert_apply_stops_at_the_gap(target: DatabaseServer, scene: Scene) -> None:
    """Rows before the gap are applied; those after it only when the operator has repaired the target."""
    name = scene.database
    target.execute(f"CREATE DATABASE {name}")
    target.execute(f"CREATE TABLE {name}.t (id INT PRIMARY KEY)")
    values, task = topic_values(scene), apply_task(name)
    for _ in range(2):
        applier = started(target, task)
        with pytest.raises(Fatal, match="MR-5042") as raised:
            applier.process(LocalRecords(values), ignore)
        applier.close()
        assert raised.value.context["seq"] == "4"
        assert "the test lost them" in raised.value.message
        assert target.execute(f"SELECT id FROM {name}.t ORDER BY id") == [(1,), (2,), (3,)]
    target.execute(f"INSERT INTO {name}.t VALUES (4), (5)")
    session = connect(endpoint_of(target))
    decide_intent(session, name, seq=4, decision="done")
    session.close()
    applier = run_once(target, task, RecordStream(values=values))
    assert applier.mark.seq == 8
    found = [number for (number,) in target.execute(f"SELECT id FROM {name}.t ORDER BY id")]
    assert found == list(range(1, 10))


def _log_as_a_statement(scene: Scene) -> None:
    """Insert the row 1001 without a row event."""
    with (
        sql.root_connection(scene.server.socket) as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute("SET SESSION binlog_format = STATEMENT")
        cursor.execute(f"INSERT INTO {scene.database}.t VALUES (1001)")


def test_event_that_can_not_be_converted_is_skipped(scene: Scene) -> None:
    """MR-6501: rows were logged as a statement. Only this source transaction is left out."""
    scene.run_once("w1", 2)
    _log_as_a_statement(scene)
    scene.write(2)
    with scene.worker("w2"):
        report = scene.wait_blocked("MR-6501")
        gtid = report.why.partition("gtid=")[2].partition(",")[0].partition(")")[0]
        wrong = gtid[: -len(gtid.rpartition("-" if "-" in gtid[-6:] else ":")[2])] + "99999999"
        assert scene.unsafe("skip-gtid", "--gtid", wrong, *WHY, exit_code=4).startswith("MR-4184 ")
        done = scene.decide_as_printed(report.fix, "skip-gtid")
        assert f"{gtid}" in done
        scene.rig.wait_seq(5)
        error = scene.unsafe("skip-gtid", "--gtid", gtid, *WHY, exit_code=4)
        assert error.startswith("MR-4182 ")
    assert [gap.kind for gap in scene.gaps()] == ["skip-gtid"]
    assert scene.rig.verdict().counts.rows == 4


@pytest.fixture
def mariadb_scene(
    mariadb_server: DatabaseServer,
    kafka: KafkaServer,
    shell: Shell,
    request: pytest.FixtureRequest,
    stack: ExitStack,
) -> Scene:
    """A task of the shared MariaDB."""
    return scene_on(mariadb_server, kafka, shell, request.node.name, stack)


def test_deleted_topic_is_adopted_and_continues_its_seq(mariadb_scene: Scene) -> None:
    """MR-3017 ends with `adopt-topic`: the topic is created, and no row of the source is missing or repeated in it."""
    scene = mariadb_scene
    scene.run_once("w1", 5)
    scene.rig.delete()
    scene.write(2)
    with scene.worker("w2"):
        report = scene.wait_blocked("MR-3017")
        assert not scene.rig.exists()
        assert scene.unsafe("skip-gtid", "--gtid", "0-1-1", exit_code=4).startswith("MR-4183 ")
        assert "seq 6" in scene.unsafe("adopt-topic", "--dry-run")
        assert not scene.rig.exists()
        scene.decide_as_printed(report.fix, "adopt-topic")
        scene.rig.wait_seq(8)
    found = scene.rig.verdict()
    assert (found.violations, found.first_seq, found.counts.rows) == ([], 6, 2)
    assert [gap.kind for gap in scene.gaps()] == ["adopt-topic"]
    assert scene.check_independently() | {"epoch": 0} == {"rows": 2, "seq": 8, "epoch": 0}


@dataclass
class Reader:
    """An apply task of the scene's topic, on MySQL, which this process runs without Spark."""

    scene: Scene
    target: DatabaseServer
    task: ApplyTask

    def apply(self) -> Mark:
        """One run: it follows into a new topic if it can, and applies what the topic has."""
        source, endpoint = self.task.source, endpoint_of(self.target)
        identity, session = TopicIdentity(source.brokers, source.topic), connect(endpoint)
        try:
            made = take_over(session, endpoint, self.task, epoch=1)
            made.mark = followed(session, made, identity, source=source)
            mark = same_topic(identity, made.mark, source=source)
        finally:
            session.close()
            identity.close()
        applier, first = LocalApplier(made.assignment, made.owner, mark), max(mark.next_offset, 0)
        found = [record for record in topic_records(self.scene) if record.offset >= first]
        # Kafka's markers leave gaps between the offsets, and a list of values has none
        numbered = groupby(enumerate(found), key=lambda item: item[1].offset - item[0])
        for _, items in numbered:
            run = [record for _, record in items]
            values = [record.value for record in run]
            applier.process(LocalRecords(values, run[0].offset), ignore)
        applier.close()
        return applier.mark

    def ids(self) -> list[object]:
        """The rows on the target."""
        sql = f"SELECT id FROM {self.scene.database}.t ORDER BY id"
        return [number for (number,) in self.target.execute(sql)]

    def left_out(self) -> list[tuple[object, ...]]:
        """The records of gaps on the target."""
        sql = "SELECT seq, sql_text FROM millrace.left_out WHERE task = %s AND kind = 'gap'"
        return self.target.execute(sql, (self.task.name,))

    def repairs(self, compare: list[str]) -> dict[str, str]:
        """The SQL of each difference of the table, by key; other tests leave tables on the source."""
        found = json.loads(self.scene.shell(*compare, "--json", exit_code=1, stream="out"))
        table = f"{self.scene.database}.t"
        return {row["key"]: row["repair"] for row in found["details"] if row["table"] == table}

    def unsafe(self, *words: str, exit_code: int = 0) -> str:
        """Run ``millrace unsafe follow-topic``."""
        name = self.task.name
        return self.scene.shell("unsafe", "follow-topic", name, *words, exit_code=exit_code)


@pytest.fixture
def reader(mariadb_scene: Scene, mysql_server: DatabaseServer) -> Iterator[Reader]:
    """The target has the table; the cluster has the target set and the apply task."""
    scene, name = mariadb_scene, mariadb_scene.database
    mysql_server.execute(f"CREATE DATABASE {name}")
    mysql_server.execute(f"CREATE TABLE {name}.t (id INT PRIMARY KEY)")
    account = scene.store.set_entry("shop").document.account
    members = (member_of(mysql_server),)
    scene.store.create_set(
        SetDocument(name="target", members=members, account=account, tls=UNVERIFIED)
    )
    task = replace(apply_task(name), source=scene.task.output)
    scene.store.create_task(task)
    yield Reader(scene, mysql_server, task)
    mysql_server.execute(f"DROP DATABASE {name}")


def adopt_deleted(scene: Scene, *given: str) -> None:
    """Delete the topic while the task is paused, and let the next worker continue in a new one."""
    scene.rig.delete()
    scene.shell("task", "pause", TASK)
    if given:
        scene.session.delete(scene.tree.status(TASK), version=-1)
    scene.unsafe("adopt-topic", *given, *WHY)
    scene.write(2)
    scene.shell("task", "resume", TASK)


@pytest.mark.parametrize("is_ahead", [pytest.param(False, marks=pytest.mark.chaos), True])
def test_apply_task_follows_into_an_adopted_topic(reader: Reader, *, is_ahead: bool) -> None:
    """By itself, also if the adopted progress is older than what it has applied: no row is lost or repeated."""
    scene = reader.scene
    scene.run_once("w1", 3)
    position, seq = scene.server.gtid_position(), scene.rig.verdict().last_seq
    scene.run_once("w2", 2)
    assert reader.apply().is_whole
    assert reader.ids() == [1, 2, 3, 4, 5]
    adopt_deleted(scene, *(("--gtid", position, "--seq", str(seq)) if is_ahead else ()))
    with scene.worker("w3"):
        scene.rig.wait_seq(8)
    reader.apply()
    assert reader.ids() == [1, 2, 3, 4, 5, 6, 7]
    ((seq_of_gap, text),) = reader.left_out()
    assert seq_of_gap == (4 if is_ahead else 6)
    assert "the test lost them" in str(text)
    assert reader.apply().past_start


def test_apply_task_that_misses_transactions_needs_a_decision(reader: Reader) -> None:
    """MR-5070 names them; `follow-topic` continues after the gap, once, and is recorded on the target."""
    scene = reader.scene
    scene.run_once("w1", 3)
    reader.apply()
    before = scene.server.gtid_position()
    scene.run_once("w2", 2)  # the task is too late for these
    lost = f"the transactions after {before} up to {scene.server.gtid_position()}"
    adopt_deleted(scene)
    with scene.worker("w3"):
        scene.rig.wait_seq(8)
    with pytest.raises(Fatal, match="MR-5070") as raised:
        reader.apply()
    assert lost in raised.value.message
    assert reader.unsafe("--dry-run", exit_code=4).startswith("MR-4182 ")
    scene.shell("task", "pause", reader.task.name)
    plan = json.loads(reader.unsafe("--dry-run", "--json"))
    assert (plan["missing"], plan["in_doubt"]) == (lost, "")
    assert (plan["now"]["seq"], plan["then"]["seq"]) == (3, 6)
    assert reader.unsafe("--yes", exit_code=4).startswith("MR-4187 ")
    assert reader.left_out() == []
    look, follow = printed(raised.value.name(task=reader.task.name).fix)
    assert reader.repairs(look).keys() == {"4", "5", "6", "7"}
    assert f"{lost}" in scene.shell(*follow, "--yes")
    assert reader.unsafe("--dry-run", exit_code=4).startswith("MR-5073 ")
    assert reader.apply().seq == 8
    assert reader.ids() == [1, 2, 3, 6, 7]
    ((_, text),) = reader.left_out()
    assert lost in str(text)
    assert "the test lost them" in str(text)  # of both decisions
    assert "MR-5070" in str(text)


@pytest.mark.chaos
def test_fixes_of_gaps_work_as_printed(reader: Reader) -> None:
    """MR-6501 of capture, then MR-5042 of apply: each fix leads on, while the task is blocked."""
    scene, name = reader.scene, reader.task.name
    scene.run_once("w1", 2)
    _log_as_a_statement(scene)
    scene.write(2)
    with scene.worker("w2"):
        scene.decide_as_printed(scene.wait_blocked("MR-6501").fix, "skip-gtid")
        scene.rig.wait_seq(5)
    with pytest.raises(Fatal, match="MR-5042") as raised:
        reader.apply()
    look, done, resume, repair = printed(raised.value.name(task=name).fix)
    repairs = reader.repairs(look)
    assert repairs.keys() == {"1001", "3", "4"}  # two are on their way
    for statement in filter(None, repairs["1001"].split(";")):
        reader.target.execute(statement, db=scene.database)
    scene.shell(*done)
    assert reader.apply().seq == 5
    assert reader.ids() == [1, 2, 3, 4, 1001]
    assert (resume, repair) == (["task", "resume", name], ["compare", name, "--repair"])


def test_one_decision_waits_at_a_time(mariadb_scene: Scene) -> None:
    """Of two operators, one decides; the other one learns of it. A decision can be withdrawn until it is executed."""
    scene = mariadb_scene
    given = ("--gtid", "0-1-1", "--seq", "5")
    assert scene.unsafe("adopt-topic", *given, *WHY, exit_code=4).startswith("MR-4182 ")
    scene.shell("task", "pause", TASK)
    entry = scene.store.task_entry(TASK)
    assert "task resume" in scene.unsafe("adopt-topic", *given, *WHY)
    decision = scene.store.task_entry(TASK).desired.decision
    assert decision is not None
    with pytest.raises(Retryable, match="MR-4007"):
        scene.store.decide(entry, decision)
    with pytest.raises(Fatal, match="MR-4180"):
        scene.store.decide(scene.store.task_entry(TASK), decision)
    assert scene.unsafe("adopt-topic", *given, *WHY, exit_code=4).startswith("MR-4180 ")
    assert "withdrawn" in scene.unsafe("withdraw")
    assert scene.unsafe("withdraw", exit_code=4).startswith("MR-4181 ")
    assert not scene.rig.exists()


@pytest.mark.chaos
def test_stale_decision_blocks_the_task_and_writes_nothing(mariadb_scene: Scene) -> None:
    """MR-3022: rows were published since the operator looked. The operator withdraws it, and the task continues."""
    scene = mariadb_scene
    scene.run_once("w1", 2)
    behind = scene.server.gtid_position()
    scene.shell("task", "pause", TASK)
    scene.write(1)
    ahead = scene.server.gtid_position()
    scene.unsafe("reset-position", "--gtid", ahead, *WHY)
    entry = scene.store.task_entry(TASK)
    waiting = entry.desired.decision
    assert waiting is not None
    assert str(waiting.before.gtid_set) != behind or waiting.before.seq == 2
    scene.store.withdraw(entry)
    scene.shell("task", "resume", TASK)
    scene.run_once("w2", 1)
    scene.shell("task", "pause", TASK)
    scene.store.decide(scene.store.task_entry(TASK), waiting)
    scene.shell("task", "resume", TASK)
    seq = scene.rig.verdict().last_seq
    with scene.worker("w3"):
        scene.wait_blocked("MR-3022")
        assert (scene.rig.verdict().last_seq, scene.gaps()) == (seq, [])
        scene.unsafe("withdraw")
        scene.write(1)
        scene.rig.wait_seq(5)
    assert scene.gaps() == []


@pytest.mark.chaos
def test_new_relay_log_passes_no_transaction_without_a_gtid(
    new_mysql: DatabaseServer, kafka: KafkaServer, shell: Shell, stack: ExitStack
) -> None:
    """They are in a file that no list of GTIDs shows. A start that began after it would lose them in silence."""
    server = new_mysql
    scene = scene_on(server, kafka, shell, "unseen", stack)
    with scene.worker("w1"):
        scene.write(2)
        scene.rig.wait_seq(2)
    for mode in ("ON_PERMISSIVE", "OFF_PERMISSIVE"):
        server.execute(f"SET GLOBAL gtid_mode = {mode}")
    server.execute(f"INSERT INTO {scene.database}.t VALUES (1001)")
    for mode in ("ON_PERMISSIVE", "ON"):
        server.execute(f"SET GLOBAL gtid_mode = {mode}")
    with scene.worker("w2"):  # its relay directory is empty
        scene.wait_blocked("MR-6503")
    assert scene.rig.verdict().counts.rows == 2


@pytest.mark.chaos
def test_task_continues_after_transactions_without_a_gtid(
    new_mysql: DatabaseServer, kafka: KafkaServer, shell: Shell, stack: ExitStack
) -> None:
    """MR-6503: they are in no GTID set, so the next binlog file, and a relay log without them, is the way past them."""
    server = new_mysql
    scene = scene_on(server, kafka, shell, "anonymous", stack)
    with scene.worker("w1"):
        scene.write(2)
        scene.rig.wait_seq(2)
        for mode in ("ON_PERMISSIVE", "OFF_PERMISSIVE"):
            server.execute(f"SET GLOBAL gtid_mode = {mode}")
        server.execute(f"INSERT INTO {scene.database}.t VALUES (1001)")
        scene.wait_blocked("MR-6503")
    for mode in ("ON_PERMISSIVE", "ON"):
        server.execute(f"SET GLOBAL gtid_mode = {mode}")
    scene.write(1)
    server.execute("FLUSH BINARY LOGS")
    scene.unsafe("reset-position", "--gtid", server.gtid_position(), *WHY)
    with scene.worker("w2"):  # its relay directory is empty
        scene.write(2)
        scene.rig.wait_seq(5)
    assert [gap.kind for gap in scene.gaps()] == ["reset-position"]
    assert scene.rig.verdict().counts.rows == 4
