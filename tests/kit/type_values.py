"""Every column type of both servers with extreme values, and the SELECT that gives the expected record value.

A ``TypeCase`` is a table ``(id INT PRIMARY KEY, v <ddl>)``. ``tells`` is the SQL expression of the value; ``reads``
converts the record's value to the result of that expression.
"""

# SQL in long lines is easier to read than in short ones:
# ruff: noqa: E501

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from decimal import Decimal

from millrace.schemas.gtid import Flavour

_MARK = re.compile(r'("(?:[^"\\]|\\.)*")| +(?=[,\]}]|\Z)')
BOTH = (Flavour.MYSQL, Flavour.MARIADB)
MYSQL, MARIADB = (Flavour.MYSQL,), (Flavour.MARIADB,)


@dataclass(frozen=True, slots=True)
class TypeCase:
    """``values`` are SQL expressions; NULL is added to them."""

    ddl: str
    values: tuple[str, ...]
    tells: str
    reads: Callable[[object], object]
    flavours: tuple[Flavour, ...] = BOTH


def _plain(value: object) -> object:
    return value


def _unmarked(value: object) -> str:
    """The text of MySQL's JSON without the blanks that mark types."""
    assert isinstance(value, str)
    return _MARK.sub(lambda found: found[1] or "", value)


def without_marks(image: Mapping[str, object] | None) -> Mapping[str, object] | None:
    """A row without the marks of MySQL's JSON."""
    if image is None:
        return None
    return {k: _unmarked(v) if isinstance(v, str) else v for k, v in image.items()}


def _number_text(value: object) -> str:
    return f"{value:f}" if isinstance(value, Decimal) else str(value)


def hex_of(value: object) -> str:
    """Bytes as HEX() prints them."""
    assert isinstance(value, bytes)
    return value.hex().upper()


def _hex_lower(value: object) -> str:
    return hex_of(value).lower()


def _bits(value: object) -> int:
    assert isinstance(value, bytes)
    return int.from_bytes(value, "big")


def _text_or_bytes(value: object) -> str:
    """Text in utf8mb4, or a mark and the raw bytes."""
    return value.encode().hex().upper() if isinstance(value, str) else f"raw {hex_of(value)}"


AS_TEXT = "CAST(v AS CHAR)"
AS_HEX = "HEX(v)"
# text, if the way to utf8mb4 and back gives the same bytes
TEXT_OR_RAW = (
    "IF(HEX(CONVERT(CONVERT(v USING utf8mb4) USING {charset})) = HEX(v) AND {valid}, "
    "HEX(CONVERT(v USING utf8mb4)), CONCAT('raw ', HEX(v)))"
)


def _integers(name: str, bits: int) -> list[TypeCase]:
    return [
        TypeCase(
            name,
            (str(-(2 ** (bits - 1))), "-1", "0", "1", str(2 ** (bits - 1) - 1)),
            AS_TEXT,
            _number_text,
        ),
        TypeCase(
            f"{name} UNSIGNED",
            ("0", "1", str(2 ** (bits - 1)), str(2**bits - 1)),
            AS_TEXT,
            _number_text,
        ),
    ]


def _decimals(precision: int, scale: int) -> TypeCase:
    front, back = "9" * (precision - scale), "9" * scale
    largest = (front or "0") + (f".{back}" if back else "")
    least = f"0.{'0' * (scale - 1)}1" if scale else "1"
    values = (largest, f"-{largest}", least, f"-{least}", "0")
    return TypeCase(f"DECIMAL({precision},{scale})", values, AS_TEXT, _number_text)


def _fractions(name: str, values: Callable[[str], tuple[str, ...]]) -> list[TypeCase]:
    return [
        TypeCase(
            f"{name}({digits}) NULL",
            values("." + "987654"[:digits] if digits else ""),
            AS_TEXT,
            _plain,
        )
        for digits in range(7)
    ]


def _dates(f: str) -> tuple[str, ...]:
    return (
        f"'1000-01-01 00:00:00{f}'",
        f"'9999-12-31 23:59:59{f}'",
        "'0000-00-00 00:00:00'",
        f"'2024-02-31 12:30:01{f}'",
        f"'2024-00-00 01:02:03{f}'",
    )


def _moments(f: str) -> tuple[str, ...]:
    return (
        "'1970-01-01 00:00:01'",
        f"'2038-01-19 03:14:06{f}'",
        "'0000-00-00 00:00:00'",
        f"'2026-03-29 01:30:00{f}'",
    )


