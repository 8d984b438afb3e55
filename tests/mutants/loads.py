"""Guards of loads, comparisons and safe mode that need no server, removed one by one."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from millrace.consumer.backfill import join
from millrace.consumer.compare import settle
from millrace.consumer.compare.settle import Looked, States, Suspect
from millrace.consumer.target.load_range import Fate, LoadRange
from millrace.consumer.target.loads import LoadStream
from millrace.consumer.target.progress import Mark
from millrace.drivers.mysql import snapshot_position
from millrace.drivers.mysql.catalog import TableKey
from millrace.schemas.gtid import AnyGtid, GtidSet
from tests.mutants.mutant import Mutant, Patch


def owned_gtids_ignored(patch: Patch) -> None:
    """The end of a load has only transactions that are executed."""
    patch.setattr(GtidSet, "parse_owned", lambda _: GtidSet())


def begin_at_the_end_of_the_binlog(patch: Patch) -> None:
    """MariaDB's binlog has transactions that no read sees yet."""
    patch.setattr(snapshot_position, "begin_snapshot", snapshot_position.executed)


def _fate(changed: Mapping[Fate, Fate], *, is_exact: bool) -> Callable[[Patch], None]:
    """Rows of exact tables, or of tables read in chunks, have another fate."""

    def off(patch: Patch) -> None:
        real = LoadRange.fate

        def fate(self: LoadRange, table: TableKey, gtid: AnyGtid) -> Fate:
            found, copied = real(self, table, gtid), self.tables.get(table)
            is_meant = copied is not None and copied.is_exact == is_exact
            return changed.get(found, found) if is_meant else found

        patch.setattr(LoadRange, "fate", fate)

    return off


def joined_at_any_mark(patch: Patch) -> None:
    """A side stream gives its tables to main when its own range is over."""
    can_join = join.can_join

    def at_once(main: Mark, own: Mark, load: LoadStream | None) -> bool:
        return can_join(replace(main, seq=own.seq, next_offset=own.next_offset), own, load)

    patch.setattr(join, "can_join", at_once)


def one_look_is_enough(patch: Patch) -> None:
    """A row counts as different at the first look that finds other states."""
    look = settle.look

    def first(suspects: Sequence[Suspect], before: States, there: States, after: States) -> Looked:
        seen = [Suspect(one.name, after.get(one.name), there.get(one.name)) for one in suspects]
        return look(seen, before, there, after)

    patch.setattr(settle, "look", first)


_ANY_MOMENT = "test_rows_read_at_any_moment_end_as_on_the_source"
_EXACT_OR_REFUSED = "test_range_over_cascades_is_exact_or_refused"
_CASCADE_MODEL = "tests.property.test_cascade_model"

MUTANTS = [
    Mutant(
        "the end of a load has transactions that are visible and not executed",
        owned_gtids_ignored,
        "tests/unit/test_load_source.py",
        {"test_end_has_transactions_that_are_visible_and_not_executed_yet": "assert"},
    ),
    Mutant(
        "a load begins with a set that is visible",
        begin_at_the_end_of_the_binlog,
        "tests/unit/test_load_source.py",
        {"test_begin_has_only_transactions_that_are_visible": "assert"},
    ),
    Mutant(
        "rows that an exact copy has are skipped",
        _fate({Fate.SKIPPED: Fate.APPLIED}, is_exact=True),
        "tests/property/test_load_range.py",
        {_ANY_MOMENT: "assert"},
    ),
    Mutant(
        "rows that a copy may have are repeated",
        _fate({Fate.REPEATED: Fate.APPLIED}, is_exact=False),
        "tests/property/test_load_range.py",
        {_ANY_MOMENT: "assert"},
    ),
    Mutant(
        "streams join at one mark",
        joined_at_any_mark,
        "tests/unit/test_side_join.py",
        {"test_streams_join_at_one_mark": "assert not True"},
    ),
    Mutant(
        "a difference needs two looks",
        one_look_is_enough,
        "tests/unit/test_compare_settle.py",
        {"test_difference_needs_two_looks_with_the_same_states": "assert"},
    ),
    Mutant(
        "a cascade over several levels is refused",
        lambda patch: patch.setattr(f"{_CASCADE_MODEL}.why_deletion_is_inexact", lambda *_: ""),
        "tests/property/test_cascade_model.py",
        {_EXACT_OR_REFUSED: r"\(544, "},
    ),
    Mutant(
        "a change of a key that rows follow is refused",
        lambda patch: patch.setattr(f"{_CASCADE_MODEL}.why_change_is_inexact", lambda _: ""),
        "tests/property/test_cascade_model.py",
        {_EXACT_OR_REFUSED: r"\(178, "},
    ),
]
