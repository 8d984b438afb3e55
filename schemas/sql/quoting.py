"""Names and texts as SQL. All names in SQL are quoted here."""


def quoted(name: str) -> bytes:
    """A quoted identifier."""
    return b"`" + name.encode().replace(b"`", b"``") + b"`"


def escaped(text: bytes) -> bytes:
    """A text between the quotes of a string literal (UTF-8)."""
    return text.replace(b"\\", b"\\\\").replace(b"'", b"\\'").replace(b"\0", b"\\0")


def table_name(database: str, table: str) -> bytes:
    """``database``.``table``."""
    return quoted(database) + b"." + quoted(table)
