"""Values in Java's ``.properties`` files, which Java reads as Latin-1. ZooKeeper's configuration is such a file."""


def property_value(value: object) -> str:
    r"""Escape ``value`` for Java: ``\uXXXX`` (UTF-16) for non-ASCII, escaped backslashes and line ends."""
    escaped = str(value).replace("\\", "\\\\").replace("\n", "\\n")
    return "".join(each if each.isascii() else _units(each) for each in escaped)


def _units(character: str) -> str:
    encoded = character.encode("utf-16-be")
    return "".join(f"\\u{encoded[at : at + 2].hex()}" for at in range(0, len(encoded), 2))
