"""Compares the generated values that depend on the session, after a snapshot has been copied.

The target computes a stored column in its own session. Both sides sum the digests of the key and of these columns, in
the source's snapshot. Tables without such a column cost nothing.
"""

from consumer.copy import TablePair
from consumer.tables.digest import table_digest
from consumer.tables.generated_columns import fix_of_columns
from drivers.mysql.catalog import CatalogColumn
from drivers.mysql.connection import MySqlSession
from millrace.errors import Fatal
from schemas.chunks.chunk import EVERYTHING


def check_values(source: MySqlSession, target: MySqlSession, pair: TablePair) -> None:
    """Fatal MR-5080 if the target has computed another value than the source has."""
    columns = [
        column
        for column in pair.target.columns.values()
        if column.by_session and column.is_stored and column.name in pair.source.columns
    ]
    if not columns or _are_equal(source, target, pair, columns):
        return
    wrong = [one for one in columns if not _are_equal(source, target, pair, [one])]
    names = ", ".join(column.name for column in wrong or columns)
    what = (
        f"{pair.name}: what the target generates for {names} is not the source's value; its expression may depend on"
        " the session's time_zone, sql_mode or lc_time_names"
    )
    fix = fix_of_columns(pair.target, columns, "TASK")
    raise Fatal("MR-5080", what, fix=fix, table=pair.name)


def _are_equal(
    source: MySqlSession,
    target: MySqlSession,
    pair: TablePair,
    columns: list[CatalogColumn],
) -> bool:
    key = next((key.columns for key in pair.source.unique_keys if key.is_whole), ())
    names = list(
        dict.fromkeys(
            name
            for name in (*key, *(column.name for column in columns))
            if name in pair.target.columns
        )
    )
    flavours = (source.flavour, target.flavour)
    here = table_digest(pair.source, names, pair.target, flavours=flavours)
    there = table_digest(pair.target, names, pair.source, flavours=flavours)
    # a SUM, because no key is known to be unique: its type does not depend on character_set_results
    (one,) = source.query(here.sums(EVERYTHING))
    (other,) = target.query(there.sums(EVERYTHING))
    return list(map(str, one)) == list(map(str, other))
