r"""JSON literals for a MySQL target. Numbers that a server would parse as another type are written by expression.

A DECIMAL in MySQL's JSON has its digits in the record: ``[1.50]``. A server that parses this text makes it a DOUBLE,
prints ``[1.5]`` and keeps 17 digits. So the statement has

    JSON_REPLACE('[1.50]', '$[0]', 1.50)

Guarantees: the target prints the same text as the source.
Not done here: types that the text does not show. A DECIMAL with the digits of a DOUBLE or an integer becomes one.
DATE, TIME, DATETIME and bytes become strings.
"""

import re
from decimal import Decimal

from consumer.kernel.walk import STRING
from consumer.row_schemas import Ints
from consumer.rows import Rows, Template
from consumer.sql.table_plan import TablePlan
from schemas.sql.quoting import escaped

_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{},]|-?[0-9][0-9.eE+-]*', re.DOTALL)
_DECIMAL = re.compile(rb"-?([0-9]+)(?:\.([0-9]+))?")
_DIGITS_MAX, _SCALE_MAX = 65, 30  # of the server's DECIMAL


def filled_exactly(rows: Rows, firsts: Ints, template: Template, table_plan: TablePlan) -> bytes:
    """As ``Rows.filled``, with JSON values by expression if they need it."""
    width = len(table_plan.layout.branches)
    documents = set(table_plan.documents)
    glue, parts, start = template.glue.tobytes(), [], 0
    for place, end in enumerate(map(int, template.ends)):
        parts.append(glue[start:end])
        start = end
        if place == len(template.shape):
            break
        image, offset = map(int, template.shape[place, :2])
        kind, text_start, text_end = map(int, rows.cells[firsts[0, image] + offset, :3])
        found = None
        if kind == STRING and offset % width in documents:
            found = by_expression(rows.values.payload[text_start:text_end].tobytes())
        shape = template.shape[place : place + 1]
        parts.append(found or rows.text_of(firsts, shape))
    return b"".join(parts)


def by_expression(text: bytes) -> bytes | None:
    """The JSON value as SQL; None if its text is enough, or if it is not JSON."""
    replaced = b""
    legs: list[
        int | bytes
    ] = []  # the index in each open array, the key in each open object (b"" before it)
    for found in _TOKEN.finditer(text):
        token = found.group()
        if token in b"[{":
            legs.append(0 if token == b"[" else b"")
        elif token in b"]},":
            if not legs:
                return None
            leg = legs.pop()
            if token == b",":
                legs.append(leg + 1 if isinstance(leg, int) else b"")
        elif token[:1] == b'"':
            if legs and legs[-1] == b"":
                legs[-1] = token
        elif not is_read_exactly(token):
            path = b"".join(b"[%d]" % leg if isinstance(leg, int) else b"." + leg for leg in legs)
            replaced += b",'$" + escaped(path) + b"'," + token
    return b"JSON_REPLACE('" + escaped(text) + b"'" + replaced + b")" if replaced else None


def is_read_exactly(token: bytes) -> bool:
    """True if a server that parses this number prints it unchanged, or if it is not a valid DECIMAL."""
    parts = _DECIMAL.fullmatch(token)
    if parts is None:
        return True
    whole, fraction = parts[1], parts[2] or b""
    if len(whole) + len(fraction) > _DIGITS_MAX or len(fraction) > _SCALE_MAX:
        return True
    if not fraction:
        return -(2**63) <= int(token) < 2**64
    return _printed(float(token)) == token.decode()


def _printed(value: float) -> str:
    """A DOUBLE as MySQL prints it in JSON, by the rule of ``producer.convert.kernel.doubles``."""
    if value == 0:
        return str(value)
    shortest = Decimal(repr(value)).normalize()
    digits = len(shortest.as_tuple().digits)
    point = shortest.adjusted() + 1
    if not (-15 < point <= 15 or 0 < point < digits):
        return f"{shortest:e}"
    plain = f"{shortest:f}"
    return plain if "." in plain else plain + ".0"
