"""Differences as rows to repair: what each is, and by which names both sides have its row.

Rows that are named by digest have no common name. If the table has a primary key, a missing and an extra row with the
same key are one different row.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from millrace.consumer.compare.result import What
from millrace.consumer.compare.settle import Suspect
from millrace.consumer.compare.sides import Sides, batches, named
from millrace.consumer.compare.table import Name, Pair, Side
from millrace.consumer.tables.exact_text import exact_columns
from millrace.drivers.mysql.connection import MySqlSession

PAIRED_MAX = 2_000  # rows without a chunk key whose primary keys are read
_BATCH = 500


@dataclass(frozen=True, slots=True)
class Gap:
    """A row that differs. ``source``, ``target``: its name there, None if it does not exist; the states as well.

    ``count``: how many equal rows. ``order``: by which differences are listed.
    """

    what: What
    source: Suspect | None
    target: Suspect | None
    count: int = 1
    order: tuple[str, ...] = ()

    @property
    def suspects(self) -> tuple[Suspect, ...]:
        """The states to find again before a repair, and ``source`` of each after it."""
        return tuple({one.name: one for one in (self.source, self.target) if one}.values())


def gaps_of(sides: Sides, pair: Pair, different: Sequence[Suspect]) -> list[Gap]:
    """The differences in the order in which they are listed."""
    gaps = _by_key(different) if pair.is_keyed else _by_digest(sides, pair, different)
    return sorted(gaps, key=lambda gap: (list(What).index(gap.what), gap.order))


def _by_key(different: Sequence[Suspect]) -> list[Gap]:
    found = []
    for one in different:
        source = one if one.source is not None else None
        target = one if one.target is not None else None
        what = What.EXTRA if source is None else What.MISSING if target is None else What.DIFFERENT
        found.append(Gap(what, source, target, order=one.name))
    return found


def _by_digest(sides: Sides, pair: Pair, different: Sequence[Suspect]) -> list[Gap]:
    counts = {one: int(one.source or 0) - int(one.target or 0) for one in different}
    missing = {one.name: one for one, count in counts.items() if count > 0}
    extra = {one.name: one for one, count in counts.items() if count < 0}
    keys = _keys(sides.source, pair, pair.source, list(missing))
    other_keys = _keys(sides.target, pair, pair.target, list(extra))
    found = []
    is_unique = pair.shown_key != tuple(pair.columns)
    by_key = {key: name for name, key in other_keys.items()} if is_unique else {}
    for name, one in missing.items():
        key = keys.get(name, name)
        match = extra.pop(by_key[key], None) if key in by_key else None
        what = What.MISSING if match is None else What.DIFFERENT
        found.append(Gap(what, one, match, counts[one], key))
    for name, one in extra.items():
        found.append(Gap(What.EXTRA, None, one, -counts[one], other_keys.get(name, name)))
    return found


def _keys(
    session: MySqlSession, pair: Pair, side: Side, names: list[Name]
) -> dict[Name, tuple[str, ...]]:
    """The texts of the shown key of each of the first rows."""
    other = pair.target if side is pair.source else pair.source
    columns = exact_columns(side.table, pair.shown_key, other.table)
    read = ", ".join(f"COALESCE({column.sql}, '')" for column in columns)
    found: dict[Name, tuple[str, ...]] = {}
    for batch in batches(names[:PAIRED_MAX], _BATCH):
        sql = f"SELECT HEX({side.digest.short}), {read} FROM {side.digest.table} WHERE {side.named(batch)}"
        for row in session.query(sql):
            found[(str(row[0]),)] = named(row)
    session.rollback()
    return found
