"""Guards of safe mode, LOAD DATA, copies, loads and repairs removed on a real server, the one of `make test`."""

from typing import Any

from millrace.consumer.compare import repair
from millrace.consumer.compare.sides import Sides
from millrace.consumer.copy import columns, form, outgoing
from millrace.consumer.kernel import walk
from millrace.consumer.kernel.merge import CHANGE_OP, MOVES
from millrace.consumer.kernel.walk import OP_DELETE
from millrace.consumer.load import copy_order, prepare_again, remaining
from millrace.consumer.records.numbers import Ints
from millrace.consumer.records.rows import Rows
from millrace.consumer.tables import table_plan
from millrace.consumer.tables.table_plans import TablePlans
from millrace.consumer.turn import applier
from millrace.consumer.window import overlap as load_range
from millrace.consumer.window import safe_mode, unlogged_cascades
from millrace.consumer.write import changes, row_writer
from millrace.consumer.write.changes import repeatable
from millrace.consumer.write.row_writer import RowWriter
from millrace.drivers.mysql.connection import MySqlSession
from millrace.schemas.gtid import GtidPosition
from tests.mutants.mutant import Mutant, Patch


def old_keys_not_deleted(patch: Patch) -> None:
    """An UPDATE of the key only replaces the row of the new key."""

    def replacing(plans: TablePlans, rows: Rows, given: Ints) -> Ints:
        made = repeatable(plans, rows, given)
        moved = (made[:, CHANGE_OP] == OP_DELETE) & (made[:, MOVES] != 0)
        kept: Ints = made[~moved]
        return kept

    patch.setattr(changes, "repeatable", replacing)


def rows_replaced(patch: Patch) -> None:
    """REPLACE overwrites rows, also where the target has columns that no record has."""
    patch.setattr(table_plan, "_on_duplicate", lambda *_: b"")
    patch.setattr(safe_mode, "refusal", lambda *_: "")
    patch.setattr(RowWriter, "_kept_values", lambda *_: "")


def deleted_rows_not_restored(patch: Patch) -> None:
    """A DELETE with a cascade finds only the row that the target has."""

    def unrestored(plans: TablePlans, rows: Rows, given: Ints) -> Ints:
        made = repeatable(plans, rows, given)
        kept: Ints = made[made[:, CHANGE_OP] != changes.OP_RESTORE]
        return kept

    patch.setattr(changes, "repeatable", unrestored)


def target_not_waited_for(patch: Patch) -> None:
    """The target is read at once, before the task has applied what the source had."""

    def reach(self: Sides, position: GtidPosition) -> float:
        self.reached = position
        return 0.0

    patch.setattr(Sides, "reach", reach)


def loads_not_counted(patch: Patch) -> None:
    """Skipped rows and warnings are ignored."""
    load = MySqlSession.load

    def careless(*given: Any, **named: Any) -> bool:
        load(*given, **named)
        return True

    patch.setattr(MySqlSession, "load", careless)


_COPIED = "DID NOT RAISE"
_CASCADES = "tests/integration/test_apply_cascades.py"
_STREAMS = "tests/integration/test_apply_streams.py"


def inventory_of_the_begin(patch: Patch) -> None:
    """A table is missing if it was missing when the run read the inventory."""
    patch.setattr(applier, "read_missing", lambda *_: None)


