"""Single guards taken away on a real server: a test that shows what each guarantees goes red, by the harm it names.

As ``tests/unit/test_guards_matter.py``, which says where the others are. MariaDB alone: a guard is the same on both.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

import pymysql
import pytest

from consumer import batch, compare, ddl, templates, workshop, writer
from consumer.batch import BatchApplier
from consumer.binding import Binding, bind, quoted
from consumer.target import connection as connections
from consumer.target import fence
from consumer.target.connection import TargetConnection
from consumer.target.inventory import Inventory
from consumer.writer import RowWriter
from deploy.servers import DatabaseServer, DatabaseSet
from millrace.errors import Fatal, MillraceError, Retryable
from producer.converter import column_program, events
from producer.converter.events import EventDesk
from producer.kernel import state as s
from producer.receiver import Receiver
from producer.relay import layout
from producer.source import binlog_files
from producer.source import connection as sources
from producer.source.connection import Login, SourceConnection
from schemas.control import DdlRecord
from schemas.documents import Member, Tls, TlsMode
from schemas.gtid import Flavour, parse_gtid_set
from schemas.row_layout import RowLayout
from schemas.statement import Kind, Statement, classify
from tests.binlog_session import LoggedSession, logged
from tests.equal_to_all import AnyCount
from tests.fault import test_apply_target_faults as refusals
from tests.fix_servers import NewServer
from tests.integration import test_apply_conflicts as conflicts
from tests.integration import test_apply_ddl as statements
from tests.integration import test_apply_left_out as leaving_out
from tests.integration import test_apply_target as applying
from tests.integration import test_compare as comparing
from tests.integration import test_converter_servers as converting
from tests.integration import test_provoked as provoked
from tests.integration import test_relay_receiver as receivers
from tests.integration import test_source as members
from tests.integration import test_target_connection as silence
from tests.integration import test_types_whole_way as types

Patch = pytest.MonkeyPatch

SEEN = (AssertionError, Fatal, Retryable, UnicodeDecodeError, pytest.fail.Exception)
NOT_TOLD = "DID NOT RAISE (Fatal|Retryable|Exception)"


@dataclass(frozen=True)
class Place:
    """``name``: a database on the target, and a task. ``source`` is another server."""

    name: str
    target: DatabaseServer
    source: DatabaseServer


@dataclass(frozen=True)
class Guard:
    """``off`` takes the guard away; ``shown`` is a test that passes with it, and fails without by ``harm``."""

    name: str
    off: Callable[[Patch], None]
    shown: Callable[[Place], object]
    harm: str
    is_chaos: bool = False


_names = count(1)


@pytest.fixture
def place(target_server: DatabaseServer, mariadb_server: DatabaseServer) -> Iterator[Place]:
    """Gone behind the test, and before it whatever still holds a table of it."""
    made = f"guard{next(_names)}"
    target_server.execute(f"CREATE DATABASE {made} DEFAULT CHARSET utf8mb4")
    yield Place(made, target_server, mariadb_server)
    for (session,) in target_server.execute(
        "SELECT trx_mysql_thread_id FROM information_schema.INNODB_TRX"
    ):
        with suppress(pymysql.Error):  # it has ended by itself
            target_server.execute(f"KILL {session}")
    target_server.execute(f"DROP DATABASE IF EXISTS {made}")


# ---- the source's side -------------------------------------------------------------------------------


def phases_are_statements(patch: Patch) -> None:
    """Each of the two events that hold an ALTER is taken for one that stands alone."""
    query = EventDesk._query

    def unaware(self: EventDesk, *given: Any) -> Any:
        self._arrays.state[s.ALTER_PHASE] = 0
        return query(self, *given)

    patch.setattr(EventDesk, "_query", unaware)


def statements_are_passed_over(patch: Patch) -> None:
    """INSERT, UPDATE and DELETE in statement format: no rows, so nothing to do."""

    def careless(*given: Any) -> Statement:
        found = classify(*given)
        return replace(found, kind=Kind.TEMPORARY) if found.kind is Kind.DML else found

    patch.setattr(events, "classify", careless)


def heads_are_not_asked(patch: Patch) -> None:
    """Who gave the last number before a file."""
    patch.setattr(binlog_files, "gives_other_servers", lambda *_: False)


def a_sequence_is_enough(patch: Patch) -> None:
    """Whose transaction stands at the last sequence of what is done is not asked."""
    patch.setattr(binlog_files, "_refuse_other_history", lambda *_, **__: None)


def what_a_server_shows_is_utf8(patch: Patch) -> None:
    """The driver decodes each text that is answered, and refuses what is no UTF-8."""
    connect = pymysql.connect
    patch.setattr(pymysql, "connect", lambda **how: connect(**{**how, "use_unicode": True}))


def servers_without_tls_are_talked_to(patch: Patch) -> None:
    """A connection goes on in the clear where the server offers nothing else."""
    patch.setattr(sources, "_tls_context", lambda *_: None)
    patch.setattr(connections, "_tls_arguments", lambda _: {"ssl_disabled": True})


def nothing_is_heard(_: Place) -> None:
    """As ``test_a_server_without_tls_hears_nothing_of_us``, whatever code it ends with."""
    login = Login(user="someone", password="secret", tls=Tls(TlsMode.REQUIRE_UNVERIFIED))
    with provoked._without_tls() as (port, heard), suppress(MillraceError):
        SourceConnection.connect(Member("127.0.0.1", port), login)
    assert b"someone" not in heard[0], "the user's name was sent in the clear"


def old_times_are_of_one_size(patch: Patch) -> None:
    """What a MariaDB's time of before 10.1 measures is taken for told."""
    patch.setattr(column_program, "is_unmeasured", lambda *_: False)


