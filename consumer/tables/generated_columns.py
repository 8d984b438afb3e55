"""The way out where the target computes something otherwise than the source's session did: its value is not computed.

A row image has the source's value, and a plain column is written. A unique key or a CHECK that depends on the session
has been checked by the source. Pure.
"""

import re
from collections.abc import Sequence

from millrace.drivers.mysql.catalog import CatalogColumn, CatalogTable, UniqueKey
from millrace.schemas.sql.quoting import charset_name, quoted, table_name

_KEY = re.compile(r"for key '(?:[^']*\.)?([^'.]+)'")
_CHECKS = (
    (re.compile(r"Check constraint '([^']+)' is violated"), "ALTER CHECK {} NOT ENFORCED"),
    (re.compile(r"CONSTRAINT `([^`.]+)` failed"), "DROP CONSTRAINT {}"),
)


def plain_columns_sql(table: CatalogTable, columns: Sequence[CatalogColumn]) -> str:
    """ALTER TABLE that makes stored generated columns plain."""
    parts = (f"MODIFY {quoted(column.name).decode()} {_type(column)}" for column in columns)
    return f"ALTER TABLE {_name(table)} {', '.join(parts)}"


def fix_of_columns(table: CatalogTable, columns: Sequence[CatalogColumn], task: str) -> str:
    """The fix of MR-5017 if one of the columns may depend on the session; else ""."""
    if not any(column.by_session for column in columns):
        return ""
    if not all(column.is_stored for column in columns):
        return _fix_of_keys(table, [key for key in table.unique_keys if key.by_session], task)
    return (
        "The source computed the value in its own session. Make the column a plain one on the target:"
        f" `{plain_columns_sql(table, columns)}`. Then `millrace task resume {task}`: the task writes the source's"
        f" values. `millrace compare {task} --repair` corrects rows that were written before."
    )


def fix_of_refusal(table: CatalogTable, message: str, task: str) -> str:
    """The fix if the server refuses a row by a key or a CHECK, or can't compute a value in this session; else ""."""
    if key := _KEY.search(message):
        keys = [each for each in table.unique_keys if each.by_session and each.name == key[1]]
        return _fix_of_keys(table, keys, task) if keys else ""
    for pattern, change in _CHECKS:
        if check := pattern.search(message):
            sql = f"ALTER TABLE {_name(table)} {change.format(quoted(check[1]).decode())}"
            return (
                "Make the target's table equal to the source's. If it is equal, the CHECK depends on the session's"
                f" time_zone or sql_mode, and the source has checked the row: `{sql}` on the target. Then `millrace"
                f" task resume {task}`."
            )
    columns = [each for each in table.columns.values() if each.by_session and each.is_stored]
    if not columns:
        return ""
    return (
        "Make the target's table equal to the source's. If it is equal, the value is generated and depends on the"
        f" session's time_zone or sql_mode: `{plain_columns_sql(table, columns)}` on the target makes it a plain"
        f" column, which the task writes. Then `millrace task resume {task}`."
    )


def _fix_of_keys(table: CatalogTable, keys: Sequence[UniqueKey], task: str) -> str:
    found = [table.columns[name] for key in keys for name in key.columns if name]
    stored = [column for column in dict.fromkeys(found) if column.by_session and column.is_stored]
    dropped = [
        f"DROP INDEX {quoted(key.name).decode()}"
        for key in keys
        if any(
            not name or (table.columns[name].by_session and not table.columns[name].is_stored)
            for name in key.columns
        )
    ]
    changes = [plain_columns_sql(table, stored)] if stored else []
    if dropped:
        changes.append(f"ALTER TABLE {_name(table)} {', '.join(dropped)}")
    return (
        "The key compares values that may depend on the session's time_zone, sql_mode or lc_time_names, and the source"
        " has compared them in its own session. If the source has both rows, let the target not compute them:"
        f" `{'; '.join(changes)}`. Then `millrace task resume {task}`."
    )


def _name(table: CatalogTable) -> str:
    return table_name(*table.key).decode()


def _type(column: CatalogColumn) -> str:
    text = "TYPE" if column.is_labelled else column.type_text  # without case
    if column.charset and column.base_type != "json":
        text += f" CHARACTER SET {charset_name(column.charset)}"
        text += f" COLLATE {charset_name(column.collation)}"
    return text + (" NULL" if column.nullable else " NOT NULL")
