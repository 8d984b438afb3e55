"""Generated conditions of views over rows of every type: the kernel's results are those of both servers.

The rows come from the server's binlog. Each condition is computed in a SELECT list, where the server computes it for
each row, and in a WHERE, which the optimizer may rewrite; both under sessions with other settings.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from millrace.consumer.kernel.conditions import FALSE, TRUE, UNKNOWN, UNREADABLE
from millrace.consumer.kernel.walk import FIRST_CELL, OK
from millrace.consumer.records.row_schemas import RowSchemas, make_programs
from millrace.consumer.records.rows import Rows, walk_values
from millrace.consumer.view.conditions import evaluate, make_program
from millrace.deploy.servers import DatabaseServer
from millrace.drivers.mysql.connection import connect
from millrace.drivers.mysql.weights import read_weights
from millrace.schemas.gtid import Flavour
from millrace.schemas.table.structure import TableSchema
from millrace.schemas.view.collation import CollationWeights
from millrace.schemas.view.condition import Condition, compile_condition, weighed_literals
from millrace.schemas.view.expression import Refused, canonical, parse
from tests.kit.apply.local import endpoint_of
from tests.kit.apply.values import values_of
from tests.kit.binlog.session import LoggedSession, logged
from tests.kit.capture.converter import raw_records

pytestmark = pytest.mark.both_flavours

DATABASE = "view_conditions"
ROWS = 60
CONDITIONS_PER_QUERY = 40
SESSIONS = (
    "SET sql_mode='', time_zone='+00:00'",
    "SET sql_mode='ANSI_QUOTES,NO_BACKSLASH_ESCAPES,NO_UNSIGNED_SUBTRACTION,PIPES_AS_CONCAT', time_zone='+09:30'",
    "SET sql_mode='STRICT_ALL_TABLES,NO_ZERO_DATE,NO_ZERO_IN_DATE,HIGH_NOT_PRECEDENCE', NAMES latin1",
)
COMPARISONS = ("=", "<>", "!=", "<", "<=", ">", ">=")

REFUSED = (
    "big + 1 = 2 | -big = 1 | free - 1 = 0 | id * id * id > 0 | id = 18446744073709551616 | t = 'a' | t > 'a'"
    " | id = 'a' | id = 1.5 | d = '2026-02-30' | d = 1 | at > '2026-01-01 00:00:00' | y = 2026"
    " | f = 1 | s = '' | e = 'b' | e < 'a' | id | id AND 1 = 1 | (id = 1) = 1 | nothing = 1 | n = '1' | n > 1e3"
    " | d = DATE '26-1-1' | d = '2026-01-01 00:00:00' | t = x'61' | t = t | n = n | id DIV 2 = 1 | NOT id"
)


@dataclass(frozen=True)
class Kind:
    """Columns of one kind: their definitions, values as SQL, and literals as views have them."""

    types: tuple[str, ...]
    values: tuple[str, ...]
    literals: tuple[str, ...]
    comparisons: tuple[str, ...] = COMPARISONS


def _integers(bits: int) -> Kind:
    name = {8: "TINYINT", 16: "SMALLINT", 24: "MEDIUMINT", 32: "INT", 64: "BIGINT"}[bits]
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    signed = (0, 1, -1, 2, 7, -7, low, low + 1, high, high - 1)
    values = tuple(map(str, signed))
    return Kind((name,), values, (*values, str(high + 1), str(low - 1)))


def _naturals(bits: int) -> Kind:
    name = {8: "TINYINT", 16: "SMALLINT", 24: "MEDIUMINT", 32: "INT", 64: "BIGINT"}[bits]
    high = 2**bits - 1
    values = tuple(map(str, (0, 1, 2, 7, high // 2, high // 2 + 1, high - 1, high)))
    return Kind((f"{name} UNSIGNED", f"{name} UNSIGNED ZEROFILL"), values, (*values, "-1"))


INTEGERS = (*map(_integers, (8, 16, 24, 32, 64)), *map(_naturals, (8, 16, 24, 32, 64)))
OTHERS = (
    Kind(
        ("DECIMAL(10,2)", "DECIMAL(65,30)", "DECIMAL(3,0)"),
        ("0", "1", "-1", "1.5", "-1.5", "2.25", "999", "-999"),
        ("0", "1", "-1", "1.50", "1.5", "1.505", "-1.505", "2.2500000001", "999", "1000.0", "-0.0"),
    ),
    Kind(
        ("DATE",),
        (
            "'2026-01-31'",
            "'0000-00-00'",
            "'2026-00-00'",
            "'2026-02-31'",
            "'1000-01-01'",
            "'9999-12-31'",
        ),
        ("'2026-01-31'", "DATE '2026-03-01'", "'1000-01-01'", "DATE'9999-12-31'", "'2026-02-31'"),
    ),
    Kind(
        ("DATETIME", "DATETIME(3)", "DATETIME(6)"),
        (
            "'2026-01-31 10:00:00'",
            "'2026-01-31 10:00:00.5'",
            "'0000-00-00'",
            "'2026-02-31 01:02:03.004'",
        ),
        ("'2026-01-31 10:00:00'", "TIMESTAMP '2026-01-31 10:00:00.5'", "'2026-03-01 00:00:00'"),
    ),
    Kind(
        ("BINARY(4)", "VARBINARY(20)", "BLOB"),
        ("x'00'", "x''", "x'61'", "x'6100'", "x'61000000'", "x'FFFE'", "x'2020'"),
        ("x'00'", "x''", "x'61'", "x'61000000'", "0xFFFE", "x'2020'", "x'0000000000'"),
    ),
    Kind(
        ("ENUM('paid','open','a,b','é','')",),
        ("'paid'", "'open'", "'a,b'", "'é'", "''", "0"),
        ("'paid'", "'open'", "'a,b'", "'é'", "''", "'PAID'"),
        ("=", "<>", "!="),
    ),
    Kind(
        ("SET('x','y','é z')", "SET(" + ",".join(f"'m{n}'" for n in range(64)) + ")"),
        ("0", "1", "3", "6", "7"),
        ("'x'", "'x,y'", "'y,x'", "'é z'", "''", "'m0'", "'m0,m1'", "'m63'"),
        ("=", "<>", "!="),
    ),
)
TEXTS = (
    "''",
    "' '",
    "'a'",
    "'A'",
    "'a '",
    "'a  '",
    "'é'",
    "'e'",
    "'日本'",
    "'\\t'",
    "'ab'",
    "'it''s'",
    "'\\\\'",
)
OUTSIDE = ("'\U0001f600'", "'€'")  # of some character sets
TEXT_CHARSETS = {
    Flavour.MYSQL: (
        *(
            "utf8mb4 COLLATE utf8mb4_bin",
            "utf8mb4 COLLATE utf8mb4_0900_bin",
            "latin1 COLLATE latin1_bin",
        ),
        *(
            "ascii COLLATE ascii_bin",
            "sjis COLLATE sjis_bin",
            "utf16 COLLATE utf16_bin",
            "gb18030 COLLATE gb18030_bin",
        ),
        *(
            "utf8mb3 COLLATE utf8mb3_unicode_ci",
            "latin1 COLLATE latin1_german2_ci",
            "ucs2 COLLATE ucs2_bin",
            "utf8mb3 COLLATE utf8mb3_bin",
        ),
    ),
    Flavour.MARIADB: (
        *(
            "utf8mb4 COLLATE utf8mb4_bin",
            "utf8mb4 COLLATE utf8mb4_nopad_bin",
            "latin1 COLLATE latin1_bin",
            "utf8mb4 COLLATE utf8mb4_0900_bin",
        ),
        *(
            "ascii COLLATE ascii_bin",
            "sjis COLLATE sjis_bin",
            "utf16 COLLATE utf16_bin",
            "gbk COLLATE gbk_nopad_bin",
        ),
        *(
            "utf8mb3 COLLATE utf8mb3_uca1400_as_cs",
            "latin1 COLLATE latin1_german2_ci",
            "latin1 COLLATE latin1_nopad_bin",
            "utf8mb3 COLLATE utf8mb3_bin",
        ),
    ),
}


def _kinds(flavour: Flavour) -> Iterator[Kind]:
    yield from INTEGERS
    yield from OTHERS
    for charset in TEXT_CHARSETS[flavour]:
        types = tuple(
            f"{name} CHARACTER SET {charset}" for name in ("VARCHAR(20)", "CHAR(20)", "TEXT")
        )
        yield Kind(types, TEXTS, (*TEXTS, *OUTSIDE), ("=", "<>", "!="))


@dataclass(frozen=True)
class Facts:
    """A table with a column of every type, and its rows as records."""

    columns: tuple[tuple[str, Kind], ...]
    table: TableSchema
    rows: Rows
    collations: tuple[CollationWeights, ...]
    firsts: "np.ndarray[tuple[int], np.dtype[np.int64]]"

    def results(self, condition: Condition) -> list[int]:
        """The kernel's result of each row."""
        return [int(one) for one in evaluate(make_program(condition), self.rows, self.firsts)]