# ---- rows --------------------------------------------------------------------------------------------


def rows_written_together_are_not_counted(patch: Patch) -> None:
    """How many of a statement's rows the target had is not asked."""
    run, write_one = RowWriter._run, RowWriter._write_one

    def counted(self: RowWriter, *given: Any) -> int:
        with patch.context() as alone:
            alone.setattr(RowWriter, "_run", run)
            return write_one(self, *given)

    patch.setattr(RowWriter, "_run", lambda self, sql: AnyCount(run(self, sql)))
    patch.setattr(RowWriter, "_write_one", counted)


def a_row_written_alone_is_not_counted(patch: Patch) -> None:
    """Nor whether it had the one row."""
    write_one = RowWriter._write_one
    patch.setattr(RowWriter, "_write_one", lambda *given: AnyCount(write_one(*given)))


def values_are_compared_as_the_server_does(patch: Patch) -> None:
    """A row without a key is found by columns that are equal, not by those that are the same."""
    patch.setattr(types, "EQUALS", types.EQUALS[:2])  # for the sake of time
    patch.setattr(templates, "_same", lambda column, _: (quoted(column.name) + b" <=> ", b""))


def values_are_made_to_fit(patch: Patch) -> None:
    """The session's mode is not strict."""
    lenient = connections.STRICT_MODE.replace("STRICT_ALL_TABLES,", "")
    patch.setattr(connections, "STRICT_MODE", lenient)
    patch.setattr(writer, "STRICT_MODE", lenient)


def every_engine_rolls_back(patch: Patch) -> None:
    """What is known of a table's engine is not asked."""

    def trusting(layout: RowLayout, inventory: Inventory) -> Binding:
        tables = {key: replace(made, rolls_back=True) for key, made in inventory.tables.items()}
        return bind(layout, replace(inventory, tables=tables))

    patch.setattr(workshop, "bind", trusting)


def the_mode_stays_lenient(patch: Patch) -> None:
    """A row that is refused while the mode is not strict leaves it so."""
    really, strict = TargetConnection.run, connections.STRICT_MODE.encode()
    refused = [False]

    def run(self: TargetConnection, sql: bytes) -> int:
        if refused.pop() and sql == b"SET SESSION sql_mode='" + strict + b"'":
            refused.append(False)
            return 0
        refused.append(True)
        found = really(self, sql)
        refused[0] = False
        return found

    patch.setattr(TargetConnection, "run", run)


def what_is_overwritten_is_checked(patch: Patch) -> None:
    """Foreign keys act on the rows that are removed."""
    decide = RowWriter._decide

    def checking(self: RowWriter, *given: Any) -> None:
        with patch.context() as inside:
            inside.setattr(RowWriter, "_set_foreign_key_checks", lambda *_, **__: None)
            decide(self, *given)

    patch.setattr(RowWriter, "_decide", checking)


def checks_stay_off(patch: Patch) -> None:
    """The next row is written as one that was overwritten."""
    check = RowWriter._check_foreign_keys

    def unless_off(self: RowWriter, *given: Any) -> None:
        if self._checks_foreign_keys:
            check(self, *given)

    patch.setattr(RowWriter, "_check_foreign_keys", unless_off)


