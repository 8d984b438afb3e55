"""Publish tasks that catch up with a waiting set topic. The load is that of ``capture.bulk``, with 8 partitions each.

    publish.json            the peer is capture, which has published the same changes just before (``capture.bulk``)
    publish.debezium-json   the peer is Debezium, which reads the same changes from the binlog into JSON topics
    publish.maxwell-json, .canal-json, .debezium-avro, .avro    the peer is a task that writes debezium-json, in the
                            same rounds
    publish.cpu             CPU µs a record of the executor, of publish.json: reads, converts, writes
    publish.cpu.where, .columns, .mask    the same with a condition on an integer that admits all rows, with half of the
                            columns dropped, and with an HMAC of a VARCHAR(40) in both images; the peer is the same
                            task without it

Each round has a database for itself. All tasks are paused while the changes are written; then each works alone.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from millrace.deploy.bench.apply import workloads
from millrace.deploy.bench.capture.backlog import capture_backlog
from millrace.deploy.bench.capture.debezium.peer import PEER as DEBEZIUM
from millrace.deploy.bench.capture.debezium.peer import Debezium, debezium, debezium_jars, topics_of
from millrace.deploy.bench.figure import Figure, Size, announced_rounds, say
from millrace.deploy.bench.publish.tasks import PARTITIONS, BenchTask, open_publish
from millrace.deploy.bench.scene import Scene
from millrace.deploy.local.services import CAPTURE_TASK
from millrace.schemas.view.format_options import FormatName

DEBEZIUM_JSON, JSON, CPU = "publish.debezium-json", "publish.json", "publish.cpu"
CPU_LINES = ("publish.cpu.where", "publish.cpu.columns", "publish.cpu.mask")
RATE_LINES = (JSON, DEBEZIUM_JSON, CPU)
FORMATS = (
    FormatName.MAXWELL_JSON,
    FormatName.CANAL_JSON,
    FormatName.DEBEZIUM_AVRO,
    FormatName.AVRO,
)
FORMAT_LINES = tuple(f"publish.{name}" for name in FORMATS)
CAPTURE = "capture.bulk of the same changes"
DATABASE, PATTERN = "bench_publish", "bench_publish_*"
ROWS, CPU_UNIT = "rows/s", "CPU us a record"
SIZE = 2  # the load's own size is read within three seconds
TABLES = ("plain", "orders")


@dataclass(slots=True)
class Rounds:
    """The results of the rounds that count, by line."""

    values: dict[str, list[float]] = field(default_factory=dict)

    def add(self, line: str, value: float) -> None:
        self.values.setdefault(line, []).append(value)

    def median(self, line: str) -> float | None:
        return median(self.values[line]) if line in self.values else None

    def figure(self, line: str, unit: str, peer: str | None = None, peer_line: str = "") -> Figure:
        """The line; ``peer_line`` has the peer's values."""
        value = median(self.values[line])
        peer_value = self.median(peer_line)
        return Figure(line, value, unit, peer if peer_value is not None else None, peer_value)


def rate_figures(size: Size) -> Iterator[Figure]:
    """The three lines of rates. Without Debezium's artifacts, or on MariaDB, one of them has no peer."""
    rounds = Rounds()
    jars = debezium_jars(size.flavour) if size.wants(DEBEZIUM_JSON) else None
    tasks = {
        JSON: BenchTask("json", TABLES, {"include": [f"{PATTERN}.*"], "records": "json"}),
        DEBEZIUM_JSON: BenchTask("debezium", TABLES, {"include": [f"{PATTERN}.*"]}),
    }
    with open_publish(size.flavour) as scene, ExitStack() as undo:
        peer = None
        if jars is not None:
            peer = undo.enter_context(debezium(scene, jars, f"{DATABASE}_.*[.].*"))
        _create(scene, tuple(tasks.values()))
        for number, workload, changes in _backlogs(scene, size, pauses_capture=True):
            found = {CAPTURE: capture_backlog(scene, changes).rate}
            for line, task in tasks.items():
                published = task.publish(scene, workload.database, changes)
                found[line] = published.pace.rate(changes)
                if line == JSON:
                    found[CPU] = published.cpu_us(changes)
            if peer is not None:
                found[DEBEZIUM] = _peer_rate(scene, peer, workload, changes)
            for line, value in found.items():
                if number:
                    rounds.add(line, value)
    yield rounds.figure(JSON, ROWS, CAPTURE, CAPTURE)
    yield rounds.figure(DEBEZIUM_JSON, ROWS, DEBEZIUM, DEBEZIUM)
    yield rounds.figure(CPU, CPU_UNIT)


