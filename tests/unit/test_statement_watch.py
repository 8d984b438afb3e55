"""Looks at a running statement from a second session: listed, ended, refused, silent, or another server."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest

from millrace.consumer.target import running_statement
from millrace.consumer.target.running_statement import (
    LIST_SQL,
    SECONDS_SQL,
    STAGES_SQL,
    RunningStatement,
    StatementWatch,
    await_statement,
    find_statement,
    progress_of_stages,
    watched,
)
from millrace.drivers.mysql.connection import Endpoint
from millrace.errors import Fatal, Retryable
from millrace.schemas.gtid import Flavour
from tests.kit.waiting import PATIENCE_S

RUNNING = RunningStatement("t1:3306", 7, "ALTER TABLE t ADD INDEX (v)", "altering table", 90)
SILENT, FULL = Retryable("MR-5001", "no answer"), Retryable("MR-5004", "too many connections")


class _Session:
    """A session of the target; ``locks``: the holder of the task's lock."""

    def __init__(self, server: str = "a", holder: int | None = None) -> None:
        self.server = server
        self.endpoint = Endpoint("t1", 3306, "", "")
        self.id = 1
        self.holder = holder
        self.asked: list[str] = []
        self.was_cut = threading.Event()

    def query(self, sql: str, _: object = None) -> list[tuple[object, ...]]:
        self.asked.append(sql)
        return [(self.holder if "IS_USED_LOCK" in sql else 1,)]

    @contextmanager
    def without_limit(self) -> Iterator[None]:
        yield

    def cut(self) -> None:
        self.was_cut.set()

    def commit(self) -> None:
        """Nothing is kept."""

    def close(self) -> None:
        """Nothing is kept."""


def _answers(
    monkeypatch: pytest.MonkeyPatch,
    *answers: RunningStatement | Retryable | None,
    server: str = "a",
) -> None:
    """The looks find these in turn, the last one again and again."""
    left = list(answers)

    def find(*_: object) -> RunningStatement | None:
        answer = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(answer, Retryable):
            raise answer
        return answer

    monkeypatch.setattr(running_statement, "find_statement", find)
    monkeypatch.setattr(running_statement, "connect", lambda *_, **__: _Session(server))
    monkeypatch.setattr(running_statement, "LOOK_S", 0.001)


def _watch() -> StatementWatch:
    return StatementWatch(Endpoint("t1", 3306, "", ""), "task", server="a")


def test_silent_server_is_lost_after_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before that, and after a refusal, the statement counts as running."""
    clock = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    _answers(monkeypatch, RUNNING, SILENT, FULL, SILENT, SILENT)
    watch = _watch()
    assert watch.look().statement == RUNNING
    for clock[0] in (50.0, 59.0, 118.0):
        look = watch.look()
        assert (look.statement, look.is_answered, look.has_ended) == (RUNNING, False, False)
    clock[0] = 119.0
    with pytest.raises(Retryable, match="did not answer for 60 s during a statement"):
        watch.look()


def test_another_server_at_the_address_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A promoted member does not list the statement, which proves nothing."""
    _answers(monkeypatch, None, server="b")
    assert not _watch().look().has_ended


def test_next_owner_ends_only_an_idle_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """No KILL while the statement is listed; then the session that still has the lock is ended."""
    session = _Session(holder=7)
    _answers(monkeypatch, RUNNING, RUNNING, SILENT, RUNNING, None)
    kills_at: list[int] = []

    def waiting(running: RunningStatement | None) -> bool:
        assert running == RUNNING
        kills_at.append(sum(sql.startswith("KILL") for sql in session.asked))
        return True

    assert await_statement(cast(Any, session), "task", waiting)
    assert kills_at == [0, 0, 0]
    assert "KILL 7" in session.asked


def test_start_without_a_running_statement_needs_one_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The target may have no other free connection, and a start would wait for one without a limit."""
    session = _Session(holder=7)
    _answers(monkeypatch, None)
    monkeypatch.setattr(running_statement, "connect", None)
    assert await_statement(cast(Any, session), "task")
    assert "KILL 7" in session.asked


def test_stopped_wait_leaves_the_statement_running(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither KILL nor the lock."""
    session = _Session(holder=7)
    _answers(monkeypatch, RUNNING)
    assert not await_statement(cast(Any, session), "task", lambda _: False)
    assert session.asked == []