def _times(f: str) -> tuple[str, ...]:
    return (
        f"'-838:59:58{f}'",
        f"'838:59:58{f}'",
        f"'-00:00:00{f}'",
        "'00:00:00'",
        f"'-00:00:01{f}'",
        "'99:59:59'",
    )


TEXTS = ("''", "'a'", "CONCAT('x', CHAR(0), 'y')", "' b  '", "REPEAT('ab', 30)")
_SET64 = ",".join(f"'m{n}'" for n in range(64))
_SET63 = _SET64.removeprefix("'m0',")

CASES: list[TypeCase] = [
    *_integers("TINYINT", 8),
    *_integers("SMALLINT", 16),
    *_integers("MEDIUMINT", 24),
    *_integers("INT", 32),
    *_integers("BIGINT", 64),
    *(
        _decimals(p, s)
        for p, s in (
            (1, 0),
            (5, 2),
            (9, 9),
            (10, 0),
            (18, 9),
            (19, 0),
            (20, 1),
            (38, 19),
            (65, 0),
            (65, 30),
        )
    ),
    TypeCase(
        "FLOAT",
        ("0", "-0.0", "0.1", "3.402823e38", "-1.175494e-38", "1e-45"),
        "CAST(v AS DOUBLE)",
        _plain,
    ),
    TypeCase(  # the largest is stored as 100000000, above the limit of the column
        "FLOAT(10,2)",
        ("99999999.99", "-99999999.99", "123456.78", "-0.0", "0.01"),
        "CAST(v AS DOUBLE)",
        _plain,
    ),
    TypeCase(
        "DOUBLE",
        ("0", "0.1", "1.7976931348623157e308", "-2.2250738585072014e-308", "5e-324"),
        "v",
        _plain,
    ),
    *(
        TypeCase(f"BIT({n})", ("0", "1", str(2**n - 1)), "v + 0", _bits)
        for n in (1, 7, 8, 9, 33, 63, 64)
    ),
    TypeCase("YEAR", ("0", "1901", "2000", "2155"), "v + 0", _plain),
    TypeCase(
        "DATE",
        ("'1000-01-01'", "'9999-12-31'", "'0000-00-00'", "'2024-02-31'", "'2024-00-00'"),
        AS_TEXT,
        _plain,
    ),
    *_fractions("TIME", _times),
    *_fractions("DATETIME", _dates),
    *_fractions("TIMESTAMP", _moments),
    TypeCase("BINARY(5)", ("''", "x'00'", "x'0102'", "x'FF00FF0000'"), AS_HEX, hex_of),
    TypeCase("BINARY(255)", ("''", "x'00'", "REPEAT(x'FE', 255)"), AS_HEX, hex_of),
    TypeCase("VARBINARY(300)", ("''", "x'00'", "x'0102'", "REPEAT(x'FF', 300)"), AS_HEX, hex_of),
    *(
        TypeCase(f"{b}BLOB", ("''", "x'00'", "REPEAT(x'FF', 200)"), AS_HEX, hex_of)
        for b in ("TINY", "", "MEDIUM", "LONG")
    ),
    TypeCase("ENUM('', 'a', 'ü', 'b,c')", ("''", "'a'", "'ü'", "'b,c'"), AS_TEXT, _plain),
    TypeCase(
        f"ENUM({','.join(repr(f'e{n}') for n in range(300))})",
        ("'e0'", "'e255'", "'e299'"),
        AS_TEXT,
        _plain,
    ),
    TypeCase("SET('x', 'ü', 'z')", ("''", "'x'", "'x,ü,z'", "'z,ü'"), AS_TEXT, _plain),
    TypeCase(
        f"SET({_SET64})",
        ("''", "'m0'", "'m63'", "'m0,m31,m63'", "'m53'", "'m0,m53'", "18446744073709551615"),
        AS_TEXT,
        _plain,
    ),
    *(
        TypeCase(g, (f"ST_GeomFromText('{w}', {srid})",), AS_HEX, hex_of)
        for g, w, srid in (
            ("GEOMETRY", "POINT(1 2)", 0),
            ("POINT", "POINT(-1.5 2e300)", 0),
            ("GEOMETRY", "GEOMETRYCOLLECTION(POINT(1 2),LINESTRING(0 0,1 1))", 3857),
        )
    ),
    TypeCase("VECTOR(3)", ("STRING_TO_VECTOR('[1,-2.5,3e38]')",), AS_HEX, hex_of, MYSQL),
    TypeCase(
        "UUID",
        (
            "'123e4567-e89b-12d3-a456-426655440000'",
            "'00112233-4455-6677-8899-aabbccddeeff'",
            "'00112233-4455-4677-0899-aabbccddeeff'",
            "'f47ac10b-58cc-4372-a567-0e02b2c3d479'",
            "'017f22e2-79b0-7cc3-98c4-dc0c0c07398f'",
            "'ffffffff-ffff-ffff-ffff-ffffffffffff'",
            "'00000000-0000-0000-0000-000000000000'",
        ),
        "REPLACE(CAST(v AS CHAR), '-', '')",
        _hex_lower,
        MARIADB,
    ),
    TypeCase(
        "INET6",
        ("'::'", "'2001:db8::ff00:42:8329'", "'ffff:ffff::'"),
        "HEX(INET6_ATON(v))",
        hex_of,
        MARIADB,
    ),
    TypeCase(
        "INET4",
        ("'0.0.0.0'", "'192.0.2.1'", "'255.255.255.0'"),
        "HEX(INET6_ATON(v))",
        hex_of,
        MARIADB,
    ),
    TypeCase(
        "TEXT COMPRESSED", (*TEXTS, "REPEAT('lang ü ', 2000)"), "HEX(v)", _text_or_bytes, MARIADB
    ),
    TypeCase(
        "VARCHAR(400) COMPRESSED", (*TEXTS, "REPEAT('q', 400)"), "HEX(v)", _text_or_bytes, MARIADB
    ),
    TypeCase(
        "VARBINARY(200) COMPRESSED", ("''", "x'00'", "REPEAT(x'FF', 200)"), AS_HEX, hex_of, MARIADB
    ),
    TypeCase(
        "LONGTEXT", ("REPEAT('ü', 40000)", "'x'", "REPEAT('a', 65536)"), AS_HEX, _text_or_bytes
    ),
    TypeCase("MEDIUMBLOB", ("REPEAT(x'00FF', 32768)", "x'00'"), AS_HEX, hex_of),
    TypeCase("LONGBLOB COMPRESSED", ("''", "REPEAT(x'0102', 40000)"), AS_HEX, hex_of, MARIADB),
    TypeCase("JSON", ('\'{"b": [1, 2.50], "a": "ü"}\'', "'[]'"), AS_TEXT, _plain, MARIADB),
    *(
        TypeCase(t, (*TEXTS, "'äöü'", "_utf8mb4 x'F09F9880'"), AS_HEX, _text_or_bytes)
        for t in (
            "CHAR(60)",
            "VARCHAR(60)",
            "VARCHAR(300)",
            "TINYTEXT",
            "TEXT",
            "MEDIUMTEXT",
            "LONGTEXT",
        )
    ),
]

