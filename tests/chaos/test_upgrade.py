"""docs/upgrade.md on a running cluster: an earlier wheel is replaced process by process, taken back, replaced again.

The earlier wheel is that of the last commit whose package installed several names. Rows are written all the time. Both
installations borrow the other packages from the environment of the tests, so they differ in Millrace alone.
"""

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from millrace import __version__
from millrace.deploy.local.services import (
    APPLY_TASK,
    CAPTURE_TASK,
    PUBLISH_TASK,
    TOPIC,
    service_environment,
    service_specs,
)
from millrace.deploy.local.stack import LocalStack, StackOptions
from millrace.deploy.package.bundle import build_wheel
from millrace.deploy.servers.process import ProcessSpec, ServerProcess
from millrace.schemas.documents import PublishTask, parse_task
from millrace.schemas.status import TaskState
from millrace.zk.client.session import Session
from millrace.zk.view import read_cluster, views
from tests.fixtures.servers import FLAVOURS
from tests.fixtures.stack import LOAD_RATE, TREE, FaultStack
from tests.kit.control.page import Scrape
from tests.kit.local_stack import metrics_address
from tests.kit.publish.local import published
from tests.kit.waiting import eventually
from tests.kit.wheel import Installation, earlier_wheel

EARLIER_NAMES = {"consumer", "deploy", "drivers", "producer", "registry", "schemas", "zk"}
EARLIER_VERSION = "0.1.0"  # it does not name its version in ZooKeeper
TASKS = {CAPTURE_TASK, APPLY_TASK, PUBLISH_TASK}
# The shop renames a table, which asks an operator of a publish task for a decision: the task has another one
PUBLISHED = {"tables": [{"from": "kept.*"}], "records": "json"}
KEPT_ROWS = 1000
WRITE_S = 0.1
# Compiled before a process starts, as the page says
KERNELS = ("producer.task.warm_up", "consumer.turn.warm_up", "consumer.publish.warm_up json")
LOOK_S = 0.5
WAIT_S = 600.0  # a first start compiles all kernels, two drivers at a time
SPARK = ("--master", "local[4]")

# In the order of docs/upgrade.md: readers before writers. A rollback has the reverse order.
REGISTRY = ("registry",)
SCHEDULERS = ("scheduler-b", "scheduler-a")  # the one that leads is the last
DRIVERS = ("apply-a", "apply-b")
CAPTURE = ("worker-a", "worker-b")
ORDER = (*REGISTRY, *SCHEDULERS, *DRIVERS, *CAPTURE)

# Reads the topic from its first record. A gap or a repetition in `seq` raises.
SUBSCRIBER = """
import sys
from pathlib import Path
from millrace.client import RowRecord, Subscriber

brokers, topic, place = sys.argv[1:]
rows = 0
with Subscriber(brokers, topic) as subscriber:
    for record in subscriber.follow():
        rows += isinstance(record, RowRecord)
        scratch = Path(place + ".new")
        scratch.write_text(f"{subscriber.place.seq} {rows}")
        scratch.rename(place)
"""


@dataclass(frozen=True, slots=True)
class Installations:
    """Both wheels, each in its own environment."""

    earlier: Installation
    new: Installation


@pytest.fixture(scope="module")
def installations(tmp_path_factory: pytest.TempPathFactory) -> Installations:
    """Build and install both wheels once."""
    folder = tmp_path_factory.mktemp("wheels")
    earlier = Installation.of(earlier_wheel(folder / "earlier"), folder / "env-earlier")
    new = Installation.of(build_wheel(folder / "new"), folder / "env-new")
    for installation, prefix in ((earlier, ""), (new, "millrace.")):
        for module in KERNELS:
            name, *formats = module.split()
            installation.run(installation.python, "-P", "-m", prefix + name, *formats)
    return Installations(earlier, new)


def test_new_wheel_replaces_every_name_of_the_earlier_one(tmp_path: Path) -> None:
    """`pip install` over it leaves one name and a consistent environment; so does the way back."""
    earlier, new = earlier_wheel(tmp_path / "earlier"), build_wheel(tmp_path / "new")
    both = Installation.of(earlier, tmp_path / "env")
    names = EARLIER_NAMES | {"millrace"}
    for wheel, version, wanted in (
        (None, EARLIER_VERSION, names),
        (new, __version__, {"millrace"}),
        (earlier, EARLIER_VERSION, names),
    ):
        if wheel is not None:
            both.install(wheel)
        assert both.run(*both.program, "--version") == f"millrace {version}\n"
        assert names & {path.name for path in both.site_packages.iterdir()} == wanted
        assert "No broken requirements" in both.run(both.python, "-m", "pip", "check")
        both.run(both.python, "-P", "-c", "import millrace.client")


