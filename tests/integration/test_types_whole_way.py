"""Every type at its extremes end to end: a real binlog, the converter, apply, a real target of the same flavor.

Each type is in three tables: with a key next to its values, without a key (rows are found by all their values), and
with the value as the key, where the server allows it. Both servers are compared in plain SQL and by
Millrace's comparison.
"""

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

import pytest

from millrace.consumer.compare import Ends, compare_sets
from millrace.consumer.tables.table_plans import TablePlans
from millrace.consumer.write import row_writer
from millrace.deploy.servers import DatabaseServer
from millrace.schemas.gtid import Flavour
from tests.fixtures.servers import in_turn
from tests.fixtures.sweep import Sweep
from tests.kit.apply.local import apply_task, endpoint_of, run_once
from tests.kit.apply.topic import RecordStream
from tests.kit.binlog.session import Cursor, LoggedSession, logged, session
from tests.kit.capture.converter import raw_records
from tests.kit.type_values import TypeCase, every_case

pytestmark = pytest.mark.both_flavours

DATABASE = "whole_way"
COLUMNS_MAX = 10  # of a table: rows have limited bytes
# not allowed as a key: BLOB and TEXT without a length, types without an order, compressed columns
_runs = count(1)  # the plug-in of the mutants calls a test again
NO_KEY = ("BLOB", "TEXT", "JSON", "GEOMETRY", "VECTOR", "COMPRESSED")
# MySQL's JSON whose text is not exact: docs/guarantees.md, "Not promised"
INEXACT = ("DATETIME", "DATE)", "TIME", "DECIMAL", "x'00FF'", "ST_Geom")


@dataclass(frozen=True)
class Table:
    """A table with a column for each case, or with one case as its key; ``kind``: keyed, bag, or key."""

    name: str
    kind: str
    cases: tuple[TypeCase, ...]

    @property
    def create(self) -> str:
        """The CREATE TABLE statement."""
        values = ", ".join(f"v{place} {case.ddl}" for place, case in enumerate(self.cases))
        if self.kind == "key":
            columns = f"{values.removesuffix(' NULL')} PRIMARY KEY, id INT"
        else:
            columns = f"{values}, id INT{' PRIMARY KEY' if self.kind == 'keyed' else ''}"
        return f"CREATE TABLE {self.name} ({columns}) ROW_FORMAT=DYNAMIC"


def _tables(server: DatabaseServer, sweep: Sweep) -> list[Table]:
    """Few wide tables: creating and dropping tables takes the time. Of keys in other character sets there are some."""
    with session(server) as cursor:
        cursor.execute("SHOW CHARACTER SET")
        cases = every_case(server.flavour, {row[0] for row in cursor.fetchall()})
    assert len(cases) > 100
    groups = [tuple(cases[at : at + COLUMNS_MAX]) for at in range(0, len(cases), COLUMNS_MAX)]
    wide = [
        Table(f"{kind}{number}", kind, group)
        for number, group in enumerate(groups)
        for kind in ("keyed", "bag")
    ]
    possible = [case for case in cases if not _is_brief(case) and not _is_no_key(case)]
    keys = sweep(
        possible, every=5, kind=lambda case: "CHARACTER SET" if _has_charset(case) else case.ddl
    )
    return wide + [Table(f"key{number}", "key", (case,)) for number, case in enumerate(keys)]


def _is_brief(case: TypeCase) -> bool:
    """Texts of other character sets are keys as VARCHAR only."""
    return _has_charset(case) and not case.ddl.startswith("VARCHAR")


def _has_charset(case: TypeCase) -> bool:
    return "CHARACTER SET" in case.ddl


def _is_no_key(case: TypeCase) -> bool:
    words = case.ddl.replace("(", " ").split()
    return any(word.endswith(NO_KEY) or word == "POINT" for word in words)


def _history(cursor: Cursor, table: Table) -> None:
    """Insert every value, update each to another and to and from NULL, delete each."""
    name = table.name
    if table.kind == "key":
        values = table.cases[0].values
        for number, value in enumerate(values):  # IGNORE: some are equal as keys
            cursor.execute(f"INSERT IGNORE INTO {name} VALUES ({value}, {number})")
        cursor.execute(f"UPDATE {name} SET id = id + 1000")
        cursor.execute(f"DELETE FROM {name} WHERE id % 2 = 1")
        for number, value in enumerate(values):
            cursor.execute(f"INSERT IGNORE INTO {name} VALUES ({value}, {number})")
        cursor.execute(f"DELETE FROM {name} WHERE id IN (1000, 1001)")
        cursor.execute(f"UPDATE IGNORE {name} SET v0 = {values[0]} ORDER BY id LIMIT 1")
        return
    count = 1 + max(len(case.values) for case in table.cases)
    columns = [[*case.values, *["NULL"] * (count - len(case.values))] for case in table.cases]
    rows = (
        f"({', '.join(row)}, {number})" for number, row in enumerate(zip(*columns, strict=True))
    )
    cursor.execute(f"INSERT INTO {name} VALUES {', '.join(rows)}")
    names = [f"v{place}" for place in range(len(table.cases))]
    for thousand in (1000, 2000):
        cursor.execute(
            f"INSERT INTO {name} SELECT {', '.join(names)}, id + {thousand} FROM {name} WHERE id < 1000"
        )
    cursor.execute(
        f"UPDATE {name} a JOIN (SELECT * FROM {name}) b ON b.id = (a.id - 1000 + 1) % {count}"
        f" SET {', '.join(f'a.{one} = b.{one}' for one in names)} WHERE a.id BETWEEN 1000 AND 1999"
    )
    cursor.execute(f"DELETE FROM {name} WHERE id >= 2000")


