"""Guards of views: which rows are in one, and which values."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from millrace.consumer.compare import repair, tables
from millrace.consumer.compare.table import viewed_pair
from millrace.consumer.compare.viewed import ViewedRows, viewed_rows
from millrace.consumer.copy import TablePair, chunk
from millrace.consumer.kernel import masks as kernel
from millrace.consumer.kernel import walk
from millrace.consumer.kernel.changes import put_changes
from millrace.consumer.load import plan, prepare, prepare_again
from millrace.consumer.load import tables as load_tables
from millrace.consumer.records.rows import Rows
from millrace.consumer.tables import merged_sources, table_plan, table_plans
from millrace.consumer.tables.filter import Route
from millrace.consumer.tables.table_plans import TablePlans
from millrace.consumer.task import start
from millrace.consumer.view import mask_keys, masks, program
from millrace.consumer.view import rows as view_rows
from millrace.consumer.view.rows import through_view
from millrace.consumer.write import conflict, merged_columns, merged_ddl, target_transaction
from millrace.consumer.write.merged_ddl import MergedDdl
from millrace.schemas.sql.quoting import table_name
from millrace.schemas.view.view import View
from tests.mutants.mutant import Mutant, Patch


def condition_not_evaluated(patch: Patch) -> None:
    """All rows are in the view."""

    def without_condition(records: Any, numbers: Any, width: int, _: Any, *more: Any) -> Any:
        return put_changes(records, numbers, width, np.empty((0, 0), np.int64), *more)

    patch.setattr("millrace.consumer.view.changes.put_changes", without_condition)


def masks_left_out(patch: Patch) -> None:
    """Values pass as they are."""
    patch.setattr(program, "make_masks", lambda *_: None)


def invalid_text_masked(patch: Patch) -> None:
    """Its bytes are masked, which are those of another text."""
    patch.setattr(masks, "_hmac_action", lambda _, key: [kernel.HMAC, kernel.OCTETS, 0, key])


def fingerprints_not_compared(patch: Patch) -> None:
    """Any secret computes the masks."""
    patch.setattr(mask_keys, "secret_fingerprint", lambda _: "")


def hidden_columns_written(patch: Patch) -> None:
    """A column that the view leaves out is one of the target's columns."""
    patch.setattr(table_plan, "_visible", lambda layout: enumerate(layout.table.columns))


def view_not_in_plan_key(patch: Patch) -> None:
    """Shares of a spread turn may have other views."""
    patch.setattr(View, "hash", "")


def edited_view_taken(patch: Patch) -> None:
    """A start accepts any view."""
    patch.setattr(start, "_check_view", lambda *_: None)


def changed_names_executed(patch: Patch) -> None:
    """Statements are executed as the source wrote them."""
    patch.setattr(Route, "changed", lambda *_: ())


def two_tables_of_one_name(patch: Patch) -> None:
    """Rows of two tables of the source meet in one."""
    patch.setattr(TablePlans, "_others", lambda *_: [])


def bytes_of_constants_compared(patch: Patch) -> None:
    """Constants that differ in bytes are apart, whatever the target's collation."""

    def by_bytes(_: Any, constant: Any, *__: Any) -> int:
        return hash(constant.content)

    patch.setattr(merged_sources, "constant_hash", by_bytes)


def merged_tables_not_checked(patch: Patch) -> None:
    """Any tables are merged whose rules say so."""
    patch.setattr(table_plans, "check_merged", lambda *_: None)


def slots_of_a_merge_kept_apart(patch: Patch) -> None:
    """Each source has statements of separate slots."""
    patch.setattr(TablePlans, "grouped", lambda _, slots: slots)


def all_slots_of_a_table_merged(patch: Patch) -> None:
    """Changes of two schemas of one table have chains that do not meet."""
    patch.setattr(TablePlans, "_parting", lambda _, slot: slot)


def raw_record_stored(patch: Patch) -> None:
    """A conflict has the record of the topic."""

    def raw_record(rows: Any, number: int, **more: Any) -> tuple[bytes, str]:
        return rows.values.value(number), more["schema_text"]

    patch.setattr(conflict, "view_record", raw_record)


def contracted_at_the_first(patch: Patch) -> None:
    """The target loses a column with the first source's statement."""
    patch.setattr(merged_columns, "_dropped", lambda *_: None)


def shards_truncated(patch: Patch) -> None:
    """The statement is executed on the target's table."""

    def truncate(_: Any, session: Any, target: Any, __: str) -> None:
        session.run(b"TRUNCATE TABLE " + table_name(*target.key))

    patch.setattr(MergedDdl, "_delete", truncate)


