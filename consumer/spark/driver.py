"""The only module that imports pyspark: the session, the query over a topic, and calls of executor functions.

A process has one ``SparkDriver``. Each task has one Structured Streaming query over partition 0 of its topic. It reads
``read_committed`` from the offset in the *target*. The checkpoint is scratch, in memory if possible, and each start
creates it again. Shuffled and spilled data is in memory too if it fits (``consumer.spark.scratch``).
Spark never repeats a Spark task (``spark.task.maxFailures=1``, no speculation). A failure ends the query; the runner
raises the fence and starts again from the target.

Not done here: decisions about records (``consumer.apply.batch``).
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

from consumer.apply.executor import (
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
from consumer.apply.serial import SerialLane
from consumer.registry import look_up_at
from consumer.row_schemas import Ints
from consumer.spark.jvm import Jvm
from consumer.spark.scratch import (
    folders_under,
    memory_folder,
    new_folder,
    shuffle_folder,
    temporary,
)
from consumer.sql.table_plans import Catalogue
from consumer.warm import warm
from millrace.errors import Fatal, Retryable
from millrace.home_folder import home
from millrace.jvm import CLEAN_EXITS, JvmArchive
from schemas.documents import TopicAddress

ARROW_ROWS_MAX = 20_000  # measured: 100,000 is a quarter slower
OFFSETS_PER_TRIGGER_MAX = (
    1 << 17
)  # limits a micro-batch; with fewer, planning its queries costs more than its rows
ARROW_BYTES_MAX = 32 << 20  # for large rows: a Python worker holds a few batches at once
LANES_MAX = 64
SHARED_MAX = 8  # catalogues in executors: one version for each task and a few changes
LOOK_S = 0.1
REHEARSAL_S = 120.0
FIRST_OFFSET = -2  # Kafka's number for the beginning

MASTERS = "local[N], spark://HOST:PORT, yarn, k8s://HOST:PORT"
_MASTER = re.compile(r"local(-cluster)?(\[[\d*, ]+\])?|spark://.+|yarn|k8s://.+")

# Raised by calls into the JVM. OSError: the socket without a JVM, or a file without space or folder.
_FAILURES = (PySparkException, Py4JError, OSError, PickleError)

_CHECKPOINT_FILES = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
_RESULT = "result binary"
_KAFKA_TEXTS = ("org.apache.kafka.common.", "KAFKA_DATA_LOSS", "some data may")

Answer = TypeVar("Answer", Outcome, Plan)


class SparkDriver:
    """The Spark session of this process with its scratch folders and JVM."""

    def __init__(self, *, master: str, settings: Mapping[str, str] | None = None) -> None:
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        if master.startswith("local"):
            os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
        self._shared: dict[str, Broadcast[Catalogue]] = {}
        self._sharing = threading.Lock()  # each task runs in its own thread
        self._scratch = memory_folder()
        self._disk = new_folder(temporary())
        builder = SparkSession.builder.master(master).appName("millrace-apply")
        given = {**_settings(self._scratch, self._disk, master), **(settings or {})}
        for name, value in given.items():
            builder = builder.config(name, value)
        try:
            self.session = builder.getOrCreate()
        except (PySparkException, Py4JError, OSError, RuntimeError) as exc:
            message = f"Spark does not start with master {master!r}: {_first_line(exc)}"
            fix = "" if _MASTER.fullmatch(master) else f"Give one of these masters: {MASTERS}."
            raise Fatal("MR-5051", message, fix=fix) from exc
        self._folders = folders_under(self._scratch, self._disk)
        # PySpark has no public attribute for the process
        self.jvm = Jvm(getattr(self.session.sparkContext._gateway, "proc", None))

    def stop(self) -> None:
        """End the session and remove the scratch folders."""
        self.jvm.release()
        with suppress(*_FAILURES):  # the JVM may have ended
            self.session.stop()
        for folder in (self._scratch, self._disk):
            shutil.rmtree(folder, ignore_errors=True)

    def query(
        self, task: str, address: TopicAddress, *, offset: int, process: Callable[["Records"], None]
    ) -> "TopicQuery":
        """Start reading at ``offset``; ``process`` gets each micro-batch. Retryable MR-5050 without a JVM."""
        # the watch on the JVM then ends this process, and the service manager restarts it
        with _translated_errors():
            return TopicQuery(self, task, address, offset=offset, process=process)

    def share(self, catalogue: Catalogue) -> Broadcast[Catalogue]:
        """The catalogue in every executor, sent once for each version."""
        with self._sharing:
            if catalogue.version not in self._shared:
                while len(self._shared) >= SHARED_MAX:
                    self._shared.pop(next(iter(self._shared))).unpersist()
                self._shared[catalogue.version] = self.session.sparkContext.broadcast(catalogue)
            return self._shared[catalogue.version]

    def rehearse(self) -> None:
        """Start as for a task up to the first records, without a topic, then end the JVM. Fatal MR-5051."""
        has_records = threading.Event()

        def look(records: DataFrame, _: int) -> None:
            records.coalesce(1).mapInArrow(lambda batches: batches, records.schema).collect()
            has_records.set()

        rate = self.session.readStream.format("rate").option("rowsPerSecond", 100).load()
        writer = rate.writeStream.foreachBatch(look)
        query = writer.option("checkpointLocation", str(self.scratch("rehearsal"))).start()
        deadline_s = time.monotonic() + REHEARSAL_S
        while not has_records.wait(LOOK_S) and query.isActive and time.monotonic() < deadline_s:
            pass
        failure = query.exception()
        query.stop()
        gateway = self.session.sparkContext._gateway
        self.stop()
        if gateway is None or not has_records.is_set():
            raise Fatal("MR-5051", f"Spark does not work: {failure}")
        gateway.shutdown()
        gateway.proc.stdin.close()
        if gateway.proc.wait(REHEARSAL_S) not in CLEAN_EXITS:
            raise Fatal("MR-5051", f"Spark's JVM ended with {gateway.proc.returncode}")

    def scratch(self, task: str) -> Path:
        """A new folder for a query's checkpoint.

        Creates its parents and Spark's folders again, because a cleaner of temporary files may have removed them.
        """
        checkpoints = self._scratch / "checkpoints"
        for folder in (*self._folders, checkpoints):
            folder.mkdir(0o700, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix=f"{task}-", dir=checkpoints))


def jvm_archive() -> JvmArchive:
    """The archive of the classes that a driver's JVM loads."""
    return JvmArchive("spark", sorted(Path(pyspark.__file__).parent.glob("jars/*.jar")))


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
        "spark.python.daemon.module": "consumer.spark.driver",
        "spark.executorEnv.PYTHONSAFEPATH": "1",  # no modules of the folder in which the driver was started
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": " ".join(
            # on disk: libraries that are unpacked there can not always be loaded from memory
            (*jvm_archive().options(), shlex.quote(f"-Djava.io.tmpdir={disk}"))
        ),
        "spark.sql.adaptive.enabled": "false",  # its re-planning costs more than it saves for these plans
        "spark.sql.shuffle.partitions": "4",
        "spark.diskStore.subDirectories": "1",  # a fixed name, so that it can be created again
        "spark.shuffle.compress": "false",  # written data is read at once, from memory
        "spark.sql.inMemoryColumnarStorage.compressed": "false",
        "spark.sql.execution.arrow.maxBytesPerBatch": str(ARROW_BYTES_MAX),
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(ARROW_ROWS_MAX),
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        "spark.sql.streaming.minBatchesToRetain": "2",
        # the checkpoint is scratch; Spark's default manager takes 300 ms per micro-batch, this one 80
        "spark.sql.streaming.checkpointFileManagerClass": _CHECKPOINT_FILES,
        "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.local.dir": str(shuffle_folder(scratch, disk) / "local"),
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
        except PySparkException as exc:  # Spark looks up the topic's partition
            shutil.rmtree(self._checkpoint, ignore_errors=True)
            raise Retryable("MR-5052", _first_line(exc)) from exc

    def _on_batch(self, records: DataFrame, number: int) -> None:
        end = _end_offset(self._checkpoint, number)
        first = max(self._next_offset, 0)
        self._process(Records(self._driver, records, first=first, end=end))
        self._next_offset = end

    def wait(self, timeout_s: float) -> bool:
        """True when the query has ended; Retryable MR-5050 or MR-5052 with the reason when it failed."""
        with _translated_errors():
            return bool(self._query.awaitTermination(cast(int, timeout_s)))

    def is_asking(self) -> bool:
        """True while Spark asks the broker for the end of the topic: between micro-batches, usually for milliseconds.

        Spark asks for minutes before it fails.
        """
        with _translated_errors():
            return str(self._query.status["message"]).startswith("Getting offsets")

    def stop(self) -> None:
        """End the query and its Spark jobs, and remove its checkpoint."""
        try:
            with _translated_errors():
                self._query.stop()
        finally:
            shutil.rmtree(self._checkpoint, ignore_errors=True)