def _records(source: LoggedSession, tables: list[Table]) -> list[bytes]:
    """The records of the binlog after the tables were created."""
    source.run(*(table.create for table in tables), "FLUSH BINARY LOGS")
    (*_, newest) = source.rows("SHOW BINARY LOGS")
    source.file = str(newest[0])
    for table in tables:
        _history(source.cursor, table)
    return [value for batch in source.conversion().batches() for _, value in raw_records(batch)]


@pytest.fixture
def source(
    request: pytest.FixtureRequest, target_server: DatabaseServer
) -> Iterator[LoggedSession]:
    """A session on a server of the target's flavor; the target has the empty database."""
    with session(target_server) as cursor:
        cursor.execute(f"CREATE DATABASE {DATABASE} CHARACTER SET utf8mb4")
        server = request.getfixturevalue(f"{target_server.flavour}_server")
        with logged(server, DATABASE) as found:
            yield found
        cursor.execute(f"DROP DATABASE {DATABASE}")


def _questions(table: Table, flavour: Flavour) -> Iterator[str]:
    order = "ORDER BY id" if table.kind != "key" else "ORDER BY HEX(v0)"
    yield f"CHECKSUM TABLE {table.name}"
    for place, case in enumerate(table.cases):
        column = f"v{place}"
        shown = re.sub(r"\bv\b", column, case.tells)
        yield f"SELECT id, SHA2(HEX({column}), 256), {shown} FROM {table.name} {order}"
        if case.ddl == "JSON" and flavour is Flavour.MYSQL:  # its text is not exact
            exact = [
                number
                for number, value in enumerate(case.values)
                if not any(word in value for word in INEXACT)
            ]
            yield f"SELECT id, JSON_STORAGE_SIZE({column}) FROM {table.name} WHERE id IN {tuple(exact)} {order}"


@pytest.mark.guarantee("exact")
@in_turn("is_loaded", {"LOAD DATA": True, "INSERT": False}, "target_server", indirect=True)
def test_every_type_arrives_end_to_end(
    source: LoggedSession,
    target_server: DatabaseServer,
    sweep: Sweep,
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_loaded: bool,
) -> None:
    """Next to a key, as a key, and without a key; inserted, updated, deleted: no byte differs.

    One lane on one flavor, several lanes on the other. LOAD DATA is used for any number of rows, and never refused.
    """
    refused: list[int] = []
    monkeypatch.setattr(TablePlans, "refuse_load", lambda _, slot: refused.append(slot))
    monkeypatch.setattr(row_writer, "LOAD_ROWS_MIN", 1 if is_loaded else sys.maxsize)
    flavour = target_server.flavour
    tables = _tables(target_server, sweep)
    values = _records(source, tables)
    with session(target_server) as there:
        there.execute(f"USE {DATABASE}")
        for table in tables:
            there.execute(table.create)
        stream = RecordStream(flavour=flavour, values=values)
        task = apply_task(f"whole{next(_runs)}")
        run_once(target_server, task, stream, is_large=flavour is Flavour.MYSQL)
        assert refused == []
        for table in tables:
            for question in _questions(table, flavour):
                there.execute(question)
                wanted = source.rows(question)
                assert wanted
                assert list(there.fetchall()) == wanted, (table.create, question)
    found = compare_sets(
        Ends(endpoint_of(source.server), endpoint_of(target_server)),
        lambda name, _: name == DATABASE,
    )
    assert found.differences == []
    assert found.tables == len(tables)
    assert found.rows > 400


# a type, and two values equal to the server, with the text that distinguishes them
EQUALS = (
    ("DOUBLE", "0", "-0e0", "CAST(v AS CHAR)"),
    ("FLOAT", "0", "-0e0", "CAST(v AS CHAR)"),
    ("JSON", "'[1]'", "'[1.0]'", "CAST(v AS CHAR)"),
    ("VARCHAR(9) COLLATE utf8mb4_general_ci", "'a'", "'A '", "HEX(v)"),
    ("VARCHAR(9) CHARACTER SET latin1", "'e'", "'é'", "HEX(v)"),
)


def test_rows_with_collation_equal_values_stay_distinct_without_a_key(
    source: LoggedSession, target_server: DatabaseServer
) -> None:
    """Of 0 and -0, 1 and 1.0, a and A, the target deletes or updates the same row as the source, in either order."""
    tables = [
        (f"e{number}", columns, (left, right) if number % 2 else (right, left), text)
        for number, (columns, left, right, text) in enumerate(each for each in EQUALS for _ in "12")
    ]
    for name, columns, (first, second), text in tables:
        source.run(
            f"CREATE TABLE {name} (v {columns}, n INT)",
            f"INSERT INTO {name} VALUES ({first}, 1), ({second}, 1), ({first}, 2), ({second}, 2)",
            f"SELECT {text} INTO @first FROM {name} WHERE n = 1 LIMIT 1",
            f"DELETE FROM {name} WHERE n = 1 AND {text} <> @first",
            f"UPDATE {name} SET n = 3 WHERE n = 2 AND {text} <> @first",
        )
    values = [v for batch in source.conversion().batches() for _, v in raw_records(batch)]
    target_server.execute(f"DROP DATABASE {DATABASE}")  # the records create it again
    stream = RecordStream(flavour=target_server.flavour, values=values)
    run_once(target_server, apply_task(f"equals{next(_runs)}"), stream, is_large=False)
    for name, _, _, text in tables:
        question = f"SELECT {text}, n FROM {name} ORDER BY n"
        wanted = source.rows(question)
        assert len(wanted) == 3
        assert list(target_server.execute(question, db=DATABASE)) == wanted, name
