"""Single rows with JSON that SQL must write by expression (``consumer.tables.json_documents``), as an INSERT each."""

from collections.abc import Iterator

from consumer.copy.columns import Kind
from consumer.copy.form import opening_of
from consumer.copy.outgoing import null_refused
from consumer.copy.table_pair import TablePair
from consumer.tables.json_documents import by_expression
from schemas.sql.quoting import escaped

_SIZES = {0xFC: 2, 0xFD: 3, 0xFE: 8}
_NULL = 0xFB


def document_insert(pair: TablePair, row: bytes) -> tuple[bytes, int] | None:
    """The statement for a row of the text protocol, and how many ENUMs have the index 0; None if it needs none."""
    literals, is_needed, zeros = [], False, 0
    for column, value in zip(pair.columns, _values(row), strict=True):
        found = None
        if value is None and column.refuses_null:
            raise null_refused(pair, column)
        if column.kind is Kind.DOCUMENT and value is not None:
            found = by_expression(value)
            is_needed |= found is not None
        zeros += column.kind is Kind.ENUM and value == b"0"
        opening = opening_of(column)
        if value is None:
            found = b"NULL"
        elif found is None:
            found = opening + escaped(value) + b"'" if opening else value
        literals.append(found)
    if not is_needed:
        return None
    return pair.insert + b"(" + b",".join(literals) + b")", zeros


def _values(row: bytes) -> Iterator[bytes | None]:
    at = 0
    while at < len(row):
        first = row[at]
        at += 1
        if first == _NULL:
            yield None
            continue
        head = _SIZES.get(first, 0)
        size = int.from_bytes(row[at : at + head], "little") if head else first
        at += head
        yield row[at : at + size]
        at += size
