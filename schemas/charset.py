"""Bytes of a column to text."""

_PYTHON = {
    "utf8mb3": "utf-8",
    "utf8mb4": "utf-8",
    "binary": "utf-8",
    "latin1": "cp1252",
    "ascii": "ascii",
    "ucs2": "utf-16-be",
    "gbk": "gbk",
    "sjis": "cp932",
}


def decode_text(charset: str, value: bytes) -> str | None:
    """Text or None."""
    try:
        return value.decode(_PYTHON[charset])
    except UnicodeDecodeError:
        return None
