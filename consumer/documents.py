r"""JSON for a MySQL target: numbers that it would read as DOUBLE, and so print otherwise, are given by expression.

MySQL's JSON may hold a DECIMAL, whose text in the record is its digits: ``[1.50]``. A server that reads that text
makes a DOUBLE of it: ``[1.5]``, and keeps 17 digits. What is written instead is

    JSON_REPLACE('[1.50]', '$[0]', 1.50)

Guarantees: the target prints the text that the source printed. Not done: what the text does not tell. A DECIMAL with
the digits of a DOUBLE or an integer becomes one; DATE, TIME, DATETIME and bytes become strings.
"""

import re
from decimal import Decimal

import numpy as np

from consumer.kernel.walk import FIRST_CELL, STRING
from consumer.rows import Rows, Template
from consumer.table_plan import TablePlan

_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{},]|-?[0-9][0-9.eE+-]*', re.DOTALL)
_DECIMAL = re.compile(rb"-?([0-9]+)(?:\.([0-9]+))?")
_DIGITS_MAX, _SCALE_MAX = 65, 30  # of the server's DECIMAL


def filled_exactly(rows: Rows, number: int, template: Template, table_plan: TablePlan) -> bytes:
    """As ``Rows.filled``, with the documents of one record by expression where they need it."""
    width = len(table_plan.layout.branches)
    documents = set(table_plan.documents)
    first = int(rows.records[number, FIRST_CELL])
    one = np.array([number], np.int64)
    glue, parts, start = template.glue.tobytes(), [], 0
    for place, end in enumerate(map(int, template.ends)):
        parts.append(glue[start:end])
        start = end
        if place == len(template.shape):
            break
        offset = int(template.shape[place, 0])
        kind, text_start, text_end = map(int, rows.cells[first + offset, :3])
        found = None
        if kind == STRING and offset % width in documents:
            found = by_expression(rows.values.payload[text_start:text_end].tobytes())
        shape = template.shape[place : place + 1]
        parts.append(found or rows.text_of(one, shape, opening=b"", closing=b""))
    return b"".join(parts)


def by_expression(text: bytes) -> bytes | None:
    """The document as SQL, or None where its text alone does it (also where it is no JSON)."""
    replaced = b""
    legs: list[
        int | bytes
    ] = []  # of each open array its index, of each open object its key, b"" before it
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
            replaced += b",'$" + _escaped(path) + b"'," + token
    return b"JSON_REPLACE('" + _escaped(text) + b"'" + replaced + b")" if replaced else None


def is_read_exactly(token: bytes) -> bool:
    """Does a server that reads this number print it so again? True also for what it takes for no DECIMAL."""
    parts = _DECIMAL.fullmatch(token)
    if parts is None:
        return True
    whole, behind = parts[1], parts[2] or b""
    if len(whole) + len(behind) > _DIGITS_MAX or len(behind) > _SCALE_MAX:
        return True
    if not behind:
        return -(2**63) <= int(token) < 2**64
    return _printed(float(token)) == token.decode()


def _printed(value: float) -> str:
    """A DOUBLE as MySQL prints it in JSON; the rule stands in ``producer.convert.kernel.doubles``."""
    if value == 0:
        return str(value)
    shortest = Decimal(repr(value)).normalize()
    digits = len(shortest.as_tuple().digits)
    point = shortest.adjusted() + 1
    if not (-15 < point <= 15 or 0 < point < digits):
        return f"{shortest:e}"
    plain = f"{shortest:f}"
    return plain if "." in plain else plain + ".0"


def _escaped(text: bytes) -> bytes:
    return text.replace(b"\\", b"\\\\").replace(b"'", b"\\'").replace(b"\0", b"\\0")
