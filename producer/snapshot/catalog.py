"""Reads tables from a member's catalogue, in the session that reads their rows.

Queries name one database each: one over all databases makes MariaDB open every view.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from drivers.mysql.connection import MySqlSession, NamedRow
from drivers.mysql.grants import Role, as_grant_pattern, held_grants, needed_grants, shown
from millrace.errors import Fatal
from producer.convert.table_filter import NameFilter
from producer.snapshot.structure import CatalogColumn, CatalogKey, CatalogTable, keys_of
from schemas.gtid import Flavour
from schemas.snapshot import Name
from schemas.sql.overlaps import has_period
from schemas.sql.quoting import table_name

_TABLES = """
SELECT TABLE_NAME AS name FROM information_schema.TABLES
WHERE TABLE_SCHEMA = %s AND TABLE_TYPE IN ('BASE TABLE', 'SYSTEM VERSIONED')
"""
_ROWS = """
SELECT TABLE_NAME AS name, TABLE_ROWS AS count FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s
"""
_TABLE = """
SELECT TABLE_TYPE AS kind, ENGINE AS engine FROM information_schema.TABLES
WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s
"""
_COLUMNS = """
SELECT COLUMN_NAME AS name, COLUMN_TYPE AS type, IS_NULLABLE AS nullable, CHARACTER_SET_NAME AS charset,
  COLLATION_NAME AS collation, CHARACTER_OCTET_LENGTH AS octets, EXTRA AS extra
FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s ORDER BY ORDINAL_POSITION
"""
_KEYS = """
SELECT INDEX_NAME AS name, COLUMN_NAME AS `column`, SUB_PART AS prefix, INDEX_TYPE AS kind,
  COLLATION AS `order`
FROM information_schema.STATISTICS WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s AND NON_UNIQUE = 0
ORDER BY INDEX_NAME, SEQ_IN_INDEX
"""
_COLLATIONS = {
    Flavour.MYSQL: "SELECT COLLATION_NAME AS name, ID AS id FROM information_schema.COLLATIONS",
    # COLLATIONS has one row for all character sets of a collation like uca1400_ai_ci
    Flavour.MARIADB: "SELECT FULL_COLLATION_NAME AS name, ID AS id"
    " FROM information_schema.COLLATION_CHARACTER_SET_APPLICABILITY",
}


class Catalog:
    """The catalogue of one member, seen by one session."""

    def __init__(self, connection: MySqlSession, flavour: Flavour) -> None:
        self._connection = connection
        self._flavour = flavour
        self._collations = {
            _text(row, "name"): int(row["id"] or 0)
            for row in connection.named(_COLLATIONS[flavour])
        }

    def names(self, filter_: NameFilter, patterns: Sequence[str]) -> list[Name]:
        """The tables that the task publishes, without views and sequences.

        Fatal MR-1005 if the account might not see all that the patterns match: the server hides tables without SELECT.
        """
        self._check_rights(patterns)
        databases = [_text(row, "Database") for row in self._connection.named("SHOW DATABASES")]
        return [
            (database, name)
            for database in databases
            if filter_.admits_database(database)
            for name in self._names_in(database)
            if filter_.admits(database, name)
        ]

    def _check_rights(self, patterns: Sequence[str]) -> None:
        scopes = sorted({as_grant_pattern(pattern) for pattern in patterns})
        needed = needed_grants(Role.SNAPSHOT, self._flavour, scopes)
        if missing := held_grants(self._connection).missing(needed):
            raise Fatal("MR-1005", f"a snapshot needs {shown(missing.grants)}", fix=missing.fix)

    def _names_in(self, database: str) -> Iterator[str]:
        for row in self._connection.named(_TABLES, (database,)):
            yield _text(row, "name")

    def row_counts(self, names: Sequence[Name]) -> dict[Name, int]:
        """About how many rows these tables have, as the server estimates."""
        wanted, found = set(names), {}
        for database in sorted({database for database, _ in names}):
            for row in self._connection.named(_ROWS, (database,)):
                if (name := (database, _text(row, "name"))) in wanted:
                    found[name] = int(row["count"] or 0)
        return found

    def table(self, name: Name) -> CatalogTable | None:
        """A table; None if there is no such table."""
        found = self._connection.named(_TABLE, name)
        if not found:
            return None
        is_memory = _text(found[0], "engine").upper() == "MEMORY"
        keys = keys_of(
            [
                (
                    _text(row, "name"),
                    _text(row, "column"),
                    int(row["prefix"] or 0),
                    _text(row, "kind") == "HASH" and not is_memory,
                    _text(row, "order") == "D",
                )
                for row in self._connection.named(_KEYS, name)
            ]
        )
        return CatalogTable(
            *name,
            tuple(_column(row) for row in self._connection.named(_COLUMNS, name)),
            tuple(self._with_period(name, key) for key in keys),
            self._collations,
            _text(found[0], "kind") == "SYSTEM VERSIONED",
        )

    def _with_period(self, name: Name, key: CatalogKey) -> CatalogKey:
        """MariaDB shows WITHOUT OVERLAPS only in SHOW CREATE TABLE; the period's columns end such a key."""
        if len(key.columns) < 3 or key.is_hash:
            return key
        (row,) = self._connection.named(f"SHOW CREATE TABLE {table_name(*name).decode()}")
        return replace(key, has_period=has_period(_text(row, "Create Table"), key.name))


def _column(row: NamedRow) -> CatalogColumn:
    return CatalogColumn(
        name=_text(row, "name"),
        full_type=_text(row, "type"),
        nullable=row["nullable"] == "YES",
        charset=_text(row, "charset"),
        collation=_text(row, "collation"),
        octets=int(row["octets"] or 0),
        extra=_text(row, "extra").upper(),
    )


def _text(row: NamedRow, name: str) -> str:
    value = row[name]
    return "" if value is None else str(value)
