"""Generated tables, rows and views: members and values are those that plain Python computes.

The condition is written twice, as text for the view and as a function of a row. Values of columns that are masked,
dropped or only read by the condition have a mark, which the payload of the changes must not have.
"""

import hashlib
import hmac
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from millrace.consumer.view.changes import AFTER, BEFORE, OP, SEQ
from millrace.schemas.table.structure import Column, ColumnType, TableSchema, TextEncoding, TypeCode
from millrace.schemas.view.view import View
from tests.kit.apply.tables import integer, table
from tests.kit.apply.view_rows import ABSENT, Row, changes_of, image, view_from, walked

SECRET = "of a property test"
os.environ["MILLRACE_TEST_MASK_KEY"] = SECRET
HMAC = "hmac-sha256(env:MILLRACE_TEST_MASK_KEY)"
BIN, BINARY = TextEncoding("utf8mb4", 46), TextEncoding("binary", 63)
MARK = "planted~"

Values = Mapping[str, object]
Truth = bool | None


@dataclass(frozen=True)
class Kind:
    """A type, its values in records, the text that MySQL prints, and the value in a record's cell."""

    type: ColumnType
    values: st.SearchStrategy[object]
    printed: Callable[[object], bytes]
    cell: Callable[[object], object] = lambda value: value
    empty: object = 0


def _utf8(value: object) -> bytes:
    return str(value).encode()


def _is_bytes(value: object) -> bytes:
    assert isinstance(value, bytes)
    return value


def _unscaled(value: object) -> object:
    assert isinstance(value, Decimal)
    return int(value.scaleb(2))


_TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=90)
_CENTS = st.integers(-(10**9), 10**9).map(lambda number: Decimal(number).scaleb(-2))
KINDS = (
    Kind(ColumnType(TypeCode.LONG), st.integers(-(2**31), 2**31 - 1), _utf8),
    Kind(
        ColumnType(TypeCode.LONGLONG, is_unsigned=True),
        st.integers(0, 2**64 - 1).map(Decimal),
        _utf8,
        cell=lambda value: int(str(value)),
    ),
    Kind(ColumnType(TypeCode.NEWDECIMAL, 12 << 8 | 2), _CENTS, _utf8, cell=_unscaled),
    Kind(ColumnType(TypeCode.VARCHAR, 400, text=BIN), _TEXTS.map(MARK.__add__), _utf8, empty=""),
    Kind(ColumnType(TypeCode.BLOB, 2, text=BINARY), st.binary(max_size=200), _is_bytes, empty=b""),
)


def _masked(mask: str, kind: Kind, value: object, *, nullable: bool) -> object:
    if value is None:
        return None
    if mask == HMAC:
        return hmac.new(SECRET.encode(), kind.printed(value), hashlib.sha256).hexdigest()
    if mask == "redact":
        return None if nullable else kind.empty
    if mask.startswith("truncate"):
        assert isinstance(value, str | bytes)
        return value[: int(mask[9:-1])]
    return kind.cell(value)


def _and(left: Truth, right: Truth) -> Truth:
    if left is False or right is False:
        return False
    return None if left is None or right is None else True


def _or(left: Truth, right: Truth) -> Truth:
    inverse = _and(_not(left), _not(right))
    return _not(inverse)


def _not(value: Truth) -> Truth:
    return None if value is None else not value


@dataclass(frozen=True)
class Condition:
    """A text, and its truth for a row."""

    text: str
    truth: Callable[[Values], Truth]


def _comparison(name: str, sign: str, literal: int) -> Condition:
    def truth(row: Values) -> Truth:
        value = row[name]
        if value is None:
            return None
        assert isinstance(value, int)
        return {"=": value == literal, "<": value < literal, ">=": value >= literal}[sign]

    return Condition(f"{name} {sign} {literal}", truth)


_LEAVES = st.one_of(
    st.builds(
        _comparison,
        st.sampled_from(("id", "n")),
        st.sampled_from(["=", "<", ">="]),
        st.integers(0, 3),
    ),
    st.sampled_from(
        (
            Condition("n IS NULL", lambda row: row["n"] is None),
            Condition("t = 'a'", lambda row: None if row["t"] is None else row["t"] == "a"),
        )
    ),
)
CONDITIONS = st.recursive(
    _LEAVES,
    lambda inner: st.one_of(
        st.builds(
            lambda one: Condition(f"NOT ({one.text})", lambda row: _not(one.truth(row))), inner
        ),
        st.builds(
            lambda a, b: Condition(
                f"({a.text}) AND ({b.text})", lambda row: _and(a.truth(row), b.truth(row))
            ),
            *(inner, inner),
        ),
        st.builds(
            lambda a, b: Condition(
                f"({a.text}) OR ({b.text})", lambda row: _or(a.truth(row), b.truth(row))
            ),
            *(inner, inner),
        ),
    ),
    max_leaves=6,
)


