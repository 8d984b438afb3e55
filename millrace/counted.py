"""A count with its noun, for messages: "1 row", "2 rows"."""


def counted(count: int, singular: str, plural: str = "") -> str:
    """Such as "1,234 rows". ``plural`` only if it is not ``singular`` with an s, as of "file is missing"."""
    noun = singular if count == 1 else plural or f"{singular}s"
    return f"{count:,} {noun}"