JSON_VALUES = (
    "'null'",
    "'true'",
    "'false'",
    *(
        f"'{n}'"
        for n in (0, -1, 32767, -32768, 32768, 2**31, -(2**31) - 1, 2**63 - 1, -(2**63), 2**64 - 1)
    ),
    *(f"'{n}'" for n in ("1.0", "-0.0", "1e300", "1e-7", "0.1", "123456789012345678901234567890")),
    *(f"'{n}'" for n in ("1.7976931348623157e308", "5e-324", "1e15", "1e14", "1234567890123456.5")),
    "'\"\"'",
    "'\"ü😀\"'",
    r"""'"a\\"b\\\\c\\/d\\b\\f\\n\\r\\t\\u0001\\u001f\\u007f"'""",
    "'[]'",
    "'{}'",
    "'[[[[]]]]'",
    '\'{"": {"a": [1, {"b": null}]}}\'',
    '\'{"z": 1, "aa": 2, "b": 3}\'',
    "CONCAT(REPEAT('[', 100), REPEAT(']', 100))",
    "CONCAT('[\"', REPEAT('x', 70000), '\", 1, 70000, -70000, true, null]')",
    'CONCAT(\'{"k": "\', REPEAT(\'y\', 70000), \'", "n": 65536, "m": [1.5, {"deep": "\', REPEAT(\'z\', 66000), \'"}]}\')',
    "JSON_ARRAY(CAST('2024-02-29 23:59:59.123456' AS DATETIME(6)), CAST('2024-02-29' AS DATE), CAST('-838:59:59' AS TIME))",
    "JSON_ARRAY(CAST('10:11:12.5' AS TIME(1)), TIMESTAMP'0001-01-01 00:00:00', CAST(1.50 AS DECIMAL(10,2)))",
    "JSON_ARRAY(CAST(-99999999999999999999.999999999 AS DECIMAL(65,30)), CAST(0 AS DECIMAL(5,5)), CAST(-0.05 AS DECIMAL(3,2)))",
    f"JSON_ARRAY({', '.join(f'{n}.10' for n in range(1500))})",
    r"""JSON_OBJECT('a"b', 1.50, 'c\\d', JSON_ARRAY(JSON_OBJECT('', 2.00)), '$.x[0]*', 0.10, 'it''s', 7.70)""",
    """JSON_ARRAY('1.50', '"3.10', JSON_OBJECT('1.50', 1e0, 'n', 1.50), 123456789012345678901234567890, 0.1e0)""",
    "JSON_ARRAY(18446744073709551616, -9223372036854775809, 1000000000000000.0, 0.00000000000000000001)",
    "JSON_ARRAY(x'00FF', b'101', CAST(REPEAT('q', 200) AS BINARY), CAST('' AS BINARY), CAST(2024 AS YEAR))",
    "JSON_OBJECT('geo', ST_GeomFromText('POINT(1 2)'))",
    "JSON_ARRAY(CAST('2024-02-29 23:59:59' AS DATETIME), CAST('00:00:00.000001' AS TIME(6)))",
    "CAST(CAST('-838:59:59' AS TIME) AS JSON)",
    "CAST(CAST('2024-02-29' AS DATE) AS JSON)",
    "CAST(CAST(-0.05 AS DECIMAL(3,2)) AS JSON)",
    "CAST(x'00FF' AS JSON)",
)
CASES.append(TypeCase("JSON", JSON_VALUES, AS_TEXT, _unmarked, MYSQL))

