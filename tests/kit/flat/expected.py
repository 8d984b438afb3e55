"""The differences from Maxwell and from Canal that are meant, each with its reason. ``docs/formats.md`` has them as tables.

A difference that no entry expects fails the comparison, and so does an entry whose difference is gone.
"""

# entries in long lines are easier to read than in short ones:
# ruff: noqa: E501

import re
from collections.abc import Collection
from dataclasses import dataclass

from millrace.schemas.gtid import Flavour
from tests.kit.flat.comparison import Difference, Kind

BOTH = (Flavour.MYSQL, Flavour.MARIADB)
MARIADB, MYSQL = (Flavour.MARIADB,), (Flavour.MYSQL,)
ANY = ".*"
_VALUE = "(data|old|key)\\.COLUMN"


@dataclass(frozen=True, slots=True)
class Expected:
    """``fields``, ``types`` and ``values`` are regular expressions over a whole ``Difference``.

    ``field``, ``type`` and ``reason`` are the row of the documentation.
    """

    field: str
    type: str
    reason: str
    fields: str
    types: str = ""
    values: str = ANY
    kind: Kind = Kind.DIFFERS
    flavours: tuple[Flavour, ...] = BOTH

    def matches(self, difference: Difference) -> bool:
        """Whether this entry expects the difference."""
        return (
            self.kind is difference.kind
            and re.fullmatch(self.fields, difference.field) is not None
            and re.fullmatch(self.types, difference.type) is not None
            and re.fullmatch(self.values, difference.values) is not None
        )


def _value(
    type_: str,
    reason: str,
    types: str,
    values: str = ANY,
    flavours: tuple[Flavour, ...] = BOTH,
) -> Expected:
    return Expected("value", type_, reason, _VALUE, types, values, flavours=flavours)


def _missing(type_: str, reason: str, types: str, flavours: tuple[Flavour, ...] = BOTH) -> Expected:
    return Expected(
        "all records", type_, reason, "record", types, kind=Kind.ONLY_MILLRACE, flavours=flavours
    )


_UNPADDED = "BINARY(n)"
_PADDING = "{} leaves out zero bytes at the end, as the binlog has them; Millrace has n bytes"
_BINARY_TYPES = "BINARY\\(\\d+\\)|CHAR BYTE|CHAR\\(20\\) CHARACTER SET binary|key4\\.k"
_SMALLEST = _value(
    "FLOAT, DOUBLE",
    "the smallest numbers: the same value, of which Java prints two digits",
    "FLOAT|DOUBLE",
    '"?4\\.9E-324"? / "?5\\.0E-324"?|"?1\\.4E-45"? / "?1\\.0E-45"?',
)
_PROMOTED = "the server stores a UNIQUE key without NULL as the primary key, and so does the binlog; {} reads the DDL"
_UNPARSED = "{} does not parse the table's DDL, and leaves its rows out"

