"""Differences for people: the key, both rows as literals, and the SQL that repairs the target.

The SQL changes only the row that it names. It begins with the settings of the session that a repair has: no foreign key
checks, so no cascade fires, UTC, and the same modes, so that a literal means the same. A generated column whose value
depended on the source's session becomes a plain one first: the target would compute the same wrong value again.
"""

from collections.abc import Sequence
from dataclasses import replace

from millrace.consumer.compare.gaps import Gap
from millrace.consumer.compare.repair_sql import repair_statements, values_query
from millrace.consumer.compare.result import SHOWN_MAX, TEXT_MAX, Difference, RowTexts, What
from millrace.consumer.compare.sides import Sides
from millrace.consumer.compare.table import Name, Pair, Side
from millrace.consumer.compare.tables import WHOLE_TABLE
from millrace.consumer.tables.exact_text import Long, exact_columns, is_long, literals
from millrace.consumer.tables.generated_columns import plain_columns_sql
from millrace.drivers.mysql.catalog import CatalogColumn
from millrace.drivers.mysql.connection import LENIENT_MODE, MySqlSession, Row
from millrace.schemas.sql.quoting import quoted, table_name

SQL_MAX = 10_000  # characters; a longer statement is not listed
RECORD_BYTES_MAX = 1 << 20  # of a row's long values, so that all of it is recorded
BEFORE_SQL = (
    f"SET foreign_key_checks=0, sql_mode='{LENIENT_MODE}', time_zone='+00:00', NAMES utf8mb4;"
)
# MySQL takes DEFAULT as 0 for the first
AFTER_SQL = "SET foreign_key_checks=1, sql_mode=DEFAULT, time_zone=DEFAULT;"


def shown(sides: Sides, pair: Pair, gaps: Sequence[Gap]) -> list[Difference]:
    """The first differences, at most ``SHOWN_MAX``; each as often as it counts."""
    found: list[Difference] = []
    for gap in gaps:
        if len(found) >= SHOWN_MAX:
            break
        found += [_difference(sides, pair, gap)] * min(gap.count, SHOWN_MAX - len(found))
    return found


def _difference(sides: Sides, pair: Pair, gap: Gap) -> Difference:
    source = gap.source and row_texts(sides.source, pair, pair.source, gap.source.name)
    target = gap.target and row_texts(sides.target, pair, pair.target, gap.target.name)
    sides.rollback()
    keys, rows = zip(source or ("", ""), target or ("", ""), strict=True)
    statements = []
    # under a view, the row may have columns that are not compared
    if not pair.view and (gap.source is None or source is not None):
        made = _with_plain_columns(sides, pair, gap)
        statements = (
            [] if made is pair else [plain_columns_sql(pair.target.table, _of_session(pair))]
        )
        statements += repair_statements(made, gap, source_values(sides.source, made, gap))
        sides.rollback()
    repair = " ".join((BEFORE_SQL, *(f"{statement};" for statement in statements), AFTER_SQL))
    is_listed = statements and len(repair) <= SQL_MAX
    texts = RowTexts(rows[0], rows[1], repair if is_listed else "")
    return Difference(pair.name, str(gap.what), keys[0] or keys[1], texts)


def _with_plain_columns(sides: Sides, pair: Pair, gap: Gap) -> Pair:
    """The pair with plain columns, if generated values differ that the target would compute again as they are."""
    columns = _of_session(pair)
    if not columns or gap.source is None or gap.target is None:
        return pair
    names = [column.name for column in columns]
    read = []
    for session, side, other, name in (
        (sides.source, pair.source, pair.target, gap.source.name),
        (sides.target, pair.target, pair.source, gap.target.name),
    ):
        values = ", ".join(
            f"HEX({each.sql})" for each in exact_columns(side.table, names, other.table)
        )
        read.append(
            session.query(f"SELECT {values} FROM {side.digest.table} WHERE {side.named([name])}")
        )
    if [list(map(str, row)) for row in read[0]] == [list(map(str, row)) for row in read[1]]:
        return pair
    plain = {column.name: replace(column, generated=False) for column in columns}
    table = pair.target.table
    return replace(
        pair, target=replace(pair.target, table=replace(table, columns={**table.columns, **plain}))
    )


