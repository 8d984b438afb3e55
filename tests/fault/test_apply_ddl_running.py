"""A statement that runs for long on the target is waited for, by each owner, until it ends or an operator ends it.

A transaction of the test that has read the table lets the ALTER wait for its metadata lock, as a long copy would.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

import pytest

from millrace.consumer.target import fence, running_statement
from millrace.consumer.target.intents import decide_intent
from millrace.consumer.target.running_statement import (
    RunningStatement,
    end_statement,
    find_statement,
)
from millrace.consumer.task.start import owner_of
from millrace.deploy.servers import DatabaseServer, ServerOptions, sql
from millrace.drivers.mysql import connection
from millrace.drivers.mysql.connection import MySqlSession, connect
from millrace.errors import Fatal, MillraceError
from tests.fixtures.servers import NewServer
from tests.kit.apply.faults import BadLine, Supervised
from tests.kit.apply.local import apply_task, endpoint_of
from tests.kit.apply.topic import RecordStream
from tests.kit.waiting import PATIENCE_S, eventually

pytestmark = pytest.mark.both_flavours

ALTER = "ALTER TABLE t ADD INDEX (v)"
STAGES = (
    "--performance-schema=ON",
    "--performance-schema-consumer-events-stages-current=ON",
    "--performance-schema-instrument=stage/%=ON",
)
_names = count(1)


class _Scene:
    """A table whose ALTER waits until ``release``, and a run that has begun it in a thread."""

    def __init__(self, server: DatabaseServer, line: BadLine) -> None:
        self.server = server
        self.name = f"running{next(_names)}"
        server.execute(f"CREATE DATABASE {self.name}")
        server.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT)", db=self.name)
        stream = RecordStream()
        stream.ddl(ALTER, database=self.name)
        self.line = line
        self.task = Supervised(line.endpoint, apply_task(self.name), stream)
        self.direct = Supervised(endpoint_of(server), apply_task(self.name), stream)
        self.session: MySqlSession = connect(endpoint_of(server))
        self.errors: list[MillraceError] = []
        self._holder = sql.open_root(server.socket)
        cursor = self._holder.cursor()
        cursor.execute("BEGIN")
        cursor.execute(f"SELECT * FROM {self.name}.t")
        self.thread = threading.Thread(target=self._run)
        self.thread.start()
        eventually(self._alters)

    def _run(self) -> None:
        try:
            self.task.run_once()
        except MillraceError as exc:
            self.errors.append(exc)

    def _alters(self) -> bool:
        """Not before: the lock's holder executes others first, and after those a raised fence refuses the ALTER."""
        running = self.running()
        return running is not None and ALTER in running.text

    def running(self) -> RunningStatement | None:
        """The statement that the server lists."""
        return find_statement(self.session, self.name)

    def release(self) -> None:
        """Let the ALTER continue."""
        if self._holder.open:
            self._holder.close()

    def ended(self) -> list[str]:
        """Wait for the run; the codes of its errors."""
        self.thread.join(PATIENCE_S)
        assert not self.thread.is_alive()
        return [error.code for error in self.errors]

    def index_count(self) -> int:
        """How often the ALTER was executed."""
        found = self.server.execute("SHOW INDEX FROM t WHERE Column_name = 'v'", db=self.name)
        return len(found)

    def close(self) -> None:
        """End everything."""
        self.release()
        self.session.close()
        self.thread.join(PATIENCE_S)
        self.server.execute(f"DROP DATABASE {self.name}")


@contextmanager
def _scene(server: DatabaseServer) -> Iterator[_Scene]:
    with BadLine(server) as line:
        made = _Scene(server, line)
        try:
            yield made
        finally:
            made.close()


