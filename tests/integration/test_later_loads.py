"""Tables are loaded live beside main, which continues: a side stream follows the copies and joins."""

from contextlib import closing
from dataclasses import replace

import pytest

from millrace.consumer.backfill import backfill
from millrace.consumer.backfill.new_tables import AFTER_GROWN, BEFORE_GROWN, note_filter
from millrace.consumer.target.fence import raise_fence
from millrace.consumer.target.intents import DONE, put_decision
from millrace.consumer.target.load_range import side_of
from millrace.consumer.target.loads import COPIES, set_waiting
from millrace.consumer.target.progress import DATABASE
from millrace.consumer.target.running_statement import lock
from millrace.deploy.servers import DatabaseServer
from millrace.drivers.mysql.connection import connect
from millrace.errors import Fatal, Fenced, Retryable
from millrace.schemas.documents import Consistency, LoadRules, TableFilter
from millrace.schemas.view.view import ALL_TABLES, view_of_filter
from tests.kit.apply.live import LiveTask, Source, rows_on, rows_wanted
from tests.kit.apply.loads import states, waiting
from tests.kit.apply.local import endpoint_of
from tests.kit.apply.topic import RecordStream
from tests.kit.forked import killed_at

LATER = [pytest.param(change, marks=pytest.mark.chaos) for change in ("truncate", "drop")]


@pytest.fixture
def live(name: str, target_server: DatabaseServer) -> LiveTask:
    """A task with some progress in three tables."""
    source = Source(name, RecordStream(target_server.flavour))
    source.create(target_server, "t", "kept", "bag")
    source.transactions(30)
    made = LiveTask.of(target_server, source)
    made.run()
    return made


def _assert_equal(live: LiveTask) -> None:
    assert rows_on(live.server, live.source) == rows_wanted(live.source)
    assert states(live.server, live.task.name) == {}


def test_table_is_loaded_live_while_all_are_written(live: LiveTask) -> None:
    """Main writes its tables during the copies, and the side stream catches up with later changes."""
    live.server.execute(f"DELETE FROM {live.source.database}.t")
    live.wait_for("t", "bag")
    live.loader.between = lambda: live.source.transactions(5)
    live.run(lambda: live.source.transactions(3), times=20)
    assert live.loader.loads == 1
    assert live.turns.bounds
    _assert_equal(live)


def test_rows_that_cross_the_view_during_a_load_are_right(
    name: str, target_server: DatabaseServer
) -> None:
    """Each change may move a row into the view or out of it, before or after the load has read it."""
    source = Source(name, RecordStream(target_server.flavour), house=f"{name}_house")
    target_server.execute(f"CREATE DATABASE {source.house}")
    source.create(target_server, "t", "kept", "bag")
    source.transactions(30)
    live = LiveTask.of(target_server, source)
    live.run()
    try:
        for _ in range(3):
            target_server.execute(f"DELETE FROM {source.house}.t")
            live.wait_for("t", "bag")
            pending = ["t"]

            def between(pending: list[str] = pending) -> None:
                source.transactions(5, changes=40)
                if pending:
                    source.truncate(pending.pop())
                source.transactions(2, changes=40)

            live.loader.between = between
            live.run(lambda: source.transactions(3, changes=40), times=10)
            _assert_equal(live)
        assert live.loader.loads > 3  # each statement leads to another one
    finally:
        target_server.execute(f"DROP DATABASE {source.house}")


def test_statement_under_a_view_is_skipped_for_a_load(
    name: str, target_server: DatabaseServer
) -> None:
    """CREATE TABLE under a rule that changes columns: the load creates the table, as `ddl skip --load` asks for."""
    source = Source(name, RecordStream(target_server.flavour), house=f"{name}_house")
    target_server.execute(f"CREATE DATABASE {source.house}")
    source.create(target_server, "t")
    source.transactions(10)
    live = LiveTask.of(target_server, source)
    live.run()
    try:
        with source.lock:
            source.rows["fresh"] = {}
            source.ddl("CREATE TABLE fresh (id INT PRIMARY KEY, n INT)")
            seq = source.stream.seq
        source.transactions(5)
        with pytest.raises(Fatal, match=r"MR-5042.*changes its rows or columns") as caught:
            live.run()
        assert "--load" in str(caught.value.fix)
        with closing(connect(endpoint_of(target_server))) as session:
            put_decision(session, live.task.name, seq=seq, decision=DONE)
            set_waiting(session, live.task.name, [(name, "fresh")], detail="asked for")
            session.commit()
        live.run(lambda: source.transactions(2), times=2, loads_min=1)
        _assert_equal(live)
    finally:
        target_server.execute(f"DROP DATABASE {source.house}")


