"""The differences in schema changes that are meant, each with its reason. ``docs/formats.md`` has them as a table.

A difference that no entry expects fails the comparison, and so does an entry whose difference is gone.
"""

import re
from dataclasses import dataclass

from millrace.schemas.gtid import Flavour
from tests.kit.debezium.structure_topics import Difference

_DDL = "only the DDL says it, which Millrace does not parse"
_SYNONYMS = "|".join(
    (
        "(BOOLEAN|INT1) / TINYINT",
        "INT2 / SMALLINT",
        "MIDDLEINT / MEDIUMINT",
        "INT4 / INT",
        "INT8 / BIGINT",
        "INT UNSIGNED ZEROFILL / INT UNSIGNED",
        "(DEC|FIXED|NUMERIC) / DECIMAL",
        "(DOUBLE PRECISION|REAL|FLOAT) / DOUBLE",
        "NATIONAL CHAR / CHAR",
        "NATIONAL VARCHAR / VARCHAR",
        "CHAR / BINARY",
        "LONG VARCHAR / MEDIUMTEXT",
    )
)


@dataclass(frozen=True, slots=True)
class Expected:
    """``fields`` and ``values``: regular expressions over a whole ``Difference``. ``field``, ``reason``: the page's."""

    field: str
    reason: str
    fields: str
    values: str = ""
    flavours: tuple[Flavour, ...] = (Flavour.MYSQL, Flavour.MARIADB)

    def matches(self, difference: Difference) -> bool:
        """Whether this entry expects the difference."""
        is_field = re.fullmatch(self.fields, difference.field)
        return is_field is not None and re.fullmatch(self.values, difference.values) is not None


EXPECTED = (
    Expected(
        "all records",
        "CREATE DATABASE: no statement about a table",
        "record",
        "only Debezium: CREATE DATABASE",
    ),
    Expected("source.version", "Millrace's own version", "source.version"),
    Expected(
        "ts_ms",
        "Debezium: when it processed the statement; Millrace: when the source committed it",
        "ts_ms",
    ),
    Expected("source.row", "Debezium: of the rows event before it; Millrace: 0", "source.row"),
    Expected(
        "source.thread",
        "the set topic does not have it: null",
        "source.thread",
        flavours=(Flavour.MYSQL,),
    ),
    Expected("source.table", "RENAME TABLE: Debezium has the new name", "source.table"),
    Expected(
        "source.pos",
        "CREATE TABLE … SELECT of MariaDB: Debezium has the start of the event before it",
        "source.pos",
        flavours=(Flavour.MARIADB,),
    ),
    Expected(
        "key, databaseName, source.db, tableChanges",
        "CHAR BYTE on MariaDB: Debezium does not parse the DDL, and leaves them empty",
        "key|databaseName|source.db",
        flavours=(Flavour.MARIADB,),
    ),
    Expected(
        "structures",
        "CHAR BYTE and sequences of MariaDB: Debezium has none",
        "structure",
        "only Millrace",
        flavours=(Flavour.MARIADB,),
    ),
    Expected(
        "tableChanges",
        "RENAME TABLE: Debezium has an ALTER of the new name alone",
        "types and ids",
    ),
    Expected("table.defaultCharsetName", _DDL, "table.defaultCharsetName"),
    Expected("column.autoIncremented", _DDL, "column.autoIncremented", "(False|True) / None"),
    Expected("column.generated", _DDL, "column.generated", "(False|True) / None"),
    Expected("column.defaultValueExpression", _DDL, "column.defaultValueExpression", ".* / None"),
    Expected(
        "column.charsetName",
        "NATIONAL VARCHAR: the server's name of the character set",
        "column.charsetName",
        "utf8 / utf8mb3",
    ),
    Expected(
        "column.charsetName",
        "CHAR BYTE of MySQL: the server makes it BINARY",
        "column.charsetName",
        "utf8mb4 / None",
        flavours=(Flavour.MYSQL,),
    ),
    Expected(
        "column.length",
        "display widths, and FLOAT(n): only the DDL says them",
        "column.length",
        "\\d+ / None",
    ),
    Expected(
        "column.typeName, column.typeExpression",
        "synonyms of types, ZEROFILL: only the DDL says them",
        "column.type(Name|Expression)",
        _SYNONYMS,
    ),
    Expected(
        "column.jdbcType",
        "synonyms of types: that of the type that the server makes of them",
        "column.jdbcType",
        "-15 / 1|-9 / 12|1 / -2|16 / 5|2 / 3|[67] / 8",
    ),
)


def table_rows() -> tuple[str, ...]:
    """The rows of the documentation's table, in the order of the list."""
    return tuple(f"| {entry.field} | {entry.reason} |" for entry in EXPECTED)
