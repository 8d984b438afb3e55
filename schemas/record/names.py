"""Converts names of sets, databases, tables and columns to Avro names, without collision or loss.

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

_TO_ESCAPE = re.compile(r"^[0-9]|[^A-Za-z0-9_]|_(?=u[0-9a-f]{4})", re.ASCII)


def escape_name(name: str) -> str:
    """The Avro name of ``name``, which is not empty."""
    return _TO_ESCAPE.sub(lambda found: f"_u{ord(found[0]):04x}_", name)


def namespace(set_name: str, database: str, table: str) -> str:
    """The Avro namespace of one table's schemas."""
    return ".".join(("millrace", *map(escape_name, (set_name, database, table))))