def _facts(source: LoggedSession, chance: random.Random) -> Facts:
    columns = [
        (f"c{place}", kind, definition)
        for place, (kind, definition) in enumerate(
            (kind, one) for kind in _kinds(source.server.flavour) for one in kind.types
        )
    ]
    created = ", ".join(
        f"{name} {definition}{' NOT NULL' if place % 7 == 3 else ''}"
        for place, (name, _, definition) in enumerate(columns)
    )
    source.run(f"CREATE TABLE facts (id INT PRIMARY KEY, {created}) ROW_FORMAT=DYNAMIC")
    for number in range(ROWS):
        values = [
            "NULL" if place % 7 != 3 and chance.random() < 0.15 else chance.choice(kind.values)
            for place, (_, kind, _) in enumerate(columns)
        ]
        source.run(f"INSERT IGNORE INTO facts VALUES ({number}, {', '.join(values)})")
    facts = _logged_facts(source, tuple((name, kind) for name, kind, _ in columns))
    assert len(facts.rows) == ROWS
    return facts


def _logged_facts(source: LoggedSession, columns: tuple[tuple[str, Kind], ...] = ()) -> Facts:
    """The inserted rows of the only table."""
    conversion = source.conversion()
    found = [value for batch in conversion.batches() for _, value in raw_records(batch)]
    texts = {
        number: text for (_, text), number in conversion.registry.ids.items() if "Envelope" in text
    }
    programs = make_programs(RowSchemas(texts))
    rows = walk_values(values_of([value for value in found if value[5] in (0, 2)]), programs)
    assert rows.status == OK
    (table,) = (layout.table for layout in programs.layouts)
    firsts = rows.column(FIRST_CELL) + len(table.columns)  # the after images
    return Facts(columns, table, rows, _weights(source.server, table) if columns else (), firsts)


