"""Names and texts as SQL. All names in SQL are quoted here.

A text of a server or of a record never becomes SQL as it is. Any other text becomes a string literal.
"""

import re

_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?", re.ASCII)
_WORD = re.compile(r"[0-9A-Za-z_]+", re.ASCII)
_DIGITS = re.compile(r"[0-9A-Fa-f]*", re.ASCII)


def quoted(name: str) -> bytes:
    """A quoted identifier."""
    return b"`" + name.encode().replace(b"`", b"``") + b"`"


def escaped(text: bytes) -> bytes:
    """A text between the quotes of a string literal (UTF-8)."""
    return text.replace(b"\\", b"\\\\").replace(b"'", b"\\'").replace(b"\0", b"\\0")


def number(text: str) -> str:
    """A number as the servers print it."""
    return text if _NUMBER.fullmatch(text) else string(text)


def string(text: str) -> str:
    """A string literal."""
    return f"'{escaped(text.encode()).decode()}'"


def hex_bytes(digits: str) -> str:
    """Bytes from their hex digits."""
    return f"x'{digits}'" if _DIGITS.fullmatch(digits) else f"UNHEX({string(digits)})"


def charset_name(text: str) -> str:
    """The name of a character set or a collation, as a server shows it. Not after the _ of an introducer."""
    return text if _WORD.fullmatch(text) else quoted(text).decode()


def characters(digits: str, charset: str) -> str:
    """A string literal of this character set from the hex digits of its bytes."""
    if _WORD.fullmatch(charset):
        return f"_{charset} {hex_bytes(digits)}"
    return f"CAST({hex_bytes(digits)} AS CHAR CHARACTER SET {charset_name(charset)})"


def table_name(database: str, table: str) -> bytes:
    """``database``.``table``."""
    return quoted(database) + b"." + quoted(table)
