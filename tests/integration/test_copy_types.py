"""Rows are copied exactly between real servers of any flavours: every type at its extremes, by both ways to write.

Judged by CHECKSUM TABLE of the servers, and by Millrace's comparison.
"""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from millrace.consumer.compare import Ends, compare_sets
from millrace.deploy.servers import DatabaseServer
from millrace.schemas.gtid import Flavour
from tests.kit.apply.copying import SOURCE, Copying, copying
from tests.kit.apply.local import endpoint_of
from tests.kit.type_values import TypeCase, every_case

# only MariaDB takes these bytes in ASCII and utf8mb4, and only MySQL so deep a document
OF_ONE_FLAVOUR = ("x'80'", "x'EDA080'", "CONCAT(REPEAT('[', 100), REPEAT(']', 100))")
COLUMNS_MAX = 10  # of a table: rows have limited bytes, and creating tables takes the time


@pytest.fixture
def copies(single_server: DatabaseServer, target_server: DatabaseServer) -> Iterator[Copying]:
    """From a server of each flavour to another of each."""
    with copying(single_server, target_server) as made:
        made.source.query("SET sql_mode='NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES'")
        yield made


def _cases(copies: Copying) -> list[TypeCase]:
    flavours = copies.source.flavour, copies.target.flavour
    known = [
        {str(row[0]) for row in session.query("SHOW CHARACTER SET")}
        for session in (copies.source, copies.target)
    ]
    theirs = {case.ddl for case in every_case(flavours[1], known[1])}
    found = [case for case in every_case(flavours[0], known[0]) if case.ddl in theirs]
    if flavours == (Flavour.MARIADB, Flavour.MYSQL):  # which sorts the keys of a JSON text
        found = [case for case in found if case.ddl != "JSON"]
    if flavours[0] is flavours[1]:
        return found
    # of binary labels one flavour has no character set in its tables, so the comparison reads them otherwise
    return [_of_both(case) for case in found if "SET binary" not in case.ddl]


def _of_both(case: TypeCase) -> TypeCase:
    return replace(case, values=tuple(v for v in case.values if v not in OF_ONE_FLAVOUR))


def _create(copies: Copying, name: str, cases: list[TypeCase]) -> int:
    """A table with a column for each case and a row for each value; the number of rows."""
    columns = ", ".join(f"v{number} {case.ddl}" for number, case in enumerate(cases))
    copies.create(f"CREATE TABLE {name} (id INT PRIMARY KEY, {columns}) ROW_FORMAT=DYNAMIC")
    count = max(len(case.values) for case in cases) + 1
    for row in range(count):
        values = (case.values[row] if row < len(case.values) else "NULL" for case in cases)
        copies.fill(f"INSERT INTO {name} VALUES ({row}, {', '.join(values)})")
    return count


@pytest.mark.parametrize("loads", [True, False], ids=["LOAD DATA", "INSERT"])
def test_every_type_is_copied_exactly(copies: Copying, *, loads: bool) -> None:
    """A target of another flavour has all types that both know."""
    cases = _cases(copies)
    groups = [cases[first : first + COLUMNS_MAX] for first in range(0, len(cases), COLUMNS_MAX)]
    total = 0
    for number, group in enumerate(groups):
        count = _create(copies, f"t{number}", group)
        assert copies.copy(f"t{number}", loads=loads).rows == count
        if copies.source.flavour is copies.target.flavour:
            assert copies.are_equal(f"t{number}"), [case.ddl for case in group]
        total += count
    ours, theirs = (endpoint_of(server) for server in copies.servers)
    found = compare_sets(Ends(ours, theirs), lambda database, _: database == SOURCE)
    assert found.differences == []
    assert (found.tables, found.rows) == (len(groups), total)
    assert len(cases) > 100