MAXWELL: tuple[Expected, ...] = (
    Expected(
        "key",
        "tables without a key",
        "Maxwell: a random `_uuid`, or no column; Millrace: no key",
        "@key",
    ),
    Expected(
        "key, primary_key",
        "tables with a UNIQUE key alone",
        _PROMOTED.format("Maxwell"),
        "key\\.COLUMN",
        "unique_only\\.code",
        kind=Kind.ONLY_MILLRACE,
    ),
    Expected(
        "key, primary_key",
        "tables with a UNIQUE key alone",
        _PROMOTED.format("Maxwell"),
        "primary_key_columns",
    ),
    Expected("key, primary_key", _UNPADDED, _PADDING.format("Maxwell"), "primary_key"),
    Expected(
        "xid",
        "",
        "Maxwell: InnoDB's number; Millrace: the number in the GTID. Both are the same in all records of a source transaction",
        "xid",
    ),
    _value(_UNPADDED, _PADDING.format("Maxwell"), _BINARY_TYPES),
    _value("BIT(33) to BIT(63)", "Maxwell computes with 32 bits", "BIT\\(\\d+\\)"),
    _value(
        "DATE, DATETIME",
        "a day that its month does not have: Maxwell moves it, 2024-02-31 to 2024-03-02; a zero month or day: Maxwell writes 0000-00-00. Millrace as stored",
        "DATE|DATETIME\\(\\d\\) NULL|zero\\.d\\w+|zero\\.d",
        '"(0000-00-00|2024-03-02).*" / "2024-.*"',
    ),
    _value(
        "TIME",
        "below 0 and from 24 hours on: Maxwell takes it for a time of a day",
        "TIME|TIME\\(\\d\\) NULL",
    ),
    _value("YEAR", "0000: Maxwell writes 1900", "YEAR", "1900 / 0"),
    _SMALLEST,
    _value(
        "ENUM",
        "the number 0, of a value that was refused: Maxwell null, Millrace an empty text",
        "ENUM\\('a', 'b'\\)",
        'null / ""',
    ),
    Expected(
        "value",
        "ENUM",
        "the number 0, of a value that was refused: Maxwell null, Millrace an empty text",
        "data\\.COLUMN",
        "ENUM\\('a', 'b'\\)",
        kind=Kind.ONLY_MILLRACE,
    ),
    Expected(
        "value",
        "ENUM",
        "the number 0, of a value that was refused: Maxwell null, Millrace an empty text",
        "@data",
    ),
    _value(
        "SET",
        "an empty label alone: Maxwell has it in the array",
        "SET\\('', 'b'\\)",
        '\\[""\\] / \\[\\]',
    ),
    _value(
        "ENUM, SET",
        "Maxwell takes the label from the DDL; the server stored another one, which the binlog has",
        "(ENUM|SET)\\(.*\\) CHARACTER SET sjis",
    ),
    _value(
        "JSON",
        "Maxwell prints doubles with all digits, times without trailing zeros or wrong, binary without its type",
        "JSON",
    ),
    _value("geometry", "the same numbers, of which Maxwell prints all digits", "POINT"),
    _value(
        "text in big5, cp932, latin1, sjis, ujis",
        "Millrace decodes as the server does, Maxwell as Java's character set of a similar name",
        "VARCHAR\\(40\\) CHARACTER SET (big5|cp932|latin1|sjis|ujis)",
    ),
    _missing(
        "text in eucjpms, swe7, utf16le, utf8mb3",
        "Maxwell stops: it does not know the character set",
        "VARCHAR\\(40\\) CHARACTER SET (eucjpms|swe7|utf16le|utf8mb3)",
    ),
    _missing(
        "VECTOR, INVISIBLE columns, FIXED, CREATE TABLE … SELECT",
        _UNPARSED.format("Maxwell"),
        "VECTOR\\(3\\)|invisible|synonyms|copied",
    ),
)

