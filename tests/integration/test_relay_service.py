"""A relay that lives on its own, on real servers: scheduler and worker in this process, commands through ZooKeeper."""

import errno
import json
import re
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from millrace.codes import CATALOGUE
from millrace.deploy.servers import DatabaseServer, KafkaServer
from millrace.producer.relay.files import DISK, Files
from millrace.producer.source.set_stream import Site
from millrace.producer.source.set_streams import Upstreams
from millrace.producer.task import capture
from millrace.producer.task.capture import CaptureRunner
from millrace.schemas.gtid import parse_gtid_set
from millrace.schemas.status import TaskState
from millrace.wording import with_names
from millrace.zk.tree.reports import read_status
from millrace.zk.tree.store import Store
from tests.fixtures.servers import FLAVOURS, NewServer
from tests.fixtures.shell import Shell
from tests.kit.capture.topic_rows import Ids
from tests.kit.control.control import QUICK, scheduled, supervised
from tests.kit.faults.failing_disk import FailingDisk, Trouble
from tests.kit.publisher.rig import Rig, topic_named
from tests.kit.relay.relay import dump_threads, flush, position_of, purge_to
from tests.kit.waiting import eventually

NEEDED = r"needed +by shop: \S+/\S+\.\d+"


@dataclass(frozen=True)
class Scene:
    """A set of one server, a scheduler, and the command line. No worker runs yet."""

    shell: Shell
    server: DatabaseServer
    root: Path

    def create_set(self, **relay: object) -> None:
        """Create the set ``shop`` with these rules of its relay."""
        secret = self.root / "password"
        secret.write_text(self.server.password)
        plain = {
            "set": "shop",
            "members": [{"host": self.server.host, "port": self.server.port}],
            "user": self.server.user,
            "password": f"file:{secret}",
            "tls": "require-unverified",
            "upstream": {"probe_s": 0.2},
            **({"relay": relay} if relay else {}),
        }
        self.shell("set", "create", "-f", self.shell.file(json.dumps(plain)), "--replace")

    def create_task(self, name: str, rig: Rig, start: str, *, brokers: str = "") -> None:
        """Create a capture task of the set; ``brokers`` replaces the real address."""
        plain = {
            "task": name,
            "kind": "capture",
            "set": "shop",
            "topic": rig.topic,
            "kafka": {"bootstrap": brokers or rig.bootstrap},
            "registry": "http://none",
            "start": start,
        }
        self.shell("task", "create", "-f", self.shell.file(json.dumps(plain)), "--replace")

    @contextmanager
    def worker(self, disk: Files = DISK) -> Iterator[None]:
        """Run a scheduler and the worker ``w1`` during the block."""
        ensemble = self.shell.ensemble
        with ensemble.session() as own, ensemble.session() as other:
            store = Store(own, ensemble.tree)
            site = Site(root=self.root / "relay", directives=store.directives, disk=disk)
            runner = CaptureRunner(store, Upstreams(site), "w1")
            with (
                supervised(own, ensemble.tree, runner, name="w1", pace=QUICK),
                scheduled(other, ensemble.tree),
            ):
                yield

    def status(self) -> dict[str, object]:
        """The output of ``relay status --json``."""
        found = json.loads(self.shell("relay", "status", "shop", "--json"))
        assert isinstance(found, dict)
        return found

    def wait_for(self, **wanted: object) -> dict[str, object]:
        """Wait until ``relay status`` has these values."""
        found: list[dict[str, object]] = []

        def is_so() -> bool:
            found[:] = [self.status()]
            return all(found[0].get(name) == value for name, value in wanted.items())

        eventually(is_so, every_s=0.1, what=f"a relay with {wanted}")
        return found[0]

    def wait_until_received(self) -> dict[str, object]:
        """Wait until the relay has everything that the server has now."""
        wanted = position_of(self.server)

        def has_all() -> bool:
            relay = self.status().get("relay")
            text = str(relay["gtid_set"]) if isinstance(relay, dict) else ""
            return parse_gtid_set(self.server.flavour, text).includes(wanted)

        eventually(has_all, every_s=0.1, what=f"the relay has {wanted}")
        return self.status()

    def write(self, *ids: int) -> None:
        """Commit one source transaction for each row."""
        for number in ids:
            self.server.execute(f"INSERT INTO shop.t VALUES ({number})")

    def subdirs(self) -> list[str]:
        """The relay's sub-directories."""
        folder = self.root / "relay" / "shop"
        return sorted(path.name for path in folder.iterdir() if path.is_dir())