def sockets_as_the_system_has_them(patch: Patch) -> None:
    """An idle connection is asked after two hours."""
    patch.setattr(connections, "_ask_when_silent", lambda _: None)


def a_value_is_refused(at: Place) -> None:
    """One case of the test."""
    at.target.execute(f"DROP DATABASE {at.name}")
    refusals._create_tables(at.target, at.name)
    refusals.test_a_value_that_the_target_refuses_blocks_names_the_row_and_is_not_told(
        at.name, at.target, "note VARCHAR(5)", "note VARCHAR(20)", is_large=False
    )


def no_connection_is_cut(patch: Patch) -> None:
    """A stop waits for what the driver itself waits for."""
    patch.setattr(BatchApplier, "cut", lambda _: None)


def stopping_behind_a_lock(at: Place) -> None:
    """The test, with a patch of its own."""
    at.target.execute(f"DROP DATABASE {at.name}")
    refusals._create_tables(at.target, at.name)
    with pytest.MonkeyPatch.context() as patch:
        refusals.test_a_stop_does_not_wait_for_a_row_that_somebody_has_locked(
            at.name, at.target, patch
        )


def equal_values_are_told_apart(at: Place) -> None:
    """The test, from a server of its own."""
    at.target.execute(f"CREATE DATABASE {types.DATABASE}")  # which the test drops
    with _logged(at, types.DATABASE) as source:
        types.test_values_that_a_server_calls_equal_are_told_apart_without_a_key(source, at.target)


@contextmanager
def _logged(at: Place, database: str) -> Iterator[LoggedSession]:
    """A session on the source; what it makes goes from both in the end."""
    try:
        with logged(at.source, database) as source:
            yield source
    finally:
        for side in (at.source, at.target):
            side.execute(f"DROP DATABASE IF EXISTS {database}")


# ---- statements --------------------------------------------------------------------------------------


def the_seq_of_a_statement_may_be_any(patch: Patch) -> None:
    """It is executed over whatever is missing in front of it."""
    patch.setattr(batch, "check_follows", lambda *_: None)


def views_and_triggers_are_made(patch: Patch) -> None:
    """As any other statement, beside being recorded."""
    leave_out = ddl._leave_out

    def executed(
        session: TargetConnection, owner: Any, record: DdlRecord, statement: Statement, place: Any
    ) -> set[str]:
        if str(statement.kind) in ("view", "trigger"):
            ddl._execute(session, record, statement)
        return leave_out(session, owner, record, statement, place)

    patch.setattr(ddl, "_leave_out", executed)


def times_are_those_of_the_session(patch: Patch) -> None:
    """The statement's time zone is not taken over."""
    patch.setattr(ddl, "_ANYWHERE", tuple(name for name in ddl._ANYWHERE if name != "time_zone"))


def the_session_is_the_sources(at: Place) -> None:
    """The test, which makes its database."""
    at.target.execute(f"DROP DATABASE {at.name}")
    statements.test_the_session_of_the_statement_is_the_source_s(at.name, at.target)


def what_is_not_shown_is_not_there(patch: Patch) -> None:
    """A table that one side does not show is not asked for."""
    patch.setattr(compare, "_refuse_hidden", lambda *_: None)


def a_grant_lacks(at: Place) -> None:
    """The test, of the target's account."""
    shown = (
        comparing.test_a_table_that_an_account_may_not_read_is_a_grant_that_lacks_not_a_difference
    )
    with comparing.equal_tables(at.source, at.target) as sides:
        shown(sides, 1)


def what_is_no_table_is_left_out(at: Place) -> None:
    """The test; its accounts go, too."""
    try:
        with _logged(at, leaving_out.DATABASE) as source:
            leaving_out.test_what_is_no_table_is_recorded_and_counted_and_not_applied(
                source, at.target
            )
    finally:
        for account in leaving_out.ACCOUNTS:
            at.source.execute(f"DROP USER IF EXISTS {account}")


# ---- the fence ---------------------------------------------------------------------------------------


def holders_are_not_ended(patch: Patch) -> None:
    """Who waits for the fence waits until it is let go."""
    patch.setattr(fence, "end_holders", lambda *_, **__: None)
    patch.setattr(fence, "HUNG_S", 0.2)
    patch.setattr(fence, "TRIES_MAX", 2)
    patch.setattr(connections, "LOCK_WAIT_S", 1)