@dataclass(slots=True)
class Cluster:
    """A stack whose processes run one of two wheels each."""

    stack: FaultStack
    earlier: Installation
    new: Installation
    runs: dict[str, Installation] = field(default_factory=dict)

    def start(self, name: str, installation: Installation) -> None:
        """Start a process under this name with this wheel."""
        local = self.stack.stack
        kind = name.partition("-")[0]
        specs = service_specs(local.folder, local.endpoints, spark=SPARK)
        spec = next(spec for spec in specs if spec.name == f"millrace {kind}")
        arguments = spec.command[spec.command.index(kind) :]
        arguments = tuple(
            f"{part}-{name}" if part.endswith("/relay") else part for part in arguments
        )
        own_name = () if kind == "registry" else ("--name", name)
        environment = {**spec.environment, "PYTHONPATH": "", "MILLRACE_KILLS_MAX": "0"}
        process = ServerProcess(
            ProcessSpec(
                f"millrace {name}",
                (*installation.program, *arguments, *own_name),
                local.folder / name / "log",
                environment,
            )
        )
        process.launch()
        self.stack.services[name] = process
        local.services = tuple(self.stack.services.values())
        self.runs[name] = installation

    def follow(self, name: str, installation: Installation) -> None:
        """Start a subscriber with this wheel's client."""
        local = self.stack.stack
        arguments = (local.endpoints.kafka, TOPIC, str(self._place(name)))
        process = ServerProcess(
            ProcessSpec(
                f"subscriber {name}",
                (str(installation.python), "-P", "-c", SUBSCRIBER, *arguments),
                local.folder / name / "log",
                {"PYTHONPATH": ""},
            )
        )
        process.launch()
        self.stack.services[name] = process
        local.services = tuple(self.stack.services.values())

    def place_of(self, name: str) -> tuple[int, int]:
        """The last seq that a subscriber has read, and its number of rows."""
        assert self.stack.services[name].is_alive(), self.stack.services[name].failure("ended")
        place = self._place(name)
        seq, rows = place.read_text().split() if place.exists() else ("0", "0")
        return int(seq), int(rows)

    def _place(self, name: str) -> Path:
        return self.stack.stack.folder / f"{name}.place"

    def command(self, installation: Installation, *arguments: str) -> str:
        """The output of ``millrace ARGUMENTS`` of this wheel."""
        environment = service_environment(self.stack.stack.endpoints)
        return installation.run(*installation.program, *arguments, **environment)

    def replace(self, name: str, installation: Installation) -> None:
        """One step of docs/upgrade.md: drain, stop, start with the other wheel, undrain."""
        is_worker = name in (*DRIVERS, *CAPTURE)
        commands = self.runs[name]
        if is_worker:
            self.command(commands, "worker", "drain", name, "--timeout", str(int(WAIT_S)))
        self.stack.services[name].stop(timeout_s=60)
        self.start(name, installation)
        if is_worker:
            with self.stack.control() as session:
                is_listed = partial(self._is_listed, session, name)
                eventually(is_listed, every_s=LOOK_S, timeout_s=WAIT_S, what=name)
            self.command(installation, "worker", "undrain", name)
        if name == "registry":
            self.stack.stack.wait_running()
        self.check()

    def _is_listed(self, session: Session, name: str) -> bool:
        """With its version. The command costs a second of a core, so it only runs once the worker is there."""
        assert self.stack.services[name].is_alive(), self.stack.services[name].failure("ended")
        if name not in read_cluster(session, TREE).workers:
            return False
        rows = json.loads(self.command(self.new, "worker", "list", "--json"))
        wanted = __version__ if self.runs[name] is self.new else None
        return any(
            row["worker"] == name and row["kind"] is not None and row["version"] == wanted
            for row in rows
        )

    def check(self) -> None:
        """Both wheels read the cluster, every process runs, and no task is blocked or waits for an operator."""
        for name, process in self.stack.services.items():
            assert process.is_alive(), f"{name}: {process.failure('ended')}"
        for installation in (self.earlier, self.new):
            status = json.loads(self.command(installation, "status", "--json"))
            states = {task["task"]: task["state"] for task in status["tasks"]}
            assert states.keys() == TASKS
            assert not {"blocked", "paused"} & set(states.values()), status["tasks"]

    def wait_all_run(self) -> None:
        """Wait until every task moves rows under the wheels that run."""
        with self.stack.control() as session:

            def are_running() -> bool:
                states = {view.report.state for view in views(read_cluster(session, TREE))}
                return states == {TaskState.RUNNING}

            eventually(are_running, every_s=LOOK_S, timeout_s=WAIT_S, what="all tasks run")
        self.check()

    def is_named_by_metrics(self, version: str) -> bool:
        """Whether every process names this version in its metrics."""
        folder = self.stack.stack.folder
        pages = [Scrape(metrics_address(folder / name / "log")) for name in ORDER]
        return all(page.value("millrace_build_info", version=version) == 1 for page in pages)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """The shop's load, and changes of the published table, all the time."""
        stop = threading.Event()
        with ThreadPoolExecutor(1) as pool, self.stack.load("shop"):
            writer = pool.submit(self._write, stop)
            try:
                yield
            finally:
                stop.set()
            writer.result()

    def _write(self, stop: threading.Event) -> None:
        source, number = self.stack.stack.source, 0
        while not stop.wait(WRITE_S):
            number += 1
            source.execute(
                f"UPDATE kept.t SET v = 'at {number}' WHERE id = {number * 7 % KEPT_ROWS}"
            )
            source.execute(f"INSERT INTO kept.t VALUES ({KEPT_ROWS + number}, 'new')")
            source.execute(f"DELETE FROM kept.t WHERE id = {KEPT_ROWS + number - 10}")

    def published_rows(self) -> dict[int, str]:
        """The rows of a subscriber of the publish task."""
        public = yaml.safe_load((self.stack.stack.folder / f"{PUBLISH_TASK}.yaml").read_text())
        task, rows = parse_task(public), dict[int, str]()
        assert isinstance(task, PublishTask)
        for record in published(task, [f"{PUBLISH_TASK}.kept.t"]):
            if record.value is None:
                rows.pop(record.key["id"], None)
            else:
                rows[record.key["id"]] = record.value["v"]
        return rows

    def mixed(self) -> str:
        """The finding of `millrace check` about versions; "" if all processes have one."""
        plain: dict[str, Any] = json.loads(self.stack.stack.try_command("check", "--json").stdout)
        found = [one for one in plain["requirements"] if one["code"] == "MR-4192"]
        return str(found[0]["found"]) if found else ""


