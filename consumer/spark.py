"""Spark: the one module that knows pyspark. Sessions, the query over a topic, and running executor functions.

One ``SparkDriver`` a process; one Structured Streaming query a task, over partition 0 of its topic,
``read_committed``, from the offset that the *target* says. Its checkpoint is scratch, on a memory file system where
there is one (what is shuffled and spilled, too, if there is room): with each start it is made anew. What a killed
driver left, in memory or among the temporary files, goes at the next one's start.
A Spark task is never repeated by Spark (``spark.task.maxFailures=1``,
no speculation): a failure ends the query, the runner raises the fence and starts again from the target.

Not done here: any decision about records (``consumer.batch``).
"""

import os
import re
import shlex
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from pickle import PickleError
from typing import TypeVar, cast

import numpy as np
import pyarrow as pa
import pyspark
from py4j.protocol import Py4JError
from pyspark import Broadcast, StorageLevel, TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own habit
from pyspark.sql.streaming.query import StreamingQuery

from consumer.executor import (
    Order,
    Outcome,
    Plan,
    apply_lane,
    apply_serial,
    guarded,
    plan,
    results,
    unpack,
)
from consumer.jvm import Jvm
from consumer.registry import look_up_at
from consumer.row_schemas import Ints
from consumer.serial import SerialLane
from consumer.table_plans import Catalogue
from consumer.warm import warm
from millrace.errors import Fatal, Retryable
from millrace.home_folder import home
from millrace.jvm import CLEAN_EXITS, JvmArchive
from schemas.documents import TopicAddress

ARROW_ROWS_MAX = 20_000  # measured: of 100,000 a quarter slower
OFFSETS_PER_TRIGGER_MAX = (
    1 << 17
)  # bounds a micro-batch; below, planning its queries costs more than its rows
ARROW_BYTES_MAX = 32 << 20  # large rows: a Python worker holds a few of these at once
LANES_MAX = 64
LOOK_S = 0.1
REHEARSAL_S = 120.0
LOCAL_FREE_MIN_BYTES = 3 << 30  # Docker's memory file system has 64 MB
FIRST_OFFSET = -2  # Kafka's word for the beginning

MASTERS = "local[N], spark://HOST:PORT, yarn, k8s://HOST:PORT"
_MASTER = re.compile(r"local(-cluster)?(\[[\d*, ]+\])?|spark://.+|yarn|k8s://.+")

# what a call into the JVM raises; without a JVM also the socket's own word, without room or folder the file's
_FAILURES = (PySparkException, Py4JError, OSError, PickleError)

_CHECKPOINT_FILES = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
_RESULT = "result binary"
_SCRATCH = "millrace-apply-"
_KAFKAS_WORDS = ("org.apache.kafka.common.", "KAFKA_DATA_LOSS", "some data may")

Answer = TypeVar("Answer", Outcome, Plan)


class SparkDriver:
    """A Spark session in this process and what belongs to it."""

    def __init__(self, *, master: str, settings: Mapping[str, str] | None = None) -> None:
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        if master.startswith("local"):
            os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
        self._scratch = _scratch_folder()
        self._disk = _folder_in(Path(tempfile.gettempdir()))
        builder = SparkSession.builder.master(master).appName("millrace-apply")
        given = {**_settings(self._scratch, self._disk, master), **(settings or {})}
        for name, value in given.items():
            builder = builder.config(name, value)
        try:
            self.session = builder.getOrCreate()
        except (PySparkException, Py4JError, OSError, RuntimeError) as exc:
            told = f"Spark does not start with master {master!r}: {_first_line(exc)}"
            fix = "" if _MASTER.fullmatch(master) else f"Give one of these masters: {MASTERS}."
            raise Fatal("MR-5051", told, fix=fix) from exc
        self._folders = _folders_under(self._scratch, self._disk)
        # PySpark shows it nowhere else
        self.jvm = Jvm(getattr(self.session.sparkContext._gateway, "proc", None))

    def stop(self) -> None:
        """End the session and remove the scratch folders."""
        self.jvm.release()
        with suppress(*_FAILURES):  # the JVM may be gone
            self.session.stop()
        for folder in (self._scratch, self._disk):
            shutil.rmtree(folder, ignore_errors=True)

    def query(
        self, task: str, address: TopicAddress, *, offset: int, process: Callable[["Records"], None]
    ) -> "TopicQuery":
        """Start reading at ``offset``; ``process`` gets each micro-batch. Retryable MR-5050 without a JVM."""
        # without one, its watch ends this process, and whoever starts it again gives it another
        with _told():
            return TopicQuery(self, task, address, offset=offset, process=process)

    def rehearse(self) -> None:
        """What a driver does up to its first records, without a topic; then its JVM ends. Fatal MR-5051."""
        heard = threading.Event()

        def hear(records: DataFrame, _: int) -> None:
            records.coalesce(1).mapInArrow(lambda batches: batches, records.schema).collect()
            heard.set()

        rate = self.session.readStream.format("rate").option("rowsPerSecond", 100).load()
        writer = rate.writeStream.foreachBatch(hear)
        query = writer.option("checkpointLocation", str(self.scratch("rehearsal"))).start()
        deadline_s = time.monotonic() + REHEARSAL_S
        while not heard.wait(LOOK_S) and query.isActive and time.monotonic() < deadline_s:
            pass
        failure = query.exception()
        query.stop()
        gateway = self.session.sparkContext._gateway
        self.stop()
        if gateway is None or not heard.is_set():
            raise Fatal("MR-5051", f"Spark does not work: {failure}")
        gateway.shutdown()
        gateway.proc.stdin.close()
        if gateway.proc.wait(REHEARSAL_S) not in CLEAN_EXITS:
            raise Fatal("MR-5051", f"Spark's JVM ended with {gateway.proc.returncode}")

    def scratch(self, task: str) -> Path:
        """A new folder for a query's checkpoint.

        Whoever cleans shared memory or temporary files takes those around it away, too, and Spark's, which it makes
        once.
        """
        checkpoints = self._scratch / "checkpoints"
        for folder in (*self._folders, checkpoints):
            folder.mkdir(0o700, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix=f"{task}-", dir=checkpoints))