def sources_not_stored(patch: Patch) -> None:
    """Tasks do not know of each other's sources."""
    patch.setattr(target_transaction, "store_sources", lambda *_: None)


def unknown_rows_not_looked_for(patch: Patch) -> None:
    """The last source that is known removes a column."""
    patch.setattr(merged_ddl, "_is_complete", lambda *_: True)


def _through(change: Callable[[Rows, Any], None]) -> Callable[..., Any]:
    """The step of the view, after which ``change`` gets the rows and their records as they were."""

    def through(rows: Rows, numbers: Any, tables: Any) -> Any:
        before = rows.records.copy()
        found = through_view(rows, numbers, tables)
        change(found[0], before)
        return found

    return through


def operations_not_changed(patch: Patch) -> None:
    """A row that leaves or enters the view is updated."""

    def restore(rows: Rows, before: Any) -> None:
        rows.records[:, walk.OP] = before[:, walk.OP]

    patch.setattr(table_plans, "through_view", _through(restore))


def made_rows_checked(patch: Patch) -> None:
    """Foreign keys check what the view makes of an update."""

    def restore(rows: Rows, before: Any) -> None:
        rows.records[:, walk.FLAGS] = before[:, walk.FLAGS]

    patch.setattr(table_plans, "through_view", _through(restore))


def rows_out_of_the_view_applied(patch: Patch) -> None:
    """The condition changes operations and leaves out no row."""

    def keep(rows: Rows, numbers: Any, tables: Any) -> Any:
        return through_view(rows, numbers, tables)[0], numbers

    patch.setattr(table_plans, "through_view", keep)


def constants_left_empty(patch: Patch) -> None:
    """The cells of added columns stay as the walk left them."""
    patch.setattr(view_rows, "_put_constants", lambda *_: None)


def masks_of_target_keys_taken(patch: Patch) -> None:
    """Any mask in a key of the target."""
    patch.setattr(table_plan, "_check_masks", lambda *_: None)


def conditions_over_cascades_taken(patch: Patch) -> None:
    """A condition on a table whose rows a cascade changes without a record."""
    patch.setattr(table_plan, "_check_condition", lambda *_: None)


def rows_of_others_repaired(patch: Patch) -> None:
    """Another task may write the table."""
    patch.setattr(repair, "tasks_that_write", lambda *_: [])


def rows_without_masked_values_written(patch: Patch) -> None:
    """A missing row gets what is compared."""

    def pair_of(*given: Any, **more: Any) -> Any:
        return replace(viewed_pair(*given, **more), unread=())

    patch.setattr(tables, "viewed_pair", pair_of)


def loaded_without_condition(patch: Patch) -> None:
    """A load copies all rows of the table."""
    patch.setattr(TablePair, "rows", lambda pair, where: f"{pair.select} WHERE {where}")


def messages_loaded(patch: Patch) -> None:
    """No HMAC takes the place of what it is computed of."""
    patch.setattr(chunk, "keys_of", lambda _: {})


def table_not_emptied(patch: Patch) -> None:
    """A later load writes over the rows that are there."""
    patch.setattr(prepare_again, "empty_table", lambda *_, **__: None)


def rows_of_others_emptied(patch: Patch) -> None:
    """Another task may write the table."""
    patch.setattr(prepare, "check_sole", lambda *_, **__: None)


def definition_stored(patch: Patch) -> None:
    """The target has what SHOW CREATE TABLE prints on the source."""
    patch.setattr(plan, "hash_of", lambda text: text)


def own_columns_replaced(patch: Patch) -> None:
    """Any table is read in chunks."""
    patch.setattr(load_tables, "_why_apart", lambda *_: "")


def _viewed(change: Callable[[ViewedRows], ViewedRows]) -> Callable[..., ViewedRows]:
    """A comparison that gets other rows of a view."""
    return lambda *given, **more: change(viewed_rows(*given, **more))


def compared_without_condition(patch: Patch) -> None:
    """The source selects all rows of the table."""

    def change(found: ViewedRows) -> ViewedRows:
        return replace(found, rows=f"{found.rows.partition(' WHERE ')[0]}) AS viewed")

    patch.setattr(tables, "viewed_rows", _viewed(change))


def compared_with_rows_of_others(patch: Patch) -> None:
    """The target's rows may have any constants."""
    patch.setattr(tables, "viewed_rows", _viewed(lambda found: replace(found, limits="")))