def _end_offset(checkpoint: Path, batch: int) -> int:
    """The end of a micro-batch: the last line of its file in the checkpoint, ``{"topic":{"0":offset}}``."""
    text = (checkpoint / "offsets" / str(batch)).read_text().splitlines()[-1]
    return int(text.rsplit(":", 1)[1].rstrip("}"))


@contextmanager
def _translated_errors() -> Iterator[None]:
    """Raises Spark's errors as Retryable MR-5050 or MR-5052."""
    try:
        yield
    except _FAILURES as exc:
        raise _failure(exc) from exc


class Records:
    """The records of a micro-batch, offsets ``first`` to ``end - 1``.

    Executors apply them, except for the read-ahead of ``SerialLane``, which the driver applies.
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
        """The number of offsets, with or without a record."""
        return self._end - self._first

    def serial(self, order: Order, catalogue: Catalogue, applied: Ints) -> Outcome:
        """``executor.apply_serial`` in one Spark task, or in the driver for read-ahead records."""
        return self._serial(order, catalogue, applied)

    @_translated_errors()
    def _apply_serial(self, order: Order, catalogue: Catalogue, applied: Ints) -> Outcome:
        shared = self._driver.share(catalogue)

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

    @_translated_errors()
    def plan(self, order: Order, catalogue: Catalogue, applied: Ints) -> Plan:
        """``executor.plan`` in one Spark task. Spark keeps the records for the lanes."""
        if not self._is_kept:
            self._frame = self._frame.persist(StorageLevel.MEMORY_AND_DISK)
            self._is_kept = True
        shared = self._driver.share(catalogue)

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

    @_translated_errors()
    def lanes(
        self, order: Order, catalogue: Catalogue, applied: Ints, *, offsets: Ints, lanes: Ints
    ) -> list[Outcome]:
        """``executor.apply_lane`` for all lanes in parallel. Record ``offsets[i]`` belongs to ``lanes[i]``."""
        shared = self._driver.share(catalogue)
        lane_count = int(lanes.max()) + 1
        laid = (
            self._from(order)
            .withColumn("lane", _lane_column(offsets, lanes))
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

    @_translated_errors()
    def release(self) -> None:
        """Release the kept records."""
        if self._is_kept:
            self._frame.unpersist()
            self._is_kept = False

    def _from(self, order: Order) -> DataFrame:
        """The records from the mark on. Filters only if needed: Spark compiles code for each number in a plan."""
        if order.mark.next_offset <= self._first:
            return self._frame
        return self._frame.where(F.col("offset") >= order.mark.next_offset)

    def _run(self, frame: DataFrame, kind: type[Answer], *, lane_count: int = 1) -> list[Answer]:
        """The answer of each lane, or the first error among them.

        PySpark treats a broken result socket as the end of the results. A lane without an answer may have applied
        nothing.
        """
        try:
            rows = frame.collect()
        except (
            Exception
        ) as exc:  # PySpark's code around the socket: struct.error, UnboundLocalError, …
            raise _failure(exc) from exc
        found = [unpack(bytes(row[0])) for row in rows]
        answers = [answer for answer in found if isinstance(answer, kind)]
        _check_answers(sorted(answer.lane for answer in answers), lane_count)
        return answers


def _check_answers(lanes: list[int], lane_count: int) -> None:
    if lanes != list(range(lane_count)):
        raise Retryable("MR-5050", f"of {lane_count} lanes only these answered: {lanes}")


def _lane_column(offsets: Ints, lanes: Ints) -> Column:
    """The lane of an offset, -1 for none: a byte of a table, at the offset modulo its size.

    The size is that of the largest micro-batch, so only the table changes in the plan. Spark's compiled code refers to
    it, so nothing is compiled again.
    """
    size = OFFSETS_PER_TRIGGER_MAX
    while size <= int(offsets[-1]) - int(offsets[0]):
        size *= 2
    table = np.zeros(size, np.uint8)
    table[offsets % size] = lanes + 1
    place = F.pmod(F.col("offset"), F.lit(size)).cast("int") + 1
    return F.ascii(F.substring(F.lit(bytearray(table.tobytes())), place, 1)).cast("int") - 1


def _failure(exc: BaseException) -> Retryable:
    """MR-5052 if Kafka's error is part of Spark's, else MR-5050."""
    is_topic = any(words in _error_text(exc) for words in _KAFKA_TEXTS)
    return Retryable("MR-5052" if is_topic else "MR-5050", _first_line(exc))


def _error_text(exc: BaseException) -> str:
    """The error's text, with its type if Spark did not raise it. Spark's errors ask the JVM, which may have ended."""
    name = type(exc).__name__
    try:
        text = str(exc)
    except Exception:  # noqa: BLE001 - any error, if the JVM has ended
        return f"{name}; the JVM gives no reason"
    return text if isinstance(exc, (PySparkException, Py4JError)) else f"{name}: {text}"


def _first_line(exc: BaseException) -> str:
    """The first line of Spark's long message and the lines with its cause."""
    lines = [line.strip() for line in _error_text(exc).splitlines() if line.strip()]
    cause = [
        line for line in lines if line.startswith(("Caused by", "pyspark.errors", "Exception:"))
    ]
    return " | ".join([*lines[:1], *cause[:2]])[:600]


if __name__ == "__main__":  # Spark's daemon, which forks the Python workers with the kernel loaded
    from pyspark.daemon import manager

    warm()
    manager()
