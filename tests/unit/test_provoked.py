"""Errors that no other test meets, each provoked where it is raised; see ``tests.kit.provocations``."""

import errno
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pymysql
import pyspark
import pytest
from confluent_kafka import KafkaError, KafkaException
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from millrace.consumer.spark.session import SparkDriver, TopicQuery
from millrace.deploy.local.background import KEEPER, start_background
from millrace.deploy.local.description import ServiceAddresses, StackDescription
from millrace.deploy.local.stack import StackOptions
from millrace.deploy.servers import fetch, programs
from millrace.deploy.servers.process import ProcessSpec, ServerProcess
from millrace.drivers.kafka.producer import WRITING
from millrace.drivers.kafka.reader import READING
from millrace.drivers.mysql.connection import translated
from millrace.errors import Fatal, MillraceError, Retryable
from millrace.home_folder import local_stack_folder
from millrace.jvm import java_program
from millrace.producer.publish.opening import Basis
from millrace.producer.publish.publisher import Publisher
from millrace.producer.relay.reader import RelayReader
from millrace.producer.relay.writer import RelayLog
from millrace.schemas.documents import Brokers, TopicAddress
from millrace.schemas.gtid import Flavour
from millrace.schemas.place import Coordinates
from tests.kit.binlog.builder import BinlogBuilder
from tests.kit.capture.converter import Conversion, FileReader
from tests.kit.publisher.model import (
    START,
    Entry,
    ModelCodec,
    ModelDriver,
    ModelPartition,
    ModelTopic,
    Outcome,
    batch_after,
    model_config,
)

# ---- relay, converter --------------------------------------------------------------------------


def test_coordinates_missing_from_the_relay_log_are_named(tmp_path: Path) -> None:
    """A purged file or a removed directory is Retryable: the next start fetches it."""
    relay = RelayLog.open(tmp_path, flavour=Flavour.MYSQL)
    relay.begin_subdir("server-a")
    wanted = Coordinates("server-a.000001", "mysql-bin.000007", 4)
    with RelayReader(relay) as reader, pytest.raises(Retryable) as caught:
        reader.read(wanted, bytes_max=100)
    relay.close()
    assert caught.value.code == "MR-2011"
    assert str(wanted) in caught.value.message


def _payload(content: bytes) -> bytes:
    """Return the body of an uncompressed TRANSACTION_PAYLOAD: method 255, the payload after the end mark."""
    return b"\x02\x03\xfc\xff\x00" + b"\x00" + content


def test_compressed_event_over_one_gibibyte_is_refused() -> None:
    """The header alone decides, before memory is allocated."""
    builder = BinlogBuilder()
    builder.gtid(1)
    header = bytes(9) + (2**31 - 1).to_bytes(4, "little") + bytes(6)
    at = builder.event(40, _payload(header))
    with pytest.raises(Fatal) as caught:
        Conversion(FileReader({"mysql-bin.000001": bytes(builder.content)})).records()
    assert caught.value.code == "MR-6512"
    assert caught.value.context["coordinates"].endswith(f"mysql-bin.000001:{at}")


# ---- Kafka ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "branch", "code"),
    [
        ("_INVALID_ARG", Fatal, "MR-3006"),
        ("UNSUPPORTED_VERSION", Fatal, "MR-3006"),
        ("UNKNOWN_TOPIC_OR_PART", Retryable, "MR-3007"),
    ],
)
def test_refused_setting_and_missing_topic_have_separate_codes(
    name: str, branch: type[MillraceError], code: str
) -> None:
    """The driver's error name decides; the message has the action that failed."""
    error = WRITING.error(name, "detail", doing="beginning")
    assert (type(error), error.code) == (branch, code)
    assert "beginning" in error.message


def _opened(topic: ModelTopic) -> Publisher:
    return Publisher.open_with(
        ModelDriver(topic),
        model_config(),
        codec=ModelCodec(7),
        verify_lease=lambda: None,
        basis=Basis(START),
    )


def test_records_without_a_mark_give_no_resume_position() -> None:
    """Rows alone at the end of a topic do not show what comes before them."""
    row = batch_after(START, 1).buffer.tobytes()
    with pytest.raises(Fatal) as caught:
        _opened(ModelTopic(exists=True, entries=[Entry(row, None)]))
    assert caught.value.code == "MR-3012"
    assert {"low", "end"} <= set(caught.value.context)