def renamed_column_not_compared(patch: Patch) -> None:
    """A column is left out without a word."""

    def change(found: ViewedRows) -> ViewedRows:
        columns = {name: one for name, one in found.table.columns.items() if name != "email"}
        return replace(found, table=replace(found.table, columns=columns))

    patch.setattr(tables, "viewed_rows", _viewed(change))


def columns_left_out_silently(patch: Patch) -> None:
    """Nothing says that a column was not compared."""
    patch.setattr(tables, "_note_columns", lambda *_, **__: None)


def two_tables_compared_with_one(patch: Patch) -> None:
    """The last one is compared."""

    def by_name(source: Any, plan: Any, _: Any) -> Any:
        return {plan.place(*key): one for key, one in source.tables.items() if plan.takes(*key)}

    patch.setattr(tables, "_by_target_name", by_name)


_COMPARED = "tests/integration/test_compare_views.py"
_LOADED = "tests/integration/test_load_view.py"
_MODEL = "tests/property/test_apply_view_model.py"
_ON_MERGED = "tests/integration/test_apply_merged.py"
_MERGED = "tests/unit/test_merged_sources.py"
_HAS_ROWS = "test_target_has_the_rows_of_the_view"
_ON_TARGET = "tests/integration/test_apply_view.py"

MUTANTS = [
    Mutant(
        "a column that a view leaves out",
        hidden_columns_written,
        "tests/unit/test_view_layout.py",
        {
            "test_plan_maps_columns_by_name": "MR-5013",
            "test_places_of_columns_stay_those_of_the_record": "assert",
        },
    ),
    Mutant(
        "the view in the plan key",
        view_not_in_plan_key,
        "tests/unit/test_view_layout.py",
        {"test_view_is_part_of_the_plan_key": "assert"},
    ),
    Mutant(
        "the operation of a row at the view's border",
        operations_not_changed,
        _MODEL,
        {_HAS_ROWS: "is refused|other rows under a view"},
    ),
    Mutant(
        "rows that are not in the view",
        rows_out_of_the_view_applied,
        _MODEL,
        {_HAS_ROWS: "is refused|other rows under a view"},
    ),
    Mutant(
        "the values of added columns",
        constants_left_empty,
        _MODEL,
        {_HAS_ROWS: "other rows under a view"},
    ),
    Mutant(
        "foreign keys of rows that a view makes",
        made_rows_checked,
        "tests/unit/test_view_target_rows.py",
        {"test_both_images_decide_about_a_row_of_the_target": "assert"},
    ),
    Mutant(
        "how the target compares the constants of a merge",
        bytes_of_constants_compared,
        _MERGED,
        {
            "test_constants_differ_as_the_target_compares_them[column1-names1-False]": "DID NOT RAISE"
        },
    ),
    Mutant(
        "the keys of a merged table",
        merged_tables_not_checked,
        _MERGED,
        {
            "test_each_unique_key_has_an_added_column": "DID NOT RAISE",
            "test_constants_differ_as_the_target_compares_them[column1-names1-False]": "DID NOT RAISE",
        },
    ),
    Mutant(
        "a column goes with the last source that has it",
        contracted_at_the_first,
        "tests/unit/test_merged_columns.py",
        {"test_every_interleaving_expands_first_and_contracts_last": "lost|has None"},
    ),
    Mutant(
        "one statement for many sources",
        slots_of_a_merge_kept_apart,
        _MERGED,
        {"test_one_statement_writes_the_rows_of_all_sources": "assert"},
    ),
    Mutant(
        "schemas of one table whose rows may be equal",
        all_slots_of_a_table_merged,
        _MERGED,
        {"test_slots_merge_if_their_constants_differ": "assert"},
    ),
    Mutant(
        "masks in keys of the target",
        masks_of_target_keys_taken,
        "tests/unit/test_view_target_rows.py",
        {"test_masks_suit_the_keys_and_columns_of_the_target[redacted]": "DID NOT RAISE"},
    ),
    Mutant(
        "conditions over cascades without records",
        conditions_over_cascades_taken,
        "tests/unit/test_view_target_rows.py",
        {"test_condition_is_refused_where_a_cascade_leaves_no_record[parent]": "DID NOT"},
    ),
    Mutant(
        "a view's condition",
        condition_not_evaluated,
        "tests/unit/test_view_changes.py",
        {"test_both_images_decide_what_becomes_of_a_row": "assert"},
    ),
    Mutant(
        "a view's masks",
        masks_left_out,
        "tests/unit/test_view_masks.py",
        {
            "test_published_records_have_no_masked_value": "planted",
            "test_masked_changes_have_no_byte_of_other_values": "plant",
        },
    ),
    Mutant(
        "a text that has no mask",
        invalid_text_masked,
        "tests/unit/test_view_masks.py",
        {"test_invalid_text_has_no_hmac": "DID NOT RAISE Fatal"},
    ),
    Mutant(
        "the fingerprint of a mask's secret",
        fingerprints_not_compared,
        "tests/unit/test_view_masks.py",
        {"test_changed_secret_of_a_mask_is_refused": "DID NOT RAISE Fatal|assert"},
    ),
]

