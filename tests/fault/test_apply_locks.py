"""Apply waits for locks of other sessions on the target: it retries, reports a code, and loses and repeats no row."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from millrace.consumer.spark.session import SparkDriver
from millrace.consumer.write import target_transaction
from millrace.consumer.write.row_writer import RowWriter
from millrace.deploy.servers import DatabaseServer, KafkaServer
from millrace.drivers.mysql import connection as connections
from millrace.drivers.mysql.connection import LOCK_WAIT_S
from millrace.errors import Retryable
from tests.fixtures.spark import running
from tests.kit.apply.fault_tables import (
    assert_refused,
    check_rows,
    other_session,
    supervised,
    tables_on,
)
from tests.kit.apply.faults import Supervised
from tests.kit.apply.local import endpoint_of
from tests.kit.apply.tables import integer, table, text
from tests.kit.apply.topic import RecordStream, TopicWriter
from tests.kit.waiting import eventually, until_locked_out


@pytest.fixture
def name(target_server: DatabaseServer) -> Iterator[str]:
    """A database with the tables, and a task of this name."""
    with tables_on(target_server) as made:
        yield made


@contextmanager
def _in_thread(work: Callable[[], object]) -> Iterator[None]:
    """Run ``work`` in a thread during the block; its error is raised at the end."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as failure:  # noqa: BLE001 - raised again below
            failures.append(failure)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        thread.join(240)
        assert not thread.is_alive()
        if failures:
            raise failures[0]


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> list[RowWriter]:
    """Grows each time a target transaction begins again on its session."""
    seen: list[RowWriter] = []
    settle = RowWriter.settle

    def settle_seen(writer: RowWriter) -> None:
        settle(writer)
        seen.append(writer)

    monkeypatch.setattr(RowWriter, "settle", settle_seen)
    return seen


def test_deadlock_is_retried_at_once(
    name: str,
    target_server: DatabaseServer,
    settled: list[RowWriter],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Apply and another session wait for each other's rows; apply is the victim and loses no row."""
    monkeypatch.setattr(connections, "LOCK_WAIT_S", 600)  # only the deadlock ends a wait
    task = supervised(endpoint_of(target_server), name, is_large=False)
    with other_session(target_server, name) as other:
        heavy = ", ".join(f"({number})" for number in range(-500, 0))
        other.query(
            f"INSERT INTO bag VALUES {heavy}"
        )  # the victim is the session with fewer writes
        other.query("INSERT INTO b VALUES (5, 0, '')")
        with _in_thread(task.run_once):
            until_locked_out(target_server, what="apply waits for a row of b")
            other.query("INSERT INTO a VALUES (5, 0, '')")
            eventually(lambda: len(settled) == 1, what="apply is the victim")
            other.rollback()
    assert task.codes == []
    assert task.tally.of(name).retries == {"1213": 1}
    check_rows(target_server, name)


def test_long_row_lock_is_reported_and_retried(
    name: str,
    target_server: DatabaseServer,
    settled: list[RowWriter],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Apply retries a few times on the same session, reports MR-5005, and continues when the lock is released."""
    monkeypatch.setattr(connections, "LOCK_WAIT_S", 1)
    monkeypatch.setattr(target_transaction, "LOCK_TRIES_MAX", 2)
    task = supervised(endpoint_of(target_server), name)
    with other_session(target_server, name) as other:
        other.query("INSERT INTO b VALUES (5, 0, '')")
        assert_refused(task, Retryable, "MR-5005")
        assert len(settled) == 2
        assert task.tally.of(name).retries == {"1205": 2}
        other.rollback()
    task.run()
    check_rows(target_server, name)


@pytest.mark.usefixtures("target_password")
def test_stop_does_not_wait_for_a_locked_row(
    name: str, target_server: DatabaseServer, spark: SparkDriver, kafka: KafkaServer
) -> None:
    """Spark kills the Python worker whose turn waits; the target rolls back, and no row is lost or repeated."""
    stream = RecordStream()
    writer = TopicWriter(kafka.bootstrap, stream)
    made = table(name, "bag", integer("n"), key=())
    keyed = table(name, "b", integer("id"), integer("n"), text("note"))
    stream.insert(made, {"n": 1})
    stream.commit()
    writer.publish()
    with other_session(target_server, name) as other:
        with running(spark, target_server, writer, name=name) as task:
            task.wait_until_at(stream.seq)
            other.query("INSERT INTO b VALUES (6, 0, '')")
            stream.insert(made, {"n": 2})
            stream.insert(keyed, {"id": 6, "n": 0, "note": ""})
            stream.commit()
            writer.publish()
            until_locked_out(target_server, what="apply waits for a row")
            began_s = time.monotonic()
        waits_s = LOCK_WAIT_S * target_transaction.LOCK_TRIES_MAX  # of a turn that is not killed
        assert time.monotonic() - began_s < waits_s / 2, "the stop waits for the row"
        other.rollback()
    with running(spark, target_server, writer, name=name) as task:
        task.wait_until_at(stream.seq)
    assert target_server.execute("SELECT n FROM bag ORDER BY n", db=name) == [(1,), (2,)]
    assert target_server.execute("SELECT id FROM b", db=name) == [(6,)]


@pytest.mark.parametrize(
    "lock", ["LOCK TABLES b READ", "FLUSH TABLES WITH READ LOCK"], ids=["table", "backup"]
)
def test_locked_table_or_server_is_reported_and_retried(
    name: str, target_server: DatabaseServer, monkeypatch: pytest.MonkeyPatch, lock: str
) -> None:
    """The server's default wait is a day or a year; apply sets the same limit as for row locks."""
    monkeypatch.setattr(connections, "LOCK_WAIT_S", 1)
    monkeypatch.setattr(target_transaction, "LOCK_TRIES_MAX", 2)
    task = supervised(endpoint_of(target_server), name)
    Supervised(task.endpoint, task.task, RecordStream()).run()  # creates Millrace's tables
    with other_session(target_server, name) as other:
        other.query(lock)
        assert_refused(task, Retryable, "MR-5005")
    task.run()
    check_rows(target_server, name)