def format_figures(size: Size) -> Iterator[Figure]:
    """The lines of the other formats, each beside ``debezium-json``."""
    rounds = Rounds()
    peer = FormatName.DEBEZIUM_JSON
    tasks = {
        name: BenchTask(name.value, TABLES, {"include": [f"{PATTERN}.*"], "records": name.value})
        for name in (peer, *FORMATS)
    }
    with open_publish(size.flavour) as scene:
        _create(scene, tuple(tasks.values()))
        for number, workload, changes in _backlogs(scene, size, pauses_capture=False):
            for name, task in tasks.items():
                rate = task.publish(scene, workload.database, changes).pace.rate(changes)
                if number:
                    rounds.add(name, rate)
    for line, name in zip(FORMAT_LINES, FORMATS, strict=True):
        value, beside = rounds.median(name), rounds.median(peer)
        assert value is not None
        yield Figure(line, value, ROWS, f"a task that writes {peer}", beside)


def _peer_rate(scene: Scene, peer: Debezium, workload: workloads.Workload, changes: int) -> float:
    topics = topics_of(scene.bootstrap, workload, partitions=PARTITIONS)
    topics.create()
    rate = peer.rate(changes, topics)
    say(f"  Debezium {rate:,.0f}/s")
    return rate


def cpu_figures(size: Size) -> Iterator[Figure]:
    """The lines of views. Those of ``plain`` alone have half of the records."""
    rounds = Rounds()
    with open_publish(size.flavour) as scene:
        pairs = _view_tasks(scene.stack.folder / "mask.key")
        tasks = {task.name: task for pair in pairs.values() for task in pair}
        _create(scene, tuple(tasks.values()))
        for number, workload, changes in _backlogs(scene, size, pauses_capture=False):
            for task in tasks.values():
                records = changes * len(task.tables) // len(TABLES)
                published = task.publish(scene, workload.database, records)
                if number:
                    rounds.add(task.name, published.cpu_us(records))
    for line, (with_view, without) in pairs.items():
        value, peer = rounds.median(with_view.name), rounds.median(without.name)
        assert value is not None
        yield Figure(line, value, CPU_UNIT, "the same without it", peer)


def _view_tasks(key: Path) -> dict[str, tuple[BenchTask, BenchTask]]:
    """By line: the task with the view and the task without it."""
    key.write_text("a key of the benchmark, of 32 bytes")
    key.chmod(0o600)
    plain, orders = f"{PATTERN}.plain", f"{PATTERN}.orders"

    def task(name: str, *rules: dict[str, object]) -> BenchTask:
        tables = TABLES if len(rules) == len(TABLES) else TABLES[:1]
        return BenchTask(name, tables, {"tables": list(rules), "records": "json"})

    whole = task("whole", {"from": plain}, {"from": orders})
    where = task(
        "where",
        {"from": plain, "where": "a >= 0"},
        {"from": orders, "where": "customer >= 0"},
    )
    columns = task(
        "columns",
        {"from": plain, "columns": {"drop": ["a", "c"]}},
        {
            "from": orders,
            "columns": {"drop": ["total", "tax", "placed", "note", "extra", "weight"]},
        },
    )
    alone = task("alone", {"from": plain})
    mask = task("mask", {"from": plain, "mask": {"b": f"hmac-sha256(file:{key})"}})
    lines = ((where, whole), (columns, whole), (mask, alone))
    return dict(zip(CPU_LINES, lines, strict=True))


def _create(scene: Scene, tasks: Sequence[BenchTask]) -> None:
    """Create the tasks, and pause them."""
    for task in tasks:
        task.create(scene)
        scene.pause(task.name)


def _backlogs(
    scene: Scene, size: Size, *, pauses_capture: bool
) -> Iterator[tuple[int, workloads.Workload, int]]:
    """For each round its number, the workload that was written, and the number of changes.

    They wait in the binlog with ``pauses_capture``, else in the set topic.
    """
    for number in announced_rounds(size):
        workload = workloads.bulk(f"{DATABASE}_{number}")
        changes = workload.sized(size.scale * (SIZE if number else 1))
        workload.create(scene.connect)
        scene.wait_captured()
        if pauses_capture:
            changes = scene.write(workload, changes, CAPTURE_TASK)
        else:
            changes = workload.write(scene.connect, changes)
            scene.wait_captured()
        yield number, workload, changes