# the column on the source, on the target, and values
OTHERS = (
    ("VARCHAR(20) CHARACTER SET latin1", "VARCHAR(20)", ("'é'", "''", "x'8081'")),
    ("VARCHAR(20) CHARACTER SET sjis", "TEXT CHARACTER SET ucs2", ("'あ'", "x'815F'")),
    ("TEXT CHARACTER SET utf16", "TEXT CHARACTER SET gbk", ("'好'", "'a\\\\b'")),
    ("VARCHAR(20) CHARACTER SET utf8mb3", "CHAR(30)", ("'é'",)),
    ("CHAR(9)", "VARCHAR(9) CHARACTER SET latin1", ("'é '", "'\t\\\\'")),
    ("ENUM('a','b','c')", "ENUM('c','x','b','a')", ("'a'", "'c'", "'no such'")),
    ("ENUM('1','2','0')", "ENUM('2','0','1')", ("'1'", "'2'", "'0'", "'no such'")),
    ("ENUM('2','0')", "ENUM('2','0') CHARACTER SET ucs2", ("'2'", "'0'", "'no such'")),
    ("SET('a','b','1')", "SET('1','b','c','a')", ("'a,1'", "''", "'b'")),
    ("ENUM('a','é')", "VARCHAR(9) CHARACTER SET latin1", ("'é'", "'a'")),
    ("INT ZEROFILL", "BIGINT UNSIGNED", ("7", "4294967295")),
    ("BIT(64)", "BIGINT UNSIGNED", ("b'0'", "18446744073709551615")),
    ("FLOAT", "DOUBLE", ("0.1", "-3e38")),
    ("FLOAT(7,2)", "FLOAT(7,2)", ("0.1", "99999.99")),
    ("DOUBLE(20,3)", "DOUBLE(20,3)", ("0.001", "12345678901234.567")),
    ("TIMESTAMP(3) NULL", "DATETIME(6)", ("'2026-03-29 01:30:00.125'", "'0000-00-00'")),
    ("YEAR", "INT", ("0", "2155")),
    ("DECIMAL(9,2)", "VARCHAR(20) CHARACTER SET utf32", ("1.50", "-0.05")),
    ("VARBINARY(20)", "LONGBLOB", ("x'00095C0A0D1A27'", "''")),
    ("JSON", "LONGTEXT", ("'[1.5]'", "'\"a\"'")),
)


@pytest.mark.parametrize("loads", [True, False], ids=["LOAD DATA", "INSERT"])
def test_columns_of_other_types_have_the_same_values(copies: Copying, *, loads: bool) -> None:
    """In another character set, with labels in another order, and in wider types."""
    for number, (ours, theirs, values) in enumerate(OTHERS):
        name = f"o{number}"
        copies.source.query(f"CREATE TABLE {name} (id INT PRIMARY KEY, v {ours})")
        copies.target.query(f"CREATE TABLE {name} (id INT PRIMARY KEY, v {theirs})")
        for row, value in enumerate((*values, "NULL")):
            copies.fill(f"INSERT INTO {name} VALUES ({row}, {value})")
        assert copies.copy(name, loads=loads).rows == len(values) + 1
        shown = _shown(ours)
        found, wanted = copies.both(f"SELECT id, {shown} FROM {name} ORDER BY id")
        assert found == wanted, (ours, theirs)


def _shown(ddl: str) -> str:
    """SQL with the same result for the same value of both types."""
    match ddl.replace("(", " ").split()[0]:
        case "BIT":
            return "CAST(v AS UNSIGNED)"
        case "YEAR" | "INT" | "FLOAT" | "DOUBLE":
            return "v + 0e0"
        case "TIMESTAMP":
            return "LEFT(CAST(v AS CHAR), 19), MICROSECOND(v)"
        case "VARBINARY":
            return "HEX(v)"
        case "SET":
            return "FIND_IN_SET('a', v) > 0, FIND_IN_SET('b', v) > 0, FIND_IN_SET('1', v) > 0"
    return "HEX(CONVERT(CAST(v AS CHAR) USING utf8mb4))"


def test_documents_keep_decimals_that_a_server_would_round(mysql_server: DatabaseServer) -> None:
    """Any number of them, in a table with labels; and no other row gets a separate statement."""
    text = "JSON_OBJECT('n', {}, 'pad', REPEAT('\\'', 2000))"
    with copying(mysql_server, mysql_server) as copies:
        copies.source.query("SET sql_mode=''")
        copies.create("CREATE TABLE j (id INT PRIMARY KEY, e ENUM('a'), v JSON)")
        for number in range(0, 1200, 2):
            value = f"CAST({number} AS DECIMAL(20,5))" if number % 4 else f"{number}"
            rows = f"({number}, 0, {text.format(value)}), ({number + 1}, 1, NULL)"
            copies.source.query(f"INSERT INTO j VALUES {rows}")
        copies.source.commit()
        for loads in (True, False):
            assert copies.copy("j", loads=loads).rows == 1200
            found, wanted = copies.both("SELECT id, e + 0, CAST(v AS CHAR) FROM j ORDER BY id")
            assert found == wanted
            copies.target.query("TRUNCATE j")