CANAL: tuple[Expected, ...] = (
    Expected(
        "key",
        "",
        "Canal has none; it computes the partition from the columns that `partitionHash` names",
        "@key",
    ),
    Expected("id", "", "Canal: the number of its batch; Millrace: the `seq`", "id"),
    Expected(
        "gtid",
        "",
        "Canal: the set of all GTIDs so far, if it follows GTIDs; Millrace: that of the source transaction",
        "gtid",
    ),
    Expected(
        "ts",
        "",
        "Canal: when it made the message; Millrace: when the source committed, so that a rebuild gives equal bytes",
        "ts",
    ),
    Expected("pkNames", "tables with a UNIQUE key alone", _PROMOTED.format("Canal"), "pkNames"),
    Expected(
        "mysqlType",
        "display widths, ZEROFILL, FLOAT(m,d), BOOLEAN, a precision of 0",
        "only the DDL says it, which Millrace does not parse; upper and lower case as the DDL",
        "mysqlType\\.COLUMN",
        "BOOLEAN|(DATETIME|TIME|TIMESTAMP)\\(0\\) NULL|FLOAT\\(10,2\\)|booleans\\.\\w+|with a default",
    ),
    Expected(
        "mysqlType, sqlType",
        "text in the character set `binary`",
        "the server makes it BINARY or BLOB",
        "(mysqlType|sqlType)\\.COLUMN",
        "(CHAR\\(20\\)|TEXT) CHARACTER SET binary",
    ),
    Expected(
        "mysqlType",
        "ENUM, SET",
        "Canal takes the label from the DDL; the server stored another one, which the binlog has",
        "mysqlType\\.COLUMN",
        "(ENUM|SET)\\(.*\\) CHARACTER SET sjis",
    ),
    Expected(
        "mysqlType",
        "ENUM, SET with other letters than ASCII",
        "Canal decodes MariaDB's statements as Latin-1",
        "mysqlType\\.COLUMN",
        "(ENUM|SET)\\(.*\\) CHARACTER SET (latin1|binary|gbk|sjis|ucs2|utf16|utf32)",
        flavours=MARIADB,
    ),
    Expected(
        "mysqlType, sqlType",
        "UUID, INET4, INET6, JSON of MariaDB",
        "only the DDL says it, which Millrace does not parse",
        "(mysqlType|sqlType)\\.COLUMN",
        "UUID|INET[46]|JSON",
        flavours=MARIADB,
    ),
    _value(
        "UUID, INET4, INET6",
        "in the binlog they look like BINARY; Canal decodes their bytes as UTF-8",
        "UUID|INET[46]",
        flavours=MARIADB,
    ),
    _value(_UNPADDED, _PADDING.format("Canal"), _BINARY_TYPES),
    _value(
        "DECIMAL",
        "Canal writes fewer zeros after the point if there are only zeros",
        "DECIMAL\\(\\d+,\\d+\\)|key1\\.k|one\\.amount|with a default",
        '"-?\\d+\\.0+" / "-?\\d+\\.0+"',
    ),
    _SMALLEST,
    _value(
        "text in other character sets than UTF-8 and ASCII",
        "Canal decodes all columns of a server in one character set",
        "(VARCHAR\\(40\\)|CHAR\\(20\\)|TEXT) CHARACTER SET \\w+|(altered|renamed)\\.label|switched\\.v",
    ),
    _value("JSON of MySQL", "Canal has its own printer", "JSON", flavours=MYSQL),
    _value("JSON of MariaDB", "Canal takes it for bytes", "JSON", flavours=MARIADB),
    _missing("JSON of MySQL with binary values", "Canal stops", "JSON", flavours=MYSQL),
    _missing(
        "SET in the character set binary, CHAR BYTE",
        "Canal stops",
        "SET\\(.*\\) CHARACTER SET binary|byte_word",
    ),
    _missing(
        "VECTOR, INVISIBLE columns, synonyms of types",
        _UNPARSED.format("Canal"),
        "VECTOR\\(3\\)|invisible|synonyms",
        flavours=MYSQL,
    ),
    _missing(
        "INVISIBLE columns, synonyms of types, IF NOT EXISTS in ALTER TABLE, sequences, compressed columns",
        _UNPARSED.format("Canal"),
        "invisible|synonyms|switched|numbers|.* COMPRESSED",
        flavours=MARIADB,
    ),
    _missing(
        "text in other character sets, MariaDB",
        _UNPARSED.format("Canal"),
        "VARCHAR\\(40\\) CHARACTER SET \\w+",
        flavours=MARIADB,
    ),
)


def table_rows(entries: Collection[Expected]) -> tuple[str, ...]:
    """The rows of the documentation's table, in the order of the list."""
    rows = (f"| {entry.field} | {entry.type} | {entry.reason} |" for entry in entries)
    return tuple(dict.fromkeys(rows))
