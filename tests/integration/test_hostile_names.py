"""Names and values that look like SQL, formats or paths, from a source to a target.

Uses a real binlog, the converter, apply's executor functions on a real target of the same flavor, and a comparison of
all rows on the servers.
"""

from collections.abc import Iterator

import pytest

from millrace.consumer.compare import Ends, compare_sets
from millrace.consumer.target.table_state import read_state
from millrace.consumer.topic.tail import as_json, line
from millrace.deploy.servers import DatabaseServer
from millrace.drivers.mysql.connection import connect
from millrace.schemas.documents import TableFilter
from millrace.schemas.gtid import Flavour
from millrace.schemas.place import FIRST_POS, Coordinates
from millrace.schemas.record.record import KnownSchemas, decode_record
from millrace.schemas.sql.statement import classify
from tests.kit.apply.local import apply_task, endpoint_of, run_once
from tests.kit.apply.topic import RecordStream
from tests.kit.binlog.session import Cursor, session
from tests.kit.capture.converter import SUBDIR, Conversion, FileReader, raw_records

NAMES = (
    "we`ird;db",
    'it\'s "q" \\',
    "t;drop table\nx-- y",
    "/*!50000 x */",
    "%s{0}{}%d%%",
    "../../etc",
    "\u202ertl é顾\x01\t\r\x1b[31m\x1a",
    "n" * 64,
)
VALUES = (
    "'; DROP TABLE x; -- ",
    '`"\\',
    "%s %(a)s {} {0}",
    "\0\n\r\x1a",
    "/*! */",
    "../",
    "é🛒\u202e",
    "",
)


def quoted(name: str) -> str:
    """Quote the name for SQL."""
    return "`" + name.replace("`", "``") + "`"


def names_for(place: int) -> tuple[str, ...]:
    """A database, a table and three columns, each with a different hostile name."""
    return tuple(NAMES[(place + step) % len(NAMES)] for step in (0, 3, 5, 6, 7))


def history(cursor: Cursor, place: int) -> None:
    """Write names into every kind of statement: DDL, keys, inserts, updates, deletes."""
    database, table, key, other, more = map(quoted, names_for(place))
    where = f"{database}.{table}"
    texts = [cursor.connection.escape(value) for value in VALUES]
    cursor.execute(f"CREATE DATABASE {database} CHARACTER SET utf8mb4")
    cursor.execute(f"USE {database}")
    cursor.execute(
        f"CREATE TABLE {table} ({key} VARCHAR(60) COLLATE utf8mb4_bin PRIMARY KEY,"
        f" {other} VARCHAR(60), UNIQUE KEY {more} ({other})) COMMENT 'it''s'"
    )
    for number, value in enumerate(texts):
        cursor.execute(f"INSERT INTO {where} VALUES ({value}, CONCAT({value}, {number}))")
    cursor.execute(f"ALTER TABLE {where} ADD COLUMN {more} VARCHAR(60) DEFAULT {texts[0]}")
    for value in texts[:4]:
        cursor.execute(
            f"UPDATE {where} SET {more} = {value}, {other} = CONCAT({value}, 'y') WHERE {key} = {value}"
        )
    cursor.execute(f"UPDATE {where} SET {key} = '%' WHERE {key} = {texts[4]}")
    cursor.execute(f"DELETE FROM {where} WHERE {key} = {texts[5]}")


@pytest.fixture
def source(
    request: pytest.FixtureRequest, target_server: DatabaseServer
) -> Iterator[DatabaseServer]:
    """A server of the target's flavor; both servers drop the databases afterwards."""
    found = request.getfixturevalue(f"{target_server.flavour}_server")
    yield found
    for server in (found, target_server):
        with session(server) as cursor:
            for name in NAMES:
                cursor.execute(f"DROP DATABASE IF EXISTS {quoted(name)}")


@pytest.mark.guarantee("robust")
def test_hostile_names_and_values_arrive_unchanged(
    source: DatabaseServer, target_server: DatabaseServer
) -> None:
    """No name or value is executed, formatted, shortened or lost; each record can be printed on one line.

    Uses one lane on one flavor and several lanes on the other.
    """
    with session(source) as cursor:
        cursor.execute("FLUSH BINARY LOGS")
        cursor.execute("SHOW BINARY LOGS")
        file = str(cursor.fetchall()[-1][0])
        for place in range(len(NAMES)):
            history(cursor, place)
        cursor.execute("FLUSH BINARY LOGS")
    conversion = Conversion(
        FileReader.of_server(source.binlog_dir),
        flavour=source.flavour,
        filter=TableFilter(),
        at=Coordinates(SUBDIR, file, FIRST_POS),
    )
    records = [record for batch in conversion.batches() for record in raw_records(batch)]
    stream = RecordStream(flavour=source.flavour, values=[value for _, value in records])
    is_large = source.flavour is Flavour.MYSQL
    run_once(target_server, apply_task("hostile"), stream, is_large=is_large)
    found = compare_sets(
        Ends(endpoint_of(source), endpoint_of(target_server)), lambda database, _: database in NAMES
    )
    assert found.differences == []
    assert (found.tables, found.rows) == (len(NAMES), len(NAMES) * (len(VALUES) - 1))

    known = KnownSchemas()
    for offset, (key, value) in enumerate(records):
        record = decode_record(key, value, known)
        assert line(offset, record).isprintable()
        assert as_json(offset, 0, record)

    observer = connect(endpoint_of(target_server))
    for place in range(len(NAMES)):
        database, table, *_ = names_for(place)
        statement = classify(f"TRUNCATE {quoted(database)}.{quoted(table)}", "")
        states = read_state(observer, statement)
        assert all(states.values()), (database, table)
    observer.close()
