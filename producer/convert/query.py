"""Parses a QUERY event: the statement, its default database, and the session variables that affect its meaning.

thread id 4 | seconds 4 | n database 1 | error 2 | m status 2 | status (m) | database (n) | 0 | text

Each status variable begins with its code (Query_event of mysql-server and MariaDB). The order is not fixed: MariaDB
writes 131 before 4. The length of an unknown code is not known, so nothing after it can be read, and the statement is
in doubt. So it is with a bit of flags2 or of sql_mode that is not known.
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
from collections.abc import Collection
from dataclasses import dataclass

from millrace.errors import Fatal
from millrace.schemas.byte_reader import ByteReader
from millrace.schemas.gtid import Flavour
from millrace.schemas.server_version import NO_NUMBERS, ServerVersion
from millrace.schemas.table.charset import decode_text
from millrace.schemas.table.collation_ids import charset_of

# Each bit of flags2: a session variable and its value if the bit is set. None: only SELECT and changes of rows depend
# on it (sql_auto_is_null, system_versioning_insert_history), or a statement commits itself (autocommit).
_FLAGS: dict[int, tuple[str, str] | None] = {
    14: None,
    19: None,
    26: ("foreign_key_checks", "0"),
    27: ("unique_checks", "0"),
}
_MARIADB_FLAGS: dict[int, tuple[str, str] | None] = {
    15: ("check_constraint_checks", "0"),
    24: ("explicit_defaults_for_timestamp", "1"),
    28: ("sql_if_exists", "1"),
    30: None,
}
# The first releases of MariaDB in which bit 24 has this meaning, by their first two numbers.
_TIMESTAMP_DEFAULTS_FROM = {(10, 5): 17, (10, 6): 9, (10, 7): 5, (10, 8): 4, (10, 9): 2}
# The source ended the statement: killed, timed out, shut down. A replica stops there, too.
_INTERRUPTED = frozenset({1053, 1158, 1160, 1184, 1317, 1927, 1969})
_LOCKED = frozenset({1205, 1213, 1614})  # the target need not meet the same locks
_FIXED_BYTES = {
    7: 2, 8: 2, 9: 8, 10: 4, 13: 3, 16: 1, 17: 8, 18: 2, 19: 1, 20: 1, 128: 3, 129: 8,
}  # fmt: skip
_UPDATED_DATABASES_NONE = 254
_ALTER_IS_DECIDED = 4 | 8
_UTF8 = frozenset({"utf8mb4", "utf8mb3", "binary"})
# takes bytes unchanged
_INTRODUCER = re.compile(r"(?<![\w$\\])(_[a-z0-9]+\s*|n)['\"]", re.IGNORECASE)

_SQL_MODES = {
    0: "REAL_AS_FLOAT",
    1: "PIPES_AS_CONCAT",
    2: "ANSI_QUOTES",
    3: "IGNORE_SPACE",
    5: "ONLY_FULL_GROUP_BY",
    6: "NO_UNSIGNED_SUBTRACTION",
    7: "NO_DIR_IN_CREATE",
    18: "ANSI",
    19: "NO_AUTO_VALUE_ON_ZERO",
    20: "NO_BACKSLASH_ESCAPES",
    21: "STRICT_TRANS_TABLES",
    22: "STRICT_ALL_TABLES",
    23: "NO_ZERO_IN_DATE",
    24: "NO_ZERO_DATE",
    25: "ALLOW_INVALID_DATES",
    26: "ERROR_FOR_DIVISION_BY_ZERO",
    27: "TRADITIONAL",
    29: "HIGH_NOT_PRECEDENCE",
    30: "NO_ENGINE_SUBSTITUTION",
    31: "PAD_CHAR_TO_FULL_LENGTH",
}
_MARIADB_MODES = {
    4: "IGNORE_BAD_TABLE_OPTIONS",
    8: "POSTGRESQL",
    9: "ORACLE",
    10: "MSSQL",
    11: "DB2",
    12: "MAXDB",
    13: "NO_KEY_OPTIONS",
    14: "NO_TABLE_OPTIONS",
    15: "NO_FIELD_OPTIONS",
    16: "MYSQL323",
    17: "MYSQL40",
    28: "NO_AUTO_CREATE_USER",
    32: "EMPTY_STRING_IS_NULL",
    33: "SIMULTANEOUS_ASSIGNMENT",
    34: "TIME_ROUND_FRACTIONAL",
}
_MYSQL_MODES = {
    4: "NOT_USED",
    32: "TIME_TRUNCATE_FRACTIONAL",
    33: "INTERPRET_UTF8_AS_UTF8MB4",
}


@dataclass(frozen=True, slots=True)
class Query:
    """A statement with its session.

    ``session`` has these keys, as far as the event has them: sql_mode (names), charset_client (name),
    collation_connection, collation_server, collation_database (ids), time_zone, lc_time_names (number),
    foreign_key_checks, unique_checks, check_constraint_checks, sql_if_exists, explicit_defaults_for_timestamp,
    auto_increment_increment, auto_increment_offset, default_collation_for_utf8mb4 (id), character_set_collations
    (MariaDB: name=id,…), microseconds (of the event's second), default_database, error_code (of a statement that
    failed on the source). A variable whose code is missing has its default. in_doubt is set if the meaning is not known
    exactly, and is the reason.
    """

    database: str
    text: str
    session: dict[str, str]


def parse_query(body: bytes, *, flavour: Flavour, server: ServerVersion | None = None) -> Query:
    """Parse an event without header and checksum. ``server``: the one that logged it. Fatal MR-6003."""
    reader = ByteReader(body, "query event")
    reader.take(8)
    database_bytes = reader.uint(1)
    error_code = reader.uint(2)
    status = reader.take(reader.uint(2))
    session = _session(ByteReader(status, "status of a query event"), flavour)
    if server is not None and not _logs_timestamp_defaults(server):
        session.pop("explicit_defaults_for_timestamp", None)
    database = reader.take(database_bytes).decode("utf-8", "backslashreplace")
    reader.take(1)
    content, charset = reader.take(reader.left), session.get("charset_client", "utf8mb4")
    text = _text(content, charset)
    if text is None:
        text = content.decode("utf-8", "backslashreplace")
        _doubt(session, f"the statement cannot be converted exactly from {charset}")
    if database:
        session["default_database"] = database
    if error_code:
        session["error_code"] = str(error_code)
    if error_code in _INTERRUPTED or error_code in _LOCKED:
        what = "was interrupted" if error_code in _INTERRUPTED else "failed on a lock"
        _doubt(session, f"the statement {what} on the source with error {error_code}")
    return Query(database, text, session)


def _logs_timestamp_defaults(server: ServerVersion) -> bool:
    if server.flavour is Flavour.MYSQL or server.numbers == NO_NUMBERS:
        return True
    major, minor, patch = server.numbers
    first = _TIMESTAMP_DEFAULTS_FROM.get((major, minor))
    return (major, minor) >= (10, 10) if first is None else patch >= first


def _doubt(found: dict[str, str], reason: str) -> None:
    found["in_doubt"] = "; ".join(filter(None, (found.get("in_doubt"), reason)))


def _session(reader: ByteReader, flavour: Flavour) -> dict[str, str]:
    found: dict[str, str] = {}
    while reader.left:
        code = reader.uint(1)
        if code == 0:
            _note_flags(found, reader.uint(4), flavour)
        elif code == 1:
            bits = reader.uint(8)
            found["sql_mode"] = sql_mode_text(bits, flavour)
            for bit in _unknown_bits(bits, _modes(flavour)):
                _doubt(found, f"unknown bit {bit} of sql_mode in the binlog")
        elif code == 2:
            reader.take(reader.uint(1) + 1)
        elif code == 3:
            found["auto_increment_increment"] = str(reader.uint(2))
            found["auto_increment_offset"] = str(reader.uint(2))
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
            _doubt(found, f"unknown session variable {code} in the binlog")
            break
    return found


def _note_flags(found: dict[str, str], flags: int, flavour: Flavour) -> None:
    known = _FLAGS | (_MARIADB_FLAGS if flavour is Flavour.MARIADB else {})
    for bit, variable in known.items():
        if variable is not None:
            name, value = variable
            found[name] = value if flags >> bit & 1 else str(1 - int(value))
    for bit in _unknown_bits(flags, known):
        _doubt(found, f"unknown bit {bit} of the session's flags in the binlog")


def _unknown_bits(bits: int, known: Collection[int]) -> list[int]:
    return [bit for bit in range(bits.bit_length()) if bits >> bit & 1 and bit not in known]


def _note_number(found: dict[str, str], code: int, value: int) -> None:
    name = {
        7: "lc_time_names",
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
    """The modes by name, in the format of ``SET sql_mode``, as far as they are known."""
    return ",".join(name for bit, name in sorted(_modes(flavour).items()) if bits >> bit & 1)


def _modes(flavour: Flavour) -> dict[int, str]:
    return _SQL_MODES | (_MARIADB_MODES if flavour is Flavour.MARIADB else _MYSQL_MODES)


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