def jvm_archive() -> JvmArchive:
    """What a driver's JVM loads."""
    return JvmArchive("spark", sorted(Path(pyspark.__file__).parent.glob("jars/*.jar")))


def _scratch_folder() -> Path:
    """A folder in memory."""
    memory = Path("/dev/shm")  # noqa: S108 - a folder of our own in it, readable by its owner alone
    return _folder_in(memory if memory.is_dir() else Path(tempfile.gettempdir()))


def _local_folder(scratch: Path, disk: Path) -> Path:
    """Where Spark shuffles and spills: the scratch folder where there is room."""
    return scratch if shutil.disk_usage(scratch).free >= LOCAL_FREE_MIN_BYTES else disk


def _folders_under(*roots: Path) -> tuple[Path, ...]:
    """These and all in them, and where Spark will put its blocks; the outer ones first."""
    found = [
        folder for root in roots for folder in (root, *sorted(root.rglob("*"))) if folder.is_dir()
    ]
    blocks = [folder / "00" for folder in found if folder.name.startswith("blockmgr-")]
    return (*found, *blocks)


def _folder_in(parent: Path) -> Path:
    """A folder that names this process; what killed drivers left beside it goes."""
    for left in parent.glob(f"{_SCRATCH}*-*"):
        process = left.name.removeprefix(_SCRATCH).partition("-")[0]
        if process.isdigit() and not Path("/proc", process).exists():
            shutil.rmtree(left, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f"{_SCRATCH}{os.getpid()}-", dir=parent))


def _settings(scratch: Path, disk: Path, master: str) -> dict[str, str]:
    jars = sorted((home() / "jars" / "spark").glob("*.jar"))
    if not jars:
        raise Fatal("MR-5051", f"there is no Kafka connector in {home() / 'jars' / 'spark'}")
    found = {
        "spark.jars": ",".join(map(str, jars)),
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
        "spark.task.maxFailures": "1",
        "spark.speculation": "false",
        "spark.scheduler.mode": "FAIR",
        "spark.python.worker.reuse": "true",
        "spark.python.daemon.module": "consumer.spark",
        "spark.executorEnv.PYTHONSAFEPATH": "1",  # not what lies about where a driver was started
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": " ".join(
            # on disk: libraries that are unpacked there may not be loaded from memory
            (*jvm_archive().options(), shlex.quote(f"-Djava.io.tmpdir={disk}"))
        ),
        "spark.sql.adaptive.enabled": "false",  # its re-planning costs more than these plans can gain
        "spark.sql.shuffle.partitions": "4",
        "spark.diskStore.subDirectories": "1",  # it is known by its name, to be made anew
        "spark.shuffle.compress": "false",  # what is written is read at once, from memory
        "spark.sql.inMemoryColumnarStorage.compressed": "false",
        "spark.sql.execution.arrow.maxBytesPerBatch": str(ARROW_BYTES_MAX),
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(ARROW_ROWS_MAX),
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        "spark.sql.streaming.minBatchesToRetain": "2",
        # the checkpoint is scratch; written the usual way it costs 300 ms of a micro-batch, so 80
        "spark.sql.streaming.checkpointFileManagerClass": _CHECKPOINT_FILES,
        "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.local.dir": str(_local_folder(scratch, disk) / "local"),
        "spark.ui.showConsoleProgress": "false",
    }
    if master.startswith("local"):
        found |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    return found