def _weights(server: DatabaseServer, table: TableSchema) -> tuple[CollationWeights, ...]:
    """Those of the literals that conditions have beside texts."""
    texts = sorted({*TEXTS, *OUTSIDE})
    every = parse(
        " OR ".join(
            f"{column.name} IN ({', '.join(texts)})"
            for column in table.columns
            if column.type.is_text
        )
        or "1 = 1"
    )
    with connect(endpoint_of(server)) as session:
        return read_weights(session, weighed_literals(every, table))


def _value(facts: Facts, chance: random.Random, depth: int) -> str:
    """A number: a column, a literal, or a calculation."""
    name, kind = chance.choice([one for one in facts.columns if one[1] in INTEGERS])
    way = chance.random()
    if depth == 0 or way < 0.35:
        return name
    if way < 0.5:
        return chance.choice(("0", "1", "3", "-4", "1000", chance.choice(kind.literals)))
    if way < 0.7:
        any_name = chance.choice(facts.columns)[0] if chance.random() < 0.5 else ""
        return f"CRC32({any_name or _value(facts, chance, depth - 1)})"
    if way < 0.75:
        return f"-{_value(facts, chance, depth - 1)}"
    operands = [_value(facts, chance, depth - 1) for _ in range(2)]
    sign = chance.choice(("+", "-", "*", "%", "MOD"))
    return (
        f"({f' {sign} '.join(operands)})"
        if chance.random() < 0.8
        else f"MOD({', '.join(operands)})"
    )


def _simple(facts: Facts, chance: random.Random) -> str:
    """A comparison."""
    name, kind = chance.choice(facts.columns)
    way = chance.random()
    if way < 0.1:
        return f"{name} IS {chance.choice(('', 'NOT '))}NULL"
    if way < 0.45:
        left, right = (_value(facts, chance, 2) for _ in range(2))
        return f"{left} {chance.choice(COMPARISONS)} {right}"
    literals = chance.choices(kind.literals, k=3)
    if way < 0.6:
        return f"{name} {chance.choice(('', 'NOT '))}IN ({', '.join(literals)})"
    if way < 0.7 and len(kind.comparisons) == len(COMPARISONS):
        return f"{name} {chance.choice(('', 'NOT '))}BETWEEN {literals[0]} AND {literals[1]}"
    pair = [name, literals[0]]
    if chance.random() < 0.2:
        pair.reverse()
    return f" {chance.choice(kind.comparisons)} ".join(pair)


def _condition(facts: Facts, chance: random.Random, depth: int) -> str:
    way = chance.random()
    if depth == 0 or way < 0.4:
        return _simple(facts, chance)
    if way < 0.55:
        return f"NOT ({_condition(facts, chance, depth - 1)})"
    word = chance.choice((" AND ", " OR "))
    return word.join(
        f"({_condition(facts, chance, depth - 1)})" for _ in range(chance.randint(2, 3))
    )


def _compiled(
    make: Callable[[], str], facts: Facts, *, count: int
) -> tuple[list[Condition], list[str], float]:
    """Conditions, their texts, and the share of texts that were accepted."""
    accepted, texts, refused = list[Condition](), list[str](), 0
    while len(accepted) < count:
        text = make()
        tree = parse(text)
        assert parse(canonical(tree)) == tree, text
        try:
            accepted.append(compile_condition(tree, facts.table, facts.collations))
            texts.append(text)
        except Refused:
            refused += 1
    return accepted, texts, count / (count + refused)