def test_row_not_following_the_last_mark_is_named_by_offset() -> None:
    """There is a gap in seq after the mark."""
    topic = ModelTopic()
    publisher = _opened(topic)
    publisher.publish(batch_after(publisher.progress, 3))
    later = batch_after(batch_after(publisher.progress, 3).progress, 1).buffer.tobytes()
    publisher.close()
    topic.entries.append(Entry(later, None))
    with pytest.raises(Fatal) as caught:
        _opened(topic)
    assert caught.value.code == "MR-3012"
    assert caught.value.context["offset"] == str(len(topic.entries) - 1)


def test_commits_that_cannot_be_read_back_end_the_publisher(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Commits that the audit cannot confirm in time, because a reader hangs, are not trusted."""
    topic, answered = ModelTopic(), threading.Event()
    publisher = _opened(topic)
    monkeypatch.setattr("millrace.producer.publish.publisher.VERDICT_S", 0.0)
    monkeypatch.setattr(ModelPartition, "next_record", lambda *_, **__: answered.wait(60) and None)
    publisher.publish(batch_after(publisher.progress, 3))
    with pytest.raises(Retryable) as caught:
        publisher.drain()
    answered.set()
    assert caught.value.code == "MR-3016"
    publisher.discard()


def test_vanished_committed_records_stop_the_task() -> None:
    """After an unclean election, the tail read after an unknown outcome is before the committed records."""
    topic = ModelTopic()
    publisher = _opened(topic)
    publisher.publish(batch_after(publisher.progress, 3))
    kept = len(topic.entries)
    publisher.publish(batch_after(publisher.progress, 3))
    publisher.drain()
    topic.outcomes = [Outcome.LOST_BEFORE]
    del topic.entries[kept:]
    with pytest.raises(Fatal) as caught:
        publisher.publish(batch_after(publisher.progress, 3))
    assert caught.value.code == "MR-3018"
    assert caught.value.context["committed_seq"] == "6"
    assert caught.value.context["seq"] == "3"


# ---- target --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("numbers", "branch", "code"),
    [
        ((2003, 2006, 2013, 1053, 4031), Retryable, "MR-5001"),
        ((1045, 1130, 1698), Fatal, "MR-5002"),
        ((1290, 1792, 1836), Retryable, "MR-5003"),
        ((1040, 1203, 1226), Retryable, "MR-5004"),
        ((1205, 1213, 3572), Retryable, "MR-5005"),
        ((1021, 1114), Retryable, "MR-5006"),
        ((1142, 1143, 1227), Fatal, "MR-5007"),
        ((1062, 1451, 1452), Fatal, "MR-5010"),
        ((1264, 1406, 3819, 60_000), Fatal, "MR-5011"),
        ((1049, 1146), Fatal, "MR-5012"),
        ((1054,), Fatal, "MR-5013"),
        ((1153,), Fatal, "MR-5014"),
    ],
)
def test_every_target_error_number_has_its_branch(
    numbers: tuple[int, ...], branch: type[MillraceError], code: str
) -> None:
    """The server's number decides and is in the context; unknown numbers stop the task."""
    for number in numbers:
        error = translated(pymysql.OperationalError(number, "its words"))
        assert (type(error), error.code) == (branch, code), number
        assert error.context["errno"] == str(number)
        assert error.message == "its words"


def test_broken_connection_means_unreachable_target() -> None:
    """The operating system's name for the error does not matter."""
    error = translated(ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"))
    assert (type(error), error.code) == (Retryable, "MR-5001")


# ---- Kafka ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "branch", "begins"),
    [
        (KafkaError._TRANSPORT, Retryable, "Check that a broker answers"),
        (KafkaError._ALL_BROKERS_DOWN, Retryable, "Check that a broker answers"),
        (KafkaError._UNKNOWN_TOPIC, Fatal, "Check the topic's name"),
    ],
)
def test_unreachable_broker_is_distinguished_from_a_wrong_topic_name(
    number: int, branch: type[MillraceError], begins: str
) -> None:
    """MR-3501 of a reader: the first thing to check depends on what answered."""
    with pytest.raises(branch) as caught:
        READING.call("asking for the topic", _raises(KafkaException(KafkaError(number))))
    assert caught.value.code == "MR-3501"
    assert caught.value.fix.startswith(begins)


def _raises(error: Exception) -> Callable[[], object]:
    def fail() -> object:
        raise error

    return fail


# ---- Spark ---------------------------------------------------------------------------------------


def test_spark_without_its_connector_names_the_missing_jar(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error comes before any Java process starts."""
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_LOCAL_IP"):
        monkeypatch.setenv(name, "")
    monkeypatch.setenv("MILLRACE_HOME", str(tmp_path))
    with pytest.raises(Fatal) as caught:
        SparkDriver(master="local[1]")
    assert caught.value.code == "MR-5051"
    assert str(tmp_path / "jars" / "spark") in caught.value.message


@pytest.mark.parametrize(
    ("version", "is_refused"), [("4.0.1", True), ("3.5.0", True), (pyspark.__version__, False)]
)
def test_connector_of_another_spark_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, is_refused: bool
) -> None:
    """An upgrade of PySpark can leave the old one in the home folder."""
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_LOCAL_IP"):
        monkeypatch.setenv(name, "")
    monkeypatch.setenv("MILLRACE_HOME", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", _fails("gateway exited"))
    connector = tmp_path / "jars" / "spark" / f"spark-sql-kafka-0-10_2.13-{version}.jar"
    connector.parent.mkdir(parents=True)
    connector.touch()
    with pytest.raises(Fatal) as caught:
        SparkDriver(master="local")
    assert caught.value.code == "MR-5051"
    assert (f"is of Spark {version}" in caught.value.message) == is_refused


@pytest.mark.parametrize(
    ("master", "is_blamed"),
    [
        ("bogus", True),
        ("local[many]", True),
        ("spark://", True),
        ("local", False),
        ("local[2]", False),
        ("local[*,4]", False),
        ("spark://a:7077,b:7077", False),
        ("yarn", False),
        ("k8s://https://a:443", False),
    ],
)
def test_invalid_spark_master_is_reported_with_the_valid_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, master: str, is_blamed: bool
) -> None:
    """Spark reports only that its gateway ended; its standard error has the reason, which is not the setup's."""
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_LOCAL_IP"):
        monkeypatch.setenv(name, "")
    monkeypatch.setenv("MILLRACE_HOME", str(tmp_path))
    connector = tmp_path / "jars" / "spark" / "connector.jar"
    connector.parent.mkdir(parents=True)
    connector.touch()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", _fails("gateway exited"))
    with pytest.raises(Fatal) as caught:
        SparkDriver(master=master)
    assert caught.value.code == "MR-5051"
    assert repr(master) in caught.value.message
    assert ("spark://HOST:PORT" in caught.value.fix) == is_blamed
    assert ("make setup" in caught.value.fix) != is_blamed


class _Anything:
    """An object whose attributes and calls return itself, except those named."""

    def __init__(self, **methods: Callable[..., object]) -> None:
        self._methods = methods

    def __getattr__(self, name: str) -> Any:
        return self._methods.get(name, lambda *_, **__: self)

    readStream = property(lambda self: self)  # noqa: N815 (Spark's)
    writeStream = property(lambda self: self)  # noqa: N815


def _fails(words: str) -> Callable[..., object]:
    def fail(*_: object, **__: object) -> object:
        raise PySparkException(words)

    return fail


def _query(tmp_path: Path, **methods: Callable[..., object]) -> TopicQuery:
    driver = SimpleNamespace(session=_Anything(**methods), scratch=lambda _task: tmp_path)
    address = TopicAddress(topic="shop", brokers=Brokers("127.0.0.1:1"))
    return TopicQuery(cast(SparkDriver, driver), "t", address, offset=0, process=lambda _: None)


def test_query_that_cannot_start_is_reported_as_unreadable_topic(tmp_path: Path) -> None:
    """Spark looks for the topic's partition when the query starts. The next try has a new checkpoint."""
    checkpoint = tmp_path / "checkpoint"
    checkpoint.mkdir()
    with pytest.raises(Retryable) as caught:
        _query(checkpoint, start=_fails("no broker"))
    assert caught.value.code == "MR-5052"
    assert not checkpoint.exists()


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (
            "Query terminated\nCaused by: org.apache.kafka.common.errors.TimeoutException: x",
            "MR-5052",
        ),
        (
            "Query terminated: Partition shop-0's offset was changed from 9 to 5, some data may",
            "MR-5052",
        ),
        (
            "Query terminated\nCaused by: org.apache.spark.SparkException: Python worker exited",
            "MR-5050",
        ),
    ],
)
def test_query_failures_of_kafka_and_spark_have_separate_codes(
    tmp_path: Path, words: str, code: str
) -> None:
    """The thing to check differs: broker and topic, or the driver's log."""
    running = _Anything(awaitTermination=_fails(words))
    query = _query(tmp_path, start=lambda: running)
    with pytest.raises(Retryable) as caught:
        query.wait(1.0)
    assert caught.value.code == code