@pytest.mark.parametrize(
    ("answer", "is_over", "code"),
    [(None, False, "MR-5001"), (SILENT, False, "MR-5001"), (RUNNING, True, "MR-5050")],
)
def test_session_is_cut_if_no_answer_will_come(
    monkeypatch: pytest.MonkeyPatch,
    answer: RunningStatement | Retryable | None,
    is_over: bool,
    code: str,
) -> None:
    """The statement is not listed any more, the server is silent, or no process waits for the outcome."""
    monkeypatch.setattr(running_statement, "LOST_S", 0.0)
    _answers(monkeypatch, answer)
    session = _Session()

    def execute() -> None:
        assert session.was_cut.wait(PATIENCE_S)
        raise Retryable("MR-5001", "the connection broke")

    with (
        pytest.raises(Retryable) as caught,
        watched(cast(Any, session), "task", is_over=lambda: is_over),
    ):
        execute()
    assert caught.value.code == code
    assert caught.value.message != "the connection broke"


def test_listed_statement_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """However often it is looked at, and if a look is refused."""
    looks: list[object] = []

    def find(*_: object) -> RunningStatement:
        looks.append(None)
        if len(looks) == 9:
            raise Fatal("MR-5002", "the password was changed")
        return RUNNING

    _answers(monkeypatch, RUNNING)
    monkeypatch.setattr(running_statement, "find_statement", find)
    session = _Session()

    def execute() -> None:
        while len(looks) < 50:
            assert not session.was_cut.is_set()

    with watched(cast(Any, session), "task", is_over=bool):
        execute()
    assert not session.was_cut.is_set()


def test_progress_of_mariadb_is_shown_while_it_has_stages() -> None:
    """It reports 0 stages otherwise."""
    assert progress_of_stages(1, 4, "36.500") == "stage 1 of 4, 36.5 %"
    assert progress_of_stages(0, 0, "0.000") == ""


@pytest.mark.parametrize(
    ("stages", "shown"), [([(250, 1000)], "25.0 %"), ([], ""), (Fatal("MR-5007", "denied"), "")]
)
def test_progress_of_mysql_is_read_from_its_stages(
    stages: list[tuple[int, int]] | Fatal, shown: str
) -> None:
    """It reports none if the consumer is off, or if the account may not read it."""

    class _MySql(_Session):
        flavour = Flavour.MYSQL

        def query(self, sql: str, arguments: object = None) -> list[tuple[object, ...]]:
            if sql == LIST_SQL:
                return [(7, "u", "h", "d", "Query", 90, "altering table", "ALTER TABLE t")]
            if sql == STAGES_SQL:
                assert arguments == (7,)
                if isinstance(stages, Fatal):
                    raise stages
                return list(stages)
            if sql == SECONDS_SQL:
                return [(5,)]
            return super().query(sql)

        def rollback(self) -> None:
            """Nothing is kept."""

    found = find_statement(cast(Any, _MySql(holder=7)), "task")
    assert found is not None
    assert found.progress == shown
    assert found.running_s == 5  # not 90, which are counted from the source's timestamp


def test_only_a_sleeping_session_executes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """MariaDB lists a session without its text while another thread uses it, and MySQL a killed one."""
    monkeypatch.setattr(running_statement, "TEXT_PAUSE_S", 0.0)
    rows: list[tuple[object, ...]] = []

    class _Listing(_Session):
        flavour = Flavour.MARIADB

        def query(self, sql: str, _: object = None) -> list[tuple[object, ...]]:
            return [(7,)] if "IS_USED_LOCK" in sql else rows

        def rollback(self) -> None:
            """Nothing is kept."""

    session = cast(Any, _Listing())
    for command, text, is_running in (
        ("Query", "ALTER TABLE t FORCE", True),
        ("Query", None, True),
        ("Killed", None, True),
        ("Sleep", None, False),
        ("Sleep", "ALTER TABLE t FORCE", False),
    ):
        rows[:] = [(command, 90, "Busy", text, 0, 0, 0)]
        found = running_statement.find_statement(session, "task")
        assert (found is not None) is is_running
        assert found is None or found.text == (text or "")


def test_session_without_text_is_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """MariaDB lists it so for a moment, and a status would show no statement."""
    monkeypatch.setattr(running_statement, "TEXT_PAUSE_S", 0.0)
    texts = [None, "", "ALTER TABLE t FORCE"]

    class _Listing(_Session):
        flavour = Flavour.MARIADB

        def query(self, sql: str, _: object = None) -> list[tuple[object, ...]]:
            is_lock = "IS_USED_LOCK" in sql
            return [(7,)] if is_lock else [("Query", 3, "", texts.pop(0), 0, 0, 0)]

        def rollback(self) -> None:
            """Nothing is kept."""

    found = find_statement(cast(Any, _Listing()), "task")
    assert found is not None
    assert found.shown() == "session 7 on t1:3306 executes ALTER TABLE t FORCE (for 3 s)"