@pytest.fixture(params=FLAVOURS, ids=str)
def cluster(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    session_timeout: None,
    installations: Installations,
) -> Iterator[Cluster]:
    """Two of each kind of process with the earlier wheel, and the documents of the local stack."""
    local = LocalStack(tmp_path, StackOptions(flavour=request.param, replica_count=1))
    with ExitStack() as ends:
        ends.callback(local.stop)
        local.start_servers()
        stack = FaultStack(local, {}, LOAD_RATE)
        made = Cluster(stack, installations.earlier, installations.new)
        for name in reversed(ORDER):
            made.start(name, made.earlier)
        for command in local.write_documents():
            made.command(made.earlier, *command)
        local.wait_running()
        stack.fill("kept", rows=KEPT_ROWS)  # `start: snapshot` wants a table
        stack.databases.clear()  # the load keeps it
        stack.wait_applied()
        public = tmp_path / f"{PUBLISH_TASK}.yaml"
        public.write_text(yaml.safe_dump(yaml.safe_load(public.read_text()) | PUBLISHED))
        made.command(made.earlier, "task", "create", "-f", str(public))
        made.wait_all_run()
        yield made


def test_cluster_is_upgraded_rolled_back_and_upgraded_under_load(cluster: Cluster) -> None:
    """Subscribers of both wheels read without a gap. In the end, topics are whole and the target equals the source."""
    cluster.follow("earlier-subscriber", cluster.earlier)
    with cluster.writing():
        cluster.stack.wait_applied()
        assert "< 0.2.0" in cluster.mixed()
        for wheel, version, order in (
            (cluster.new, __version__, ORDER),
            (cluster.earlier, EARLIER_VERSION, ORDER[::-1]),
            (cluster.new, __version__, ORDER),
        ):
            for name in order:
                cluster.replace(name, wheel)
            cluster.wait_all_run()
            cluster.stack.wait_applied()
            assert cluster.is_named_by_metrics(version)
            if "new-subscriber" not in cluster.stack.services:
                cluster.follow("new-subscriber", cluster.new)
        assert cluster.mixed() == ""
    cluster.stack.settle()
    cluster.check()
    seq = cluster.stack.status(CAPTURE_TASK)["seq"]
    for name in ("earlier-subscriber", "new-subscriber"):
        eventually(lambda name=name: cluster.place_of(name)[0] == seq, what=name)  # type: ignore[misc]
    assert cluster.place_of("earlier-subscriber") == cluster.place_of("new-subscriber")
    selected = cluster.stack.stack.source.execute("SELECT id, v FROM kept.t")
    rows = {int(str(number)): str(text) for number, text in selected}
    assert len(rows) > KEPT_ROWS
    eventually(lambda: cluster.published_rows() == rows, every_s=LOOK_S, what="published rows")
    for installation in (cluster.earlier, cluster.new):
        assert "violations    0" in cluster.command(installation, "topic", "verify", TOPIC)
        verified = cluster.command(installation, "topic", "verify", "--task", PUBLISH_TASK)
        assert ": whole" in verified