@pytest.mark.parametrize("change", ["widen", *LATER, "rename", "add"])
def test_statement_during_the_copies_is_followed(live: LiveTask, change: str) -> None:
    """The table is loaded again, under its new name, or is dropped on the target."""
    live.wait_for("t", "bag")
    source, pending = live.source, [change]

    def between() -> None:
        source.transactions(2)
        match pending.pop() if pending else "":
            case "rename":
                source.rename("t", "fresh")
            case "add":
                source.add("fresh")
            case "":
                pass
            case other:
                getattr(source, other)("t")
        source.transactions(2)

    live.loader.between = between
    live.run(lambda: source.transactions(2), times=8)
    _assert_equal(live)
    if change == "add":
        assert live.loader.loads == 1  # main's range is over: it executes the statement
    else:
        assert live.loader.loads > 1


@pytest.mark.parametrize("change", ["widen", *LATER, "rename"])
def test_statement_after_the_copies_is_followed(live: LiveTask, change: str) -> None:
    """The side stream executes it where its own rows need it; a rename across streams leads to another load."""
    live.wait_for("t")
    source = live.source

    def change_it() -> None:
        source.transactions(3)
        if change == "rename":
            source.rename("t", "fresh")
        else:
            getattr(source, change)("t")
        source.transactions(3)

    live.turns.begun = change_it
    live.run(lambda: source.transactions(2), times=8)
    _assert_equal(live)
    assert (live.loader.loads > 1) == (change == "rename")


def test_load_does_not_wait_for_the_last_ones_statements(live: LiveTask) -> None:
    """The session that executed them in the side stream keeps their lock, which the next load needs for its tables."""
    source, server = live.source, live.server

    def lock_statements() -> None:
        session = connect(endpoint_of(server))
        lock(session, side_of(live.task.name))
        session.close()

    def load_again() -> None:
        source.transactions(2)
        if live.loader.loads == 1 and not states(server, live.task.name):
            live.wait_for("t")

    live.wait_for("t")
    live.turns.begun = lambda: source.widen("t")
    live.loader.between = lock_statements
    live.run(load_again, loads_min=2)
    assert live.loader.loads == 2
    _assert_equal(live)