# ---- installation --------------------------------------------------------------------------------


def test_missing_java_is_reported_with_the_install_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """JAVA_HOME names a missing folder."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(Fatal) as caught:
        java_program()
    assert caught.value.code == "MR-8002"
    assert "apt-get install" in caught.value.fix


def test_failed_download_reports_its_last_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program's output is all that is known."""
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho no route\nexit 3\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("MILLRACE_HOME", str(tmp_path / "home"))
    with pytest.raises(Fatal) as caught:
        fetch.fetch_connector()
    assert caught.value.code == "MR-8003"
    assert "no route" in caught.value.message


@pytest.mark.parametrize(
    "look",
    [programs.mariadb_programs, programs.kafka_classpath],
    ids=["MariaDB", "Kafka"],
)
def test_missing_download_is_named(
    look: Callable[[], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fix is `make setup`."""
    monkeypatch.setenv("MILLRACE_HOME", str(tmp_path))
    with pytest.raises(Fatal) as caught:
        look()
    assert caught.value.code == "MR-8005"
    assert "make setup" in caught.value.fix


def test_stack_without_its_keeper_blocks_a_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of its servers still runs, and no keeper would restart it."""
    monkeypatch.setenv("MILLRACE_HOME", str(tmp_path))
    folder = local_stack_folder()
    command = (sys.executable, "-c", "import time; time.sleep(600)")
    server = ServerProcess(ProcessSpec("mariadb", command, folder / "mariadb" / "log"))
    server.launch()
    addresses = ServiceAddresses(
        kafka="", zookeeper="", registry="", home="", relay_dir="", topic=""
    )
    StackDescription(
        source=(), targets=(), services=addresses, capture_tasks=(), apply_tasks=()
    ).write(folder)
    with pytest.raises(Fatal) as caught:
        start_background("local", StackOptions())
    assert caught.value.code == "MR-8006"
    assert server.is_alive()
    server.kill()


def test_running_stack_is_not_taken_for_a_secured_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`up --secure` refuses it; without --secure it is returned."""
    monkeypatch.setenv("MILLRACE_HOME", str(tmp_path))
    folder = local_stack_folder()
    command = (sys.executable, "-c", "import time; time.sleep(600)")
    keeper = ServerProcess(ProcessSpec(KEEPER, command, folder / KEEPER / "log"))
    keeper.launch()
    addresses = ServiceAddresses(
        kafka="", zookeeper="", registry="", home="", relay_dir="", topic=""
    )
    plain = StackDescription(
        source=(), targets=(), services=addresses, capture_tasks=(), apply_tasks=()
    )
    plain.write(folder)
    with pytest.raises(Fatal) as caught:
        start_background("local", StackOptions(is_secured=True))
    assert caught.value.code == "MR-8030"
    assert start_background("local", StackOptions()) == plain
    keeper.kill()


def test_secured_stack_without_openssl_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It makes the certificates."""
    monkeypatch.setenv("MILLRACE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Fatal, match="openssl") as caught:
        start_background("local", StackOptions(is_secured=True))
    assert caught.value.code == "MR-8002"
    assert "apt-get install openssl" in caught.value.fix
    assert not local_stack_folder().exists()