def _of_session(pair: Pair) -> list[CatalogColumn]:
    found = [pair.target.table.columns[name] for name in pair.columns]
    return [column for column in found if column.by_session and column.is_stored]


def with_left(
    listed: Sequence[Difference], gaps: Sequence[Gap], done: Sequence[bool]
) -> list[Difference]:
    """``shown`` of the gaps, after a repair: which it has left. ``done``: of each gap, whether it is repaired."""
    outcomes = (is_done for gap, is_done in zip(gaps, done, strict=True) for _ in range(gap.count))
    return [
        replace(one, is_left=not is_done) for one, is_done in zip(listed, outcomes, strict=False)
    ]


def note_of(one: Difference, *, has_waited: bool = True) -> str:
    """The next step for a table that only one side has, or a row that a repair has left; "" for anything else.

    ``has_waited``: for the task, so that no statement of the source is on its way to the target.
    """
    if one.is_left:
        return "It was not repaired: it changed meanwhile, or a warning in the log has the reason."
    if one.key != WHOLE_TABLE:
        return ""
    if not has_waited:
        statement = "creates" if one.what == What.MISSING else "drops or renames"
        return (
            f"The task may not have executed yet the statement that {statement} it."
            " Compare without --now before you change anything."
        )
    if one.what == What.MISSING:
        return f"`millrace task load TASK --tables {one.table}` creates and copies it."
    return (
        "It is never dropped: only you know whether another application uses it. If none does, drop it:"
        f" DROP TABLE {table_name(*one.table.split('.', 1)).decode()};"
    )


def row_texts(session: MySqlSession, pair: Pair, side: Side, name: Name) -> tuple[str, str] | None:
    """The key and the compared columns, in the session's transaction, both cut; None if the row is gone."""
    found = _texts(session, pair, side, name, Long.BEGINNING)
    return found and (found[0][:TEXT_MAX], found[1][:TEXT_MAX])


def row_record(
    session: MySqlSession, pair: Pair, side: Side, name: Name, *, bytes_max: int
) -> tuple[str, str] | None:
    """The key, cut, and all columns of the row. Long values of more than ``bytes_max`` in all are only begun."""
    columns = [quoted(c.name).decode() for c in side.table.columns.values() if is_long(c)]
    lengths = " + ".join(f"COALESCE(LENGTH({column}), 0)" for column in columns) or "0"
    found = session.query(
        f"SELECT {lengths} FROM {side.digest.table} WHERE {side.named([name])} LIMIT 1"
    )
    if not found:
        return None
    is_whole = int(str(found[0][0])) <= bytes_max
    length = Long.WHOLE if is_whole else Long.BEGINNING
    texts = _texts(session, pair, side, name, length, also=pair.only_on(side))
    return texts and (texts[0][:TEXT_MAX], texts[1])


def _texts(
    session: MySqlSession,
    pair: Pair,
    side: Side,
    name: Name,
    long: Long,
    *,
    also: Sequence[str] = (),
) -> tuple[str, str] | None:
    """``also``: further columns, which only this side has."""
    other = pair.target if side is pair.source else pair.source
    row = exact_columns(side.table, pair.columns, other.table, long=long)
    row += exact_columns(side.table, also, side.table, long=long)
    key = row
    if pair.shown_key != tuple(pair.columns):
        key = exact_columns(side.table, pair.shown_key, other.table)
    read = ", ".join(column.sql for column in (*key, *row))
    found = session.query(
        f"SELECT {read} FROM {side.digest.table} WHERE {side.named([name])} LIMIT 1"
    )
    if not found:
        return None
    texts = literals(session, [*key, *row], found[0])
    named = (
        f"{quoted(column).decode()}={text}"
        for column, text in zip((*pair.columns, *also), texts[len(key) :], strict=True)
    )
    return ",".join(texts[: len(key)]), ", ".join(named)


def source_values(session: MySqlSession, pair: Pair, gap: Gap) -> Row | None:
    """The source's row as ``values_query`` reads it, in the current snapshot; None without a row."""
    if gap.source is None:
        return None
    found = session.query(values_query(pair, gap.source.name))
    return found[0] if found else None
