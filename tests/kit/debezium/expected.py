"""The differences from Debezium that are meant, each with its reason. ``docs/formats.md`` has them as a table.

A difference that no entry expects fails the comparison, and so does an entry whose difference is gone.
"""

# entries in long lines are easier to read than in short ones:
# ruff: noqa: E501

import re
from collections.abc import Iterator
from dataclasses import dataclass

from millrace.schemas.gtid import Flavour
from tests.kit.debezium.comparison import Difference, Kind

BOTH = (Flavour.MYSQL, Flavour.MARIADB)
MYSQL, MARIADB = (Flavour.MYSQL,), (Flavour.MARIADB,)
ANY = ".*"
_COLUMN = "row.COLUMN"
_LETTERS = ANY  # texts that need no pattern


@dataclass(frozen=True, slots=True)
class Expected:
    """``fields``, ``types`` and ``values`` are regular expressions over a whole ``Difference``.

    ``field``, ``type`` and ``reason`` are the row of the documentation.
    """

    field: str
    type: str
    reason: str
    part: str
    fields: str
    types: str = ""
    values: str = ""
    kind: Kind = Kind.DIFFERS
    flavours: tuple[Flavour, ...] = BOTH

    def matches(self, difference: Difference) -> bool:
        """Whether this entry expects the difference."""
        return (
            self.part == difference.part
            and self.kind is difference.kind
            and re.fullmatch(self.fields, difference.field) is not None
            and re.fullmatch(self.types, difference.type) is not None
            and re.fullmatch(self.values, difference.values) is not None
        )


def _value(
    type_: str, reason: str, types: str, values: str, flavours: tuple[Flavour, ...] = BOTH
) -> Expected:
    return Expected(
        "value of a column",
        type_,
        reason,
        "value",
        "row\\.COLUMN",
        types,
        values,
        flavours=flavours,
    )


def _schema(
    field: str,
    type_: str,
    reason: str,
    types: str,
    *,
    kind: Kind = Kind.DIFFERS,
    flavours: tuple[Flavour, ...] = BOTH,
) -> Expected:
    pattern = f"row\\.COLUMN\\.@{field.split()[-1]}"
    return Expected(
        f"schema: {field}", type_, reason, "value schema", pattern, types, ANY, kind, flavours
    )


def _unread(type_: str, types: str, reason: str) -> Iterator[Expected]:
    for op in ("c", "u", "d", "tombstone"):
        yield Expected(
            "all records",
            type_,
            reason,
            "record",
            op,
            types,
            kind=Kind.ONLY_MILLRACE,
            flavours=MARIADB,
        )


def _names_in_avro() -> Iterator[Expected]:
    """The columns of ``order-line``, whose names Avro does not allow, are two different columns."""
    row = (
        "name of a column",
        "`debezium-avro`, names with other characters than `[A-Za-z0-9_]`",
        "Debezium replaces them with `_`, so that two columns can get one name; Millrace escapes them",
    )
    lists = (
        *(("key", "@fields"), ("key schema", "@fields")),
        *(
            ("value", "@before fields"),
            ("value", "@after fields"),
            ("value schema", "before\\.@fields"),
        ),
    )
    for part, field in lists:
        yield Expected(*row, part, field, values='\\["i_d".* / \\["i_u0020_d".*')
    columns = (
        *(("key", "COLUMN"), ("key schema", "COLUMN\\.@type"), ("value", "row\\.COLUMN")),
        *(
            ("value schema", f"row\\.COLUMN\\.@{each}")
            for each in ("type", "optional", "avro default")
        ),
    )
    for part, field in columns:
        yield Expected(
            *(*row, part, field, "order-line\\.(i_d|na_ve|a_b|quo_te|_1st)", ANY),
            kind=Kind.ONLY_DEBEZIUM,
        )
        yield Expected(
            *(*row, part, field, "order-line\\..*_u[0-9a-f]{4}_.*", ANY), kind=Kind.ONLY_MILLRACE
        )


_DDL_ONLY = "only the DDL says it, which Millrace does not parse"
_CLOCK = "Debezium: when it processed the row. Millrace: when the source committed, so that a rebuild gives equal bytes"
_NO_MICROSECONDS = "the set topic has the commit time in milliseconds"
_DDL_TEXT = (
    "Debezium takes the label from the DDL; the server stored another one, which the binlog has"
)
_UNPARSED = "Debezium does not parse the table's DDL and leaves its rows out"
_AS_SERVER = (
    "Millrace decodes as the server does, Debezium as Java's character set of a similar name"
)