class TopicQuery:
    """One running query over partition 0 of a topic."""

    def __init__(
        self,
        driver: SparkDriver,
        task: str,
        address: TopicAddress,
        *,
        offset: int,
        process: Callable[["Records"], None],
    ) -> None:
        self._driver = driver
        self._checkpoint = driver.scratch(task)
        self._process = process
        self._next_offset = offset
        source = driver.session.readStream.format("kafka").options(
            **{
                "kafka.bootstrap.servers": address.bootstrap,
                "assign": f'{{"{address.topic}":[0]}}',
                "startingOffsets": f'{{"{address.topic}":{{"0":{offset}}}}}',
                "kafka.isolation.level": "read_committed",
                "kafka.fetch.max.wait.ms": "5",
                "failOnDataLoss": "true",
                "maxOffsetsPerTrigger": str(OFFSETS_PER_TRIGGER_MAX),
            }
        )
        records = source.load().select("offset", "value")
        writer = records.writeStream.foreachBatch(self._on_batch).option(
            "checkpointLocation", str(self._checkpoint)
        )
        try:
            self._query: StreamingQuery = writer.start()
        except PySparkException as exc:  # it looks for the topic's partition
            shutil.rmtree(self._checkpoint, ignore_errors=True)
            raise Retryable("MR-5052", _first_line(exc)) from exc

    def _on_batch(self, records: DataFrame, number: int) -> None:
        end = _end_offset(self._checkpoint, number)
        first = max(self._next_offset, 0)
        self._process(Records(self._driver, records, first=first, end=end))
        self._next_offset = end

    def wait(self, timeout_s: float) -> bool:
        """True when the query has ended; Retryable MR-5050 or MR-5052 with the reason when it failed."""
        with _told():
            return bool(self._query.awaitTermination(cast(int, timeout_s)))

    def is_asking(self) -> bool:
        """Whether it waits for the broker to say where the topic ends: between micro-batches, milliseconds as a rule.

        Spark asks for minutes before it gives up.
        """
        with _told():
            return str(self._query.status["message"]).startswith("Getting offsets")

    def stop(self) -> None:
        """End the query and its Spark jobs; its scratch folder goes."""
        try:
            with _told():
                self._query.stop()
        finally:
            shutil.rmtree(self._checkpoint, ignore_errors=True)


def _end_offset(checkpoint: Path, batch: int) -> int:
    """Where a micro-batch ends: the last line of its file in the checkpoint, ``{"topic":{"0":offset}}``."""
    text = (checkpoint / "offsets" / str(batch)).read_text().splitlines()[-1]
    return int(text.rsplit(":", 1)[1].rstrip("}"))


@contextmanager
def _told() -> Iterator[None]:
    """Whatever Spark raises in it comes out as Retryable MR-5050 or MR-5052."""
    try:
        yield
    except _FAILURES as exc:
        raise _failure(exc) from exc


