"""A snapshot waits while the member that it reads is late or busy."""

from collections.abc import Iterator

import pytest

from millrace.deploy.servers import DatabaseServer
from millrace.producer.convert.table_filter import NameFilter
from millrace.producer.snapshot.chunk_read import ReadChunk
from millrace.producer.snapshot.insertion_plan import Answer
from millrace.producer.snapshot.reader import ChunkReader, SnapshotSource
from millrace.producer.snapshot.task import Throttle
from millrace.schemas.documents import SnapshotLimits, TableFilter
from tests.kit.capture.snapshot_rows import origin_of, request_for, session_on
from tests.kit.relay.relay import login_of, member_of
from tests.kit.waiting import eventually


@pytest.fixture
def source(mysql_server: DatabaseServer) -> Iterator[DatabaseServer]:
    """A server with a table of one row."""
    mysql_server.execute("CREATE DATABASE throttled")
    mysql_server.execute("CREATE TABLE throttled.t (id INT PRIMARY KEY)")
    mysql_server.execute("INSERT INTO throttled.t VALUES (1)")
    yield mysql_server
    mysql_server.execute("DROP DATABASE throttled")


def test_no_chunk_is_read_above_a_limit(source: DatabaseServer) -> None:
    """The reason names the limit; the same request is answered once the lag is below it."""
    lag_s: list[float | None] = [31.5]
    throttle = Throttle(SnapshotLimits(), lambda: lag_s[0])
    filter_: NameFilter = TableFilter()
    reading = SnapshotSource(
        origin_of(source), login_of(source), lambda: member_of(source), filter_, throttle.why_paused
    )
    with ChunkReader(reading) as reader:
        reader.ask(request_for(source, ("throttled", "t")))
        eventually(lambda: "max_lag_s is 30" in reader.paused, what="the pause")
        assert reader.take() is None
        lag_s[0] = None
        answers: list[Answer] = []

        def is_answered() -> bool:
            answers.extend(filter(None, [reader.take()]))
            return bool(answers)

        eventually(is_answered, what="the chunk")
        assert isinstance(answers[0].chunk, ReadChunk)
        assert (len(answers[0].chunk.rows), reader.paused) == (1, "")


def test_running_threads_of_the_member_are_counted(source: DatabaseServer) -> None:
    """The session that asks is one of them."""
    session = session_on(source)
    try:
        why = Throttle(SnapshotLimits(30.0, 0), lambda: 0.0).why_paused(session.connection)
        assert why.startswith("Threads_running of the member is ")
        assert why.endswith("max_threads_running is 0")
        idle = Throttle(SnapshotLimits(30.0, 10**5), lambda: 0.0)
        assert idle.why_paused(session.connection) == ""
    finally:
        session.connection.close()