def test_failing_load_is_repeated_while_main_continues(
    live: LiveTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The status shows the error; a Fatal one keeps its code in the text."""
    monkeypatch.setattr(backfill, "RETRY_S", 0.5)
    live.wait_for("t")
    live.loader.errors += [branch("MR-5006", "the disk is full") for branch in (Retryable, Fatal)]
    shown = set()

    def act() -> None:
        live.source.transactions(1)
        shown.add(live.loads.shown.trouble and live.loads.shown.trouble.code)

    live.run(act, times=4)
    assert live.loader.loads == 3
    assert shown >= {"MR-5006", "MR-5111"}
    assert live.loads.shown.trouble is None
    _assert_equal(live)


def test_row_that_fits_no_copy_blocks_the_task(live: LiveTask) -> None:
    """The error names the table. Loading it again is a way out."""
    live.wait_for("t")

    def damage() -> None:
        live.source.transactions(20)
        live.server.execute(f"DELETE FROM {live.source.database}.t")

    live.turns.begun = damage
    with pytest.raises(Fatal, match=r"MR-5010 in a table that joins") as caught:
        live.run(lambda: live.source.transactions(2), times=8)
    assert caught.value.context["table"] == f"{live.source.database}.t"
    assert f"millrace task load {live.task.name} " in caught.value.fix
    assert f"millrace conflict show {live.task.name} " in caught.value.fix
    assert side_of(live.task.name) not in f"{caught.value} {caught.value.fix}"
    live.wait_for("t")
    live.run(lambda: live.source.transactions(2), times=4)
    _assert_equal(live)


def test_table_that_a_changed_filter_admits_is_loaded(live: LiveTask) -> None:
    """It was left out and the target does not have it; one that the target has keeps what it has."""
    source, server = live.source, live.server
    source.add("fresh")
    source.transactions(3)
    kept = view_of_filter(TableFilter(exclude=(f"{source.database}.fresh",)))
    live.task = replace(live.task, view=kept)
    live.run()
    assert states(server, live.task.name) == {}
    source.transactions(3)
    live.task = replace(live.task, view=ALL_TABLES)
    live.run(lambda: source.transactions(2), times=4)
    assert live.loader.loads == 1
    _assert_equal(live)


def test_table_that_is_left_out_again_leaves_its_load(live: LiveTask) -> None:
    """In the middle of its copies. Nothing about it is shown, and it is loaded whole when it is admitted again."""
    source, server = live.source, live.server
    source.add("fresh")
    source.transactions(3)
    without = view_of_filter(TableFilter(exclude=(f"{source.database}.fresh",)))
    live.task = replace(live.task, view=without)
    live.run()
    live.task = replace(live.task, view=ALL_TABLES)
    live.loader.errors.append(Fenced("MR-5020", "the run ends here"))
    with pytest.raises(Fenced):
        live.run(lambda: source.transactions(1), times=3)
    assert [table.state for table in states(server, live.task.name).values()] == [COPIES]
    server.execute(source.create_sql("fresh"))  # it is there, without its rows
    live.task = replace(live.task, view=without)
    live.run(lambda: source.transactions(1), times=2)
    assert live.loads.shown.text == ""
    assert states(server, live.task.name) == {}
    assert server.execute(f"SELECT COUNT(*) FROM {source.database}.fresh") == [(0,)]
    live.task = replace(live.task, view=ALL_TABLES)
    live.run(lambda: source.transactions(2), times=4)
    _assert_equal(live)


def test_admitted_table_is_not_loaded_if_the_document_says_so(live: LiveTask) -> None:
    """Its later rows are applied as always to the table that the operator has created; a later start loads nothing."""
    source, server = live.source, live.server
    source.add("fresh")
    live.task = replace(
        live.task, view=view_of_filter(TableFilter(exclude=(f"{source.database}.fresh",)))
    )
    live.run()
    load = LoadRules(new_tables=False)
    live.task = replace(live.task, view=ALL_TABLES, rules=replace(live.task.rules, load=load))
    server.execute(source.create_sql("fresh"))
    for _ in range(2):
        live.run(lambda: source.transactions(2), times=2)
        assert states(server, live.task.name) == {}
        live.task = replace(live.task, rules=replace(live.task.rules, load=LoadRules()))
    assert live.loader.loads == 0
    _assert_equal(live)


@pytest.mark.parametrize("is_whole", [False, True], ids=["causal", "transactional"])
@pytest.mark.guarantee("applied")
def test_table_that_capture_takes_since_now_is_loaded(live: LiveTask, *, is_whole: bool) -> None:
    """Without a restart, with the rows from before. The topic has no CREATE of it, only rows."""
    source = live.source
    if is_whole:
        rules = replace(live.task.rules, consistency=Consistency.TRANSACTIONAL)
        live.task = replace(live.task, rules=rules)
    source.transactions(3)

    def act() -> None:
        if "fresh" not in source.rows:
            source.take("fresh")
        source.transactions(2)

    live.run(act, times=4, loads_min=1)
    assert live.loader.loads == 1
    assert states(live.server, live.task.name) == {}
    _assert_equal(live)


def test_table_that_appears_on_the_target_is_applied(live: LiveTask) -> None:
    """An operator has created it, empty: it is not loaded."""
    source, server = live.source, live.server
    source.transactions(3)

    def act() -> None:
        if "own" not in source.rows:
            source.create(server, "own")
        source.transactions(3)

    live.run(act, times=3)
    assert live.loader.loads == 0
    _assert_equal(live)


def test_missing_table_blocks_a_task_that_loads_no_new_tables(live: LiveTask) -> None:
    """As it does if the source can't be asked."""
    source = live.source
    source.take("fresh")
    source.transactions(3)
    load = LoadRules(new_tables=False)
    live.task = replace(live.task, rules=replace(live.task.rules, load=load))
    with pytest.raises(Fatal, match=r"MR-5012 .*fresh"):
        live.run()


@pytest.mark.parametrize("point", [BEFORE_GROWN, AFTER_GROWN])
def test_killed_start_finds_the_admitted_table(live: LiveTask, point: str) -> None:
    """Before the commit the next start compares again; after it, the table waits."""
    source = live.source
    source.add("fresh")
    live.task = replace(
        live.task, view=view_of_filter(TableFilter(exclude=(f"{source.database}.fresh",)))
    )
    live.run()
    live.task = replace(live.task, view=ALL_TABLES)
    killed_at(f"{point}:kill", live.run)
    assert set(states(live.server, live.task.name)) == (
        {"fresh"} if point == AFTER_GROWN else set()
    )
    live.run(lambda: source.transactions(1), times=2)
    _assert_equal(live)


def test_filter_that_grows_without_a_loader_is_noticed_later(live: LiveTask) -> None:
    """Meanwhile a table may leave its load. What the task admits again is found when the source can be asked."""
    database = live.source.database
    narrow = replace(
        live.task, view=view_of_filter(TableFilter(include=(f"{database}.kept", f"{database}.t")))
    )
    wider = replace(
        live.task, view=view_of_filter(TableFilter(include=(f"{database}.kept", f"{database}.bag")))
    )
    with closing(connect(endpoint_of(live.server))) as session:
        owner = raise_fence(session, task=live.task.name, epoch=1)
        session.query(f"DELETE FROM {DATABASE}.load_filter WHERE task = '{live.task.name}'")
        note_filter(session, owner, narrow, None)
        live.wait_for("t")
        note_filter(session, owner, wider, None)
        assert states(live.server, live.task.name) == {}
        live.server.execute(f"DROP TABLE {database}.bag")
        note_filter(session, owner, wider, live.loader)
    assert waiting(live.server, live.task.name) == {"bag"}
