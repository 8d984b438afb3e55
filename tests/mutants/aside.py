"""Guards of rows that are kept aside: what follows them, and in which order they come back."""

from typing import Any

from millrace.consumer.target.aside import chain_of, keep_row
from millrace.consumer.write import aside, resolve_conflict
from millrace.consumer.write.aside import PartAside
from tests.kit.apply.aside_model import NOT_EQUAL, OTHER_END, OTHER_KEYS
from tests.mutants.mutant import Mutant, Patch

_MODEL = "tests/property/test_aside_model.py"
_TEST = "test_kept_rows_and_their_followers_end_as_on_the_source"
_WRONG = {_TEST: f"is refused|{NOT_EQUAL}|{OTHER_END}|{OTHER_KEYS}|MR-5061"}


def first_key_only(patch: Patch) -> None:
    """Only the row's own key is held."""
    keys = aside._keys_of
    patch.setattr(aside, "_keys_of", lambda *given: keys(*given)[:1])


def later_parts_not_checked(patch: Patch) -> None:
    """A part applies all of its rows: serial ones, and those of lanes and shares."""

    def all_left(part: PartAside) -> None:
        part.left = part.numbers

    patch.setattr(PartAside, "__post_init__", all_left)


def rest_of_a_part_not_checked(patch: Patch) -> None:
    """Rows of the part that has the refused one are applied."""
    patch.setattr(PartAside, "follows", lambda *_: False)


def followers_hold_nothing(patch: Patch) -> None:
    """Only the keys of refused rows are held."""

    def without_keys(connection: Any, task: str, row: Any, keys: Any) -> None:
        followed = connection.work.conflicts[row.seq][6].startswith("a change of its keys")
        keep_row(connection, task, row, [] if followed else keys)

    patch.setattr(aside, "keep_row", without_keys)


def replayed_backwards(patch: Patch) -> None:
    """The last change of a chain comes first."""
    patch.setattr(resolve_conflict, "chain_of", lambda *given: chain_of(*given)[::-1])


def replayed_alone(patch: Patch) -> None:
    """A row is replayed without those that it depends on."""
    patch.setattr(resolve_conflict, "chain_of", lambda _, __, seq: [seq])


MUTANTS = [
    Mutant("all keys of a kept row", first_key_only, _MODEL, _WRONG),
    Mutant("kept keys in later parts", later_parts_not_checked, _MODEL, _WRONG),
    Mutant("kept keys in the same part", rest_of_a_part_not_checked, _MODEL, _WRONG),
    Mutant("keys of what follows a kept row", followers_hold_nothing, _MODEL, _WRONG),
    Mutant("the order of a replay", replayed_backwards, _MODEL, _WRONG),
    Mutant("the rest of a chain", replayed_alone, _MODEL, _WRONG),
]
