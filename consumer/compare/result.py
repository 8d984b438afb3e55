"""The result of a comparison: differences with both rows and the SQL that repairs them, and counts."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from millrace.consumer.compare.structure import Change

SHOWN_MAX = 20  # rows listed per table
TEXT_MAX = 200  # characters of a key, and of each row


class What(StrEnum):
    """How a row differs. MISSING: it is not on the target. EXTRA: it is not on the source."""

    DIFFERENT = "different"
    MISSING = "missing"
    EXTRA = "extra"


@dataclass(frozen=True, slots=True)
class RowTexts:
    """Both rows as literals, each at most ``TEXT_MAX`` characters, "" without a row, and the SQL that repairs them."""

    source: str = ""
    target: str = ""
    repair: str = ""


@dataclass(frozen=True, slots=True)
class Difference:
    """One row.

    ``key``: its chunk key, else its primary key, else all values, as literals (``9,'日本'``) and at most ``TEXT_MAX``
    characters. For more than a row, the place in parentheses. ``is_left``: a repair has left it as it was.
    """

    table: str
    what: str
    key: str
    rows: RowTexts = field(default=RowTexts(), compare=False)
    is_left: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class Part:
    """The part of one chunk. ``rows``: of the source. ``shown``: the first of ``differing`` rows.

    ``left_out``: why it was not compared; "" if it was. Then it counts as one unsettled row.
    """

    rows: int
    differing: int = 0
    unsettled: int = 0
    repaired: int = 0
    shown: tuple[Difference, ...] = ()
    left_out: str = ""


@dataclass(slots=True)
class Comparison:
    """The result. ``counts``: all differences, by table. ``differences`` lists at most ``SHOWN_MAX`` per table.

    ``unsettled``: rows that changed at each look, and chunks of tables that were altered. Nothing is known about them.
    ``left_out``: why tables, or chunks of them, were not compared. ``repaired``: of the differences.
    ``structure``: how definitions differ, and views and others of one side. ``unread``: columns of a task's view that
    are not compared, with the reason, by table. ``kept``: rows that the task keeps aside, by table.
    """

    tables: int = 0
    rows: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    unsettled: int = 0
    repaired: int = 0
    differences: list[Difference] = field(default_factory=list)
    structure: list[Change] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    unread: dict[str, tuple[str, ...]] = field(default_factory=dict)
    kept: dict[str, int] = field(default_factory=dict)

    @property
    def difference_count(self) -> int:
        """All differences of rows."""
        return self.counts.total()

    @property
    def structure_count(self) -> int:
        """All differences of structure. What is only named is none."""
        return sum(1 for change in self.structure if not change.is_only_named)

    @property
    def has_equal_rows(self) -> bool:
        """True without a row that differs, if none was left out."""
        return not (self.difference_count or self.unsettled)

    @property
    def is_equal(self) -> bool:
        """True without any difference, if nothing was left out, and no row is kept aside."""
        is_whole = not self.unread and not self.kept
        return self.has_equal_rows and not self.structure_count and is_whole

    @property
    def is_done(self) -> bool:
        """True if all rows that differed were repaired, and every table was compared to its end."""
        return self.difference_count == self.repaired and not self.left_out

    def note(self, table: str, what: str, places: Sequence[str]) -> None:
        """Count and list differences of a table that are more than a row."""
        self.counts[table] += len(places)
        self.show([Difference(table, what, place) for place in places])

    def note_once(self, table: str, what: str, place: str) -> None:
        """Count and list it, unless it is listed already."""
        if Difference(table, what, place) not in self.differences:
            self.note(table, what, [place])

    def leave_out(self, table: str, why: str) -> None:
        """Note a table, or the rest of it, that is not compared. It counts as one unsettled row."""
        self.add(table, Part(0, unsettled=1, left_out=why))

    def add(self, table: str, chunk: "Part") -> None:
        """Add what was found in a chunk of a table."""
        self.rows += chunk.rows
        self.counts += Counter({table: chunk.differing})  # none for a table without a difference
        self.unsettled += chunk.unsettled
        self.repaired += chunk.repaired
        if chunk.left_out:
            self.left_out.setdefault(table, chunk.left_out)
        self.show(chunk.shown)

    def show(self, found: Sequence[Difference]) -> None:
        """List differences, as far as their table has room. Does not count them."""
        for one in found:
            if sum(1 for known in self.differences if known.table == one.table) < SHOWN_MAX:
                self.differences.append(one)
