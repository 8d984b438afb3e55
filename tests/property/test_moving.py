"""Patterns that come from regular expressions match the same names; no configuration raises another error."""

import re

from hypothesis import given
from hypothesis import strategies as st

from millrace.errors import MillraceError
from millrace.schemas.moving import read_configuration
from millrace.schemas.moving.patterns import Inexpressible, patterns_of
from millrace.schemas.table.table_filter import TableFilter

LETTERS = st.sampled_from("ab_")
NAMES = st.text("ab_c", min_size=1, max_size=4)
PIECES = st.one_of(
    LETTERS, st.sampled_from([".*", ".+", "a?", "[b]", "(?:a|b_)", "(a|b|)", "(ab)?", r"\-", ".*?"])
)
PARTS = st.lists(PIECES, min_size=1, max_size=4).map("".join)
EXPRESSIONS = st.tuples(PARTS, st.sampled_from([r"\.", "[.]"]), PARTS).map("".join)


@given(EXPRESSIONS, st.lists(st.tuples(NAMES, NAMES), min_size=1, max_size=20))
def test_patterns_match_the_names_of_their_expression(
    expression: str, names: list[tuple[str, str]]
) -> None:
    """Java and Python agree about these expressions. A name has no point, so ``.*`` may not cross it either."""
    tables = TableFilter(include=patterns_of(expression))
    for database, table in names:
        matches = re.fullmatch(expression, f"{database}.{table}") is not None
        assert tables.admits(database, table) == matches, (expression, database, table)


@given(st.text("ab.*+?()[]{}|\\^$d,", max_size=12))
def test_any_expression_has_patterns_or_none(expression: str) -> None:
    """Also one that no reader of expressions accepts."""
    try:
        patterns = patterns_of(expression)
    except Inexpressible:
        return
    assert patterns


KEYS = st.sampled_from(
    (
        *("connector.class", "canal.instance.master.address", "canal.mq.topic", "host", "filter"),
        *("kafka_topic", "mysql-instances", "source-id", "block-allow-list", "table.include.list"),
        *("column.exclude.list", "transforms", "database.port", "spec", "config", "name"),
    )
)
VALUES = st.one_of(
    st.text(max_size=8),
    st.sampled_from(["MySqlConnector", "a.b:c/d", "exclude: *.*", "include: a./b/", "a.b.c"]),
)


@given(
    st.dictionaries(KEYS, VALUES, max_size=6),
    st.sampled_from(["{}={}", "{}: {}", "{}: [{}]", '"{}": {{x: {}}}']),
)
def test_no_configuration_raises_another_error(values: dict[str, str], line: str) -> None:
    """Settings with values of all shapes."""
    text = "\n".join(line.format(name, value) for name, value in values.items())
    try:
        read_configuration({"file": text})
    except MillraceError:
        return
