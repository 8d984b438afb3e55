"""Names of sets, databases, tables and columns as Avro names, and back: nothing collides, nothing is lost.

Avro takes ``[A-Za-z_][A-Za-z0-9_]*``; MySQL takes nearly everything. Every other character, and a digit in front,
becomes ``_u<code point in hex, 4 to 6 digits>_``. An underscore that would start such a sequence is written so
itself:

    order-line    order_u002d_line
    2nd           _u0032_nd
    a_u002d_b     a_u005f_u002d_b
    user_url      user_url              (only ``_u`` and four hex digits look like an escape)

The original also stands in the schema's properties (``millrace.name``), so nobody has to decode these.
"""

import re

_ESCAPED = re.compile(r"_u([0-9a-f]{4,6})_")
_TO_ESCAPE = re.compile(r"^[0-9]|[^A-Za-z0-9_]|_(?=u[0-9a-f]{4})", re.ASCII)


def escape_name(name: str) -> str:
    """An Avro name; ``unescape_name`` gives ``name`` back. ``name`` is not empty."""
    return _TO_ESCAPE.sub(lambda found: f"_u{ord(found[0]):04x}_", name)


def unescape_name(escaped: str) -> str:
    """What ``escape_name`` was given."""
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)), escaped)


def namespace(set_name: str, database: str, table: str) -> str:
    """The Avro namespace of everything that belongs to one table."""
    return ".".join(("millrace", *map(escape_name, (set_name, database, table))))
