"""Apply's progress on real targets: gaps, stale owners, starts and restarts."""

import threading
from dataclasses import replace

import pytest

from millrace.consumer.target.progress import Owner
from millrace.consumer.turn.context import Tools
from millrace.consumer.turn.driver import BatchApplier
from millrace.consumer.turn.order import TurnOrder
from millrace.consumer.write import target_transaction
from millrace.consumer.write.lanes import ThreadLanes
from millrace.consumer.write.target_transaction import BitmapClaim
from millrace.deploy.servers import DatabaseServer
from millrace.drivers.mysql.connection import MySqlSession
from millrace.errors import Fatal
from millrace.schemas.documents import Brokers, TopicAddress
from tests.kit.apply.local import (
    LocalRecords,
    apply_task,
    ignore,
    run_once,
    seqs_above_the_mark,
    started,
)
from tests.kit.apply.tables import ACCOUNTS_SQL, account, accounts
from tests.kit.apply.topic import UUID, RecordStream


def test_seq_gap_before_a_statement_blocks_the_task(
    name: str, target_server: DatabaseServer
) -> None:
    """A DDL statement has its own seq and never executes after missing rows."""
    target_server.execute(ACCOUNTS_SQL, db=name)
    stream = RecordStream()
    stream.insert(accounts(name), account(1))
    stream.ddl("DROP TABLE accounts", database=name)
    applier = started(target_server, apply_task(name))
    with pytest.raises(Fatal) as caught:
        applier.process(LocalRecords([stream.values[0], *stream.values[2:]]), ignore)
    applier.close()
    assert caught.value.code == "MR-5031"
    assert target_server.execute("SHOW TABLES LIKE 'accounts'", db=name)


def test_statement_past_another_topics_mark_blocks_the_task(
    name: str, target_server: DatabaseServer
) -> None:
    """It is neither executed nor skipped as a replay."""
    target_server.execute(ACCOUNTS_SQL, db=name)
    stream = RecordStream()
    for number in range(3):
        stream.insert(accounts(name), account(number))
    stream.commit()
    mark = run_once(target_server, apply_task(name), stream).mark
    other = RecordStream(seq=1)
    other.ddl("DROP TABLE accounts", database=name)
    applier = started(target_server, apply_task(name))
    with pytest.raises(Fatal) as caught:
        applier.process(LocalRecords(other.values, mark.next_offset), ignore)
    applier.close()
    assert (caught.value.code, applier.mark) == ("MR-5035", mark)
    assert target_server.execute("SHOW TABLES LIKE 'accounts'", db=name)


def test_seq_gap_in_the_topic_blocks_the_task(name: str, target_server: DatabaseServer) -> None:
    """seq has no gaps: a missing record at the start or in the middle blocks the task."""
    target_server.execute(ACCOUNTS_SQL, db=name)
    stream = RecordStream()
    for number in range(10):
        stream.insert(accounts(name), account(number))
    stream.commit()
    rows = [number for number, value in enumerate(stream.values) if value[5] in (0, 2)]
    for missing, code in ((rows[0], "MR-5031"), (rows[5], "MR-5030")):
        values = stream.values[:missing] + stream.values[missing + 1 :]
        applier = started(target_server, apply_task(name))
        with pytest.raises(Fatal) as caught:
            applier.process(LocalRecords(values), ignore)
        applier.close()
        assert caught.value.code == code


def test_records_of_a_stale_capture_owner_block_the_task(
    name: str, target_server: DatabaseServer
) -> None:
    """The epoch in a topic never decreases."""
    target_server.execute(ACCOUNTS_SQL, db=name)
    stream = RecordStream(epoch=5)
    stream.insert(accounts(name), account(1))
    stream.commit()
    stream.epoch = 4
    stream.commit()
    with pytest.raises(Fatal) as caught:
        run_once(target_server, apply_task(name), stream)
    assert caught.value.code == "MR-5034"


def test_rows_before_the_start_are_skipped(name: str, target_server: DatabaseServer) -> None:
    """A task that starts at a GTID set applies the rows and statements after it and none before it."""
    target_server.execute(ACCOUNTS_SQL, db=name)
    made, stream = accounts(name), RecordStream()
    stream.fence()
    stream.ddl("DROP TABLE accounts", database=name)
    for number in range(2, 6):
        stream.insert(made, account(number))
        stream.commit()
    applier = run_once(target_server, apply_task(name, start=f"{UUID}:1-3"), stream)
    assert applier.figures.counts.left_out == 0  # the table of that name has none
    rows = target_server.execute(f"SELECT id FROM {name}.accounts ORDER BY id")
    assert rows == [(4,), (5,)]


