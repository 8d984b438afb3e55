"""The expressions of views: text to a tree, and back to one canonical text. Which columns exist is not known here.

    where: "status = 'paid' AND crc32(id) % 4 = 1"

    condition   OR, AND, NOT, in MySQL's precedence, over comparisons
    comparison  value (= | <> | != | < | <= | > | >=) value,  value [NOT] IN (literal, …),
                value [NOT] BETWEEN value AND value,  value IS [NOT] NULL
    value       column  `column`  literal  -value  value (+ | - | * | % | MOD) value
                MOD(value, value)  CRC32(value)  ( … )
    literal     12  12.50  'text'  x'00ff'  0x00ff  DATE '2026-01-31'  TIMESTAMP '2026-01-31 10:00:00'  TRUE  FALSE

A text between quotes has MySQL's escapes. Words are in any case. ``||``, ``&&``, ``!`` and "…" are refused: their
meaning depends on the sql_mode of a session. BETWEEN, IN and ``!=`` become the other forms, so equal conditions have
few texts. Whether MySQL would compute the same is decided by ``schemas.view.condition``, with the table's structure.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from millrace.schemas.sql.quoting import quoted, string
from millrace.schemas.sql.tokens import Token, tokenize

CHARACTERS_MAX = 16 * 1024
NUMBER_CHARACTERS_MAX = 100  # a DECIMAL has at most 65 digits
DEPTH_MAX = 64  # of brackets, NOT and minus signs
COMPARISONS = ("=", "<>", "<", "<=", ">", ">=")

_QUOTED = re.compile(r"'(?:[^'\\]|''|\\.)*'", re.DOTALL)
_ESCAPES = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a"}
_ESCAPE = re.compile(r"''|\\(.)", re.DOTALL)
_RESERVED = frozenset(
    (
        "AND",
        "OR",
        "NOT",
        "IN",
        "IS",
        "NULL",
        "BETWEEN",
        "LIKE",
        "XOR",
        "DIV",
        "MOD",
        "CASE",
        "REGEXP",
        "RLIKE",
    )
)


class Refused(Exception):
    """An expression that is not one, or whose result would not be exactly MySQL's."""

    def __init__(self, found: str, wanted: str) -> None:
        super().__init__(f"found {found}, wanted {wanted}")
        self.found, self.wanted = found, wanted


@dataclass(frozen=True, slots=True)
class ColumnName:
    """A column by its name; MySQL compares these without case."""

    name: str


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number. It has no sign: ``-1`` is an operation."""

    number: int


@dataclass(frozen=True, slots=True)
class Decimal:
    """A number with a point, as written: its digits and how many of them follow the point."""

    digits: int
    scale: int


@dataclass(frozen=True, slots=True)
class Text:
    """A text; also a date or a label, if it is compared with such a column."""

    text: str


@dataclass(frozen=True, slots=True)
class Octets:
    """Bytes."""

    octets: bytes


@dataclass(frozen=True, slots=True)
class Moment:
    """``DATE '…'`` or ``TIMESTAMP '…'``, not yet checked."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Operation:
    """``name`` is one of ``+ - * % MINUS CRC32``, a comparison, ``IS NULL``, ``NOT``, ``AND``, ``OR``."""

    name: str
    operands: tuple["Expression", ...]


Literal: TypeAlias = Whole | Decimal | Text | Octets | Moment
Expression: TypeAlias = ColumnName | Literal | Operation


def parse(text: str) -> Expression:
    """The tree of an expression. Raises ``Refused``."""
    if len(text) > CHARACTERS_MAX:
        raise Refused(f"{len(text)} characters", f"at most {CHARACTERS_MAX}")
    return _Parser(text).whole()


def canonical(tree: Expression) -> str:
    """The tree as text, fully bracketed; ``parse`` reads it back."""
    match tree:
        case ColumnName(name):
            return quoted(name).decode()
        case Whole(number):
            return str(number)
        case Decimal(digits, scale):
            padded = str(digits).rjust(scale + 1, "0")
            return f"{padded[: len(padded) - scale]}.{padded[len(padded) - scale :]}"
        case Text(value):
            return string(value)
        case Octets(octets):
            return f"x'{octets.hex()}'"
        case Moment(kind, value):
            return f"{kind} {string(value)}"
        case Operation("MINUS", (operand,)):
            return f"(-{canonical(operand)})"
        case Operation("NOT", (operand,)):
            return f"(NOT {canonical(operand)})"
        case Operation("CRC32", (operand,)):
            return f"CRC32({canonical(operand)})"
        case Operation("IS NULL", (operand,)):
            return f"({canonical(operand)} IS NULL)"
    return f"({f' {tree.name} '.join(map(canonical, tree.operands))})"