ON_TARGETS = [
    Mutant(
        "an emptied shard leaves the rows of others",
        shards_truncated,
        _ON_MERGED,
        {"test_emptied_shard_leaves_the_rows_of_others": "assert"},
    ),
    Mutant(
        "the sources of all tasks are stored",
        sources_not_stored,
        _ON_MERGED,
        {
            "test_tasks_of_several_topics_share_a_table": "MR-5010|DID NOT RAISE",
            "test_task_that_does_not_merge_is_refused": "MR-5010|DID NOT RAISE",
        },
    ),
    Mutant(
        "rows of sources that are not known keep their columns",
        unknown_rows_not_looked_for,
        _ON_MERGED,
        {"test_column_of_rows_without_a_known_source_stays": "DID NOT RAISE"},
    ),
    Mutant(
        "another view at a later start",
        edited_view_taken,
        _ON_TARGET,
        {"test_edited_view_is_refused": "DID NOT RAISE"},
    ),
    Mutant(
        "statements about names that a view changes",
        changed_names_executed,
        _ON_TARGET,
        {"test_statement_about_a_changed_name_blocks": ""},
    ),
    Mutant(
        "one target table for one source table",
        two_tables_of_one_name,
        _ON_TARGET,
        {"test_second_table_of_one_name_is_refused": "DID NOT RAISE"},
    ),
    Mutant(
        "the view of a stored conflict",
        raw_record_stored,
        _ON_TARGET,
        {"test_conflict_has_both_names_and_is_replayed": "secret"},
    ),
    Mutant(
        "the condition of compared rows",
        compared_without_condition,
        _COMPARED,
        {"test_each_planted_difference_is_found": "assert"},
    ),
    Mutant(
        "the constants of compared rows",
        compared_with_rows_of_others,
        _COMPARED,
        {"test_each_planted_difference_is_found": "assert"},
    ),
    Mutant(
        "the values of a renamed column",
        renamed_column_not_compared,
        _COMPARED,
        {"test_each_planted_difference_is_found": "assert"},
    ),
    Mutant(
        "columns that are not compared",
        columns_left_out_silently,
        _COMPARED,
        {
            "test_masked_columns_are_named_and_not_compared": "assert",
            "test_view_that_does_not_fit_is_never_equal": "assert",
        },
    ),
    Mutant(
        "two tables compared with one",
        two_tables_compared_with_one,
        _COMPARED,
        {"test_two_tables_of_one_name_are_refused": "DID NOT RAISE"},
    ),
    Mutant(
        "rows of another task in a repaired table",
        rows_of_others_repaired,
        _COMPARED,
        {"test_repair_leaves_masked_values_and_tables_of_others": "assert"},
    ),
    Mutant(
        "masked values of a row that a repair writes",
        rows_without_masked_values_written,
        _COMPARED,
        {"test_repair_leaves_masked_values_and_tables_of_others": "assert"},
    ),
    Mutant(
        "the condition of loaded rows",
        loaded_without_condition,
        _LOADED,
        {"test_table_is_created_and_has_the_rows_of_the_view": "assert"},
    ),
    Mutant(
        "the masks of loaded values",
        messages_loaded,
        _LOADED,
        {"test_each_type_has_the_documented_hmac": ""},
    ),
    Mutant(
        "rows that left the view before a load",
        table_not_emptied,
        _LOADED,
        {"test_later_load_removes_rows_that_left_the_view": "MR-5081"},
    ),
    Mutant(
        "rows of another task in a loaded table",
        rows_of_others_emptied,
        _LOADED,
        {"test_table_of_another_task_is_not_emptied": "DID NOT RAISE"},
    ),
    Mutant(
        "what a view hides of a loaded table's definition",
        definition_stored,
        _LOADED,
        {"test_table_is_created_and_has_the_rows_of_the_view": "planted"},
    ),
    Mutant(
        "values that only the target's table has",
        own_columns_replaced,
        _LOADED,
        {"test_existing_table_takes_wider_and_more_columns": "assert"},
    ),
]