def overwriting(at: Place) -> None:
    """The test."""
    conflicts.test_overwriting_a_row_leaves_the_children_of_all_that_it_removes(at.name, at.target)


GUARDS = [
    Guard(
        "a server shows statements in any bytes",
        what_a_server_shows_is_utf8,
        lambda at: members.test_statements_in_any_bytes_do_not_hide_where_to_begin(at.target),
        "codec can't decode byte 0xfc",
    ),
    Guard(
        "a MariaDB's last GTID is its own",
        a_sequence_is_enough,
        lambda at: (
            members.test_a_member_that_logged_another_in_the_place_of_what_is_done_is_refused(
                at.source
            )
        ),
        NOT_TOLD,
    ),
    Guard(
        "a file's head says whose number was the last",
        heads_are_not_asked,
        lambda at: (
            members.test_a_number_given_again_is_told_by_a_files_head_when_the_state_has_forgotten(
                at.source
            )
        ),
        NOT_TOLD,
    ),
    Guard(
        "a phase of an ALTER is refused",
        phases_are_statements,
        lambda at: provoked.test_an_alter_that_is_logged_in_two_phases_is_refused(at.source),
        NOT_TOLD,
    ),
    Guard(
        "statement format is refused",
        statements_are_passed_over,
        lambda at: converting.test_statement_format_stops_with_its_code(at.source),
        NOT_TOLD,
    ),
    Guard(
        "who is left out need not be measured",
        old_times_are_of_one_size,
        lambda at: converting.test_rows_that_no_table_map_measures_are_left_out(at.source, "OFF"),
        "MR-6003",
    ),
    Guard(
        "no word without TLS",
        servers_without_tls_are_talked_to,
        nothing_is_heard,
        "was sent in the clear",
    ),
    Guard(
        "rows written together are counted",
        rows_written_together_are_not_counted,
        lambda at: conflicts.test_conflicts_stop_by_default_and_name_the_row(
            at.name, at.target, is_large=True
        ),
        NOT_TOLD,
    ),
    Guard(
        "a row written alone is counted",
        a_row_written_alone_is_not_counted,
        lambda at: conflicts.test_a_missing_row_that_is_written_alone_stops_the_task_too(
            at.name, at.target, "a deletion"
        ),
        NOT_TOLD,
    ),
    Guard(
        "values are compared by their bytes",
        values_are_compared_as_the_server_does,
        equal_values_are_told_apart,
        r"\Ae\d",
    ),
    Guard("the mode is strict", values_are_made_to_fit, a_value_is_refused, NOT_TOLD),
    Guard(
        "a table's engine is asked",
        every_engine_rolls_back,
        lambda at: provoked.test_a_table_that_can_not_be_rolled_back_gets_no_row(
            at.name, at.target, is_large=False
        ),
        "stands though it was rolled back",
    ),
    Guard(
        "a skipped row leaves the strict mode",
        the_mode_stays_lenient,
        lambda at: conflicts.test_a_row_that_is_skipped_leaves_the_next_its_strict_mode(
            at.name, at.target
        ),
        NOT_TOLD,
    ),
    Guard(
        "an overwritten row fires no cascade",
        what_is_overwritten_is_checked,
        overwriting,
        "MR-5010",
    ),
    Guard(
        "the row behind an overwritten one is checked",
        checks_stay_off,
        overwriting,
        "children",
        is_chaos=True,
    ),
    Guard(
        "a stop cuts what the driver waits for",
        no_connection_is_cut,
        stopping_behind_a_lock,
        "the stop waits for the row",
        is_chaos=True,
    ),
    Guard(
        "a vanished target is noticed",
        sockets_as_the_system_has_them,
        lambda at: silence.test_a_vanished_target_is_noticed_after_a_minute(at.target),
        "== 60",
    ),
    Guard(
        "a statement follows the mark",
        the_seq_of_a_statement_may_be_any,
        lambda at: applying.test_a_hole_in_front_of_a_statement_stops_the_task(at.name, at.target),
        NOT_TOLD,
    ),
    Guard(
        "a statement has the time zone of its session",
        times_are_those_of_the_session,
        the_session_is_the_sources,
        "2023-11-14 22:13:20",
    ),
    Guard(
        "a table that is not shown is asked for",
        what_is_not_shown_is_not_there,
        a_grant_lacks,
        NOT_TOLD,
    ),
    Guard(
        "what is no table is not executed",
        views_and_triggers_are_made,
        what_is_no_table_is_left_out,
        "information_schema.VIEWS",
        is_chaos=True,
    ),
    Guard(
        "who holds the fence and hangs is ended",
        holders_are_not_ended,
        lambda at: applying.test_raising_the_fence_ends_a_holder_that_hangs(at.name, at.target),
        "stays locked",
        is_chaos=True,
    ),
]