# character set: bytes that are no text in it
CHARSETS = {
    "latin1": "80 81 8D 9D E4 FF",
    "ascii": "41 80",
    "cp1251": "C0 98",
    "greek": "E1 A4",
    "tis620": "A1 DB",
    "swe7": "5B 7D",
    "gbk": "C4E3BAC3 8080 81",
    "gb2312": "C4E3 A2A1",
    "big5": "A741A66E A15A F9D6",
    "sjis": "82A0 815F B1 F040",
    "cp932": "82A0 8740 FA54 81CA",
    "ujis": "A4A2 8EB1 8FB0A1 F5A1",
    "eucjpms": "A4A2 ADA1 8FF3F3",
    "euckr": "B0A1 FEFE",
    "gb18030": "C4E3 8130A530 9030A530 A8BC 8135F437",
    "ucs2": "00E4 D83D",
    "utf16": "00E4 D83DDE00",
    "utf16le": "E400 3DD800DE",
    "utf32": "000000E4 0001F600",
    "utf8mb3": "C3A4",
    "utf8mb4": "F09F9880 EDA080",
}


def every_case(flavour: Flavour, charsets: Collection[str]) -> list[TypeCase]:
    """All types of a flavour, and texts and labels in those of these character sets that have samples."""
    texts = [
        TypeCase(
            f"VARCHAR(40) CHARACTER SET {charset}",
            tuple(f"x'{sample}'" for sample in ("", "41", "6120", *samples.split())),
            AS_HEX,
            _plain,
        )
        for charset, samples in CHARSETS.items()
        if charset in charsets
    ]
    # index 0 is not a value of the type; a SET with indistinguishable labels is given by its bits
    more = [
        TypeCase("ENUM('a', 'b')", ("'a'", "'no such'", "'b'"), "v + 0", _plain),
        TypeCase("SET('', 'b')", ("''", "1", "2", "3"), "v + 0", _plain),
        TypeCase(
            f"SET('',{_SET63})",
            ("0", *(f"{2**bit + 1}" for bit in (0, 1, 53, 54, 62, 63))),
            "CAST(v AS UNSIGNED)",
            _plain,
        ),
        *(
            TypeCase(f"{ddl} CHARACTER SET {charset}", values, AS_HEX, _plain)
            for charset in ("latin1", "gbk", "sjis", "ucs2", "utf16", "utf32", "binary")
            for ddl, values in (
                ("ENUM('a', 'é', 'あ')" if charset != "latin1" else "ENUM('a', 'é')", ("'a'", "2")),
                ("SET('a', 'é', 'あ')" if charset != "latin1" else "SET('a', 'é')", ("'a'", "3")),
                ("CHAR(20)", ("'a'", "'é'", "''", "' b '")),
                ("TEXT", ("'a'", "'é'", "''", "' b '")),
            )
        ),
    ]
    return [case for case in CASES if flavour in case.flavours] + texts + more
