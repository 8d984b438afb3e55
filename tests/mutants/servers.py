"""Guards removed on a real server: the one of `make test`, where a guard is the same on both."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from millrace.consumer.compare import tables as compare_plan
from millrace.consumer.tables import row_statements, table_plans
from millrace.consumer.tables.table_plan import TablePlan, plan_table
from millrace.consumer.target import fence, progress
from millrace.consumer.target.sessions import Sessions
from millrace.consumer.turn import applier, turn
from millrace.consumer.view.layout import ViewedTable
from millrace.consumer.write import (
    conflict,
    ddl,
    ddl_outcome,
    ddl_session,
    row_writer,
    target_transaction,
)
from millrace.consumer.write.row_writer import RowWriter
from millrace.drivers.mysql import connection as connections
from millrace.drivers.mysql import start_file
from millrace.drivers.mysql.catalog import Inventory
from millrace.drivers.mysql.connection import MySqlSession
from millrace.producer.convert import statements
from millrace.producer.convert.kernel import state as s
from millrace.producer.convert.statements import EventHandler
from millrace.producer.relay import layout
from millrace.producer.source.receive.overlap import Overlap
from millrace.producer.source.receive.receiver import Receiver
from millrace.schemas.gtid import parse_gtid_set
from millrace.schemas.record.control import DdlRecord
from millrace.schemas.sql.quoting import quoted
from millrace.schemas.sql.statement import Kind, Statement, classify
from millrace.schemas.table import table_map
from tests.kit.equal_to_all import AnyCount
from tests.mutants.mutant import Mutant, Patch

NOT_RAISED = "DID NOT RAISE (Fatal|Fenced|Retryable|Exception)"
WRITTEN_AGAIN = f"{NOT_RAISED}|MR-5010"  # without or with a primary key in the lane


def members_not_compared(patch: Patch) -> None:
    """Readers cross over to another member without a comparison."""
    patch.setattr(Overlap, "compare", lambda _: None)


def _unfenced_parts(patch: pytest.MonkeyPatch) -> None:
    """Also where a part stores the conflict that it meets instead."""
    for module in (target_transaction, conflict):
        patch.setattr(module, "check_fence", lambda *_: None)


def phases_read_as_statements(patch: Patch) -> None:
    """Each of the two events of an ALTER is read as a whole statement."""
    query = EventHandler._query

    def unaware(self: EventHandler, *given: Any) -> Any:
        self._arrays.state[s.ALTER_PHASE] = 0
        return query(self, *given)

    patch.setattr(EventHandler, "_query", unaware)


def statement_format_skipped(patch: Patch) -> None:
    """INSERT, UPDATE and DELETE in statement format are skipped, because they have no rows."""

    def careless(*given: Any) -> Statement:
        found = classify(*given)
        return replace(found, kind=Kind.TEMPORARY) if found.kind is Kind.DML else found

    patch.setattr(statements, "classify", careless)


def heads_not_read(patch: Patch) -> None:
    """The file's head is not read, which names the server of the last number before it."""
    patch.setattr(start_file, "has_same_sequence_from_other_server", lambda *_: False)


def only_sequences_compared(patch: Patch) -> None:
    """The server of the transaction at the last done sequence is not compared."""
    patch.setattr(start_file, "_check_history", lambda *_, **__: None)


def answers_decoded_as_utf8(patch: Patch) -> None:
    """The driver decodes each answered text and refuses other bytes than UTF-8."""
    patch.setattr(connections, "_ENCODING", "utf-8")


def connections_without_tls(patch: Patch) -> None:
    """A connection continues unencrypted if the server offers no TLS."""
    patch.setattr(connections, "_tls_context", lambda *_: None)


def old_time_types_measured(patch: Patch) -> None:
    """The size of a MariaDB time type from before 10.1 counts as known."""
    patch.setattr(table_map, "_OLD_TEMPORAL", frozenset())


def rows_written_together_not_counted(patch: Patch) -> None:
    """The number of rows that a statement matched is not checked."""
    run, write_one = RowWriter._run, RowWriter._write_one

    def counted(self: RowWriter, *given: Any) -> int:
        with patch.context() as alone:
            alone.setattr(RowWriter, "_run", run)
            return write_one(self, *given)

    patch.setattr(RowWriter, "_run", lambda self, sql: AnyCount(run(self, sql)))
    patch.setattr(RowWriter, "_write_one", counted)


def single_rows_not_counted(patch: Patch) -> None:
    """It is not checked whether a single-row statement matched its row."""
    write_one = RowWriter._write_one
    patch.setattr(RowWriter, "_write_one", lambda *given: AnyCount(write_one(*given)))