@pytest.mark.parametrize("target_server", [Flavour.MARIADB], indirect=True, ids=str)
@pytest.mark.parametrize(
    "guard",
    [
        pytest.param(guard, id=guard.name, marks=[pytest.mark.chaos] * guard.is_chaos)
        for guard in GUARDS
    ],
)
def test_without_its_guard_the_test_of_it_on_a_server_is_red(
    guard: Guard, place: Place, monkeypatch: Patch
) -> None:
    """And by its harm, not by anything else."""
    guard.off(monkeypatch)
    with pytest.raises(SEEN, match=guard.harm):
        guard.shown(place)


# ---- members: a tail that is lost, a backup ----------------------------------------------------------


@pytest.mark.chaos
@pytest.mark.parametrize("source_set", [Flavour.MARIADB], indirect=True, ids=str)
def test_without_its_guard_a_stream_goes_on_behind_a_lost_tail(
    source_set: DatabaseSet, tmp_path: Path, monkeypatch: Patch
) -> None:
    """A sub-directory is begun under way, by who was chosen for what it had: numbers that come again count as done."""
    monkeypatch.setattr(Receiver, "_may_begin_anew", lambda self: self._is_continuous)
    judged = property(lambda _: True, lambda *_: None)
    monkeypatch.setattr(Receiver, "_is_judged", judged, raising=False)
    with pytest.raises(AssertionError, match="goes on in a new sub-directory"):
        receivers.test_a_tail_that_is_lost_under_way_ends_the_stream(
            source_set, tmp_path, "lost_tail"
        )
    source_set.execute("DROP DATABASE lost_tail")


def _told(name: str) -> Callable[[Patch], None]:
    """A variable of the server that says what the backup brought is not asked."""

    def off(patch: Patch) -> None:
        ask = binlog_files._variable
        patch.setattr(
            binlog_files,
            "_variable",
            lambda connection, flavour, which: (
                parse_gtid_set(flavour, "") if which == name else ask(connection, flavour, which)
            ),
        )

    return off


def domains_begin_at_one(patch: Patch) -> None:
    """The first GTID of a domain is not looked for."""
    patch.setattr(binlog_files, "_first_of_domains", lambda *_: iter(()))


def the_relay_log_forgets(patch: Patch) -> None:
    """What stood in front of its first file is not remembered."""
    patch.setattr(layout, "read_before", lambda *_: None)


@pytest.mark.chaos
@pytest.mark.parametrize(
    ("flavour", "off", "harm"),
    [
        pytest.param(Flavour.MYSQL, _told("gtid_purged"), NOT_TOLD, id="gtid_purged"),
        pytest.param(Flavour.MARIADB, _told("gtid_slave_pos"), NOT_TOLD, id="gtid_slave_pos"),
        pytest.param(Flavour.MARIADB, domains_begin_at_one, NOT_TOLD, id="first GTIDs"),
        pytest.param(Flavour.MARIADB, the_relay_log_forgets, "has forgotten", id="relay.before"),
    ],
)
def test_without_its_guard_a_rebuilt_member_gives_what_it_lacks(
    new_server: NewServer,
    tmp_path: Path,
    monkeypatch: Patch,
    flavour: Flavour,
    off: Callable[[Patch], None],
    harm: str,
) -> None:
    """Who needs of what the backup brought is not refused: a gap in its topic."""
    off(monkeypatch)
    with pytest.raises(SEEN, match=harm):
        members.test_a_member_rebuilt_from_a_backup_gives_only_what_it_logged(
            new_server, tmp_path, flavour
        )


def test_without_its_guard_a_lost_tail_is_read_or_refused_for_good(
    target_server: DatabaseServer, tmp_path: Path, monkeypatch: Patch
) -> None:
    """What the relay log has and the member lacks is not asked for: MySQL's is read, MariaDB's blocks the task."""
    monkeypatch.setattr(Receiver, "_lacking", lambda *_: "")
    with pytest.raises(SEEN, match=r"MR-1033|old-primary"):
        receivers.test_a_tail_that_another_member_lost_is_neither_read_nor_refused(
            target_server, tmp_path
        )