EXPECTED: tuple[Expected, ...] = (
    *(
        Expected(
            "topic, schema: name",
            "names with other characters than `[A-Za-z0-9_]`",
            "Debezium replaces them with `_`, so that two tables can meet in one topic; Millrace escapes them",
            part,
            fields,
        )
        for part, fields in (
            ("key schema", "@name"),
            ("value schema", "@name"),
            ("value schema", "(before|after)\\.@name"),
            ("key schema", "@avro namespace"),
            ("value schema", "@avro namespace"),
        )
    ),
    *_names_in_avro(),
    Expected(
        "tombstone of a delete",
        "tables without a key",
        "a record without key and value deletes nothing; Millrace writes none",
        "record",
        "tombstone",
        "table without a key",
        kind=Kind.ONLY_DEBEZIUM,
    ),
    *(
        Expected(
            "headers task, epoch, seq, part, n",
            "",
            "positions and counters, which Debezium does not have",
            f"{part}header",
            name,
            kind=Kind.ONLY_MILLRACE,
        )
        for part in ("", "transaction ")
        for name in ("task", "epoch", "seq", "part", "n")
    ),
    Expected(
        "headers `__debezium.context.…`",
        "",
        "names of the connector and of its task; Millrace has the header `task`",
        "header",
        "__debezium\\.context\\..*",
        kind=Kind.ONLY_DEBEZIUM,
    ),
    Expected(
        "BEGIN",
        "MariaDB, statements without rows",
        "Debezium writes it without an END; Millrace writes neither",
        "transaction",
        "BEGIN",
        kind=Kind.ONLY_DEBEZIUM,
        flavours=MARIADB,
    ),
    *(
        Expected(
            "event_count, data_collections of an END",
            "tables that Debezium does not read, see below",
            "Debezium counts no event",
            "transaction value",
            name,
            "END",
            values,
            flavours=MARIADB,
        )
        for name, values in (("event_count", "0 / \\d+"), ("data_collections", "\\[\\] / \\[.+"))
    ),
    Expected(
        "ts_ms of a BEGIN",
        "MariaDB",
        "Debezium: that of the event before it in the binlog. Millrace: that of the rows, as END has it",
        "transaction value",
        "ts_ms",
        "BEGIN",
        ANY,
        flavours=MARIADB,
    ),
    Expected("source.version", "", "Millrace's own version", "value", "source\\.version"),
    Expected(
        "source.thread",
        "",
        "the set topic does not have it: null",
        "value",
        "source\\.thread",
        flavours=MYSQL,
    ),
    Expected(
        "source.ts_us, source.ts_ns",
        "MySQL",
        _NO_MICROSECONDS,
        "value",
        "source\\.ts_us",
        flavours=MYSQL,
    ),
    Expected(
        "source.ts_us, source.ts_ns",
        "MySQL",
        _NO_MICROSECONDS,
        "value",
        "source\\.ts_ns",
        flavours=MYSQL,
    ),
    Expected(
        "source.pos",
        "MariaDB",
        "Debezium: start of the event before the rows; Millrace: start of the rows event",
        "value",
        "source\\.pos",
        flavours=MARIADB,
    ),
    *(Expected("ts_ms, ts_us, ts_ns", "", _CLOCK, "value", f"ts_{unit}s") for unit in "mun"),
    Expected(
        "schema: default",
        "columns with a default",
        _DDL_ONLY,
        "value schema",
        "row\\.COLUMN\\.@(avro )?default",
        "with a default",
        ANY,
        Kind.ONLY_DEBEZIUM,
    ),
    *(
        Expected(
            "schema: default",
            "columns with a default",
            _DDL_ONLY,
            "value schema",
            f"row\\.COLUMN\\.@{name}",
            "with a default",
            values,
        )
        for name, values in (("avro default", ".* / null"), ("optional", '"last" / "null first"'))
    ),
    _value(
        "columns with a default",
        "Kafka Connect's JsonConverter writes the default for NULL; without a default in the schema, NULL is null",
        "with a default",
        ".* / null",
    ),
    _value(
        "DATE, DATETIME, TIMESTAMP NOT NULL with a default",
        "a zero date: Debezium writes the default, Millrace 1970-01-01 as for columns without one",
        "with a default",
        '(98117.*|"2001-02-03T.*|"2000-01-01T.*) / (0|"1970-01-01T00:00:00Z")',
    ),
    _value(
        "DATE, DATETIME",
        "a day that its month does not have, such as 2024-02-31: Debezium stops, or writes 1970-01-01 if it is told to warn; Millrace does as `zero_dates` says",
        "DATE|DATETIME\\(\\d\\) NULL",
        '(0|"1970-01-01(T00:00:00)?Z") / null',
    ),
    _value(
        "DATETIME as nanoseconds",
        "outside 1677 to 2262: Debezium 3.5 writes a number that has wrapped, 3.6 stops; Millrace does as `zero_dates` says",
        "DATETIME\\(\\d\\) NULL",
        "(-48|62)\\d{17} / null",
        MARIADB,
    ),
    _value(
        "TIMESTAMP of MariaDB",
        "zero: Debezium writes 1970-01-01, Millrace as for MySQL null",
        "TIMESTAMP(\\(\\d\\))? NULL",
        '"1970-01-01T00:00:00(\\.0+)?Z" / null',
        MARIADB,
    ),
    _value(
        "TIME",
        "24:00:00 as Connect's Time or in ISO 8601: no time of a day, so Millrace does as `zero_dates` says. Debezium writes"
        " 86400000, and 00:00:00Z",
        "TIME",
        '("00:00:00Z"|86400000) / null',
        MYSQL,
    ),
    _value("YEAR", "0000: Debezium writes 1900", "YEAR", "1900 / 0"),
    _value(
        "FLOAT, DOUBLE",
        "the smallest numbers: the same value, of which Java prints two digits",
        "FLOAT|DOUBLE",
        "4\\.9E-324 / 5\\.0E-324|1\\.4E-45 / 1\\.0E-45",
    ),
    _value(
        "FLOAT(m,d)",
        "Debezium writes it as a double; the binlog has a float",
        "FLOAT\\(10,2\\)",
        "123456\\.78125 / 123456\\.78|0\\.009999999776482582 / 0\\.01",
    ),
    _schema("type", "FLOAT(m,d)", _DDL_ONLY, "FLOAT\\(10,2\\)"),
    _schema("type", "REAL", "Debezium has float; the server makes it a double", "REAL"),
    _value(
        "BOOLEAN",
        f"Debezium has true and false; {_DDL_ONLY}: it is TINYINT(1)",
        "BOOLEAN",
        "true / 1|false / 0",
    ),
    _schema("type", "BOOLEAN", _DDL_ONLY, "BOOLEAN"),
    Expected(
        "schema: type",
        "BOOLEAN",
        _DDL_ONLY,
        "value schema",
        "row\\.COLUMN\\.@connect\\.type",
        "BOOLEAN",
        '"int16"',
        Kind.ONLY_MILLRACE,
    ),
    _value(
        "text in the character set `binary`, CHAR BYTE",
        "the server makes it BINARY or BLOB; Debezium decodes it as Latin-1",
        "(CHAR\\(20\\)|TEXT) CHARACTER SET binary|CHAR BYTE",
        ANY,
    ),
    _schema(
        "type",
        "text in the character set `binary`, CHAR BYTE",
        _DDL_ONLY,
        "(CHAR\\(20\\)|TEXT) CHARACTER SET binary|CHAR BYTE",
    ),
    _value(
        "ENUM, SET",
        "a comma in a label: Debezium writes `b\\,c`",
        "ENUM\\('', 'a', 'ü', 'b,c'\\)",
        '"b\\\\\\\\,c" / "b,c"',
    ),
    _value(
        "ENUM, SET",
        _DDL_TEXT,
        "(ENUM|SET)\\(.*\\) CHARACTER SET sjis",
        '"é" / "\\?"|"a,é" / "a,\\?"',
    ),
    _schema("parameters.allowed", "ENUM, SET", _DDL_TEXT, "(ENUM|SET)\\(.*\\) CHARACTER SET sjis"),
    _value(
        "JSON of MySQL",
        "Debezium has its own printer: doubles without exponent, times without trailing zeros, binary without its type",
        "JSON",
        '".*',
        MYSQL,
    ),
    _value(
        "text in big5, sjis, swe7, ujis",
        _AS_SERVER,
        "VARCHAR\\(40\\) CHARACTER SET (big5|sjis|swe7|ujis)",
        ANY,
    ),
    _value(
        "text in latin1",
        "81, 8D, 8F, 90, 9D: the server's latin1 has characters there",
        "VARCHAR\\(40\\) CHARACTER SET latin1",
        '"�" / .*',
    ),
    _value(
        "text in cp932",
        f"{_AS_SERVER}, Shift_JIS",
        "VARCHAR\\(40\\) CHARACTER SET cp932",
        ANY,
        MARIADB,
    ),
    _value(
        "text in utf8mb4",
        "invalid bytes: one U+FFFD or one for each part",
        "VARCHAR\\(40\\) CHARACTER SET utf8mb4",
        '"�" / "���"',
        MARIADB,
    ),
    _value(
        "UUID",
        "in the binlog it looks like BINARY(16). Debezium reads the DDL, and moves the bytes of a value that ends with zeros",
        "UUID",
        ANY,
        MARIADB,
    ),
    _schema("type", "UUID", _DDL_ONLY, "UUID", flavours=MARIADB),
    *(
        _schema(
            f"{part}",
            "UUID, JSON of MariaDB",
            _DDL_ONLY,
            "UUID|JSON",
            kind=Kind.ONLY_DEBEZIUM,
            flavours=MARIADB,
        )
        for part in ("name", "version")
    ),
    *_unread("INET4, INET6", "INET[46]", _UNPARSED),
    *_unread("compressed columns", ".* COMPRESSED", _UNPARSED),
    Expected(
        "all records",
        "CHAR BYTE",
        _UNPARSED,
        "record",
        "c",
        "CHAR BYTE",
        kind=Kind.ONLY_MILLRACE,
        flavours=MARIADB,
    ),
    Expected(
        "all records",
        "sequences",
        "Debezium does not take a sequence for a table",
        "record",
        "c",
        "sequence",
        kind=Kind.ONLY_MILLRACE,
        flavours=MARIADB,
    ),
)


def table_rows() -> tuple[str, ...]:
    """The rows of the documentation's table, in the order of the list."""
    rows = (f"| {entry.field} | {entry.type} | {entry.reason} |" for entry in EXPECTED)
    return tuple(dict.fromkeys(rows))
