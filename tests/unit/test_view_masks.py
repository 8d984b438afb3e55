"""Masked values: HMAC, the first characters, nothing; in both images and in keys."""

import hashlib
import hmac
from decimal import Decimal
from pathlib import Path

import pytest

from millrace.consumer.kernel.sha256 import LANES
from millrace.consumer.view.changes import AFTER, BEFORE, Changes
from millrace.consumer.view.mask_keys import MaskKeys
from millrace.consumer.view.program import make_view_program, view_of
from millrace.errors import Fatal
from millrace.schemas.record.row_layout import RowLayout
from millrace.schemas.table.structure import Column, ColumnType, TableSchema, TextEncoding, TypeCode
from millrace.schemas.view.format_options import FormatName, FormatOptions
from tests.kit.apply.tables import integer, table, text
from tests.kit.apply.topic import SET, RecordStream
from tests.kit.apply.view_rows import ABSENT, Row, changes_of, image, view_from, walked
from tests.kit.format_rows import encoded, read

SECRET = "correct horse battery staple"
BINARY = TextEncoding("binary", 63)
UTF8_BIN = TextEncoding("utf8mb4", 1070)


@pytest.fixture
def mask(tmp_path: Path) -> str:
    """An HMAC with the secret."""
    (tmp_path / "salt").write_text(SECRET + "\n")
    return f"hmac-sha256(file:{tmp_path / 'salt'})"


def _hmac(message: str | bytes) -> str:
    content = message.encode() if isinstance(message, str) else message
    return hmac.new(SECRET.encode(), content, hashlib.sha256).hexdigest()


def _column(name: str, code: TypeCode, *, parameter: int = 0, **more: object) -> Column:
    return Column(name, ColumnType(code, parameter, **more), nullable=True)  # type: ignore[arg-type]


def _afters(table_: TableSchema, changes: Changes) -> list[tuple[object, ...] | None]:
    return [image(changes, int(line[AFTER]), len(table_.columns)) for line in changes.lines]


# the text that MySQL prints, for the value in a record
TEXTS = [
    (_column("v", TypeCode.LONGLONG), -(2**63), str(-(2**63))),
    (_column("v", TypeCode.LONGLONG, is_unsigned=True), Decimal(2**64 - 1), str(2**64 - 1)),
    (_column("v", TypeCode.NEWDECIMAL, parameter=10 << 8 | 2), Decimal("-0.50"), "-0.50"),
    (_column("v", TypeCode.YEAR), 0, "0000"),
    (_column("v", TypeCode.YEAR), 2026, "2026"),
    (_column("v", TypeCode.BIT, parameter=10), b"\x02\x01", "513"),
    (_column("v", TypeCode.DATE), "0000-00-00", "0000-00-00"),
    (_column("v", TypeCode.TIME2, parameter=3), "-01:02:03.400", "-01:02:03.400"),
    (_column("v", TypeCode.ENUM, labels=("a", "é")), "é", "é"),
    (_column("v", TypeCode.ENUM, labels=("a", "é")), 0, "0"),
    (_column("v", TypeCode.SET, labels=("a", "b")), "a,b", "a,b"),
    (_column("v", TypeCode.SET, labels=("a", "b")), -(2**63), str(2**63)),
    (_column("v", TypeCode.BLOB, parameter=2, text=UTF8_BIN), "", ""),
    (_column("v", TypeCode.BLOB, parameter=2, text=UTF8_BIN), "日本 " * 40, "日本 " * 40),
    (_column("v", TypeCode.VARCHAR, parameter=40, text=BINARY), b"\0\xff", b"\0\xff"),
    (_column("v", TypeCode.VARCHAR, parameter=40, text=BINARY), None, None),
]


@pytest.mark.parametrize(("column", "value", "printed"), TEXTS)
def test_hmac_is_that_of_the_printed_text(
    column: Column, value: object, printed: str | bytes | None, mask: str
) -> None:
    """64 hex characters in both images and in any type that has one text for each value. NULL stays NULL."""
    facts = table("d", "t", column, key=())
    rows = walked(facts, [Row("u", {"v": value}, {"v": value}), Row("c", after={"v": value})])
    changes = changes_of(view_from(mask={"v": mask}), rows)
    expected = (None if printed is None else _hmac(printed),)
    images = [
        [image(changes, int(line[at]), 1) for at in (BEFORE, AFTER)] for line in changes.lines
    ]
    assert images == [[expected, expected], [None, expected]]


