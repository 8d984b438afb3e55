"""The only module that imports pyspark: the session, the query over a topic, and calls of executor functions.

A process has one ``SparkDriver``. Each task has one Structured Streaming query over partition 0 of its topic. It reads
``read_committed`` from the offset in the *target*. The checkpoint is scratch, in memory if possible, and each start
creates it again. Shuffled and spilled data is in memory too if it fits (``consumer.spark.scratch``).
Spark never repeats a Spark task (``spark.task.maxFailures=1``, no speculation). A failure ends the query; the runner
raises the fence and starts again from the target.

Not done here: decisions about records (``consumer.turn.driver``).
"""

import os
import re
import shlex
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from pickle import PickleError
from typing import Any, Generic, TypeVar, cast
from uuid import uuid4

import pyspark
from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from millrace.consumer.compare.compare_order import CompareOrder, execute_compare
from millrace.consumer.load.copy_order import CopyOrder, execute_copy
from millrace.consumer.publish.executor import execute_publish
from millrace.consumer.publish.order import PublishOrder
from millrace.consumer.spark.jvm import Jvm
from millrace.consumer.spark.kafka_source import ALLOWED_URLS, source_options, token_end, token_url
from millrace.consumer.spark.scratch import (
    folders_under,
    memory_folder,
    new_folder,
    shuffle_folder,
    temporary,
)
from millrace.consumer.target.loads import Amount
from millrace.consumer.target.progress import Mark
from millrace.consumer.topic.beginning import begin_at
from millrace.consumer.turn.executor import execute, execute_share
from millrace.consumer.turn.order import Answer, Outcome, Share, ShareEnd, TurnOrder, result_of
from millrace.consumer.turn.warm_up import warm
from millrace.consumer.write.incidents import Tally
from millrace.drivers.kafka.errors import refusal_of
from millrace.errors import Fatal, MillraceError, Retryable
from millrace.home_folder import connector_folder
from millrace.jvm import CLEAN_EXITS, JvmArchive
from millrace.schemas.documents import TopicAddress

LANES_MAX = 64
LOOK_S = 0.1
REHEARSAL_S = 120.0
FIRST_OFFSET = -2  # Kafka's number for the beginning

MASTERS = "local[N], spark://HOST:PORT, yarn, k8s://HOST:PORT"
_CONNECTOR = re.compile(r"spark-sql-kafka-[\d-]+_[\d.]+-(\d.*)\.jar")
_MASTER = re.compile(r"local(-cluster)?(\[[\d*, ]+\])?|spark://.+|yarn|k8s://.+")

# Raised by calls into the JVM. OSError: the socket without a JVM, or a file without space or folder.
_FAILURES = (PySparkException, Py4JError, OSError, PickleError)

# this JVM only plans ranges: it computes too little for its second compiler, and a parallel collector costs memory
_SMALL_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_CHECKPOINT_FILES = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
_KAFKA_RIGHTS = {
    "TopicAuthorizationException": "TOPIC_AUTHORIZATION_FAILED",
    "GroupAuthorizationException": "GROUP_AUTHORIZATION_FAILED",
    "ClusterAuthorizationException": "CLUSTER_AUTHORIZATION_FAILED",
}
_KAFKA_TEXTS = ("org.apache.kafka.common.", "KAFKA_DATA_LOSS", "some data may")


_groups = count(1)

G = TypeVar("G")
A = TypeVar("A")


class SparkDriver:
    """The Spark session of this process with its scratch folders and JVM. ``tally``: what its executors reported."""

    def __init__(
        self,
        *,
        master: str,
        settings: Mapping[str, str] | None = None,
        name: str = "millrace-apply",
    ) -> None:
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        if master.startswith("local"):
            os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
        self.tally = Tally()
        self._scratch = memory_folder()
        self._disk = new_folder(temporary())
        builder = SparkSession.builder.master(master).appName(name)
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
        """Start reading at ``offset``; ``process`` gets each micro-batch. Retryable MR-5050 if the JVM is gone."""
        # the watch on the JVM then ends this process, and the service manager restarts it
        with _translated_errors():
            return TopicQuery(self, task, address, offset=offset, process=process)

    def turns(self, name: str, source: TopicAddress) -> "Turns":
        """Executes turns outside the query of a task."""
        return Turns(self, name, source)

    def copies(self, task: str) -> "SparkCalls[CopyOrder, Amount | None]":
        """Executes the copies of a load."""
        return SparkCalls(self, f"load {task}", execute_copy)

    def publishing(self, task: str) -> "SparkCalls[PublishOrder, Mark]":
        """Executes the turns of a publish task's slots."""
        return SparkCalls(self, f"publish {task}", execute_publish)

    def comparisons(self, task: str) -> "SparkCalls[CompareOrder, Any]":
        """Executes the chunks of a comparison."""
        return SparkCalls(self, f"compare {task}", execute_compare)

    def rehearse(self) -> None:
        """Start as for a task up to the first records, without a topic, then end the JVM. Fatal MR-5051."""
        has_records = threading.Event()

        def look(_: DataFrame, number: int) -> None:
            self.session.sparkContext.parallelize([number], 1).map(abs).collect()
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

    def allow_url(self, url: str) -> None:
        """Let Kafka's client in the JVM read a token from this URL, too."""
        system = cast(Any, self.session.sparkContext)._jvm.java.lang.System
        known = system.getProperty(ALLOWED_URLS)
        system.setProperty(ALLOWED_URLS, f"{known},{url}" if known else url)

    def scratch(self, task: str) -> Path:
        """A new folder for a query's checkpoint and secrets.

        Creates its parents and Spark's folders again, because a cleaner of temporary files may have removed them.
        """
        checkpoints = self._scratch / "checkpoints"
        for folder in (*self._folders, checkpoints):
            folder.mkdir(0o700, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix=f"{task}-", dir=checkpoints))


