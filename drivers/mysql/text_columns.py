"""The columns that conditions can compare with texts, and MariaDB's UUID columns. Apart: SQL is in `drivers.mysql`.

Structures from here have only these columns, for all tables of a database at once. Those of views are among them.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from millrace.drivers.mysql.connection import MySqlSession, text_of
from millrace.schemas.table.structure import Column, ColumnType, TableSchema, TextEncoding, TypeCode

_SQL = """
SELECT TABLE_NAME, COLUMN_NAME, DATA_TYPE, CHARACTER_SET_NAME, COLLATION_NAME FROM information_schema.COLUMNS
WHERE TABLE_SCHEMA = %s AND DATA_TYPE IN
    ('char', 'varchar', 'tinytext', 'text', 'mediumtext', 'longtext', 'uuid')
ORDER BY TABLE_NAME, ORDINAL_POSITION
"""
_UUID = "uuid"


@dataclass(frozen=True, slots=True)
class TextColumns:
    """``texts``: the table with its text columns alone. ``uuids``: the names of its UUID columns."""

    texts: TableSchema
    uuids: tuple[str, ...]


def read_text_columns(
    connection: MySqlSession, databases: Iterable[str], collations: Mapping[str, int]
) -> Iterator[TextColumns]:
    """Those of each table that has one. ``collations``: their numbers by name."""
    for database in databases:
        texts: dict[str, list[Column]] = {}
        uuids: dict[str, list[str]] = {}
        for row in connection.query(_SQL, (database,)):
            table, name, kind, charset, collation = (
                "" if value is None else text_of(value) for value in row
            )
            texts.setdefault(table, [])
            if kind.lower() == _UUID:
                uuids.setdefault(table, []).append(name)
            elif (number := collations.get(collation.lower())) is not None:
                encoding = TextEncoding(charset.lower(), number)
                type_ = ColumnType(TypeCode.VARCHAR, text=encoding)
                texts[table].append(Column(name, type_, nullable=True))
        for table, columns in texts.items():
            structure = TableSchema(database, table, tuple(columns))
            yield TextColumns(structure, tuple(uuids.get(table, ())))
