"""A condition of a view over one table's structure: checked, as SQL, and as a program for rows of records.

``compile_condition`` accepts an expression only if both ways give what MySQL and MariaDB compute, for every row:

    integer columns, whole numbers   comparisons, + - * % and CRC32, where no result leaves a signed number of 64 bits
    DECIMAL                          comparisons with a literal number
    DATE, DATETIME                   comparisons with a literal of the same kind
    binary                           comparisons with literal bytes, CRC32
    text                             = and <> with a literal, under a collation that is exact or was weighed;
                                     CRC32 of its bytes in the column's character set, except gb18030
    ENUM, SET                        = and <> with a label, or labels joined by commas, compared by their number
    any column                       IS NULL

Everything else is refused. The SQL depends on no session: names are quoted, everything is in brackets, texts have their
character set and collation, unsigned columns in calculations are cast.

A program is a list of ``Step``: the operation, its column, a comparison, a number, and bytes. It works on a stack of
64-bit numbers or NULL; conditions are 1, 0 or NULL. Columns are counted in the table's structure, as in its records.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum, auto
from functools import partial

from millrace.schemas.sql.quoting import hex_bytes, quoted, string
from millrace.schemas.table.charset import encode_text
from millrace.schemas.table.collation_ids import exact_collation
from millrace.schemas.table.structure import (
    BINARY,
    BLOB_CODES,
    INTEGER_BYTES,
    LABELLED_CODES,
    STRING_CODES,
    Column,
    TableSchema,
    TypeCode,
)
from millrace.schemas.view.collation import CollationWeights, step_octets
from millrace.schemas.view.expression import (
    COMPARISONS,
    ColumnName,
    Decimal,
    Expression,
    Literal,
    Moment,
    Octets,
    Operation,
    Refused,
    Text,
    Whole,
    canonical,
)
from millrace.schemas.view.text_bytes import TextBytes, text_bytes

SIGNED_MIN, SIGNED_MAX, UNSIGNED_MAX = -(2**63), 2**63 - 1, 2**64 - 1
DECIMAL_BYTES = 32
DECIMAL_DIGITS_MAX = 65
DECIMAL_SCALE_MAX = 30

_DATE_CODES = frozenset((TypeCode.DATE, TypeCode.NEWDATE))
_DATETIME_CODES = frozenset((TypeCode.DATETIME, TypeCode.DATETIME2))
_ADDRESS_BYTES = (4, 16)
_SWAPPED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_DATE = re.compile(r"(\d{4}-\d\d-\d\d)(?P<fraction>(?!))?", re.ASCII)
_TIMESTAMP = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?:\.(?P<fraction>\d+))?", re.ASCII)
_CONDITIONS = {*COMPARISONS, "IS NULL", "NOT", "AND", "OR"}


class Op(Enum):
    """The operations of a program. ``comparison`` is a place in ``COMPARISONS``."""

    CELL = auto()  # push an integer column
    CELL_UNSIGNED = auto()  # push a BIGINT UNSIGNED, as the 64 bits of a signed number
    NUMBER = auto()  # push ``number``
    ADD = auto()
    SUBTRACT = auto()
    MULTIPLY = auto()
    REMAINDER = auto()  # NULL by 0; the sign of the dividend
    NEGATE = auto()
    CRC_NUMBER = auto()  # of the decimal digits; ``number`` 1: it is unsigned
    CRC_CELL = auto()  # of the bytes of a column; ``number``: how to get them, a ``TextBytes``
    # the two numbers on top; ``number`` + 1: the left one is unsigned, + 2: the right one
    COMPARE = auto()
    # a column with ``DECIMAL_BYTES`` bytes, big-endian, at the column's scale
    COMPARE_DECIMAL = auto()
    COMPARE_OCTETS = auto()  # a column with bytes, byte by byte, then by length
    COMPARE_TEXT = auto()  # the same, only = and <>; ``number`` 1: without blanks at the end
    COMPARE_WEIGHTS = (
        auto()
    )  # a text, only = and <>, with the weights of ``schemas.view.collation``
    COMPARE_LABEL = auto()  # a column with a label, or with ``number`` if the record has one
    NEVER_EQUAL = auto()  # a column that cannot have the literal's value
    IS_NULL_CELL = auto()
    IS_NULL = auto()
    AND = auto()
    OR = auto()
    NOT = auto()


_OF_SIGN = {"+": Op.ADD, "-": Op.SUBTRACT, "*": Op.MULTIPLY, "%": Op.REMAINDER}


@dataclass(frozen=True, slots=True)
class Step:
    """One operation of a program."""

    op: Op
    column: int = 0
    comparison: int = 0
    number: int = 0
    octets: bytes = b""


@dataclass(frozen=True, slots=True)
class Condition:
    """``depth``: the numbers on the stack, at most."""

    sql: str
    steps: tuple[Step, ...]
    depth: int


def compile_condition(
    tree: Expression, table: TableSchema, collations: Iterable[CollationWeights] = ()
) -> Condition:
    """The condition for rows of this table, whose source weighs texts as ``collations`` say. Raises ``Refused``."""
    part = _Compiler(table, collations).condition(tree)
    return Condition(part.sql, part.steps, _depth(part.steps))


def weighed_literals(tree: Expression, table: TableSchema) -> Mapping[int, frozenset[str]]:
    """By the ids of their collations, the literals that ``compile_condition`` needs weights for."""
    literals: dict[int, frozenset[str]] = {}
    columns = {column.name.lower(): column for column in table.columns}
    for pair in _comparisons(tree):
        for one, other in (pair, pair[::-1]):
            column = columns.get(one.name.lower()) if isinstance(one, ColumnName) else None
            encoding = column.type.text if column is not None and column.type.is_text else None
            if encoding is None or not isinstance(other, Text):
                continue
            if exact_collation(encoding.collation_id) is None:
                others = literals.get(encoding.collation_id, frozenset())
                literals[encoding.collation_id] = others | {other.text}
    return literals


def _comparisons(tree: Expression) -> Iterator[tuple[Expression, Expression]]:
    if isinstance(tree, Operation):
        if tree.name in COMPARISONS:
            yield tree.operands[0], tree.operands[1]
        for operand in tree.operands:
            yield from _comparisons(operand)


_OF_COLUMNS = frozenset(
    (
        *(Op.CELL, Op.CELL_UNSIGNED, Op.CRC_CELL, Op.IS_NULL_CELL, Op.NEVER_EQUAL),
        *(Op.COMPARE_DECIMAL, Op.COMPARE_OCTETS, Op.COMPARE_TEXT, Op.COMPARE_LABEL),
        Op.COMPARE_WEIGHTS,
    )
)
_TAKES_TWO = frozenset((*_OF_SIGN.values(), Op.COMPARE, Op.AND, Op.OR))


def _depth(steps: tuple[Step, ...]) -> int:
    depth = deepest = 0
    for step in steps:
        if step.op in _OF_COLUMNS or step.op is Op.NUMBER:
            depth += 1
        elif step.op in _TAKES_TWO:
            depth -= 1
        deepest = max(deepest, depth)
    return deepest


@dataclass(frozen=True, slots=True)
class _Part:
    """A compiled subtree. ``low`` and ``high`` bound a number; a condition has none."""

    sql: str
    steps: tuple[Step, ...]
    low: int = 0
    high: int = 0

    @property
    def is_unsigned(self) -> bool:
        return self.high > SIGNED_MAX


class _Compiler:
    """Compiles for one table."""

    def __init__(self, table: TableSchema, collations: Iterable[CollationWeights]) -> None:
        self._table = table
        self._collations = {one.collation_id: one for one in collations}
        self._places = {column.name.lower(): at for at, column in enumerate(table.columns)}

    def condition(self, tree: Expression) -> _Part:
        """A subtree that is true, false or NULL."""
        match tree:
            case Operation("AND" | "OR" as word, operands):
                parts = [self.condition(operand) for operand in operands]
                steps = parts[0].steps
                for part in parts[1:]:
                    steps += (*part.steps, Step(Op[word]))
                return _Part(f"({f' {word} '.join(part.sql for part in parts)})", steps)
            case Operation("NOT", (operand,)):
                part = self.condition(operand)
                return _Part(f"(NOT {part.sql})", (*part.steps, Step(Op.NOT)))
            case Operation("IS NULL", (operand,)):
                return self._is_null(operand)
            case Operation(name, (left, right)) if name in COMPARISONS:
                return self._comparison(name, left, right)
        raise Refused(canonical(tree), "a condition, such as a comparison")

    def _is_null(self, operand: Expression) -> _Part:
        # ``IS NULL`` of a DATE NOT NULL finds 0000-00-00 on both servers
        if isinstance(operand, ColumnName):
            at, column = self._column(operand)
            return _Part(f"({_sql(column)} <=> NULL)", (Step(Op.IS_NULL_CELL, at),))
        part = self._number(operand)
        return _Part(f"({part.sql} <=> NULL)", (*part.steps, Step(Op.IS_NULL)))

    # ---- comparisons -----------------------------------------------------------------------------------

    def _comparison(self, name: str, left: Expression, right: Expression) -> _Part:
        if isinstance(right, ColumnName) and _signed_literal(left) is not None:
            name, left, right = _SWAPPED[name], right, left
        literal = _signed_literal(right)
        if isinstance(left, ColumnName) and literal is not None:
            at, column = self._column(left)
            if column.type.code not in INTEGER_BYTES:
                return self._with_literal(name, at, column, literal)
        return self._of_numbers(name, self._number(left), self._number(right))

    def _of_numbers(self, name: str, left: _Part, right: _Part) -> _Part:
        flags = int(left.is_unsigned) + 2 * int(right.is_unsigned)
        step = Step(Op.COMPARE, comparison=COMPARISONS.index(name), number=flags)
        return _Part(f"({left.sql} {name} {right.sql})", (*left.steps, *right.steps, step))

    def _with_literal(
        self, name: str, at: int, column: Column, literal: tuple[Literal, bool]
    ) -> _Part:
        value, is_negative = literal
        encoding = column.type.text if column.type.is_text else None
        collation = self._collations.get(encoding.collation_id) if encoding is not None else None
        compare = _comparer(column, collation)
        if compare is None:
            raise Refused(
                f"{column.name} of type {column.type.code.name} in a comparison",
                "an integer, DECIMAL, DATE, DATETIME, binary, text, ENUM or SET column",
            )
        is_number = isinstance(value, Whole | Decimal)
        if is_negative and not is_number:
            raise Refused(f"-{canonical(value)}", "a number after the minus sign")
        if is_number and compare is not _decimal:
            raise Refused(
                f"{column.name} beside the number {canonical(value)}",
                "a literal of the column's type",
            )
        sign = -1 if is_negative else 1
        if isinstance(value, Whole):
            value = Decimal(sign * value.number, 0)
        elif isinstance(value, Decimal):
            value = Decimal(sign * value.digits, value.scale)
        return compare(name, at, column, value)

    # ---- numbers ---------------------------------------------------------------------------------------

    def _number(self, tree: Expression) -> _Part:
        match tree:
            case Whole(number):
                return _whole(number)
            case Operation("MINUS", (Whole(number),)):
                return _whole(-number)
            case ColumnName():
                return self._integer_column(tree)
            case Operation("MINUS", (operand,)):
                part = self._signed_number(operand)
                return _fitting(
                    tree,
                    _Part(f"(-{part.sql})", (*part.steps, Step(Op.NEGATE)), -part.high, -part.low),
                )
            case Operation("CRC32", (operand,)):
                return self._crc(operand)
            case Operation(sign, (left, right)) if sign in _OF_SIGN:
                return self._calculated(tree, sign, left, right)
        is_condition = isinstance(tree, Operation) and tree.name in _CONDITIONS
        wanted = (
            "a value, not a condition" if is_condition else "a whole number or an integer column"
        )
        raise Refused(canonical(tree), wanted)

    def _integer_column(self, tree: ColumnName) -> _Part:
        at, column = self._column(tree)
        if column.type.code not in INTEGER_BYTES:
            raise Refused(
                f"{column.name} of type {column.type.code.name}",
                "an integer column here, or a comparison of this column with a literal of its type",
            )
        bits = 8 * INTEGER_BYTES[column.type.code]
        if not column.type.is_unsigned:
            return _Part(
                _sql(column), (Step(Op.CELL, at),), -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
            )
        op = Op.CELL_UNSIGNED if bits == 64 else Op.CELL
        return _Part(_sql(column), (Step(op, at),), 0, 2**bits - 1)

    def _signed_number(self, tree: Expression) -> _Part:
        """A number that is calculated with: a difference of unsigned ones would be unsigned."""
        part = self._number(tree)
        if part.is_unsigned:
            raise Refused(
                canonical(tree), f"numbers up to {SIGNED_MAX} where they are calculated with"
            )
        is_literal = _signed_literal(tree) is not None
        sql = part.sql if is_literal else f"CAST({part.sql} AS SIGNED)"
        return _Part(sql, part.steps, part.low, part.high)

    def _calculated(
        self, tree: Expression, sign: str, left: Expression, right: Expression
    ) -> _Part:
        a, b = self._signed_number(left), self._signed_number(right)
        if sign == "%":
            largest = max(abs(b.low), abs(b.high))
            low = 0 if a.low >= 0 else max(a.low, 1 - largest) if largest else 0
            high = 0 if a.high <= 0 else min(a.high, largest - 1) if largest else 0
        else:
            results = [
                x + y if sign == "+" else x - y if sign == "-" else x * y
                for x in (a.low, a.high)
                for y in (b.low, b.high)
            ]
            low, high = min(results), max(results)
        steps = (*a.steps, *b.steps, Step(_OF_SIGN[sign]))
        return _fitting(tree, _Part(f"({a.sql} {sign} {b.sql})", steps, low, high))

    def _crc(self, operand: Expression) -> _Part:
        """CRC32 takes a text: of a number its digits, without the zeros of ZEROFILL."""
        if isinstance(operand, ColumnName):
            at, column = self._column(operand)
            code, text = column.type.code, column.type.text
            if code in STRING_CODES or code in BLOB_CODES:
                charset = text.charset if text is not None else BINARY
                form = (TextBytes.RAW, b"") if charset == BINARY else text_bytes(charset)
                if form is None:
                    raise Refused(
                        f"CRC32 of {column.name} with the character set {charset}",
                        "a column with another character set",
                    )
                step = Step(Op.CRC_CELL, at, number=form[0], octets=form[1])
                operand_sql = _octets_sql(column) if charset == BINARY else _sql(column)
                return _Part(f"CRC32({operand_sql})", (step,), 0, 2**32 - 1)
        part = self._number(operand)
        kind = "UNSIGNED" if part.is_unsigned else "SIGNED"
        step = Step(Op.CRC_NUMBER, number=int(part.is_unsigned))
        return _Part(f"CRC32(CAST({part.sql} AS {kind}))", (*part.steps, step), 0, 2**32 - 1)

    def _column(self, name: ColumnName) -> tuple[int, Column]:
        at = self._places.get(name.name.lower())
        if at is not None:
            return at, self._table.columns[at]
        if name.name.lower() in map(str.lower, self._table.omitted):
            raise Refused(
                f"the generated column {name.name}", "a column whose values the server logs"
            )
        names = ", ".join(column.name for column in self._table.columns[:20])
        raise Refused(f"the column {name.name}", f"a column of {self._table.full_name}: {names}")


def _sql(column: Column) -> str:
    return quoted(column.name).decode()


def _whole(number: int) -> _Part:
    if not SIGNED_MIN <= number <= UNSIGNED_MAX:
        raise Refused(str(number), f"whole numbers from {SIGNED_MIN} to {UNSIGNED_MAX}")
    step = Step(Op.NUMBER, number=_signed(number))
    return _Part(f"({number})" if number < 0 else str(number), (step,), number, number)


def _signed(number: int) -> int:
    """The signed number with the same 64 bits."""
    return number if number <= SIGNED_MAX else number - 2**64


def _fitting(tree: Expression, part: _Part) -> _Part:
    if part.low < SIGNED_MIN or part.high > SIGNED_MAX:
        raise Refused(
            f"{canonical(tree)}, from {part.low} to {part.high}",
            f"results from {SIGNED_MIN} to {SIGNED_MAX}",
        )
    return part


def _signed_literal(tree: Expression) -> tuple[Literal, bool] | None:
    """A literal and whether a minus sign precedes it; None for anything else."""
    match tree:
        case Whole() | Decimal() | Text() | Octets() | Moment():
            return tree, False
        case Operation("MINUS", (Whole() | Decimal() as literal,)):
            return literal, True
    return None


# ---- a column and a literal ------------------------------------------------------------------------------


def _comparer(
    column: Column, collation: CollationWeights | None
) -> "Callable[[str, int, Column, Literal], _Part] | None":
    """The function that compares a column of this type with a literal, if there is one."""
    code = column.type.code
    if code is TypeCode.NEWDECIMAL:
        return _decimal
    if code in _DATE_CODES or code in _DATETIME_CODES:
        return _moment
    if code in LABELLED_CODES:
        return _label
    if code in STRING_CODES or code in BLOB_CODES:
        return partial(_text, collation) if column.type.is_text else _octets
    return None


def _compared(name: str, column: Column, literal_sql: str, step: Step) -> _Part:
    return _Part(f"({_sql(column)} {name} {literal_sql})", (step,))


def _never(name: str, at: int, column: Column) -> _Part:
    """The column can't have the literal's value: = is false, <> is true, and both are NULL for NULL."""
    sql = f"IF({_sql(column)} <=> NULL, NULL, {int(name == '<>')})"
    return _Part(sql, (Step(Op.NEVER_EQUAL, at, COMPARISONS.index(name)),))


def _refused_beside(column: Column, literal: Literal, wanted: str) -> Refused:
    return Refused(f"{column.name} beside {canonical(literal)}", wanted)


def _decimal(name: str, at: int, column: Column, literal: Literal) -> _Part:
    if not isinstance(literal, Decimal):
        raise _refused_beside(column, literal, "a number, such as 12.50")
    digits, scale = literal.digits, literal.scale
    if len(str(abs(digits))) > DECIMAL_DIGITS_MAX or scale > DECIMAL_SCALE_MAX:
        raise _refused_beside(
            column,
            literal,
            f"at most {DECIMAL_DIGITS_MAX} digits, {DECIMAL_SCALE_MAX} after the point",
        )
    text = canonical(Decimal(abs(digits), scale)) if scale else str(abs(digits))
    literal_sql = f"(-{text})" if digits < 0 else text
    more = scale - column.type.scale
    scaled, remainder = divmod(digits, 10**more) if more > 0 else (digits * 10**-more, 0)
    if remainder:  # between two values of the column
        if name in ("=", "<>"):
            return _never(name, at, column)
        step_name = "<=" if name in ("<", "<=") else ">"
    else:
        step_name = name
    octets = scaled.to_bytes(DECIMAL_BYTES, "big", signed=True)
    step = Step(Op.COMPARE_DECIMAL, at, COMPARISONS.index(step_name), octets=octets)
    return _compared(name, column, literal_sql, step)


def _moment(name: str, at: int, column: Column, literal: Literal) -> _Part:
    """Both print with a fixed width, so the texts have the order of the values, zero and invalid parts included."""
    is_date = column.type.code in _DATE_CODES
    kind, form = ("DATE", _DATE) if is_date else ("TIMESTAMP", _TIMESTAMP)
    wanted = "DATE '2026-01-31'" if is_date else "TIMESTAMP '2026-01-31 10:00:00'"
    if not isinstance(literal, Text | Moment) or (
        isinstance(literal, Moment) and literal.kind != kind
    ):
        raise _refused_beside(column, literal, wanted)
    if (written := form.fullmatch(literal.text)) is None or not _is_in_calendar(written[1]):
        raise _refused_beside(column, literal, wanted)
    text, fraction = written[1], written["fraction"] or ""
    digits = column.type.fraction_digits
    if len(fraction) > digits:
        raise _refused_beside(column, literal, f"at most {digits} digits after the second")
    whole = f"{text}.{fraction.ljust(digits, '0')}" if digits else text
    step = Step(Op.COMPARE_OCTETS, at, COMPARISONS.index(name), octets=whole.encode())
    return _compared(name, column, f"{kind} '{whole}'", step)


def _is_in_calendar(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def _octets(name: str, at: int, column: Column, literal: Literal) -> _Part:
    if not isinstance(literal, Octets):
        raise _refused_beside(column, literal, "bytes, such as x'00ff'")
    step = Step(Op.COMPARE_OCTETS, at, COMPARISONS.index(name), octets=literal.octets)
    return _Part(f"({_octets_sql(column)} {name} {hex_bytes(literal.octets.hex())})", (step,))


def _octets_sql(column: Column) -> str:
    """MariaDB logs INET4 and INET6 as BINARY, and compares them as addresses: beside other bytes they are NULL."""
    size = column.type.length_bytes_max
    is_fixed = column.type.code is TypeCode.STRING and size in _ADDRESS_BYTES
    return f"CAST({_sql(column)} AS BINARY({size}))" if is_fixed else _sql(column)


def _text(
    collation: CollationWeights | None, name: str, at: int, column: Column, literal: Literal
) -> _Part:
    if not isinstance(literal, Text):
        raise _refused_beside(column, literal, "a text, such as 'paid'")
    if name not in ("=", "<>"):
        raise _refused_beside(column, literal, "=, <> or IN for texts")
    encoding = column.type.text
    assert encoding is not None, "a text column"
    exact = exact_collation(encoding.collation_id)
    encoded = encode_text(encoding.charset, literal.text)
    if exact is not None and encoded is None:
        return _never(name, at, column)
    if exact is not None:
        collation_name, pads = exact
        octets = literal.text.rstrip(" ").encode() if pads else literal.text.encode()
        step = Step(Op.COMPARE_TEXT, at, COMPARISONS.index(name), int(pads), octets)
    else:
        collation = _weighing(collation, column, literal.text)
        collation_name, octets = collation.name, step_octets(collation, literal.text)
        step = Step(Op.COMPARE_WEIGHTS, at, COMPARISONS.index(name), octets=octets)
    assert encoded is not None, "weighed literals have a form"
    sql = f"_{encoding.charset} {hex_bytes(encoded.hex())} COLLATE {collation_name}"
    return _compared(name, column, sql, step)


def _weighing(collation: CollationWeights | None, column: Column, literal: str) -> CollationWeights:
    """The collation, if its weights suffice for this literal."""
    shown = f"{column.name} beside {string(literal)}"
    exact = "a column with a _bin collation"
    if collation is None:
        found = f"{column.name} with a collation that calls different texts equal"
        raise Refused(found, f"{exact}, or the weights of the source's server")
    if collation.problem:
        raise Refused(f"{column.name} with {collation.name}, which {collation.problem}", exact)
    if literal in collation.literals:
        return collation
    reason = dict(collation.unfit).get(literal)
    raise Refused(f"{shown} under {collation.name}", reason or "a literal whose weights were read")


def _label(name: str, at: int, column: Column, literal: Literal) -> _Part:
    labels = column.type.labels
    if not isinstance(literal, Text) or name not in ("=", "<>"):
        raise _refused_beside(column, literal, "= or <> and a label")
    if column.type.code is TypeCode.ENUM:
        number = labels.index(literal.text) + 1 if literal.text in labels else 0
        is_label, text = number > 0, literal.text
    else:
        chosen = set(literal.text.split(",")) if literal.text else set[str]()
        number = sum(1 << place for place, label in enumerate(labels) if label in chosen)
        is_label = chosen <= {label for label in labels if label is not None}
        is_label &= bool(chosen) or "" not in labels  # else '' may be the label or nothing
        text = ",".join(label for label in labels if label is not None and label in chosen)
        if (
            is_label and text != literal.text
        ):  # the servers compare it as a text, which no value equals
            raise _refused_beside(
                column, literal, f"the labels in their order, each once: {string(text)}"
            )
    if not is_label:
        shown = ", ".join(repr(label) for label in labels[:20] if label is not None)
        raise _refused_beside(column, literal, f"one of {shown}")
    step = Step(Op.COMPARE_LABEL, at, COMPARISONS.index(name), _signed(number), text.encode())
    return _Part(f"(CAST({_sql(column)} AS UNSIGNED) {name} {number})", (step,))
