"""A driver dies by SIGKILL at the fault points of streams: each step is made once, wholly or not at all."""

import pytest

from millrace.consumer.load import request
from millrace.consumer.load.tables import Admission
from millrace.consumer.write import ddl
from millrace.deploy.servers import DatabaseServer
from millrace.drivers.mysql.connection import connect
from millrace.schemas.documents import TableFilter
from millrace.schemas.gtid import Flavour
from tests.kit.apply.live import (
    JOIN_STEPS,
    LiveTask,
    Source,
    kill_a_later_load,
    rows_on,
    rows_wanted,
)
from tests.kit.apply.loads import follows, ranged, waiting
from tests.kit.apply.local import apply_task, endpoint_of, run_once
from tests.kit.apply.tables import integer, table
from tests.kit.apply.topic import RecordStream
from tests.kit.forked import killed_at


@pytest.mark.parametrize("point", [ddl.BEFORE_ASIDE, ddl.AFTER_ASIDE])
def test_killed_driver_sets_a_statement_aside_once(
    target_server: DatabaseServer, name: str, point: str
) -> None:
    """Its table waits exactly if the mark is past it. The next run skips the table's later rows."""
    target_server.execute("CREATE TABLE t (id INT PRIMARY KEY)", db=name)
    stream = RecordStream(Flavour.MARIADB)
    stream.insert(table(name, "t", integer("id")), {"id": 1})
    stream.commit()
    stream.ddl("ALTER TABLE t ADD COLUMN n INT", database=name)
    stream.insert(table(name, "t", integer("id"), integer("n", nullable=True)), {"id": 2})
    stream.commit()
    follows(target_server, name, {(name, "t"): None})
    ranged(target_server, name, "", stream.gtid_set, Flavour.MARIADB)
    task = apply_task(name)
    killed_at(f"{point}:kill", lambda: run_once(target_server, task, stream))
    assert waiting(target_server, name) == (set() if point == ddl.BEFORE_ASIDE else {"t"})
    applier = run_once(target_server, task, stream)
    assert applier.mark.seq == stream.seq
    assert waiting(target_server, name) == {"t"}
    assert target_server.execute(f"SELECT * FROM {name}.t") == [(1,)]


@pytest.mark.parametrize("point", JOIN_STEPS)
@pytest.mark.guarantee("loaded")
def test_killed_driver_continues_a_later_load(
    target_server: DatabaseServer, name: str, point: str
) -> None:
    """The next run finds each step made or not made; the table without a key would show a row applied twice."""
    source = Source(name, RecordStream(Flavour.MARIADB))
    source.create(target_server, "t", "kept", "bag")
    source.transactions(20)
    live = LiveTask.of(target_server, source)
    live.run()
    kill_a_later_load(live, point)
    assert rows_on(target_server, source) == rows_wanted(source)
    assert waiting(target_server, name) == set()


@pytest.mark.parametrize("point", [request.BEFORE_COMMIT, request.AFTER_COMMIT])
def test_killed_request_lets_all_tables_wait_or_none(
    target_server: DatabaseServer, name: str, point: str
) -> None:
    """The command repeated does the rest."""
    source = Source(name, RecordStream(Flavour.MARIADB))
    source.create(target_server, "t", "bag")
    live = LiveTask.of(target_server, source)
    live.run()

    def ask() -> None:
        session = connect(endpoint_of(target_server))
        names = [f"{name}.t", f"{name}.bag"]
        known = request.read_known(session, session, Admission(TableFilter(), live.task.view))
        asked = request.prepare(session, live.task, names, known)
        request.store(session, name, asked, by="operator")
        session.close()

    killed_at(f"{point}:kill", ask)
    assert waiting(target_server, name) == (
        set() if point == request.BEFORE_COMMIT else {"t", "bag"}
    )
    ask()
    assert waiting(target_server, name) == {"t", "bag"}