def jvm_archive() -> JvmArchive:
    """The archive of the classes that a driver's JVM loads."""
    return JvmArchive("spark", sorted(Path(pyspark.__file__).parent.glob("jars/*.jar")))


def settings_of(given: Sequence[str]) -> dict[str, str]:
    """Spark's settings, each given as NAME=VALUE."""
    return dict(setting.partition("=")[::2] for setting in given)


def _settings(scratch: Path, disk: Path, master: str) -> dict[str, str]:
    found = {
        "spark.jars": ",".join(map(str, _connector())),
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
        "spark.task.maxFailures": "1",
        "spark.speculation": "false",
        "spark.scheduler.mode": "FAIR",
        "spark.python.worker.reuse": "true",
        "spark.python.task.killTimeout": "100ms",  # a stopped turn: the target rolls back
        "spark.python.daemon.module": "millrace.consumer.spark.session",
        "spark.executorEnv.PYTHONSAFEPATH": "1",  # no modules of the folder in which the driver was started
        "spark.driver.memory": "512m",
        "spark.driver.extraJavaOptions": " ".join(
            # on disk: libraries that are unpacked there can not always be loaded from memory
            (*jvm_archive().options(), _SMALL_JVM, shlex.quote(f"-Djava.io.tmpdir={disk}"))
        ),
        "spark.executor.extraJavaOptions": _SMALL_JVM,
        "spark.sql.adaptive.enabled": "false",  # its re-planning costs more than it saves for these plans
        "spark.diskStore.subDirectories": "1",  # a fixed name, so that it can be created again
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


def _connector() -> list[Path]:
    """The jars of the Kafka connector; Fatal MR-5051 if there are none, or of another minor version of Spark."""
    folder = connector_folder()
    jars = sorted(folder.glob("*.jar"))
    if not jars:
        raise Fatal("MR-5051", f"there is no Kafka connector in {folder}")
    for version in [found[1] for jar in jars if (found := _CONNECTOR.fullmatch(jar.name))]:
        if version.split(".")[:2] != pyspark.__version__.split(".")[:2]:
            what = f"the Kafka connector in {folder} is of Spark {version}"
            raise Fatal("MR-5051", f"{what}, PySpark is {pyspark.__version__}")
    return jars


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
        try:
            self._query = self._start(address, offset)
        except BaseException:
            shutil.rmtree(self._checkpoint, ignore_errors=True)
            raise

    def _start(self, address: TopicAddress, offset: int) -> StreamingQuery:
        secrets = self._checkpoint / "secrets"
        secrets.mkdir(0o700)
        if url := token_url(address.brokers, secrets):
            self._driver.allow_url(url)
        options = source_options(address.brokers, secrets)
        self._token_end_s = token_end(secrets)
        source = self._driver.session.readStream.format("kafka").options(
            **{
                **options,
                "assign": f'{{"{address.topic}":[0]}}',
                "startingOffsets": f'{{"{address.topic}":{{"0":{offset}}}}}',
                "kafka.isolation.level": "read_committed",
                "kafka.fetch.max.wait.ms": "5",
                "failOnDataLoss": "true",
            }
        )
        records = source.load().select("offset", "value")
        writer = records.writeStream.foreachBatch(self._on_batch).option(
            "checkpointLocation", str(self._checkpoint)
        )
        try:
            return writer.start()
        except PySparkException as exc:  # Spark looks up the topic's partition
            raise Retryable("MR-5052", _first_line(exc)) from exc

    def _on_batch(self, _: DataFrame, number: int) -> None:
        self._process(Records(self._driver, end=_end_offset(self._checkpoint, number)))

    def wait(self, timeout_s: float) -> bool:
        """True when the query has ended; Retryable MR-5050 or MR-5052 with the reason when it failed.

        Retryable MR-7001 before its token expires: only the next query reads a new one.
        """
        if self._token_end_s is not None and time.time() > self._token_end_s:
            raise Retryable(
                "MR-7001", "the token of Spark's query expires; the next query reads it again"
            )
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
    """Raises Spark's errors as Retryable MR-5050 or MR-5052, or as a missing right on Kafka."""
    try:
        yield
    except _FAILURES as exc:
        raise _failure(exc) from exc


class Turns:
    """Turns of a side stream in the calling thread, until they are stopped (``consumer.backfill.threads``)."""

    def __init__(self, driver: SparkDriver, name: str, source: TopicAddress) -> None:
        self._driver, self._source = driver, source
        self._group = f"turns of {name} {uuid4()}"
        self._is_stopped = False

    def records(self, end: int) -> "Records":
        """The records below an offset. Retryable MR-5050 once the turns are stopped."""
        if self._is_stopped:
            raise Retryable("MR-5050", "the run is ending")
        return Records(self._driver, end=end, group=self._group)

    def first_offset(self, offset: int) -> int:
        """``offset``, or the first one that retention has left above it."""
        return begin_at(self._source, offset)

    def stop(self) -> None:
        """End the turn under way; its call raises."""
        self._is_stopped = True
        with suppress(*_FAILURES):  # the JVM may have ended
            self._driver.session.sparkContext.cancelJobGroup(self._group)


class Records:
    """A micro-batch: a range of offsets that ends before ``end``. An executor reads and applies it.

    ``group``: Spark's group of its jobs; "": that of the query.
    """

    def __init__(self, driver: SparkDriver, *, end: int, group: str = "") -> None:
        self._driver = driver
        self._group = group
        self.end = end

    def apply(self, order: TurnOrder) -> Outcome:
        """One turn in one Spark task."""
        (answer,) = self._answers([order], execute)
        return result_of(answer)

    def apply_shares(self, shares: Sequence[Share]) -> Sequence[ShareEnd]:
        """One spread turn, a Spark task for each share."""
        return [result_of(answer) for answer in self._answers(shares, execute_share)]

    @_translated_errors()
    def executor_count(self) -> int:
        """How many executors there are now; 1 in local mode, where the driver is the only one."""
        context: Any = self._driver.session.sparkContext  # PySpark has no public call for it
        with_driver = int(context._jsc.sc().getExecutorMemoryStatus().size())
        return max(with_driver - 1, 1)

    @_translated_errors()
    def _answers(self, given: Sequence[G], work: Callable[[G], Answer[A]]) -> Sequence[Answer[A]]:
        """See ``_collected``. Counts the incidents of the answers."""
        context = self._driver.session.sparkContext
        if self._group:
            context.setJobGroup(self._group, self._group)  # of this thread
        answers = _collected(context, given, work)
        for answer in answers:
            self._driver.tally.add(answer.task, answer.incidents)
        return answers


def _collected(context: SparkContext, given: Sequence[G], work: Callable[[G], A]) -> Sequence[A]:
    """One Spark task for each given value, all in one job.

    PySpark treats a broken result socket as the end of the results: a turn without an answer may have applied
    rows, so the run ends and reads the progress again.
    """
    job = context.parallelize(given, len(given)).map(work)
    try:
        answers = job.collect()
    except Exception as exc:  # PySpark's code around the socket: struct.error, UnboundLocalError, …
        raise _failure(exc) from exc
    if len(answers) != len(given):
        raise Retryable("MR-5050", f"executors gave {len(answers)} answers to {len(given)} orders")
    return answers


class SparkCalls(Generic[G, A]):
    """Calls in executors, each in a Spark job of one task (``consumer.turn.order.Calls``)."""

    def __init__(self, driver: SparkDriver, name: str, work: Callable[[G], Answer[A]]) -> None:
        self._driver, self._work = driver, work
        self._group = f"{name} {next(_groups)}"

    @_translated_errors()
    def call(self, order: G) -> A:
        """See ``Calls``."""
        context = self._driver.session.sparkContext
        context.setJobGroup(self._group, self._group)  # of this thread
        (answer,) = _collected(context, [order], self._work)
        return result_of(answer)

    def stop(self) -> None:
        """End all calls under way, and those that begin later."""
        with suppress(*_FAILURES):  # the JVM may have ended
            self._driver.session.sparkContext.cancelJobGroup(self._group)


def _failure(exc: BaseException) -> MillraceError:
    """A missing right, or MR-5052, if Kafka's error is part of Spark's, else Retryable MR-5050."""
    text = _error_text(exc)
    for words, name in _KAFKA_RIGHTS.items():
        if words in text and (refusal := refusal_of(name, _first_line(exc))) is not None:
            return refusal
    is_topic = any(words in text for words in _KAFKA_TEXTS)
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

    # not the formats of publish tasks, which other tasks would wait for: a task's run has compiled its own
    warm()
    manager()
