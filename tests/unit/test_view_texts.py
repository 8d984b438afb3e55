"""Texts in conditions without a server: their bytes in each character set, and weights made up for the test."""

import random
import zlib
from dataclasses import replace

import pytest

from millrace.consumer.kernel.conditions import FALSE, TRUE
from millrace.consumer.kernel.walk import FIRST_CELL
from millrace.consumer.records.rows import Rows
from millrace.consumer.view.conditions import evaluate, make_program
from millrace.schemas.plain import from_plain, to_plain
from millrace.schemas.table.charset import TABLE_CHARSETS, UNICODE_CODECS, characters, encode_text
from millrace.schemas.table.collation_ids import CHARSET_BY_COLLATION_ID
from millrace.schemas.table.structure import Column, ColumnType, TableSchema, TextEncoding, TypeCode
from millrace.schemas.view.collation import (
    CharacterRange,
    CollationWeights,
    WeighedTogether,
    blocking_sequence,
    is_part,
)
from millrace.schemas.view.condition import compile_condition, weighed_literals
from millrace.schemas.view.expression import Refused, parse
from tests.kit.apply.collations import TABLE, TextRows

GENERAL_CI = 45  # utf8mb4_general_ci
CASELESS = CollationWeights(
    GENERAL_CI,
    "utf8mb4_general_ci",
    "a test's",
    level_count=2,
    pad=((9,), (2,)),
    ranges=(
        CharacterRange(ord(" "), ord(" "), ((9,), (2,))),
        CharacterRange(ord("A"), ord("A"), ((20,), (2,))),
        CharacterRange(ord("E"), ord("E"), ((30,), (2,))),
        CharacterRange(ord("a"), ord("a"), ((20,), (2,))),
        CharacterRange(ord("á"), ord("á"), ((20,), (2, 5))),
        CharacterRange(ord("æ"), ord("æ"), ((20, 30), (2, 2))),
        CharacterRange(ord("\u200b"), ord("\u200d"), ((), ())),
        CharacterRange(ord("\u0301"), ord("\u0301"), ((), (5,))),
    ),
    literals=("AE", "a", "á", ""),
    unfit=(("dz", "another text"),),
)


def _table(collation_id: int) -> TableSchema:
    (column,) = TABLE.columns
    text = TextEncoding(CHARSET_BY_COLLATION_ID[collation_id], collation_id)
    return replace(TABLE, columns=(replace(column, type=replace(column.type, text=text)),))


@pytest.mark.parametrize("literal", ["b,a", "a,a", "a,b,a"])
def test_set_literal_is_written_as_the_server_writes_it(literal: str) -> None:
    """The servers compare texts, so another order is equal to no value: 0 rows of 40 where the task had 5."""
    labels = ColumnType(TypeCode.SET, labels=("a", "b", "c"))
    table = replace(TABLE, columns=(Column("s", labels, True),), primary_key=())
    with pytest.raises(Refused) as refused:
        compile_condition(parse(f"s = '{literal}'"), table, ())
    assert "in their order" in refused.value.wanted
    compile_condition(parse("s = 'a,b'"), table, ())


def test_collation_that_pads_on_one_server_alone_needs_weights() -> None:
    """309 is utf8mb4_0900_bin: MySQL distinguishes 'a' and 'a ', MariaDB does not."""
    with pytest.raises(Refused, match="calls different texts equal"):
        compile_condition(parse("t = 'a'"), _table(309), ())


def _results(condition: str, rows: Rows, table: TableSchema) -> list[int]:
    program = make_program(compile_condition(parse(condition), table, (CASELESS,)))
    return [int(one) for one in evaluate(program, rows, rows.column(FIRST_CELL) + 1)]


def test_crc32_is_that_of_the_bytes_in_each_charset() -> None:
    """All character sets but one, with characters from all of its table."""
    ids = {charset: number for number, charset in CHARSET_BY_COLLATION_ID.items()}
    chance = random.Random(28)
    for charset in {*TABLE_CHARSETS, *UNICODE_CODECS} - {"binary", "gb18030"}:
        pool = "aé日\0" + ("😀" if charset in ("utf8mb4", "utf16", "utf16le", "utf32") else "")
        if charset in TABLE_CHARSETS:
            pool = "".join(characters(charset).values())
        texts = {"".join(chance.choices(pool, k=chance.randint(0, 9))) for _ in range(9)}
        encoded = {text: encode_text(charset, text) for text in texts}
        fitting = {text: zlib.crc32(one) for text, one in encoded.items() if one is not None}
        rows = TextRows(fitting).rows
        for place, (text, crc) in enumerate(fitting.items()):
            results = _results(f"CRC32(t) = {crc}", rows, _table(ids[charset]))
            assert results[place] == TRUE, (charset, text)


def test_crc32_of_codes_that_do_not_count_up_is_refused() -> None:
    """The error names the character set."""
    with pytest.raises(Refused, match="gb18030"):
        compile_condition(parse("CRC32(t) = 1"), _table(248))


@pytest.mark.parametrize(
    ("literal", "equal", "different"),
    [
        ("AE", ["AE", "aE", "æ", "AE  ", "\u200bA\u200cE"], ["A", "áE", "AEE", "AEx", "E", ""]),
        ("a", ["A", "a", "a ", "\u200da"], ["á", "a\u0301", "", "aa", " a"]),
        ("á", ["a\u0301", "á", "A\u0301 "], ["a", "\u0301a", "á\u0301"]),
        ("", ["", "  ", "\u200b"], ["a", "\u0301"]),
    ],
)  # fmt: skip
def test_text_equals_a_literal_of_the_same_weights(
    literal: str, equal: list[str], different: list[str]
) -> None:
    """On each level; blanks at the end and characters without weights do not matter."""
    rows = TextRows([*equal, *different]).rows
    expected = [TRUE] * len(equal) + [FALSE] * len(different)
    assert _results(f"t = '{literal}'", rows, _table(GENERAL_CI)) == expected
    assert _results(f"NOT t <> '{literal}'", rows, _table(GENERAL_CI)) == expected


def test_literal_needs_weights_of_its_collation() -> None:
    """Without them, or where the server weighs a part of it together, it is refused with the reason."""
    table = _table(GENERAL_CI)
    tree = parse("t IN ('a', 'dz') AND (t = 'b' OR 'c' <> t)")
    assert weighed_literals(tree, table) == {GENERAL_CI: frozenset(("a", "dz", "b", "c"))}
    with pytest.raises(Refused, match="weights of the source's server"):
        compile_condition(tree, table)
    with pytest.raises(Refused, match="wanted another text"):
        compile_condition(parse("t = 'dz'"), table, (CASELESS,))
    refused = replace(CASELESS, problem="moves vowels")
    with pytest.raises(Refused, match="utf8mb4_general_ci, which moves vowels"):
        compile_condition(parse("t = 'a'"), table, (refused,))


def test_sequences_block_the_literals_that_may_have_them() -> None:
    """Together, as ``dz`` for one letter, or apart, as ``d`` and ``z``; others do not matter."""
    dz = WeighedTogether("dz", together=((7,),), apart=((4,), (8,)))
    dz = replace(dz, apart=((4, 8),))
    for units, blocking in (((4, 8), "dz"), ((7,), "dz"), ((4,), ""), ((8, 4), "")):
        literal = (units,)
        assert blocking_sequence([dz], lambda one, at=literal: is_part(one, at, ())) == blocking  # type: ignore[misc]


def test_weights_are_read_back_from_plain_values() -> None:
    """They are stored with the view."""
    assert from_plain(CollationWeights, to_plain(CASELESS)) == CASELESS
