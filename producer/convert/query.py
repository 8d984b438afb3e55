"""Parses a QUERY event: the statement, its default database, and the session variables that affect its meaning.

thread id 4 | seconds 4 | n database 1 | error 2 | m status 2 | status (m) | database (n) | 0 | text

Each status variable begins with its code (Query_event of mysql-server and MariaDB). The order is not fixed: MariaDB
writes 131 before 4. The length of an unknown code is not known, so nothing after it can be read, and the statement is
in doubt.
    0 flags2 4                1 sql_mode 8               2 catalog 1 + n + 1        3 auto-increment 2 + 2
    4 charset 2 + 2 + 2       5 time zone 1 + n          6 catalog 1 + n            7 lc_time_names 2
    8 database collation 2    9 8        10 4            11 invoker 1 + n, 1 + n    12 databases: count 1, names
    ending in 0
    13 microseconds 3         16 explicit defaults 1     17 xid 8                   18 collation of utf8mb4 2
    19 require primary key 1  20 table encryption 1      128 microseconds 3         129 xid 8
    130 flags 1, with 4 or 8 among them 8 more (a phase of ALTER)
    131 collations of character sets: count 1, each 2 + 2
"""

import re
from dataclasses import dataclass

from millrace.errors import Fatal
from schemas.byte_reader import ByteReader
from schemas.gtid import Flavour
from schemas.table.charset import decode_text
from schemas.table.collation import charset_of

_NO_FOREIGN_KEY_CHECKS = 1 << 26
_RELAXED_UNIQUE_CHECKS = 1 << 27
_FIXED_BYTES = {
    7: 2, 8: 2, 9: 8, 10: 4, 13: 3, 16: 1, 17: 8, 18: 2, 19: 1, 20: 1, 128: 3, 129: 8,
}  # fmt: skip
_UPDATED_DATABASES_NONE = 254
_ALTER_IS_DECIDED = 4 | 8
_UTF8 = frozenset({"utf8mb4", "utf8mb3", "binary"})
_INTRODUCER = re.compile(
    r"(?<![\w$\\])(_[a-z0-9]+\s*|n)['\"]", re.IGNORECASE
)  # takes bytes unchanged

_SQL_MODES = [
    "REAL_AS_FLOAT",
    "PIPES_AS_CONCAT",
    "ANSI_QUOTES",
    "IGNORE_SPACE",
    "-",
    "ONLY_FULL_GROUP_BY",
    "NO_UNSIGNED_SUBTRACTION",
    "NO_DIR_IN_CREATE",
    "-",
    "-",
    "-",
    "-",
    "-",
    "NO_KEY_OPTIONS",
    "NO_TABLE_OPTIONS",
    "NO_FIELD_OPTIONS",
    "-",
    "-",
    "-",
    "NO_AUTO_VALUE_ON_ZERO",
    "NO_BACKSLASH_ESCAPES",
    "STRICT_TRANS_TABLES",
    "STRICT_ALL_TABLES",
    "NO_ZERO_IN_DATE",
    "NO_ZERO_DATE",
    "ALLOW_INVALID_DATES",
    "ERROR_FOR_DIVISION_BY_ZERO",
    "-",
    "NO_AUTO_CREATE_USER",
    "HIGH_NOT_PRECEDENCE",
    "NO_ENGINE_SUBSTITUTION",
    "PAD_CHAR_TO_FULL_LENGTH",
]
_MARIADB_MODES = {
    4: "IGNORE_BAD_TABLE_OPTIONS",
    9: "ORACLE",
    32: "EMPTY_STRING_IS_NULL",
    33: "SIMULTANEOUS_ASSIGNMENT",
    34: "TIME_ROUND_FRACTIONAL",
}
_MYSQL_MODES = {32: "TIME_TRUNCATE_FRACTIONAL"}


@dataclass(frozen=True, slots=True)
class Query:
    """A statement with its session.

    ``session`` has these keys, as far as the event has them: sql_mode (names), charset_client (name),
    collation_connection, collation_server, collation_database (ids), time_zone, foreign_key_checks, unique_checks,
    explicit_defaults_for_timestamp, default_collation_for_utf8mb4 (id), character_set_collations (MariaDB: name=id,…),
    microseconds (of the event's second), default_database. in_doubt is set if the meaning is not known exactly, and is
    the reason.
    """

    database: str
    text: str
    session: dict[str, str]