def columns_of(tree: Expression) -> frozenset[str]:
    """The names of its columns, as they are written."""
    match tree:
        case ColumnName(name):
            return frozenset((name,))
        case Operation(_, operands):
            return frozenset().union(*map(columns_of, operands))
    return frozenset()


class _Parser:
    """Recursive descent; each method reads one level of precedence."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = tokenize(text)
        self._at = 0
        self._depth = 0

    def whole(self) -> Expression:
        tree = self._either()
        if self._token is not None:
            raise self._unexpected("AND, OR, or the end of the expression")
        return tree

    # ---- conditions ------------------------------------------------------------------------------------

    def _either(self) -> Expression:
        return self._chain("OR", self._all)

    def _all(self) -> Expression:
        return self._chain("AND", self._not)

    def _chain(self, word: str, read: Callable[[], Expression]) -> Expression:
        """``a OR b OR c`` is one operation."""
        operands = [read()]
        while self._takes(word):
            operands.append(read())
        return operands[0] if len(operands) == 1 else Operation(word, tuple(operands))

    def _not(self) -> Expression:
        if not self._takes("NOT"):
            return self._comparison()
        self._deeper()
        operand = self._not()
        self._depth -= 1
        return Operation("NOT", (operand,))

    def _comparison(self) -> Expression:
        left = self._sum()
        if name := self._comparison_mark():
            return Operation(name, (left, self._sum()))
        if self._takes("IS"):
            is_not = self._takes("NOT")
            self._expect("NULL")
            test = Operation("IS NULL", (left,))
            return Operation("NOT", (test,)) if is_not else test
        is_not = self._takes("NOT")
        if self._takes("IN"):
            condition = self._one_of(left)
        elif self._takes("BETWEEN"):
            low = self._sum()
            self._expect("AND")
            bounds = (Operation(">=", (left, low)), Operation("<=", (left, self._sum())))
            condition = Operation("AND", bounds)
        elif is_not:
            raise self._unexpected("IN or BETWEEN")
        else:
            return left
        return Operation("NOT", (condition,)) if is_not else condition

    def _one_of(self, left: Expression) -> Expression:
        self._expect("(")
        equals = [Operation("=", (left, self._sum()))]
        while self._takes(","):
            equals.append(Operation("=", (left, self._sum())))
        self._expect(")")
        return equals[0] if len(equals) == 1 else Operation("OR", tuple(equals))

    def _comparison_mark(self) -> str:
        """A comparison of one or two adjacent marks; "" if there is none."""
        first = self._mark(0)
        if first not in ("=", "<", ">", "!"):
            return ""
        second = self._mark(1) if self._are_adjacent() else ""
        both = first + second if second in ("=", ">", "<") else first
        name = "<>" if both == "!=" else both
        if name not in COMPARISONS or (both == "<=" and self._mark(2) == ">"):
            raise self._unexpected(" ".join(COMPARISONS))
        self._at += len(both)
        return name

    # ---- values ----------------------------------------------------------------------------------------

    def _sum(self) -> Expression:
        return self._left_to_right(self._product, {"+": "+", "-": "-"})

    def _product(self) -> Expression:
        return self._left_to_right(self._signed, {"*": "*", "%": "%", "MOD": "%"})

    def _left_to_right(self, read: Callable[[], Expression], names: dict[str, str]) -> Expression:
        tree = read()
        steps = 0
        while (spelling := next((one for one in names if self._takes(one)), "")) != "":
            steps += 1
            if steps > DEPTH_MAX:
                raise Refused(f"more than {DEPTH_MAX} operations in a row", "fewer")
            tree = Operation(names[spelling], (tree, read()))
        return tree

    def _signed(self) -> Expression:
        if not self._takes("-"):
            return self._single()
        self._deeper()
        operand = self._signed()
        self._depth -= 1
        return Operation("MINUS", (operand,))

    def _single(self) -> Expression:
        token = self._token
        if token is None:
            raise self._unexpected("a column, a literal or (")
        if self._takes("("):
            self._deeper()
            tree = self._either()
            self._depth -= 1
            self._expect(")")
            return tree
        if token.kind == "number":
            self._at += 1
            return _number(self._text[token.start : token.end])
        if token.kind == "text":
            return Text(self._quoted_text())
        if token.kind == "quoted":
            self._at += 1
            return ColumnName(token.name)
        if token.kind == "word":
            return self._word(token)
        raise self._unexpected("a column, a literal or (")

    def _word(self, token: Token) -> Expression:
        """A column, a function, or a literal that begins with a word."""
        word = token.word
        next_token = self._tokens[self._at + 1] if self._at + 1 < len(self._tokens) else None
        if next_token is not None and next_token.kind == "text":
            if word == "X" and next_token.start == token.end:
                self._at += 1
                return Octets(_octets(self._quoted_text()))
            if word in ("DATE", "TIMESTAMP"):
                self._at += 1
                return Moment(word, self._quoted_text())
        if next_token is not None and next_token.name == "(" and next_token.kind == "mark":
            return self._call(word)
        if word in ("TRUE", "FALSE"):
            self._at += 1
            return Whole(int(word == "TRUE"))
        if word in _RESERVED:
            raise self._unexpected("a column, a literal or (")
        self._at += 1
        return ColumnName(token.name)

    def _call(self, word: str) -> Expression:
        if word not in ("CRC32", "MOD"):
            raise self._unexpected("CRC32(…) or MOD(…, …)")
        self._at += 2
        self._deeper()
        operands = [self._sum()]
        if word == "MOD":
            self._expect(",")
            operands.append(self._sum())
        self._depth -= 1
        self._expect(")")
        return Operation("%" if word == "MOD" else word, tuple(operands))

    # ---- tokens ----------------------------------------------------------------------------------------

    @property
    def _token(self) -> Token | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def _mark(self, ahead: int) -> str:
        at = self._at + ahead
        token = self._tokens[at] if at < len(self._tokens) else None
        return token.name if token is not None and token.kind == "mark" else ""

    def _are_adjacent(self) -> bool:
        """Whether the next token follows without a blank."""
        pair = self._tokens[self._at : self._at + 2]
        return len(pair) == 2 and pair[0].end == pair[1].start

    def _takes(self, expected: str) -> bool:
        """Whether the next token is this word or mark, which is then read."""
        token = self._token
        if token is None or expected not in (token.word, self._mark(0)):
            return False
        self._at += 1
        return True

    def _expect(self, expected: str) -> None:
        if not self._takes(expected):
            raise self._unexpected(expected)

    def _deeper(self) -> None:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise Refused(
                f"more than {DEPTH_MAX} brackets, NOT or minus signs in each other", "fewer"
            )

    def _quoted_text(self) -> str:
        token = self._tokens[self._at]
        raw = self._text[token.start : token.end]
        if raw[0] == '"':
            raise self._unexpected("a text between '…', a column between `…`")
        if not _QUOTED.fullmatch(raw):
            raise self._unexpected("a text that ends")
        self._at += 1
        return _ESCAPE.sub(_unescaped, raw[1:-1])

    def _unexpected(self, wanted: str) -> Refused:
        token = self._token
        if token is None:
            return Refused("the end of the expression", wanted)
        return Refused(
            f"{self._text[token.start : token.start + 20]!r} at character {token.start + 1}", wanted
        )


def _unescaped(escape: re.Match[str]) -> str:
    letter = escape[1]
    if letter is None:
        return "'"
    return f"\\{letter}" if letter in "%_" else _ESCAPES.get(letter, letter)


def _number(text: str) -> Literal:
    """A literal of the server's: with an exponent it would be a DOUBLE, which is not exact."""
    if text.startswith("0x"):
        return Octets(_octets(text[2:]))
    if text.startswith("0b") or "e" in text.lower():
        raise Refused(text, "a number without exponent, or bytes as x'…'")
    if len(text) > NUMBER_CHARACTERS_MAX:
        raise Refused(f"{text[:20]}…", f"a number of at most {NUMBER_CHARACTERS_MAX} characters")
    whole, point, fraction = text.partition(".")
    if not point:
        return Whole(int(whole))
    return Decimal(int(whole + fraction or "0"), len(fraction))


def _octets(digits: str) -> bytes:
    try:
        return bytes.fromhex(digits)
    except ValueError:
        raise Refused(repr(digits), "an even number of hex digits") from None