@pytest.mark.guarantee("ddl")
def test_statement_outlives_the_limit_of_other_answers(
    target_server: DatabaseServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session waits an hour for other answers, here a second."""
    monkeypatch.setattr(connection, "READ_S", 1.0)
    monkeypatch.setattr(running_statement, "LOOK_S", 0.1)
    with _scene(target_server) as scene:
        begun_s = time.monotonic()
        eventually(lambda: scene.running() is not None and time.monotonic() - begun_s >= 2)
        scene.release()
        assert scene.ended() == []
        assert scene.index_count() == 1


@pytest.mark.guarantee("ddl")
def test_next_owner_waits_for_a_running_statement(target_server: DatabaseServer) -> None:
    """The first owner's connection ends. The statement runs on, is shown, and is not executed again."""
    with _scene(target_server) as scene:
        scene.line.cut()
        assert scene.ended() == ["MR-5001"]
        shown: list[RunningStatement | None] = []

        def stop(running: RunningStatement | None) -> bool:
            shown.append(running)
            return False

        def wait(running: RunningStatement | None) -> bool:
            shown.append(running)
            scene.release()
            return True

        task = scene.task.task
        assert owner_of(scene.session, task, epoch=1, waiting=stop) is None
        assert owner_of(scene.session, task, epoch=1, waiting=wait) is not None
        for running in shown:
            assert running is not None
            assert ALTER in running.shown()
        assert scene.index_count() == 1
        scene.direct.run()
        assert scene.index_count() == 1


def test_operator_ends_a_running_statement(target_server: DatabaseServer) -> None:
    """The next run does not execute it, but blocks, until an operator decides; a decision counts once."""
    with _scene(target_server) as scene:
        running = scene.running()
        assert running is not None
        decide_intent(scene.session, scene.name, seq=1, decision="ended")
        end_statement(scene.session, running)
        assert scene.ended() == ["MR-5001"]
        with pytest.raises(Fatal, match="an operator has ended ALTER TABLE") as caught:
            scene.direct.run()
        assert caught.value.code == "MR-5040"
        scene.release()
        assert scene.index_count() == 0
        decide_intent(scene.session, scene.name, seq=1, decision="execute")
        scene.direct.run()
        assert scene.index_count() == 1


def test_hung_lane_does_not_end_a_running_statement(
    target_server: DatabaseServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that waits for the fence ends sessions of earlier runs, but not the one that executes a statement."""
    monkeypatch.setattr(fence, "HUNG_S", 0.2)
    with _scene(target_server) as scene:
        lane = sql.open_root(target_server.socket)
        lane.cursor().execute("BEGIN")
        lane.cursor().execute(
            "SELECT * FROM millrace.fence WHERE task = %s FOR UPDATE", (scene.name,)
        )
        ended = threading.Event()
        monkeypatch.setattr(fence, "end_holders", _noting(ended))
        session = connect(endpoint_of(target_server))
        raising = threading.Thread(
            target=lambda: fence.raise_fence(session, task=scene.name, epoch=1)
        )
        raising.start()
        assert ended.wait(PATIENCE_S)
        lane.close()
        raising.join(PATIENCE_S)
        session.close()
        assert scene.running() is not None


def _noting(ended: threading.Event) -> object:
    end_holders = fence.end_holders

    def noted(*given: object, **named: object) -> None:
        end_holders(*given, **named)  # type: ignore[arg-type]
        ended.set()

    return noted


def test_frozen_server_is_lost_during_a_statement(
    new_server: NewServer, target_server: DatabaseServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its system still acknowledges packets, so only the looks find out. The next run finds the statement again."""
    for name, value in (("LOOK_S", 0.1), ("ANSWER_S", 0.5), ("LOST_S", 1.0)):
        monkeypatch.setattr(running_statement, name, value)
    server = new_server(target_server.flavour)
    with _scene(server) as scene:
        server.pause()
        try:
            assert scene.ended() == ["MR-5001"]
        finally:
            server.resume()
        assert "did not answer for 1 s" in scene.errors[0].message
        scene.release()
        scene.direct.run()
        assert scene.index_count() == 1


def test_lost_answer_of_a_statement_is_noticed(
    target_server: DatabaseServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server does not list the statement any more, and its session gets no answer."""
    monkeypatch.setattr(running_statement, "LOOK_S", 0.1)
    monkeypatch.setattr(running_statement, "find_statement", lambda *_: None)
    with _scene(target_server) as scene:
        assert scene.ended() == ["MR-5001"]
        assert scene.errors[0].message == "the answer to a statement was lost"
        monkeypatch.undo()
        scene.release()
        scene.direct.run()
        assert scene.index_count() == 1


def test_progress_of_a_mysql_statement_is_shown(
    new_server: NewServer, mysql_server: DatabaseServer
) -> None:
    """One of two rows is copied; the other waits for the lock of its parent."""
    server = new_server(mysql_server.flavour, options=ServerOptions(extra=STAGES))
    for text in (
        "CREATE DATABASE d",
        "CREATE TABLE d.parent (id INT PRIMARY KEY)",
        "CREATE TABLE d.t (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES d.parent (id))",
        "INSERT INTO d.parent VALUES (1), (2)",
        "INSERT INTO d.t VALUES (1, 1), (2, 2)",
    ):
        server.execute(text)
    executing, looking = connect(endpoint_of(server)), connect(endpoint_of(server))
    running_statement.lock(executing, "task")
    executing.query("SET SESSION timestamp = 1700000000")  # the process list counts from it
    with sql.root_connection(server.socket) as holder:
        holder.cursor().execute("BEGIN")
        holder.cursor().execute("SELECT * FROM d.parent WHERE id = 2 FOR UPDATE")
        copy = "ALTER TABLE d.t ENGINE = InnoDB, ALGORITHM = COPY"
        thread = threading.Thread(target=executing.query, args=(copy,))
        thread.start()

        def progress() -> str:
            found = find_statement(looking, "task")
            return found.progress if found is not None else ""

        eventually(lambda: progress() == "50.0 %")
        found = find_statement(looking, "task")
        assert found is not None
        assert found.running_s is not None
        assert found.running_s < 1000
        holder.rollback()
        thread.join(PATIENCE_S)
    assert progress() == ""
    executing.close()
    looking.close()