MUTANTS = [
    Mutant(
        "tables that the target has by now are applied",
        inventory_of_the_begin,
        "tests/integration/test_later_loads.py",
        {"test_table_that_appears_on_the_target_is_applied": "MR-5010"},
    ),
    Mutant(
        "safe mode turns foreign key checks off",
        lambda patch: patch.setattr(RowWriter, "_check_foreign_keys", lambda *_: None),
        "tests/integration/test_apply_safe_mode.py",
        {"test_replaced_parent_keeps_its_children[mysql]": "assert|MR-5010"},
    ),
    Mutant(
        "safe mode deletes the old key",
        old_keys_not_deleted,
        "tests/integration/test_apply_safe_mode.py",
        {"test_any_mixture_of_states_ends_in_the_source_rows[mariadb-2]": "assert|MR-5010"},
    ),
    Mutant(
        "columns of the target alone keep their values",
        rows_replaced,
        "tests/integration/test_apply_safe_mode.py",
        {"test_columns_of_the_target_alone_keep_their_values": "assert"},
    ),
    Mutant(
        "safe mode restores a row before its cascade",
        deleted_rows_not_restored,
        _CASCADES,
        {"test_child_of_a_deleted_parent_does_not_come_back[mariadb-lanes]": "assert"},
    ),
    Mutant(
        "safe mode restores a row that is written carefully",
        lambda patch: patch.setattr(RowWriter, "_repeat", RowWriter._overwrite),
        _CASCADES,
        {"test_cascade_is_repeated_beside_a_conflict[mysql]": "assert"},
    ),
    Mutant(
        "no conflict policy leaves out a cascade of safe mode",
        lambda patch: patch.setattr(row_writer, "is_foreign_key", lambda _: False),
        _CASCADES,
        {"test_later_row_of_a_deleted_parent_blocks_the_task[mysql-skip]": _COPIED},
    ),
    Mutant(
        "safe mode does not repeat a logged cascade",
        lambda patch: patch.setattr(walk, "LOGS_CASCADES", walk.NO_FOREIGN_KEY_CHECKS),
        "tests/integration/test_apply_safe_mode.py",
        {"test_logged_cascade_is_not_repeated[mariadb-checks in SQL]": "MR-5025"},
    ),
    Mutant(
        "a deletion that MySQL 9.6 logs has no cascade",
        lambda patch: patch.setattr(changes, "LOGS_CASCADES", walk.NO_FOREIGN_KEY_CHECKS),
        "tests/integration/test_apply_conflicts.py",
        {
            "test_replaced_parent_of_mysql_keeps_its_children[mysql-RESTRICT]": "MR-5010",
            "test_replaced_parent_of_mysql_keeps_its_children[mysql-CASCADE]": "assert",
            "test_replaced_parent_of_mysql_keeps_its_children[mariadb-SET NULL]": "assert",
        },
    ),
    Mutant(
        "rows of a snapshot do not check related rows of a later state",
        lambda patch: patch.setattr(load_range, "leave_unchecked", lambda *_: None),
        _STREAMS,
        {
            "test_rows_of_a_snapshot_fit_rows_of_a_later_state[False]": "MR-5010",
            "test_rows_of_a_snapshot_fit_rows_of_a_later_state[True]": "MR-5010",
        },
    ),
    Mutant(
        "child rows of a snapshot follow a cascade that was not logged",
        lambda patch: patch.setattr(unlogged_cascades, "followers", lambda *_: []),
        _STREAMS,
        {
            "test_unlogged_cascade_of_a_snapshot_changes_its_child_rows[delete]": "assert",
            "test_unlogged_cascade_of_a_snapshot_changes_its_child_rows[update]": "assert",
        },
    ),
    Mutant(
        "no later load creates a table that is linked with one outside it",
        lambda patch: patch.setattr(prepare_again, "let_apart_wait", lambda *_: frozenset()),
        "tests/integration/test_load_altered.py",
        {
            "test_table_waits_for_those_that_its_new_foreign_key_relates[before it is planned]": "assert"
        },
    ),
    Mutant(
        "no later load copies a table that is linked with one outside it",
        lambda patch: patch.setattr(remaining, "let_apart_wait", lambda *_: frozenset()),
        "tests/integration/test_load_altered.py",
        {"test_table_waits_for_those_that_its_new_foreign_key_relates[as it is created]": "assert"},
    ),
    Mutant(
        "a snapshot is copied only as its table was planned",
        lambda patch: patch.setattr(copy_order, "_check_structure", lambda *_: None),
        "tests/integration/test_load_altered.py",
        {
            "test_table_altered_before_its_copy_waits_for_another_load[snapshot, added-mariadb]": "assert|KeyError"
        },
    ),
    Mutant(
        "a copy of an earlier run is fenced",
        lambda patch: patch.setattr(copy_order, "check_fence", lambda *_: None),
        "tests/integration/test_load_tables.py",
        {
            "test_copies_of_an_earlier_run_are_fenced[mysql-True]": "assert",
            "test_copies_of_an_earlier_run_are_fenced[mysql-False]": "assert",
        },
    ),
    Mutant(
        "a repair locks the fence",
        lambda patch: patch.setattr(repair, "_lock_fence", lambda *_: None),
        "tests/integration/test_compare_repair.py",
        {"test_repair_waits_for_the_transactions_of_apply": "repair waits"},
    ),
    Mutant(
        "a comparison waits for the target",
        target_not_waited_for,
        "tests/integration/test_compare_repair.py",
        {"test_paused_task_ends_the_comparison_with_a_code": _COPIED},
    ),
    Mutant(
        "a comparison waits for the replica",
        lambda patch: patch.setattr(Sides, "newest", lambda _: None),
        "tests/integration/test_compare_members.py",
        {"test_late_replica_is_no_difference": _COPIED},
    ),
    Mutant(
        "LOAD DATA stores every row without a warning",
        loads_not_counted,
        "tests/integration/test_apply_load.py",
        {"test_row_that_load_data_skips_is_a_conflict[mysql]": "DID NOT RAISE Fatal"},
    ),
    Mutant(
        "a copy checks what the target answers",
        lambda patch: patch.setattr(outgoing, "refuse", lambda *_: None),
        "tests/integration/test_copy_refusals.py",
        {
            "test_row_that_the_target_would_change_is_refused[mariadb-INT-TINYINT-300-Out of range-True]": _COPIED,
            "test_row_that_exists_is_refused_with_its_key[mysql-True]": _COPIED,
        },
    ),
    Mutant(
        "a copy refuses a NULL that the target replaces silently",
        lambda patch: patch.setattr(form, "REFUSES_NULL", 0),
        "tests/integration/test_copy_refusals.py",
        {
            "test_row_that_the_target_would_change_is_refused"
            "[mysql-TIMESTAMP NULL-TIMESTAMP NOT NULL-NULL-NULL-True]": _COPIED
        },
    ),
    Mutant(
        "a number that looks like a label is no text",
        lambda patch: patch.setattr(columns, "_takes_numbers", lambda _: True),
        "tests/integration/test_copy_types.py",
        {"test_columns_of_other_types_have_the_same_values[mariadb-mysql-LOAD DATA]": "ENUM"},
    ),
    Mutant(
        "a text in another character set is checked on its way",
        lambda patch: patch.setattr(columns, "_NO_CHARACTERS", "'?'"),
        "tests/integration/test_copy_refusals.py",
        {
            "test_row_that_the_target_would_change_is_refused"
            "[mariadb-VARCHAR(9) CHARACTER SET sjis-VARCHAR(9)-x'F040'--True]": _COPIED
        },
    ),
]
