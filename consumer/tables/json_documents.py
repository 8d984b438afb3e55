r"""JSON literals. Values whose text a MySQL server would parse as another type are written by expression.

A DECIMAL in MySQL's JSON has its digits in the record: ``[1.50]``. A server that parses this text makes it a DOUBLE,
prints ``[1.5]`` and keeps 17 digits. A date is a string in the text. Capture marks such values with blanks
(``producer.convert.kernel.json_binary``). So the statement for ``[1.50 , "2024-01-31" ]`` has

    JSON_REPLACE('[1.50 , "2024-01-31" ]', '$[0]', 1.50, '$[1]', CAST('2024-01-31' AS DATE))

    mark          value                      expression
    one blank     number with a point        the number
                  number                     CAST(5 AS DECIMAL(1,0))
                  "2024-01-31"               CAST('2024-01-31' AS DATE), and so TIME(6), DATETIME(6)
                  "base64:type15:AP8="       x'00FF'
    two blanks    5                          CAST(5 AS UNSIGNED); above 2**32 - 1 CAST(… AS SIGNED)
    three         "2024-01-31 …"             as DATETIME(6)

Guarantees: the target prints the same text as the source, and values have the same types.
Not done here: types that no expression gives. A TIMESTAMP becomes a DATETIME. A BIT, BINARY, BLOB or TEXT of bytes
becomes a string with the same text (``has_lost_type``). Rows of a load or a snapshot have no marks, so only their
numbers are exact. A column of the target that is not JSON gets the text without marks.
"""

import re
from base64 import b64decode
from collections.abc import Sequence
from decimal import Decimal

from millrace.consumer.kernel.walk import STRING
from millrace.consumer.records.numbers import Ints
from millrace.consumer.records.rows import Rows, Template
from millrace.consumer.tables.table_plan import AFTER, TablePlan
from millrace.drivers.mysql.catalog import CatalogColumn
from millrace.schemas.sql.quoting import escaped

_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{},]|-?[0-9][0-9.eE+-]*| +(?=[,\]}]|\Z)', re.DOTALL)
_TYPES = {
    "DATE": re.compile(rb'"\d{4}-\d\d-\d\d"'),
    "TIME(6)": re.compile(rb'"-?\d{2,3}:\d\d:\d\d\.\d{6}"'),
    "DATETIME(6)": re.compile(rb'"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6}"'),
}
_BYTES = re.compile(rb'"base64:type15:([A-Za-z0-9+/=\\]*)"')
_DECIMAL = re.compile(rb"-?([0-9]+)(?:\.([0-9]+))?")
_TIMESTAMP = 3  # blanks
_DIGITS_MAX, _SCALE_MAX = 65, 30  # of the server's DECIMAL


def filled_exactly(rows: Rows, firsts: Ints, template: Template, table_plan: TablePlan) -> bytes:
    """As ``Rows.filled``, with JSON values by expression if they need it."""
    width = len(table_plan.layout.branches)
    documents = {*table_plan.documents, *table_plan.generated_documents}
    columns = dict((*table_plan.columns, *table_plan.verified))
    glue, parts, start = template.glue.tobytes(), [], 0
    for place, end in enumerate(map(int, template.ends)):
        parts.append(glue[start:end])
        start = end
        if place == len(template.shape):
            break
        image, offset = map(int, template.shape[place, :2])
        kind, text_start, text_end = map(int, rows.cells[firsts[0, image] + offset, :3])
        found = None
        index = offset % width
        if kind == STRING and index in documents:
            text = rows.values.payload[text_start:text_end].tobytes()
            found = _literal(text, columns[index], is_marked=table_plan.is_marked(index))
        shape = template.shape[place : place + 1]
        parts.append(found or rows.text_of(firsts, shape))
    return b"".join(parts)


def _literal(text: bytes, column: CatalogColumn, *, is_marked: bool) -> bytes | None:
    if column.base_type == "json":
        return by_expression(text, is_marked=is_marked)
    return b"'" + escaped(unmarked(text)) + b"'"


def unmarked(text: bytes) -> bytes:
    """The text as MySQL prints it, without marks."""
    return (
        _TOKEN.sub(lambda found: found.group().strip(b" ") or b"", text) if b" " in text else text
    )


def has_lost_type(rows: Rows, firsts: Ints, table_plan: TablePlan) -> bool:
    """Whether the JSON of a row that was written has a value whose type no expression gives."""
    width = len(table_plan.layout.branches)
    for index in filter(table_plan.is_marked, table_plan.documents):
        kind, start, end = map(int, rows.cells[firsts[0, AFTER] + width + index, :3])
        if kind == STRING and _is_lost(rows.values.payload[start:end].tobytes()):
            return True
    return False


def _is_lost(text: bytes) -> bool:
    value = b""
    for found in _TOKEN.finditer(text):
        token = found.group()
        if token[:1] == b" " and (len(token) == _TIMESTAMP or not _typed(value, len(token))):
            return True
        value = token
    return False


def by_expression(text: bytes, *, is_marked: bool = False) -> bytes | None:
    """The JSON value as SQL; None if its text is enough, or if it is not JSON."""
    arguments, last_argument = (
        b"",
        b"",
    )  # of JSON_REPLACE; the last one is a number's, until a mark types it
    # the index in each open array, the key in each open object (b"" before it)
    legs: list[int | bytes] = []
    value = b""
    for found in _TOKEN.finditer(text):
        token = found.group()
        if token in b"[{":
            legs.append(0 if token == b"[" else b"")
        elif token in b"]},":
            if not legs:
                return None
            leg, value = legs.pop(), b""
            if token == b",":
                legs.append(leg + 1 if isinstance(leg, int) else b"")
        elif token[:1] == b" ":
            typed = _typed(value, len(token)) if is_marked else b""
            if typed:
                arguments = arguments.removesuffix(last_argument) + _argument(legs, typed)
        elif token[:1] == b'"' and legs and legs[-1] == b"":
            legs[-1] = token
        else:
            value, last_argument = token, b""
            if token[:1] != b'"' and not is_read_exactly(token):
                last_argument = _argument(legs, token)
                arguments += last_argument
    return b"JSON_REPLACE('" + escaped(text) + b"'" + arguments + b")" if arguments else None


def _argument(legs: Sequence[int | bytes], value: bytes) -> bytes:
    path = b"".join(b"[%d]" % leg if isinstance(leg, int) else b"." + leg for leg in legs)
    return b",'$" + escaped(path) + b"'," + value


def _typed(value: bytes, blanks: int) -> bytes:
    """The expression of a marked value; empty if there is none."""
    if value[:1] == b'"':
        for name, form in _TYPES.items():
            if form.fullmatch(value):
                return b"CAST('" + value[1:-1] + b"' AS " + name.encode() + b")"
        if found := _BYTES.fullmatch(value):
            return b"x'" + b64decode(found[1].replace(b"\\n", b"")).hex().encode() + b"'"
        return b""
    if not _DECIMAL.fullmatch(value):
        return b""
    if blanks > 1 and b"." not in value:
        return b"CAST(" + value + (b" AS UNSIGNED)" if int(value) < 1 << 32 else b" AS SIGNED)")
    if b"." in value or not is_read_exactly(value):
        return value  # a literal of the server's DECIMAL
    digits = len(value.lstrip(b"-"))
    return b"CAST(%b AS DECIMAL(%d,0))" % (value, digits)


def is_read_exactly(token: bytes) -> bool:
    """Whether a number needs no expression: a server prints it as it reads it, or it is no valid DECIMAL."""
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
