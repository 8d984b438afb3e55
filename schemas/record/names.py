"""Converts names of sets, databases, tables and columns to Avro names and back, without collision or loss.

Avro allows ``[A-Za-z_][A-Za-z0-9_]*``; MySQL allows nearly everything. Every other character, and a leading digit,
becomes ``_u<code point in hex, 4 to 6 digits>_``. An underscore that would start such a sequence is escaped in the
same way:

    order-line    order_u002d_line
    2nd           _u0032_nd
    a_u002d_b     a_u005f_u002d_b
    user_url      user_url              (only ``_u`` and four hex digits look like an escape)

The schema's properties also hold the original (``millrace.name``), so readers need not decode these.
"""

import re

_ESCAPED = re.compile(r"_u([0-9a-f]{4,6})_")
_TO_ESCAPE = re.compile(r"^[0-9]|[^A-Za-z0-9_]|_(?=u[0-9a-f]{4})", re.ASCII)


def escape_name(name: str) -> str:
    """The Avro name of ``name``, which is not empty; ``unescape_name`` reverses it."""
    return _TO_ESCAPE.sub(lambda found: f"_u{ord(found[0]):04x}_", name)


def unescape_name(escaped: str) -> str:
    """The name whose Avro name is ``escaped``."""
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)), escaped)


def namespace(set_name: str, database: str, table: str) -> str:
    """The Avro namespace of one table's schemas."""
    return ".".join(("millrace", *map(escape_name, (set_name, database, table))))