@pytest.fixture(params=FLAVOURS, ids=str)
def server(request: pytest.FixtureRequest, new_server: NewServer) -> DatabaseServer:
    """A server whose binlogs a test may purge."""
    made = new_server(request.param)
    made.execute("CREATE DATABASE shop")
    made.execute("CREATE TABLE shop.t (id INT PRIMARY KEY)")
    return made


@pytest.fixture
def scene(server: DatabaseServer, shell: Shell, tmp_path: Path) -> Scene:
    """The server comes first, because ``shell`` changes the home folder."""
    return Scene(shell, server, tmp_path)


@pytest.fixture
def rig(kafka: KafkaServer, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Rig:
    """A topic, and schema ids from memory."""
    ids = Ids()

    class Registry:
        def __init__(self, _address: str) -> None:
            self.register = ids
            self.knows = lambda *_: True

    monkeypatch.setattr(capture, "RegistryClient", Registry)
    return Rig(kafka.bootstrap, topic_named("relay", request.node.name))


def test_relay_runs_without_tasks_and_continues(scene: Scene) -> None:
    """It has what the server has, and continues in the same sub-directory after a restart of the worker."""
    scene.create_set()
    assert scene.status()["stage"] == "stopped"
    assert "always" in scene.shell("relay", "start", "shop")
    with scene.worker():
        scene.write(1, 2)
        scene.wait_until_received()
        found = scene.wait_for(stage="receives", caught_up=True, mode="always", worker="w1")
        assert found["time_to_loss_s"] == found["kept_s"]
        newest = str(scene.server.execute("SHOW BINARY LOGS")[-1][0])
        source, relay = found["source"], found["relay"]
        assert source == relay
        assert newest in str(relay)
        assert len(dump_threads(scene.server)) == 1
        shown = scene.shell("status")
        assert re.search(r"relay:shop\s+RUNNING .* \| relay \+0 B \| receives", shown), shown
    first = scene.subdirs()
    scene.write(3)
    with scene.worker():
        scene.wait_until_received()
    assert scene.subdirs() == first
    scene.shell("relay", "stop", "shop")
    with scene.worker():
        eventually(lambda: "relay:shop" not in scene.shell("status"), what="no relay in the status")
        eventually(lambda: not dump_threads(scene.server), what="no connection")


@pytest.mark.guarantee("relay log")
def test_paused_task_loses_nothing_that_its_source_purged(scene: Scene, rig: Rig) -> None:
    """The relay receives for it. The worker is restarted meanwhile, and one connection serves all."""
    start = scene.server.gtid_position()
    scene.create_set(mode="always")
    scene.create_task("shop", rig, start)
    with scene.worker():
        scene.write(1, 2, 3)
        rig.wait_seq(3)
        assert len(dump_threads(scene.server)) == 1
        scene.shell("task", "pause", "shop")
        scene.write(4, 5)
    with scene.worker():
        scene.wait_until_received()
        eventually(lambda: re.search(NEEDED, scene.shell("relay", "status", "shop")), what=NEEDED)
        newest = flush(scene.server)
        scene.write(6)
        scene.wait_until_received()
        purge_to(scene.server, newest)
        scene.shell("task", "resume", "shop")
        rig.wait_seq(6)
    rig.assert_whole(6)


def test_operator_pauses_and_resumes_the_relay(scene: Scene, rig: Rig) -> None:
    """The connection is closed and the tasks keep their leases. The status shows how long the source keeps the rest."""
    scene.server.execute("SET GLOBAL binlog_expire_logs_seconds = 86400")
    scene.create_set()
    scene.create_task("shop", rig, scene.server.gtid_position())
    with scene.worker():
        scene.write(1)
        rig.wait_seq(1)
        epoch = _epoch(scene)
        assert "paused by" in scene.shell("relay", "pause", "shop")
        eventually(lambda: not dump_threads(scene.server), what="no connection")
        scene.write(2)
        found = scene.wait_for(stage="paused", caught_up=False, kept_s=86400.0)
        left_s = found["time_to_loss_s"]
        assert isinstance(left_s, float)
        assert 86400 - 600 < left_s < 86400
        assert "to loss" in scene.shell("relay", "status", "shop")
        late = scene.shell("task", "wait", "shop", "--timeout", "0.5", exit_code=3)
        assert "MR-4201" in late
        assert "millrace relay resume shop" in late
        scene.shell("relay", "resume", "shop")
        rig.wait_seq(2)
        # the mode alone is no reason to start the task again
        scene.shell("relay", "start", "shop")
        scene.wait_for(mode="always")
        eventually(lambda: "relay:shop" in scene.shell("status"), what="the relay in the status")
        scene.write(3)
        rig.wait_seq(3)
        assert _epoch(scene) == epoch
    assert scene.status()["stage"] == "stopped"


def test_relay_starts_at_the_named_place(scene: Scene) -> None:
    """A binlog file, a GTID set; a file that no member has blocks it until the operator names another."""
    scene.write(1)
    named = flush(scene.server)
    scene.write(2)
    scene.create_set()
    scene.shell("relay", "start", "shop", "--from", "mysql-bin.999999")
    with scene.worker():
        eventually(lambda: "MR-1038" in scene.shell("status"), what="MR-1038")
        fix = with_names(CATALOGUE["MR-1038"].fix, {"set": "shop"})
        assert fix in " ".join(scene.shell("status").split())
        scene.shell("relay", "start", "shop", "--from", named)
        scene.wait_until_received()
        folder = scene.root / "relay" / "shop" / scene.subdirs()[0]
        assert min(path.name for path in folder.glob("*.0*")) == named
    refused = scene.shell("relay", "start", "shop", "--from", "yesterday", exit_code=4)
    assert refused.startswith("MR-4101 ")


def _epoch(scene: Scene) -> int:
    with scene.shell.ensemble.session() as session:
        saved = read_status(session, scene.shell.ensemble.tree, "shop")
    assert saved is not None
    assert saved.report.state is TaskState.RUNNING
    return saved.report.epoch


def test_relay_that_is_off_keeps_no_file(scene: Scene, rig: Rig) -> None:
    """A file that the task has read is deleted at once; a restart continues, and a pause waits on the source."""
    scene.create_set(mode="off")
    scene.create_task("shop", rig, scene.server.gtid_position())
    with scene.worker():
        for number in range(1, 5):
            scene.write(number)
            flush(scene.server)
        scene.write(5)
        rig.wait_seq(5)
        folder = scene.root / "relay" / "shop" / scene.subdirs()[-1]
        eventually(lambda: len(list(folder.glob("*.0*"))) == 1, what="only the active file")
        assert "the relay is off" in str(scene.wait_for(stage="receives")["loss"])
        scene.shell("task", "pause", "shop")
        eventually(lambda: not dump_threads(scene.server), what="no connection")
        scene.write(6)
        flush(scene.server)
    with scene.worker():
        scene.shell("task", "resume", "shop")
        rig.wait_seq(6)
    rig.assert_whole(6)


def test_relay_receives_without_a_broker_and_after_a_full_disk(scene: Scene, rig: Rig) -> None:
    """The task only retries, and the relay receives for it. On a full disk, the relay retries, too."""
    scene.create_set(mode="always")
    start, disk = scene.server.gtid_position(), FailingDisk()
    with closing(socket.socket()) as deaf, scene.worker(disk):
        deaf.bind(("127.0.0.1", 0))  # it does not listen
        scene.create_task("shop", rig, start, brokers=f"127.0.0.1:{deaf.getsockname()[1]}")
        eventually(lambda: "DEGRADED" in scene.shell("status"), what="a task without its broker")
        scene.write(1, 2)
        scene.wait_until_received()
        disk.trouble = Trouble("write", errno.ENOSPC, half=True)
        scene.write(3)
        eventually(lambda: "MR-2002" in scene.shell("status"), what="MR-2002")
        scene.write(4)
        disk.trouble = None
        scene.wait_until_received()
        scene.create_task("shop", rig, start)
        rig.wait_seq(4)
    rig.assert_whole(4)


def test_purge_from_another_host(scene: Scene, rig: Rig) -> None:
    """Through ZooKeeper: the worker deletes, and keeps the files of a paused task unless it is evicted by name."""
    refused = scene.shell("relay", "purge", "shop", exit_code=4)
    assert refused.startswith("MR-4104 ")
    scene.create_set(mode="always")
    scene.create_task("shop", rig, scene.server.gtid_position())
    scene.shell("task", "pause", "shop")
    assert scene.shell("relay", "purge", "shop", exit_code=4).startswith("MR-2012 ")
    with scene.worker():
        for number in (1, 2, 3):
            scene.write(number)
            flush(scene.server)
        scene.wait_until_received()
        kept = json.loads(scene.shell("relay", "purge", "shop", "--json"))
        assert (kept["deleted"], kept["evicted"]) == ([], {})
        for words, code in (
            (("--filename", "mysql-bin.999999"), "MR-2013 "),
            (("--evict", "nobody"), "MR-2015 "),
        ):
            assert scene.shell("relay", "purge", "shop", *words, exit_code=4).startswith(code)
        gone = json.loads(scene.shell("relay", "purge", "shop", "--evict", "shop", "--json"))
        assert len(gone["deleted"]) >= 3
        assert list(gone["evicted"]) == ["shop"]
        folder = scene.root / "relay" / "shop" / scene.subdirs()[0]
        assert len(list(folder.glob("*.0*"))) == 1
        scene.wait_for(purge=None)
