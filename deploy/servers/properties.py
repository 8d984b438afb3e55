"""Values in Java's ``.properties`` files (and ZooKeeper's configuration, which is one): read as Latin-1."""


def property_value(value: object) -> str:
    r"""The text as Java reads it back: ``\uXXXX`` (UTF-16) for what is not ASCII, and no backslash by itself."""
    escaped = str(value).replace("\\", "\\\\")
    return "".join(each if each.isascii() else _units(each) for each in escaped)


def _units(character: str) -> str:
    encoded = character.encode("utf-16-be")
    return "".join(f"\\u{encoded[at : at + 2].hex()}" for at in range(0, len(encoded), 2))