class Records:
    """The records of a micro-batch, offsets ``first`` to ``end - 1``.

    What runs on them runs in executors, but for what ``SerialLane`` holds.
    """

    def __init__(self, driver: SparkDriver, frame: DataFrame, *, first: int, end: int) -> None:
        self._driver = driver
        self._frame = frame
        self._is_kept = False
        self._first = first
        self._end = end
        self._serial = SerialLane(self._apply_serial, look_up_at)

    @property
    def span(self) -> int:
        """How many offsets, records or not."""
        return self._end - self._first

    def serial(self, order: Order, catalogue: Catalogue, applied: Ints) -> Outcome:
        """``executor.apply_serial`` in one Spark task; between barriers here."""
        return self._serial(order, catalogue, applied)

    @_told()
    def _apply_serial(self, order: Order, catalogue: Catalogue, applied: Ints) -> Outcome:
        shared = _share(self._driver, catalogue)

        def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return results(
                guarded(
                    lambda: apply_serial(
                        batches,
                        order=order,
                        catalogue=shared.value,
                        applied=applied,
                        look_up=look_up_at(order.registry),
                    )
                )
            )

        (found,) = self._run(self._from(order).coalesce(1).mapInArrow(work, _RESULT), Outcome)
        return found

    @_told()
    def plan(self, order: Order, catalogue: Catalogue, applied: Ints) -> Plan:
        """``executor.plan`` in one Spark task; the records are kept for the lanes."""
        if not self._is_kept:
            self._frame = self._frame.persist(StorageLevel.MEMORY_AND_DISK)
            self._is_kept = True
        shared = _share(self._driver, catalogue)

        def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return results(
                guarded(
                    lambda: plan(
                        batches,
                        order=order,
                        catalogue=shared.value,
                        applied=applied,
                        look_up=look_up_at(order.registry),
                    )
                )
            )

        (found,) = self._run(self._from(order).coalesce(1).mapInArrow(work, _RESULT), Plan)
        return found

    @_told()
    def lanes(
        self, order: Order, catalogue: Catalogue, applied: Ints, *, offsets: Ints, lanes: Ints
    ) -> list[Outcome]:
        """``executor.apply_lane`` once a lane, side by side: record ``offsets[i]`` belongs to ``lanes[i]``."""
        shared = _share(self._driver, catalogue)
        lane_count = int(lanes.max()) + 1
        laid = (
            self._from(order)
            .withColumn("lane", _looked_up(offsets, lanes))
            .where("lane >= 0")
            .repartitionById(lane_count, "lane")
            .sortWithinPartitions("offset")
            .select("offset", "value")
        )

        def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            context = TaskContext.get()
            assert context is not None
            number = context.partitionId()
            return results(
                guarded(
                    lambda: apply_lane(
                        batches, lane=number, order=order, catalogue=shared.value, applied=applied
                    )
                )
            )

        return self._run(laid.mapInArrow(work, _RESULT), Outcome, lane_count=lane_count)

    @_told()
    def release(self) -> None:
        """Forget the kept records."""
        if self._is_kept:
            self._frame.unpersist()
            self._is_kept = False

    def _from(self, order: Order) -> DataFrame:
        """The records from the mark on, so far as it spares work: a number in the plan is code to compile each time."""
        if order.mark.next_offset <= self._first:
            return self._frame
        return self._frame.where(F.col("offset") >= order.mark.next_offset)

    def _run(self, frame: DataFrame, kind: type[Answer], *, lane_count: int = 1) -> list[Answer]:
        """The answer of each lane, or the first error among them.

        PySpark takes a result socket that breaks for the end of the results. A lane that is not heard may have applied
        nothing.
        """
        try:
            rows = frame.collect()
        except Exception as exc:  # its code around the socket: struct.error, UnboundLocalError, …
            raise _failure(exc) from exc
        found = [unpack(bytes(row[0])) for row in rows]
        answers = [answer for answer in found if isinstance(answer, kind)]
        _check_heard(sorted(answer.lane for answer in answers), lane_count)
        return answers


def _check_heard(lanes: list[int], lane_count: int) -> None:
    if lanes != list(range(lane_count)):
        raise Retryable("MR-5050", f"of {lane_count} lanes these answered: {lanes}")


def _looked_up(offsets: Ints, lanes: Ints) -> Column:
    """The lane of an offset, -1 for none: a byte of a table, at the offset modulo its size.

    The size is that of the largest micro-batch, so the table is all that changes in the plan, and Spark's compiled code
    holds it by reference.
    """
    size = OFFSETS_PER_TRIGGER_MAX
    while size <= int(offsets[-1]) - int(offsets[0]):
        size *= 2
    table = np.zeros(size, np.uint8)
    table[offsets % size] = lanes + 1
    place = F.pmod(F.col("offset"), F.lit(size)).cast("int") + 1
    return F.ascii(F.substring(F.lit(bytearray(table.tobytes())), place, 1)).cast("int") - 1


_shared: dict[str, Broadcast[Catalogue]] = {}
_shared_changes = threading.Lock()  # each task has a thread


def _share(driver: SparkDriver, catalogue: Catalogue) -> Broadcast[Catalogue]:
    """The catalogue in every executor, sent once a version."""
    with _shared_changes:
        if catalogue.version not in _shared:
            while len(_shared) >= 8:
                _shared.pop(next(iter(_shared))).unpersist()
            _shared[catalogue.version] = driver.session.sparkContext.broadcast(catalogue)
        return _shared[catalogue.version]


def _failure(exc: BaseException) -> Retryable:
    """Kafka's own words somewhere in Spark's: look at broker and topic, not at Spark."""
    is_topic = any(words in _story(exc) for words in _KAFKAS_WORDS)
    return Retryable("MR-5052" if is_topic else "MR-5050", _first_line(exc))


def _story(exc: BaseException) -> str:
    """What it says. Spark's own asks the JVM for that, which may be gone; what is none of Spark's needs its name."""
    name = type(exc).__name__
    try:
        told = str(exc)
    except Exception:  # noqa: BLE001 - whatever a JVM that is gone raises
        return f"{name}, and the JVM does not say why"
    return told if isinstance(exc, (PySparkException, Py4JError)) else f"{name}: {told}"


def _first_line(exc: BaseException) -> str:
    """The head of Spark's long stories, and the line that tells the cause."""
    lines = [line.strip() for line in _story(exc).splitlines() if line.strip()]
    cause = [
        line for line in lines if line.startswith(("Caused by", "pyspark.errors", "Exception:"))
    ]
    return " | ".join([*lines[:1], *cause[:2]])[:600]


if (
    __name__ == "__main__"
):  # Spark's daemon, which forks the Python workers: they find the kernel loaded
    from pyspark.daemon import manager

    warm()
    manager()
