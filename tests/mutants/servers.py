"""Guards taken away on a real server: MariaDB alone where a guard is the same on both."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pymysql

from consumer import batch, compare, ddl, executor, table_plans, templates, writer
from consumer.batch import BatchApplier
from consumer.table_plan import TablePlan, plan_table, quoted
from consumer.target import connection as connections
from consumer.target import fence, progress
from consumer.target.connection import TargetConnection
from consumer.target.inventory import Inventory
from consumer.writer import RowWriter
from producer.convert import statements
from producer.convert.kernel import state as s
from producer.convert.statements import EventHandler
from producer.relay import layout
from producer.upstream import connection as sources
from producer.upstream import files
from producer.upstream.receiver import Receiver
from schemas.gtid import parse_gtid_set
from schemas.record.control import DdlRecord
from schemas.record.row_layout import RowLayout
from schemas.sql.statement import Kind, Statement, classify
from schemas.table import table_map
from tests.kit.equal_to_all import AnyCount
from tests.mutants.mutant import Mutant, Patch

NOT_TOLD = "DID NOT RAISE (Fatal|Fenced|Retryable|Exception)"
WRITTEN_AGAIN = f"{NOT_TOLD}|MR-5010"  # without or with a primary key in the lane


def phases_are_statements(patch: Patch) -> None:
    """Each of the two events that hold an ALTER is taken for one that stands alone."""
    query = EventHandler._query

    def unaware(self: EventHandler, *given: Any) -> Any:
        self._arrays.state[s.ALTER_PHASE] = 0
        return query(self, *given)

    patch.setattr(EventHandler, "_query", unaware)


def statements_are_passed_over(patch: Patch) -> None:
    """INSERT, UPDATE and DELETE in statement format: no rows, so nothing to do."""

    def careless(*given: Any) -> Statement:
        found = classify(*given)
        return replace(found, kind=Kind.TEMPORARY) if found.kind is Kind.DML else found

    patch.setattr(statements, "classify", careless)


def heads_are_not_asked(patch: Patch) -> None:
    """Who gave the last number before a file."""
    patch.setattr(files, "has_same_sequence_from_other_server", lambda *_: False)


def a_sequence_is_enough(patch: Patch) -> None:
    """Whose transaction stands at the last sequence of what is done is not asked."""
    patch.setattr(files, "_check_history", lambda *_, **__: None)


def what_a_server_shows_is_utf8(patch: Patch) -> None:
    """The driver decodes each text that is answered, and refuses what is no UTF-8."""
    connect = pymysql.connect
    patch.setattr(pymysql, "connect", lambda **how: connect(**{**how, "use_unicode": True}))


def servers_without_tls_are_talked_to(patch: Patch) -> None:
    """A connection goes on in the clear where the server offers nothing else."""
    patch.setattr(sources, "_tls_context", lambda *_: None)
    patch.setattr(connections, "_tls_arguments", lambda _: {"ssl_disabled": True})


def old_times_are_of_one_size(patch: Patch) -> None:
    """What a MariaDB's time of before 10.1 measures is taken for told."""
    patch.setattr(table_map, "_OLD_TEMPORAL", frozenset())


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
    patch.setattr(templates, "_same", lambda column, _: (quoted(column.name) + b" <=> ", b""))


def values_are_made_to_fit(patch: Patch) -> None:
    """The session's mode is not strict."""
    lenient = connections.STRICT_MODE.replace("STRICT_ALL_TABLES,", "")
    patch.setattr(connections, "STRICT_MODE", lenient)
    patch.setattr(writer, "STRICT_MODE", lenient)


def every_engine_rolls_back(patch: Patch) -> None:
    """What is known of a table's engine is not asked."""

    def trusting(layout: RowLayout, inventory: Inventory) -> TablePlan:
        tables = {key: replace(made, rolls_back=True) for key, made in inventory.tables.items()}
        return plan_table(layout, replace(inventory, tables=tables))

    patch.setattr(table_plans, "plan_table", trusting)


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
    patch.setattr(connections, "_enable_keepalive", lambda _: None)


def no_connection_is_cut(patch: Patch) -> None:
    """A stop waits for what the driver itself waits for."""
    patch.setattr(BatchApplier, "cut", lambda _: None)


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


def what_is_not_shown_is_not_there(patch: Patch) -> None:
    """A table that one side does not show is not asked for."""
    patch.setattr(compare, "_refuse_hidden", lambda *_: None)


def holders_are_not_ended(patch: Patch) -> None:
    """Who waits for the fence waits until it is let go."""
    patch.setattr(fence, "end_holders", lambda *_, **__: None)
    patch.setattr(fence, "HUNG_S", 0.2)
    patch.setattr(fence, "TRIES_MAX", 2)
    patch.setattr(connections, "LOCK_WAIT_S", 1)


def _told(name: str) -> Callable[[Patch], None]:
    """A variable of the server that says what the backup brought is not asked."""

    def off(patch: Patch) -> None:
        ask = files._variable
        patch.setattr(
            files,
            "_variable",
            lambda connection, flavour, which: (
                parse_gtid_set(flavour, "") if which == name else ask(connection, flavour, which)
            ),
        )

    return off