@pytest.mark.parametrize("count", [1, LANES - 1, LANES, LANES + 1, 3 * LANES])
def test_hmacs_of_all_lengths_are_computed_side_by_side(count: int, mask: str) -> None:
    """Lengths around the borders of blocks of 64 bytes, in any number of lanes."""
    values = ["x" * (7 * number % 300) + str(number) for number in range(count)]
    facts = table("d", "t", integer("id"), text("v", 400))
    rows = walked(facts, [Row("c", after={"id": 1, "v": value}) for value in values])
    changes = changes_of(view_from(mask={"v": mask}), rows)
    assert _afters(facts, changes) == [(1, _hmac(value)) for value in values]


def test_masked_keys_stay_different(mask: str) -> None:
    """A key may have an HMAC, and the old and the new key of an update have their own."""
    facts = table("d", "t", integer("id"), integer("n"))
    rows = walked(facts, [Row("u", {"id": 1, "n": 5}, {"id": 2, "n": 5})])
    changes = changes_of(view_from(mask={"id": mask}), rows)
    (line,) = changes.lines
    assert [image(changes, int(line[at]), 2) for at in (BEFORE, AFTER)] == [
        *((_hmac("1"), 5), (_hmac("2"), 5)),
    ]


def test_long_key_is_hashed_first(tmp_path: Path) -> None:
    """As RFC 2104 says for a key above 64 bytes."""
    secret = "s" * 100
    (tmp_path / "salt").write_text(secret)
    facts = table("d", "t", integer("id"))
    view = view_from(mask={"id": f"hmac-sha256(file:{tmp_path / 'salt'})"})
    changes = changes_of(view, walked(facts, [Row("c", after={"id": 3})]))
    assert _afters(facts, changes) == [(hmac.new(secret.encode(), b"3", "sha256").hexdigest(),)]


def test_redacted_value_is_null_or_empty() -> None:
    """The empty value of each type that has one, where the column may not be NULL."""
    kinds = [
        (_column("a", TypeCode.LONG), 7, 0),
        (_column("b", TypeCode.LONGLONG, is_unsigned=True), Decimal(7), 0),
        (_column("c", TypeCode.NEWDECIMAL, parameter=10 << 8 | 2), Decimal("7.00"), 0),
        (_column("d", TypeCode.FLOAT, parameter=4), 7.0, 0.0),
        (_column("e", TypeCode.DOUBLE, parameter=8), 7.0, 0.0),
        (_column("f", TypeCode.VARCHAR, parameter=40, text=UTF8_BIN), "seven", ""),
        (_column("g", TypeCode.STRING, parameter=4, text=BINARY), b"seve", bytes(4)),
        (_column("h", TypeCode.BLOB, parameter=2, text=BINARY), b"seven", b""),
    ]
    facts = table("d", "t", *(column for column, _, _ in kinds), key=())
    strict = table("d", "t", *(Column(c.name, c.type, False) for c, _, _ in kinds), key=())
    row = {column.name: value for column, value, _ in kinds}
    view = view_from(mask={column.name: "redact" for column, _, _ in kinds})
    for each, expected in ((facts, [None] * 8), (strict, [empty for _, _, empty in kinds])):
        changes = changes_of(view, walked(each, [Row("c", after=row)]))
        assert _afters(each, changes) == [tuple(expected)]


def test_truncated_text_keeps_whole_characters() -> None:
    """A binary value keeps bytes, and a shorter value stays as it is."""
    facts = table(
        *("d", "t"),
        _column("v", TypeCode.VARCHAR, parameter=80, text=UTF8_BIN),
        _column("b", TypeCode.STRING, parameter=4, text=BINARY),
        key=(),
    )
    values = ["日本語", "é", "", "a\U0001f600bc", None]
    rows = walked(facts, [Row("c", after={"v": value, "b": b"\xe6\0\1\2"}) for value in values])
    changes = changes_of(view_from(mask={"v": "truncate(2)", "b": "truncate(2)"}), rows)
    assert _afters(facts, changes) == [
        (None if value is None else value[:2], b"\xe6\0") for value in values
    ]


