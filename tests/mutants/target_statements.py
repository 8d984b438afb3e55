"""Guards of statements under a view of an apply task, removed one by one."""

from typing import Any

from millrace.consumer.tables.filter import Route
from millrace.consumer.target.intents import ASKED
from millrace.consumer.write import ddl
from millrace.schemas.view import target_statement
from tests.mutants.mutant import Mutant, Patch


def effects_not_asked(patch: Patch) -> None:
    """A statement that can change which rows are in the view is executed."""
    patch.setattr(target_statement, "_values_in_doubt", lambda *_: "")


def hidden_columns_changed(patch: Patch) -> None:
    """Clauses about columns that the view leaves out are executed."""
    patch.setattr(target_statement._Columns, "hides", lambda *_: False)


def special_names_in_expressions(patch: Patch) -> None:
    """An expression may name any column."""
    patch.setattr(target_statement._Columns, "_check_names", lambda *_: None)


def masked_columns_changed(patch: Patch) -> None:
    """Clauses about masked columns, and names that only the view has, are executed."""
    patch.setattr(target_statement._Columns, "check_own", lambda *_: None)


def other_tables_of_the_name_ignored(patch: Patch) -> None:
    """A table is changed although the view gives its name to another one."""
    patch.setattr(target_statement._Tables, "_check_alone", lambda *_: None)


def content_not_compared(patch: Patch) -> None:
    """Tables exchange names although the view has other rows of them."""
    patch.setattr(target_statement, "_content", lambda _: None)


def conditions_ignored(patch: Patch) -> None:
    """IF EXISTS is no reason to wait."""
    patch.setattr(target_statement._Translation, "_check_conditions", lambda *_: None)


def other_tasks_ignored(patch: Patch) -> None:
    """Rows of a table are removed although another task writes it."""
    patch.setattr(ddl, "tasks_that_write", lambda *_: [])


def unknown_rows_removed(patch: Patch) -> None:
    """Rows that the topic never had are removed."""
    patch.setattr(ddl, "has_rows", lambda *_: False)


def _not_set(patch: Patch, column: str, value: str = "") -> None:
    """Intents are stored without a column, or without one value of it."""
    put = ddl._set_in_intent

    def without(session: Any, owner: Any, seq: int, **values: str) -> None:
        if column in values and value in ("", values[column]):
            values.pop(column)
        put(session, owner, seq, **values)

    patch.setattr(ddl, "_set_in_intent", without)


def doubts_forgotten(patch: Patch) -> None:
    """The next run takes a statement that no operator has agreed to for one that was begun."""
    _not_set(patch, "decision", ASKED)


def own_statement_forgotten(patch: Patch) -> None:
    """After a crash the source's statement is decided about, not the operator's."""
    _not_set(patch, "own_sql")


def hidden_texts_stored(patch: Patch) -> None:
    """Texts of statements are stored as they are."""
    patch.setattr(Route, "hides", lambda *_: False)
    patch.setattr(Route, "hides_some", False)


_UNIT = "tests/unit/test_target_statement.py"
_DOUBTS = "test_doubt_names_the_column_and_keeps_a_right_text"
_UNKNOWN = "test_statement_whose_effect_is_not_known_is_a_doubt"
MUTANTS = [
    Mutant(
        "the effect of a statement on a view's rows",
        effects_not_asked,
        _UNIT,
        {f"{_DOUBTS}[MODIFY kind VARCHAR(9)]": "where uses it"},
    ),
    Mutant(
        "clauses about columns that are left out",
        hidden_columns_changed,
        _UNIT,
        {"test_only_kept_columns_are_changed": "assert"},
    ),
    Mutant(
        "names in expressions",
        special_names_in_expressions,
        _UNIT,
        {f"{_DOUBTS}[ADD x INT AS (note + 1)]": "assert"},
    ),
    Mutant(
        "masked columns in statements",
        masked_columns_changed,
        _UNIT,
        {f"{_DOUBTS}[MODIFY card TEXT]": "assert", f"{_DOUBTS}[ADD email INT]": "assert"},
    ),
    Mutant(
        "statements about the only table of a name",
        other_tables_of_the_name_ignored,
        _UNIT,
        {
            "test_second_table_of_a_name_is_a_doubt": "assert",
            f"{_UNKNOWN}[TRUNCATE one_a-other tables]": "assert",
        },
    ),
    Mutant(
        "tables that exchange names",
        content_not_compared,
        _UNIT,
        {f"{_UNKNOWN}[RENAME TABLE t TO r_1-otherwise]": "assert"},
    ),
    Mutant(
        "conditions of clauses",
        conditions_ignored,
        _UNIT,
        {f"{_UNKNOWN}[ALTER TABLE r_1 DROP COLUMN IF EXISTS own-may not have own]": "assert"},
    ),
]

_SERVERS = "tests/integration/test_apply_view_ddl.py"
ON_TARGETS = [
    Mutant(
        "rows of other tasks",
        other_tasks_ignored,
        _SERVERS,
        {"test_rows_of_another_task_are_not_removed": "DID NOT RAISE|did not match"},
    ),
    Mutant(
        "rows that the topic never had",
        unknown_rows_removed,
        _SERVERS,
        {"test_rows_of_an_unknown_table_are_not_removed": "DID NOT RAISE"},
    ),
    Mutant(
        "the answer to a doubt",
        doubts_forgotten,
        _SERVERS,
        {"test_statement_that_may_change_rows_of_the_view_waits": "DID NOT RAISE"},
    ),
    Mutant(
        "texts that the view hides",
        hidden_texts_stored,
        _SERVERS,
        {"test_hidden_text_is_not_stored_or_shown": "planted"},
    ),
    Mutant(
        "the operator's statement after a crash",
        own_statement_forgotten,
        "tests/integration/test_ddl_commands.py",
        {"test_statement_of_the_operator_is_executed_once[mariadb-AFTER_EXECUTE]": "MR-504|assert"},
    ),
]