def _servers_results(source: LoggedSession, conditions: Sequence[Condition]) -> list[list[int]]:
    """For each condition, its result for each row in the order of ids."""
    listed = ", ".join(condition.sql for condition in conditions)
    found = source.rows(f"SELECT {listed} FROM facts ORDER BY id")
    return [
        [UNKNOWN if one is None else int(str(one)) for one in column]
        for column in zip(*found, strict=True)
    ]


@pytest.fixture
def source(server: DatabaseServer) -> Iterator[LoggedSession]:
    """A session of the server, whose changes are logged."""
    with logged(server, DATABASE) as found:
        yield found


def test_conditions_give_the_results_of_the_server(
    source: LoggedSession, request: pytest.FixtureRequest
) -> None:
    """At least one of five generated texts is accepted."""
    count = 6000 if request.config.getoption("--chaos") else 400
    chance = random.Random(26)
    facts = _facts(source, chance)
    conditions, texts, share = _compiled(lambda: _condition(facts, chance, 2), facts, count=count)
    assert share >= 0.2
    results = set[int]()
    for place in range(0, count, CONDITIONS_PER_QUERY):
        source.run(SESSIONS[place // CONDITIONS_PER_QUERY % len(SESSIONS)])
        part = conditions[place : place + CONDITIONS_PER_QUERY]
        for text, condition, expected in zip(
            texts[place:], part, _servers_results(source, part), strict=False
        ):
            kernels = facts.results(condition)
            assert kernels == expected, (text, condition.sql)
            results.update(kernels)
            found = source.rows(f"SELECT id FROM facts WHERE {condition.sql} ORDER BY id")
            chosen = [number for number, one in enumerate(kernels) if one == TRUE]
            assert [row[0] for row in found] == chosen, (text, condition.sql)
    assert results == {FALSE, TRUE, UNKNOWN}


def test_addresses_compare_as_the_bytes_that_are_logged(mariadb_server: DatabaseServer) -> None:
    """INET4 and INET6 are BINARY in the binlog; MariaDB itself compares them only with addresses."""
    with logged(mariadb_server, DATABASE) as source:
        source.run(
            "CREATE TABLE facts (id INT PRIMARY KEY, a INET4, b INET6, c BINARY(16))",
            "INSERT INTO facts VALUES (0, '10.0.0.0', '2001:db8::', x'00'), (1, '1.2.3.4', '::', '')",
            "INSERT INTO facts VALUES (2, NULL, NULL, NULL)",
        )
        facts = _logged_facts(source)
        texts = [
            *("a = x'0A000000'", "a < x'0A'", "a <> x'0A00000000'", "CRC32(a) % 2 = 1", "b = x''"),
            *("b > x'2001'", "CRC32(b) = CRC32(c)", "c = x'00000000000000000000000000000000'"),
        ]
        conditions = [compile_condition(parse(text), facts.table) for text in texts]
        assert [facts.results(one) for one in conditions] == _servers_results(source, conditions)


def test_text_that_is_not_valid_has_no_result(source: LoggedSession) -> None:
    """The server compares its bytes, which a record of another format may not have."""
    source.run(
        "CREATE TABLE facts (id INT PRIMARY KEY, t VARCHAR(9) CHARACTER SET sjis COLLATE sjis_bin)",
        "INSERT INTO facts VALUES (0, 'a'), (1, x'F040'), (2, NULL)",
    )
    facts = _logged_facts(source)
    condition = compile_condition(parse("t = 'a' OR id = 1"), facts.table)
    assert facts.results(condition) == [TRUE, UNREADABLE, UNKNOWN]
    unread = compile_condition(parse("id = 1 OR t IS NULL"), facts.table)
    assert facts.results(unread) == [FALSE, TRUE, TRUE]


def test_conditions_beyond_the_servers_certainty_are_refused(source: LoggedSession) -> None:
    """Each names what was found and what is wanted."""
    source.run(
        "CREATE TABLE facts (id INT PRIMARY KEY, big BIGINT, free BIGINT UNSIGNED, t VARCHAR(9)"
        " CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci,"
        " d DATE, at TIMESTAMP, y YEAR, f FLOAT, n DECIMAL(5,2), s SET('', 'b'), e ENUM('a'))",
        "INSERT INTO facts (id) VALUES (1)",
    )
    table = _logged_facts(source).table
    for text in REFUSED.split(" | "):
        with pytest.raises(Refused, match=r"found .*, wanted "):
            compile_condition(parse(text), table)