def test_masked_changes_have_no_byte_of_other_values(mask: str) -> None:
    """Neither of a masked column, nor of one that is dropped or that only the condition reads."""
    facts = table(
        "d",
        "t",
        *(integer("id"), text("kept"), text("mail"), text("note"), text("card"), text("last")),
        integer("n"),
    )
    row = {"id": 9, "kept": "kept1", "mail": "planted1", "note": "planted2", "card": "planted3"}
    row |= {"last": "kept2", "n": 5}
    view = view_from(
        where="n = 5",
        columns={"drop": ["note", "n"]},
        mask={"mail": mask, "card": "truncate(3)"},
    )
    rows = walked(facts, [Row("u", row, row | {"mail": "planted4"})])
    changes = changes_of(view, rows)
    assert b"plant" not in changes.payload.tobytes()
    assert _afters(facts, changes) == [
        (9, "kept1", _hmac("planted4"), ABSENT, "pla", "kept2", ABSENT)
    ]


@pytest.mark.parametrize("name", FormatName)
def test_published_records_have_no_masked_value(name: FormatName, mask: str) -> None:
    """Neither in a key nor in an image, nor in what a format keeps for the next record."""
    key = Column("id", ColumnType(TypeCode.VARCHAR, 80, text=UTF8_BIN), nullable=False)
    facts = table("d", "t", key, text("mail"), text("card"), text("note"))
    stream = RecordStream()
    row = {"id": "planted1", "mail": "planted2", "card": "planted3", "note": "planted4"}
    stream.insert(facts, row)
    stream.update(facts, row, row | {"id": "planted5", "mail": "planted6"})
    stream.delete(facts, row)
    masks = {"id": mask, "mail": mask, "card": "redact"}
    view = view_from(columns={"drop": ["note"]}, mask=masks)
    records = encoded(FormatOptions.of(name), facts, stream, view)
    assert b"planted" not in records.payload.tobytes()
    name_of_key = "pk.id" if name is FormatName.MAXWELL_JSON else "id"
    keys = [sent.key[name_of_key] for sent in read(records) if isinstance(sent.key, dict)]
    assert keys[0] == _hmac("planted1")
    assert _hmac("planted5") in keys


def test_invalid_text_has_no_hmac(mask: str) -> None:
    """The task stops, and the error does not show the value. Other masks need no text."""
    column = _column("t", TypeCode.VARCHAR, parameter=40, text=TextEncoding("sjis", 88))
    facts = table("shop", "notes", integer("id"), column)
    rows = walked(facts, [Row("c", after={"id": 1, "t": b"\xf0\x40secret"})])
    with pytest.raises(Fatal, match=r"MR-5202 .* t of shop\.notes") as stopped:
        changes_of(view_from(mask={"t": mask}), rows)
    assert stopped.value.context["seq"] == "1"
    assert "secret" not in str(stopped.value)
    short = changes_of(view_from(mask={"t": "truncate(2)"}), rows)
    assert _afters(facts, short) == [(1, b"\xf0\x40")]


def test_changed_secret_of_a_mask_is_refused(tmp_path: Path) -> None:
    """A view that was stored with a fingerprint computes no masks with another secret."""
    salt = tmp_path / "salt"
    salt.write_text(SECRET)
    layout = RowLayout.of(SET, table("d", "t", integer("id")))
    plain = view_from(mask={"id": f"hmac-sha256(file:{salt})"})
    view = plain.with_fingerprints(MaskKeys().fingerprints(plain))
    assert view.hash != plain.hash
    found = view_of(view, layout)
    assert found is not None
    assert make_view_program(found, layout).masks is not None
    salt.write_text("another")
    with pytest.raises(Fatal, match="MR-5203") as refused:
        make_view_program(found, layout)
    assert "another" not in str(refused.value)
