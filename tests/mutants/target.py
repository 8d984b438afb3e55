"""Guards of safe mode and LOAD DATA removed on a real server, MariaDB."""

from typing import Any

from consumer.apply import changes
from consumer.apply.changes import repeatable
from consumer.apply.writer import RowWriter
from consumer.kernel.merge import CHANGE_OP, MOVES
from consumer.row_schemas import Ints
from consumer.target.connection import TargetConnection
from tests.mutants.mutant import Mutant, Patch


def old_keys_not_deleted(patch: Patch) -> None:
    """An UPDATE of the key only replaces the row of the new key."""

    def replacing(given: Ints) -> Ints:
        made = repeatable(given)
        moved = (made[:, CHANGE_OP] != changes.OP_REPLACE) & (made[:, MOVES] != 0)
        kept: Ints = made[~moved]
        return kept

    patch.setattr(changes, "repeatable", replacing)


def loads_not_counted(patch: Patch) -> None:
    """Skipped rows and warnings are ignored."""
    load = TargetConnection.load

    def careless(*given: Any, **named: Any) -> bool:
        load(*given, **named)
        return True

    patch.setattr(TargetConnection, "load", careless)


MUTANTS = [
    Mutant(
        "safe mode turns foreign key checks off",
        lambda patch: patch.setattr(RowWriter, "_check_foreign_keys", lambda *_: None),
        "tests/integration/test_apply_safe_mode.py",
        {"test_replaced_parent_keeps_its_children[mariadb]": "assert|MR-5010"},
    ),
    Mutant(
        "safe mode deletes the old key",
        old_keys_not_deleted,
        "tests/integration/test_apply_safe_mode.py",
        {"test_any_mixture_of_states_ends_in_the_source_rows[mariadb-1]": "assert|MR-5010"},
    ),
    Mutant(
        "LOAD DATA stores every row without a warning",
        loads_not_counted,
        "tests/integration/test_apply_load.py",
        {"test_row_that_load_data_skips_is_a_conflict[mariadb]": "DID NOT RAISE Fatal"},
    ),
]