def values_compared_by_collation(patch: Patch) -> None:
    """A row without a key is found by equal values under the collation, not by identical bytes."""
    patch.setattr(row_statements, "_same", lambda column, _: (quoted(column.name) + b" <=> ", b""))


def mode_not_strict(patch: Patch) -> None:
    """The session's mode is not strict."""
    lenient = connections.STRICT_MODE.replace("STRICT_ALL_TABLES,", "")
    patch.setattr(connections, "STRICT_MODE", lenient)
    patch.setattr(row_writer, "STRICT_MODE", lenient)


def engines_not_checked(patch: Patch) -> None:
    """The engine of a table is ignored."""

    def trusting(viewed: ViewedTable, inventory: Inventory) -> TablePlan:
        tables = {key: replace(made, rolls_back=True) for key, made in inventory.tables.items()}
        return plan_table(viewed, replace(inventory, tables=tables))

    patch.setattr(table_plans, "plan_table", trusting)


def strict_mode_not_restored(patch: Patch) -> None:
    """A row refused in lenient mode leaves the session lenient."""
    really, strict = MySqlSession.run, connections.STRICT_MODE.encode()
    refused = [False]

    def run(self: MySqlSession, sql: bytes) -> int:
        if refused.pop() and sql == b"SET SESSION sql_mode='" + strict + b"'":
            refused.append(False)
            return 0
        refused.append(True)
        found = really(self, sql)
        refused[0] = False
        return found

    patch.setattr(MySqlSession, "run", run)


def overwritten_rows_fire_cascades(patch: Patch) -> None:
    """Foreign keys act when a row is overwritten."""
    decide = RowWriter._decide

    def checking(self: RowWriter, *given: Any) -> None:
        with patch.context() as inside:
            inside.setattr(RowWriter, "_set_foreign_key_checks", lambda *_, **__: None)
            decide(self, *given)

    patch.setattr(RowWriter, "_decide", checking)


def foreign_key_checks_stay_off(patch: Patch) -> None:
    """The next row is written without foreign key checks."""
    check = RowWriter._check_foreign_keys

    def unless_off(self: RowWriter, *given: Any) -> None:
        if self._checks_foreign_keys:
            check(self, *given)

    patch.setattr(RowWriter, "_check_foreign_keys", unless_off)


def default_keepalive(patch: Patch) -> None:
    """Keepalive probes begin after two hours."""
    patch.setattr(connections, "_enable_keepalive", lambda _: None)


def turn_taken_from_any_owner(patch: Patch) -> None:
    """A turn takes the fence whatever run has it, as a start does."""
    patch.setattr(
        turn,
        "take_turn",
        lambda session, after: fence.raise_fence(session, task=after.task, epoch=after.epoch),
    )


def statement_seqs_not_checked(patch: Patch) -> None:
    """A statement is executed although rows before it are missing."""
    patch.setattr(applier, "check_follows", lambda *_: None)


def views_and_triggers_executed(patch: Patch) -> None:
    """They are executed like other statements, besides being recorded."""
    leave_out = ddl._leave_out

    def executed(
        session: MySqlSession, owner: Any, record: DdlRecord, statement: Statement, **named: Any
    ) -> None:
        if str(statement.kind) in ("view", "trigger"):
            ddl._execute(
                session, Sessions(session.endpoint, owner), record, statement, is_over=bool
            )
        leave_out(session, owner, record, statement, **named)

    patch.setattr(ddl, "_leave_out", executed)


def time_zones_not_set(patch: Patch) -> None:
    """The statement's time zone is not set."""
    known = ddl_session._ANYWHERE
    patch.setattr(ddl_session, "_ANYWHERE", tuple(name for name in known if name != "time_zone"))


def hidden_tables_not_checked(patch: Patch) -> None:
    """A table that one side does not show is not checked."""
    patch.setattr(compare_plan, "_refuse_hidden", lambda *_: None)


def fence_holders_not_ended(patch: Patch) -> None:
    """A start waits until the holder releases the fence."""
    patch.setattr(fence, "end_holders", lambda *_, **__: None)
    patch.setattr(fence, "HUNG_S", 0.2)
    patch.setattr(fence, "TRIES_MAX", 2)
    patch.setattr(connections, "LOCK_WAIT_S", 1)


def _variable_not_read(name: str) -> Callable[[Patch], None]:
    """The server variable with the GTIDs of a restored backup is not read."""

    def off(patch: Patch) -> None:
        ask = start_file._variable
        patch.setattr(
            start_file,
            "_variable",
            lambda connection, which: (
                parse_gtid_set(connection.flavour, "") if which == name else ask(connection, which)
            ),
        )

    return off