@dataclass(frozen=True)
class Case:
    """A table ``id, n, t, c0, c1, …``, a view of it, and rows."""

    table: TableSchema
    kinds: tuple[Kind, ...]
    masks: Mapping[str, str]
    condition: Condition | None
    rows: tuple[Row, ...]

    @property
    def view(self) -> View:
        """Without the columns of the condition, which it reads all the same."""
        masks = {name: mask for name, mask in self.masks.items() if mask not in ("", "drop")}
        dropped = [name for name, mask in self.masks.items() if mask == "drop"]
        rule: dict[str, object] = {"columns": {"drop": ["n", "t", *dropped]}}
        if masks:
            rule["mask"] = masks
        if self.condition is not None:
            rule["where"] = self.condition.text
        return view_from(**rule)

    @property
    def hides_marks(self) -> bool:
        """Whether no column with a mark passes, and some column is masked."""
        passing = [self.masks[f"c{at}"] for at, kind in enumerate(self.kinds) if kind.empty == ""]
        is_masked = any(mask not in ("", "drop") for mask in self.masks.values())
        return is_masked and not {"", "truncate(10)"} & set(passing)

    def expected(self, values: Values | None) -> tuple[object, ...] | None:
        """An image of the view."""
        if values is None:
            return None
        shown: list[object] = [values["id"], ABSENT, ABSENT]
        for at, kind in enumerate(self.kinds):
            column, mask = self.table.columns[3 + at], self.masks.get(f"c{at}", "")
            value = values[column.name]
            masked = _masked(mask, kind, value, nullable=column.nullable)
            shown.append(ABSENT if mask == "drop" else masked)
        return tuple(shown)

    def shown(self, values: tuple[object, ...] | None) -> tuple[object, ...] | None:
        """An image without the columns that the view drops: unmasked changes have the batch's own cells."""
        if values is None:
            return None
        dropped = {
            1,
            2,
            *(3 + int(name[1:]) for name, mask in self.masks.items() if mask == "drop"),
        }
        return tuple(ABSENT if at in dropped else value for at, value in enumerate(values))

    def is_in(self, values: Values | None) -> bool:
        """Whether the image is in the view."""
        if values is None or self.condition is None:
            return values is not None
        return self.condition.truth(values) is True


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Tables, views and rows."""
    kinds = tuple(draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=5)))
    columns = [Column(f"c{at}", kind.type, draw(st.booleans())) for at, kind in enumerate(kinds)]
    facts = table(
        *("d", "facts", integer("id"), integer("n", nullable=True)),
        Column("t", ColumnType(TypeCode.VARCHAR, 40, text=TextEncoding("utf8mb4", 1070)), True),
        *columns,
    )
    masks = {
        column.name: draw(
            st.sampled_from(
                ("", "", HMAC, "redact", "drop")
                + (("truncate(3)", "truncate(10)") if isinstance(kind.empty, str | bytes) else ())
            )
        )
        for column, kind in zip(columns, kinds, strict=True)
    }
    values = st.fixed_dictionaries(
        {
            "id": st.integers(0, 3),
            "n": st.none() | st.integers(0, 3),
            "t": st.none() | st.sampled_from(("a", "b", "a ")),
            **{
                column.name: st.none() | kind.values if column.nullable else kind.values
                for column, kind in zip(columns, kinds, strict=True)
            },
        }
    )
    updates = st.one_of(
        st.builds(Row, st.just("u"), values, values),
        st.builds(
            lambda row, n: Row("u", row, row | {"n": n}), values, st.none() | st.integers(0, 3)
        ),
    )
    rows = st.one_of(
        updates,
        st.builds(Row, st.just("d"), values),
        st.builds(lambda op, row: Row(op, after=row), st.sampled_from("cr"), values),
    )
    condition = draw(st.none() | CONDITIONS)
    return Case(facts, kinds, masks, condition, tuple(draw(st.lists(rows, min_size=1, max_size=8))))


@given(cases())
def test_view_shows_what_python_computes(case: Case) -> None:
    """Which rows are in it, as which operation, with which values."""
    changes = changes_of(case.view, walked(case.table, case.rows))
    width = len(case.table.columns)
    shown = [
        (
            int(line[SEQ]),
            chr(line[OP]),
            *(case.shown(image(changes, int(line[at]), width)) for at in (BEFORE, AFTER)),
        )
        for line in changes.lines
    ]
    expected = []
    for seq, row in enumerate(case.rows, 1):
        before = row.before if case.is_in(row.before) else None
        after = row.after if case.is_in(row.after) else None
        if before is None and after is None:
            continue
        letter = "d" if after is None else "u" if before is not None else "c"
        if row.op == "r":
            letter = "r"
        expected.append((seq, letter, case.expected(before), case.expected(after)))
    assert shown == expected
    if case.hides_marks:
        assert MARK.encode() not in changes.payload.tobytes()
