"""`millrace unsafe follow-topic` dies by SIGKILL at each of its fault points: the target has the decision or not."""

import pytest

from millrace.consumer.target.progress import Mark, read_mark
from millrace.consumer.task import follow_topic
from millrace.consumer.task.follow_topic import NewTopic, follow_decided
from millrace.consumer.topic.adoption import Beginning, continuation
from millrace.deploy.servers import DatabaseServer
from millrace.drivers.mysql.connection import connect
from millrace.errors import Fenced, Retryable
from millrace.schemas.gtid import Flavour, parse_gtid_set
from millrace.schemas.progress import Progress
from millrace.schemas.record.gap import Gap
from tests.kit.apply.local import LocalRecords, apply_task, endpoint_of, ignore, started
from tests.kit.apply.tables import integer, table
from tests.kit.apply.topic import RecordStream
from tests.kit.forked import killed_at


def _new_topic(mark: Mark) -> NewTopic:
    """Adopted after transactions that the target does not have."""
    progress = Progress(parse_gtid_set(Flavour.MARIADB, "0-1-9"), None, 9)
    beginning = Beginning(progress, 2, Gap("d", "adopt-topic", "", "lost"), 5, 10, "-- the gap")
    found = continuation(mark, beginning, topic_id="new", has_bitmaps=False)
    return NewTopic(mark, beginning, found)


@pytest.mark.parametrize("point", [follow_topic.BEFORE_COMMIT, follow_topic.AFTER_COMMIT])
def test_killed_decision_moves_the_mark_with_its_record_or_not(
    mariadb_server: DatabaseServer, point: str
) -> None:
    """A run that has read its progress before writes nothing after the decision."""
    name = f"follow_{point.rpartition('.')[2]}"
    mariadb_server.execute(f"CREATE DATABASE {name}")
    mariadb_server.execute("CREATE TABLE t (id INT PRIMARY KEY)", db=name)
    stream = RecordStream(flavour=Flavour.MARIADB)
    stream.insert(table(name, "t", integer("id")), {"id": 1})
    stream.commit()
    running = started(mariadb_server, apply_task(name))
    found = _new_topic(running.mark)

    def decide() -> None:
        session = connect(endpoint_of(mariadb_server))
        follow_decided(session, name, found, text="-- decided")
        session.close()

    killed_at(f"{point}:kill", decide)
    session = connect(endpoint_of(mariadb_server))
    is_done = point == follow_topic.AFTER_COMMIT
    (mark, _), after = read_mark(session, name) or (Mark(0, 0), 0), found.continuation.after
    assert mark == (after if is_done else running.mark)
    audit = "SELECT sql_text FROM millrace.left_out WHERE task = %s"
    assert len(session.query(audit, (name,))) == is_done
    session.rollback()
    if is_done:
        with pytest.raises(Retryable, match="MR-5021"):
            decide()
    else:
        decide()
    with pytest.raises(Fenced, match="MR-5020"):
        running.process(LocalRecords(stream.values), ignore)
    running.close()
    assert read_mark(session, name) == (after, 0)
    assert session.query(audit, (name,)) == [("-- the gap\n-- decided",)]
    session.close()
    assert mariadb_server.execute(f"SELECT * FROM {name}.t") == []
    mariadb_server.execute(f"DROP DATABASE {name}")