def first_gtids_of_domains_not_read(patch: Patch) -> None:
    """The first GTID of a domain is not read."""
    patch.setattr(start_file, "_first_gtids", lambda *_: iter(()))


def position_before_the_log_not_read(patch: Patch) -> None:
    """The position before the log's first file is not read."""
    patch.setattr(layout, "read_before", lambda *_: None)


REBUILT = "test_member_restored_from_backup_serves_only_its_own_binlog"


def every_statement_executed(patch: Patch) -> None:
    """A repeated swap undoes the first one."""
    patch.setattr(ddl, "decide", lambda *_: ddl_outcome.EXECUTE)


def lost_tails_not_checked(patch: Patch) -> None:
    """Transactions that only the relay log has are not noticed: MySQL's are read, MariaDB's block the task."""
    patch.setattr(Receiver, "_find_missing", lambda *_: "")


def streams_continue_after_lost_tails(patch: Patch) -> None:
    """A member chosen for its GTIDs begins a sub-directory later: repeated numbers count as done."""
    patch.setattr(Receiver, "_may_start_subdir", lambda self: self._is_continuous)
    judged = property(lambda _: True, lambda *_: None)
    patch.setattr(Receiver, "_is_choice_current", judged, raising=False)


MUTANTS = [
    Mutant(
        "a server shows statements in any bytes",
        answers_decoded_as_utf8,
        "tests/integration/test_source_history.py",
        {
            "test_non_utf8_statements_do_not_hide_the_start_position[mariadb]": "codec can't decode byte 0xfc"
        },
    ),
    Mutant(
        "a MariaDB's last GTID is its own",
        only_sequences_compared,
        "tests/integration/test_source_history.py",
        {"test_member_with_a_different_transaction_at_our_position_is_refused": NOT_RAISED},
    ),
    Mutant(
        "a file's head names the server of the last number",
        heads_not_read,
        "tests/integration/test_source_history.py",
        {"test_reused_gtid_number_is_detected_from_the_file_head": NOT_RAISED},
    ),
    Mutant(
        "a phase of an ALTER is refused",
        phases_read_as_statements,
        "tests/integration/test_provoked.py",
        {"test_two_phase_alter_is_refused": NOT_RAISED},
    ),
    Mutant(
        "statement format is refused",
        statement_format_skipped,
        "tests/integration/test_converter_servers.py",
        {"test_statement_based_logging_stops_with_its_code[mariadb]": NOT_RAISED},
    ),
    Mutant(
        "an excluded table needs no column sizes",
        old_time_types_measured,
        "tests/integration/test_converter_servers.py",
        {"test_excluded_unreadable_rows_leave_the_others_numbered_as_alone[plain]": "MR-6003"},
    ),
    Mutant(
        "nothing is sent without TLS",
        connections_without_tls,
        "tests/integration/test_provoked.py",
        {"test_no_account_name_is_sent_without_required_tls": "MR-1004|MR-5009"},
    ),
    Mutant(
        "rows written together are counted",
        rows_written_together_not_counted,
        "tests/integration/test_apply_conflicts.py",
        {"test_conflict_blocks_by_default_and_names_the_row[mariadb-lanes]": NOT_RAISED},
    ),
    Mutant(
        "a row written alone is counted",
        single_rows_not_counted,
        "tests/integration/test_apply_conflicts.py",
        {"test_missing_row_in_a_single_row_write_blocks_the_task[mariadb-a deletion]": NOT_RAISED},
    ),
    Mutant(
        "values are compared by their bytes",
        values_compared_by_collation,
        "tests/integration/test_types_whole_way.py",
        {"test_rows_with_collation_equal_values_stay_distinct_without_a_key[mariadb]": "\\Ae\\d"},
    ),
    Mutant(
        "other changes of the next member are noticed",
        members_not_compared,
        "tests/fault/test_member_switch.py",
        {"test_member_with_other_changes_is_refused[mariadb]": "assert '127"},
    ),
    Mutant(
        "the mode is strict",
        mode_not_strict,
        "tests/fault/test_apply_target_limits.py",
        {"test_refused_value_blocks_and_the_error_hides_it[mariadb-one lane-too long]": NOT_RAISED},
    ),
    Mutant(
        "a table's engine is checked",
        engines_not_checked,
        "tests/integration/test_provoked.py",
        {
            "test_nontransactional_target_table_gets_no_row[mysql-one lane]": "left after the rollback|== 'MR-5015'"
        },
    ),
    Mutant(
        "a skipped row leaves the strict mode",
        strict_mode_not_restored,
        "tests/integration/test_apply_conflicts.py",
        {"test_skipped_row_leaves_strict_mode_on[mysql]": NOT_RAISED},
    ),
    Mutant(
        "an overwritten row fires no cascade",
        overwritten_rows_fire_cascades,
        "tests/integration/test_apply_conflicts.py",
        {"test_overwriting_a_row_leaves_children_of_removed_rows[mysql]": "MR-5010"},
    ),
    Mutant(
        "the row after an overwritten one is checked",
        foreign_key_checks_stay_off,
        "tests/integration/test_apply_conflicts.py",
        {"test_overwriting_a_row_leaves_children_of_removed_rows[mysql]": "children"},
    ),
    Mutant(
        "a vanished target is noticed",
        default_keepalive,
        "tests/integration/test_target_connection.py",
        {"test_vanished_target_is_noticed_after_a_minute[mariadb]": "== 60"},
    ),
    Mutant(
        "a statement follows the mark",
        statement_seqs_not_checked,
        "tests/integration/test_apply_progress.py",
        {"test_seq_gap_before_a_statement_blocks_the_task[mariadb]": NOT_RAISED},
    ),
    Mutant(
        "a statement has the time zone of its session",
        time_zones_not_set,
        "tests/integration/test_apply_ddl.py",
        {"test_ddl_runs_under_the_source_session_settings[mariadb]": "2023-11-14 22:13:20"},
    ),
    Mutant(
        "a hidden table is checked",
        hidden_tables_not_checked,
        "tests/integration/test_compare.py",
        {"test_unreadable_table_is_a_missing_grant_not_a_difference[mariadb-target]": NOT_RAISED},
    ),
    Mutant(
        "statements about views and triggers are not executed",
        views_and_triggers_executed,
        "tests/integration/test_apply_left_out.py",
        {
            "test_views_routines_and_accounts_are_recorded_not_applied[mariadb]": "MR-5041 CREATE TRIGGER"
        },
    ),
    Mutant(
        "a session that hangs with the fence is ended",
        fence_holders_not_ended,
        "tests/integration/test_apply_target.py",
        {"test_raising_the_fence_kills_a_hung_lane_transaction[mariadb-False]": "stays locked"},
    ),
    Mutant(
        "a lost tail is not requested",
        lost_tails_not_checked,
        "tests/integration/test_relay_receiver.py",
        {"test_relay_tail_lost_in_a_failover_is_ignored[mariadb]": "MR-1033|old-primary"},
    ),
    Mutant(
        "a stream ends after a lost tail",
        streams_continue_after_lost_tails,
        "tests/integration/test_relay_receiver.py",
        {
            "test_tail_lost_by_the_running_server_ends_the_stream[mariadb]": "continues in a new sub-directory"
        },
    ),
    Mutant(
        "gtid_purged is read",
        _variable_not_read("gtid_purged"),
        "tests/integration/test_source_history.py",
        {REBUILT + "[mysql]": NOT_RAISED},
    ),
    Mutant(
        "gtid_slave_pos is read",
        _variable_not_read("gtid_slave_pos"),
        "tests/integration/test_source_history.py",
        {REBUILT + "[mariadb]": NOT_RAISED},
    ),
    Mutant(
        "the first GTIDs of domains are read",
        first_gtids_of_domains_not_read,
        "tests/integration/test_source_history.py",
        {REBUILT + "[mariadb]": NOT_RAISED},
    ),
    Mutant(
        "relay.before is read",
        position_before_the_log_not_read,
        "tests/integration/test_source_history.py",
        {REBUILT + "[mariadb]": "has forgotten"},
    ),
    Mutant(
        "the state of its intent decides about a statement",
        every_statement_executed,
        "tests/integration/test_apply_ddl.py",
        {
            "test_ddl_executes_once_wherever_the_driver_dies[mariadb-rename that swaps-AFTER_EXECUTE]": "assert"
        },
    ),
    Mutant(
        "a turn takes the fence from the owner that its order names",
        turn_taken_from_any_owner,
        "tests/integration/test_apply_twice.py",
        {"test_late_execution_of_a_turn_writes_nothing[mariadb]": WRITTEN_AGAIN},
    ),
    Mutant(
        "a late lane reads the fence",
        _unfenced_parts,
        "tests/integration/test_apply_twice.py",
        {"test_turn_overtaken_by_a_later_run_writes_nothing[mariadb-lanes]": WRITTEN_AGAIN},
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
        lambda patch: patch.setattr(row_writer, "DERIVED_ROW_BYTES_MAX", 1 << 30),
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