def test_progress_of_another_topic_names_the_way_back(
    name: str, target_server: DatabaseServer
) -> None:
    """A document with another topic is no damage of the database `millrace`."""
    task = apply_task(name)
    started(target_server, task).close()
    with pytest.raises(Fatal) as caught:
        started(
            target_server, replace(task, source=TopicAddress(topic="other", brokers=Brokers("")))
        )
    assert caught.value.code == "MR-5022"
    assert caught.value.fix.startswith("Set `topic` back to local ")


def test_status_warns_until_the_topic_reaches_the_start(
    name: str, target_server: DatabaseServer
) -> None:
    """Rows are skipped without a trace: of a load that is ahead of the topic, or of a start ahead of the source."""
    target_server.execute(ACCOUNTS_SQL, db=name)
    made, stream, task = accounts(name), RecordStream(), apply_task(name, start=f"{UUID}:1-3")
    stream.fence()
    for number in (1, 2):
        stream.insert(made, account(number))
        stream.commit()
    applier = started(target_server, task)
    assert applier.warning() is None
    applier.process(LocalRecords(stream.values), ignore)
    warning = applier.warning()
    assert warning is not None
    assert warning.code == "MR-5038"
    assert warning.message.endswith(f"start {UUID}:1-3; it does not have {UUID}:3 yet")
    applier.close()
    again = started(target_server, task)
    warning = again.warning()
    assert warning is not None
    assert warning.message.endswith(f"start {UUID}:1-3")
    for number in (3, 4):
        stream.insert(made, account(number))
        stream.commit()
    again.process(LocalRecords(stream.values), ignore)
    assert again.warning() is None
    again.close()
    assert target_server.execute(f"SELECT id FROM {name}.accounts") == [(4,)]


def test_restart_knows_schemas_from_before_the_mark(
    name: str, target_server: DatabaseServer
) -> None:
    """A restart past the schema record needs neither the topic's beginning nor a registry."""
    target_server.execute(ACCOUNTS_SQL, db=name)
    made, stream = accounts(name), RecordStream()
    stream.insert(made, account(1))
    stream.commit()
    for is_large in (True, False):
        first = len(stream.values)
        run_once(target_server, apply_task(name), stream, is_large=is_large)
        stream.insert(made, account(stream.seq + 1))
        stream.commit()
        applier = started(target_server, apply_task(name))
        applier.process(LocalRecords(stream.values[first:], first, is_large=is_large), ignore)
        applier.close()
    assert target_server.execute(f"SELECT COUNT(*) FROM {name}.accounts") == [(3,)]


def test_resolved_records_advance_the_mark_without_rows(
    name: str, target_server: DatabaseServer
) -> None:
    """The applied GTID set follows source transactions without rows."""
    stream = RecordStream()
    for _ in range(3):
        stream.commit()
    applier: BatchApplier = run_once(target_server, apply_task(name), stream)
    assert applier.mark.gtid_set == f"{UUID}:1-3"
    assert started(target_server, apply_task(name)).mark == applier.mark


class _InThreads(LocalRecords):
    """With lanes as threads."""

    def tools(self, order: TurnOrder) -> Tools:
        """See ``LocalRecords``."""
        return replace(super().tools(order), lanes=ThreadLanes())


def test_mark_moves_while_a_later_window_is_uncommitted(
    name: str, target_server: DatabaseServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part of window 3 commits only after the mark has passed window 2; no bitmap is left at the end."""
    target_server.execute(ACCOUNTS_SQL, db=name)
    stream = RecordStream()
    for number in range(5):  # the schema and one row, two rows, two rows
        stream.insert(accounts(name), account(number))
    stream.commit()
    inserted, moved = threading.Event(), threading.Event()
    make = BitmapClaim.make

    def make_and_wait(claim: BitmapClaim, connection: MySqlSession, owner: Owner) -> None:
        make(claim, connection, owner)
        if (claim.flight, claim.lane) == (2, 1):
            assert inserted.wait(120)
        elif (claim.flight, claim.lane) == (3, 0):
            inserted.set()
            assert moved.wait(120)

    def note(point: str) -> None:
        if point == target_transaction.AFTER_MARK and inserted.is_set():
            moved.set()

    monkeypatch.setattr(BitmapClaim, "make", make_and_wait)
    monkeypatch.setattr(target_transaction, "fault_point", note)
    applier = started(target_server, apply_task(name, lanes=2))
    applier.process(_InThreads(stream.values, window_rows=2), ignore)
    applier.close()
    assert applier.mark.seq == stream.seq
    assert len(seqs_above_the_mark(target_server, name)) == 0
    assert target_server.execute("SELECT COUNT(*) FROM accounts", db=name) == [(5,)]