def parse_query(body: bytes, *, flavour: Flavour) -> Query:
    """Parse an event without header and checksum. Fatal MR-6003."""
    reader = ByteReader(body, "query event")
    reader.take(8)
    database_bytes = reader.uint(1)
    reader.uint(2)
    status = reader.take(reader.uint(2))
    session = _session(ByteReader(status, "status of a query event"), flavour)
    database = reader.take(database_bytes).decode("utf-8", "backslashreplace")
    reader.take(1)
    content, charset = reader.take(reader.left), session.get("charset_client", "utf8mb4")
    text = _text(content, charset)
    if text is None:
        text = content.decode("utf-8", "backslashreplace")
        session["in_doubt"] = f"the statement cannot be converted exactly from {charset}"
    if database:
        session["default_database"] = database
    return Query(database, text, session)


def _session(reader: ByteReader, flavour: Flavour) -> dict[str, str]:
    found: dict[str, str] = {}
    while reader.left:
        code = reader.uint(1)
        if code == 0:
            flags = reader.uint(4)
            found["foreign_key_checks"] = "0" if flags & _NO_FOREIGN_KEY_CHECKS else "1"
            found["unique_checks"] = "0" if flags & _RELAXED_UNIQUE_CHECKS else "1"
        elif code == 1:
            found["sql_mode"] = sql_mode_text(reader.uint(8), flavour)
        elif code == 2:
            reader.take(reader.uint(1) + 1)
        elif code == 3:
            reader.take(4)
        elif code == 4:
            found["charset_client"] = charset_of(reader.uint(2))
            found["collation_connection"] = str(reader.uint(2))
            found["collation_server"] = str(reader.uint(2))
        elif code == 5:
            found["time_zone"] = reader.take(reader.uint(1)).decode("ascii", "backslashreplace")
        elif code == 6:
            reader.take(reader.uint(1))
        elif code == 11:
            reader.take(reader.uint(1))
            reader.take(reader.uint(1))
        elif code == 12:
            _skip_databases(reader)
        elif code == 130:
            reader.take(8 if reader.uint(1) & _ALTER_IS_DECIDED else 0)
        elif code == 131:
            pairs = [(charset_of(reader.uint(2)), reader.uint(2)) for _ in range(reader.uint(1))]
            found["character_set_collations"] = ",".join(f"{name}={id_}" for name, id_ in pairs)
        elif code in _FIXED_BYTES:
            _note_number(found, code, reader.uint(_FIXED_BYTES[code]))
        else:
            found["in_doubt"] = f"unknown session variable {code} in the binlog"
            break
    return found


def _note_number(found: dict[str, str], code: int, value: int) -> None:
    name = {
        8: "collation_database",
        13: "microseconds",
        16: "explicit_defaults_for_timestamp",
        18: "default_collation_for_utf8mb4",
        128: "microseconds",
    }.get(code)
    if name is not None:
        found[name] = str(value)


def _skip_databases(reader: ByteReader) -> None:
    count = reader.uint(1)
    if count == _UPDATED_DATABASES_NONE:
        return
    for _ in range(count):
        while reader.uint(1):
            pass


def sql_mode_text(bits: int, flavour: Flavour) -> str:
    """The modes by name, in the format of ``SET sql_mode``; combinations are written as single modes."""
    own = _MARIADB_MODES if flavour is Flavour.MARIADB else _MYSQL_MODES
    names = dict(enumerate(_SQL_MODES)) | own
    return ",".join(name for bit, name in sorted(names.items()) if bits >> bit & 1 and name != "-")


def _text(content: bytes, charset: str) -> str | None:
    """The text; None if it has no equivalent in UTF-8, or one with another meaning."""
    try:
        text = decode_text(charset, content)
    except Fatal:
        return None
    if text is None or charset in _UTF8 or (text.isascii() and content.isascii()):
        return text
    takes_bytes = _INTRODUCER.search(text) is not None
    return None if takes_bytes or _is_other_ascii(content, text, charset) else text


def _is_other_ascii(content: bytes, text: str, charset: str) -> bool:
    """Whether ASCII bytes are other characters: swe7 has letters in their places, and sjis has another backslash."""
    return content.isascii() or (charset == "sjis" and "\\" in text)