def domains_begin_at_one(patch: Patch) -> None:
    """The first GTID of a domain is not looked for."""
    patch.setattr(files, "_first_gtids", lambda *_: iter(()))


def the_relay_log_forgets(patch: Patch) -> None:
    """What stood in front of its first file is not remembered."""
    patch.setattr(layout, "read_before", lambda *_: None)


REBUILT = "test_member_restored_from_backup_serves_only_its_own_binlog"


def every_statement_is_executed(patch: Patch) -> None:
    """A swap that is done again is undone."""
    patch.setattr(ddl, "decide", lambda *_: ddl.EXECUTE)


def nothing_is_missing(patch: Patch) -> None:
    """What the relay log has and the member lacks is not asked for: MySQL's is read, MariaDB's blocks the task."""
    patch.setattr(Receiver, "_find_missing", lambda *_: "")


def a_stream_goes_on(patch: Patch) -> None:
    """A sub-directory is begun under way, by who was chosen for what it had: numbers that come again count as done."""
    patch.setattr(Receiver, "_may_start_subdir", lambda self: self._is_continuous)
    judged = property(lambda _: True, lambda *_: None)
    patch.setattr(Receiver, "_is_choice_current", judged, raising=False)


MUTANTS = [
    Mutant(
        "a server shows statements in any bytes",
        what_a_server_shows_is_utf8,
        "tests/integration/test_source_history.py",
        {
            "test_non_utf8_statements_do_not_hide_the_start_position[mariadb]": "codec can't decode byte 0xfc"
        },
    ),
    Mutant(
        "a MariaDB's last GTID is its own",
        a_sequence_is_enough,
        "tests/integration/test_source_history.py",
        {"test_member_with_a_different_transaction_at_our_position_is_refused": NOT_TOLD},
    ),
    Mutant(
        "a file's head says whose number was the last",
        heads_are_not_asked,
        "tests/integration/test_source_history.py",
        {"test_reused_gtid_number_is_detected_from_the_file_head": NOT_TOLD},
    ),
    Mutant(
        "a phase of an ALTER is refused",
        phases_are_statements,
        "tests/integration/test_provoked.py",
        {"test_two_phase_alter_is_refused": NOT_TOLD},
    ),
    Mutant(
        "statement format is refused",
        statements_are_passed_over,
        "tests/integration/test_converter_servers.py",
        {"test_statement_based_logging_stops_with_its_code[mariadb]": NOT_TOLD},
    ),
    Mutant(
        "who is left out need not be measured",
        old_times_are_of_one_size,
        "tests/integration/test_converter_servers.py",
        {"test_excluded_unreadable_rows_leave_the_others_numbered_as_alone[plain]": "MR-6003"},
    ),
    Mutant(
        "no word without TLS",
        servers_without_tls_are_talked_to,
        "tests/integration/test_provoked.py",
        {"test_no_account_name_is_sent_without_required_tls[source]": "MR-1004"},
    ),
    Mutant(
        "rows written together are counted",
        rows_written_together_are_not_counted,
        "tests/integration/test_apply_conflicts.py",
        {"test_conflict_blocks_by_default_and_names_the_row[mariadb-lanes]": NOT_TOLD},
    ),
    Mutant(
        "a row written alone is counted",
        a_row_written_alone_is_not_counted,
        "tests/integration/test_apply_conflicts.py",
        {"test_missing_row_in_a_single_row_write_blocks_the_task[mariadb-a deletion]": NOT_TOLD},
    ),
    Mutant(
        "values are compared by their bytes",
        values_are_compared_as_the_server_does,
        "tests/integration/test_types_whole_way.py",
        {"test_rows_with_collation_equal_values_stay_distinct_without_a_key[mariadb]": "\\Ae\\d"},
    ),
    Mutant(
        "the mode is strict",
        values_are_made_to_fit,
        "tests/fault/test_apply_target_limits.py",
        {"test_refused_value_blocks_and_the_error_hides_it[mariadb-one lane-too long]": NOT_TOLD},
    ),
    Mutant(
        "a table's engine is asked",
        every_engine_rolls_back,
        "tests/integration/test_provoked.py",
        {
            "test_nontransactional_target_table_gets_no_row[mariadb-one lane]": "left after the rollback"
        },
    ),
    Mutant(
        "a skipped row leaves the strict mode",
        the_mode_stays_lenient,
        "tests/integration/test_apply_conflicts.py",
        {"test_skipped_row_leaves_strict_mode_on[mariadb]": NOT_TOLD},
    ),
    Mutant(
        "an overwritten row fires no cascade",
        what_is_overwritten_is_checked,
        "tests/integration/test_apply_conflicts.py",
        {"test_overwriting_a_row_leaves_children_of_removed_rows[mariadb]": "MR-5010"},
    ),
    Mutant(
        "the row behind an overwritten one is checked",
        checks_stay_off,
        "tests/integration/test_apply_conflicts.py",
        {"test_overwriting_a_row_leaves_children_of_removed_rows[mariadb]": "children"},
    ),
    Mutant(
        "a stop cuts what the driver waits for",
        no_connection_is_cut,
        "tests/fault/test_apply_locks.py",
        {"test_stop_does_not_wait_for_a_locked_row[mariadb]": "the stop waits for the row"},
    ),
    Mutant(
        "a vanished target is noticed",
        sockets_as_the_system_has_them,
        "tests/integration/test_target_connection.py",
        {"test_vanished_target_is_noticed_after_a_minute[mariadb]": "== 60"},
    ),
    Mutant(
        "a statement follows the mark",
        the_seq_of_a_statement_may_be_any,
        "tests/integration/test_apply_progress.py",
        {"test_seq_gap_before_a_statement_blocks_the_task[mariadb]": NOT_TOLD},
    ),
    Mutant(
        "a statement has the time zone of its session",
        times_are_those_of_the_session,
        "tests/integration/test_apply_ddl.py",
        {"test_ddl_runs_under_the_source_session_settings[mariadb]": "2023-11-14 22:13:20"},
    ),
    Mutant(
        "a table that is not shown is asked for",
        what_is_not_shown_is_not_there,
        "tests/integration/test_compare.py",
        {"test_unreadable_table_is_a_missing_grant_not_a_difference[mariadb-target]": NOT_TOLD},
    ),
    Mutant(
        "what is no table is not executed",
        views_and_triggers_are_made,
        "tests/integration/test_apply_left_out.py",
        {
            "test_views_routines_and_accounts_are_recorded_not_applied[mariadb]": "information_schema.VIEWS"
        },
    ),
    Mutant(
        "who holds the fence and hangs is ended",
        holders_are_not_ended,
        "tests/integration/test_apply_target.py",
        {"test_raising_the_fence_kills_a_hung_lane_transaction[mariadb]": "stays locked"},
    ),
    Mutant(
        "a lost tail is not asked for",
        nothing_is_missing,
        "tests/integration/test_relay_receiver.py",
        {"test_relay_tail_lost_in_a_failover_is_ignored": "MR-1033|old-primary"},
    ),
    Mutant(
        "a stream ends behind a lost tail",
        a_stream_goes_on,
        "tests/integration/test_relay_receiver.py",
        {
            "test_tail_lost_by_the_running_server_ends_the_stream[mariadb]": "continues in a new sub-directory"
        },
    ),
    Mutant(
        "gtid_purged is asked",
        _told("gtid_purged"),
        "tests/integration/test_source_history.py",
        {REBUILT + "[mysql]": NOT_TOLD},
    ),
    Mutant(
        "gtid_slave_pos is asked",
        _told("gtid_slave_pos"),
        "tests/integration/test_source_history.py",
        {REBUILT + "[mariadb]": NOT_TOLD},
    ),
    Mutant(
        "the first GTIDs of domains are asked",
        domains_begin_at_one,
        "tests/integration/test_source_history.py",
        {REBUILT + "[mariadb]": NOT_TOLD},
    ),
    Mutant(
        "relay.before is read",
        the_relay_log_forgets,
        "tests/integration/test_source_history.py",
        {REBUILT + "[mariadb]": "has forgotten"},
    ),
    Mutant(
        "the state of its intent decides about a statement",
        every_statement_is_executed,
        "tests/integration/test_apply_ddl.py",
        {
            "test_ddl_executes_once_wherever_the_driver_dies[mariadb-rename that swaps-AFTER_EXECUTE]": "assert"
        },
    ),
    Mutant(
        "a late lane reads the mark",
        lambda patch: patch.setattr(executor, "check_mark", lambda *_: None),
        "tests/integration/test_apply_twice.py",
        {"test_late_lane_of_the_same_run_writes_nothing[mariadb]": WRITTEN_AGAIN},
    ),
    Mutant(
        "a late lane reads the fence",
        lambda patch: patch.setattr(executor, "check_fence", lambda *_: None),
        "tests/integration/test_apply_twice.py",
        {"test_lane_of_an_earlier_run_writes_nothing[mariadb]": WRITTEN_AGAIN},
    ),
    Mutant(
        "a lane locks the fence that it reads",
        lambda patch: patch.setattr(progress, "_share", lambda _: ""),
        "tests/integration/test_apply_twice.py",
        {
            "test_lane_cannot_commit_after_its_successor_read_progress[mariadb]": r"\[\(40,\)\] == \[\(0,\)\]"
        },
    ),
    Mutant(
        "long values are updated row by row",
        lambda patch: patch.setattr(writer, "DERIVED_ROW_BYTES_MAX", 1 << 30),
        "tests/integration/test_apply_types.py",
        {"test_updates_keep_long_values_whole_on_mariadb": "65536"},
    ),
    Mutant(
        "JSON decimals are written as decimals",
        lambda patch: patch.setattr(TablePlan, "documents", ()),
        "tests/integration/test_apply_types.py",
        {"test_json_decimals_keep_their_digits_on_mysql": r"1\.50"},
    ),
]
