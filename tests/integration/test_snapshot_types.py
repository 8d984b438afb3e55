"""A row of a snapshot has the bytes that the binlog's record of the same row has: key, images and schema."""

from collections.abc import Sequence

import pymysql
import pytest

from millrace.deploy.servers import DatabaseServer
from millrace.producer.snapshot.chunk_read import ReadChunk
from millrace.schemas.gtid import Flavour
from millrace.schemas.record.record import KnownSchemas, RowRecord, decode_record
from tests.kit.binlog.session import LoggedSession, logged
from tests.kit.capture.converter import raw_records
from tests.kit.capture.snapshot_rows import head_of, request_for, session_on, stamped
from tests.kit.type_values import CASES, CHARSETS, without_marks

pytestmark = pytest.mark.both_flavours

KEYS = (
    "BIGINT UNSIGNED",
    "DECIMAL(20,5)",
    "DATETIME(3)",
    "VARCHAR(40)",
    "CHAR(10) CHARACTER SET latin1 COLLATE latin1_german2_ci",
    "VARBINARY(20)",
    "ENUM('b', 'a', 'ü')",
    "BIT(12)",
)
TABLES = (
    # a key of two columns in another order, a generated column, defaults
    "CREATE TABLE two (b VARCHAR(30) NOT NULL, a INT NOT NULL, c INT AS (a + 1) STORED,"
    " d INT AS (a + 2) VIRTUAL, n INT UNSIGNED ZEROFILL NULL DEFAULT 5, PRIMARY KEY (a, b), UNIQUE (n))",
    "CREATE TABLE odd (`a``b` INT PRIMARY KEY, `ü x` ENUM('it''s', 'a\\\\b', 'c\\nd', '\"', 'x,y') NOT NULL,"
    " `select` SET('''', '\\\\', 'ü') NULL)",
)
ROWS = (
    "INSERT INTO two (b, a, n) VALUES ('x', 1, 7), ('X ', 2, NULL), ('', 0, 12)",
    "INSERT INTO odd VALUES (1, 'it''s', NULL), (2, 'a\\\\b', ''''), (3, 'c\\nd', '\\\\,ü'), (4, 'x,y', '')",
)


@pytest.mark.guarantee("exact")
def test_snapshot_row_has_the_bytes_of_the_binlogs_row(server: DatabaseServer) -> None:
    """Every type with extreme values, in the value and in the key: bytes and schema id are equal.

    The text that a SELECT returns of MySQL's JSON shows no types, so a snapshot can't mark them.
    """
    cases = [case for case in CASES if server.flavour in case.flavours]
    with logged(server, "snapshot_types") as source:
        for number, case in enumerate(cases):
            source.run(f"CREATE TABLE t{number} (id INT PRIMARY KEY, v {case.ddl})")
            for row, value in enumerate((*case.values, "NULL"), 1):
                source.run(f"INSERT INTO t{number} VALUES ({row}, {value})")
        for number, ddl in enumerate(KEYS):
            source.run(f"CREATE TABLE k{number} (v {ddl} NOT NULL PRIMARY KEY, w INT)")
            source.run(f"INSERT INTO k{number} VALUES ({_key_value(ddl)}, 1)")
        source.run(*TABLES, *ROWS, *_of_flavour(server.flavour))
        documents = (f"t{n}" for n, case in enumerate(cases) if case.ddl == "JSON")
        _compare(source, server, next(documents) if server.flavour is Flavour.MYSQL else "")


@pytest.mark.guarantee("exact")
def test_snapshot_text_of_every_charset_equals_the_binlogs(server: DatabaseServer) -> None:
    """Text that is valid in its character set and text that is not."""
    with logged(server, "snapshot_charsets") as source:
        known = {str(row[0]) for row in source.rows("SHOW CHARACTER SET")}
        for charset, samples in CHARSETS.items():
            if charset not in known:
                continue
            source.run(
                f"CREATE TABLE {charset} (id INT PRIMARY KEY, v TEXT CHARACTER SET {charset},"
                f" c CHAR(9) CHARACTER SET {charset})"
            )
            for number, sample in enumerate(samples.split(), 1):
                try:
                    source.run(f"INSERT INTO {charset} VALUES ({number}, x'{sample}', x'{sample}')")
                except pymysql.err.Error:
                    continue  # the server itself rejects these bytes
        _compare(source, server)


def _key_value(ddl: str) -> str:
    if ddl.startswith(("BIGINT", "DECIMAL", "BIT")):
        return "5"
    return "'2026-01-02 03:04:05.678'" if ddl.startswith("DATETIME") else "'ü'"


def _of_flavour(flavour: Flavour) -> Sequence[str]:
    if flavour is Flavour.MYSQL:
        return (
            "CREATE TABLE hidden (id INT PRIMARY KEY, v INT INVISIBLE)",
            "INSERT INTO hidden (id, v) VALUES (1, 2)",
            "CREATE TABLE expression (id INT PRIMARY KEY, v INT, UNIQUE ((v * 2)))",
            "INSERT INTO expression VALUES (1, 2)",
        )
    return (
        "CREATE TABLE hidden (id INT PRIMARY KEY, v INT INVISIBLE)",
        "INSERT INTO hidden (id, v) VALUES (1, 2)",
        "CREATE TABLE later (id INT PRIMARY KEY, v TEXT, w BLOB, UNIQUE (v), UNIQUE (w))",
        "INSERT INTO later VALUES (1, NULL, NULL)",
    )


def _compare(source: LoggedSession, server: DatabaseServer, documents: str = "") -> None:
    """Compare each row of the binlog with the row of a snapshot of its table.

    ``documents``: a table with JSON of MySQL. Its rows with marks are left out.
    """
    marked = set[bytes | None]()
    conversion, known = source.conversion(), KnownSchemas()
    logged_rows: dict[str, list[tuple[bytes | None, bytes]]] = {}
    for batch in conversion.batches():
        for key, value in raw_records(batch):
            record = decode_record(key, value, known)
            if isinstance(record, RowRecord):
                after = record.change.after
                if record.source.table == documents and after != without_marks(after):
                    marked.add(key)
                logged_rows.setdefault(record.source.table, []).append((key, value))
    assert len(logged_rows) > 10
    session = session_on(server)
    different = []
    for table, wanted in logged_rows.items():
        chunk = session.read(request_for(server, (source.database, table)))
        assert isinstance(chunk, ReadChunk), (table, chunk)
        found = stamped(chunk, conversion.registry)
        expected = {key: head_of(value, server) for key, value in wanted}
        read: dict[bytes | None, bytes] = {key: head_of(value, server) for key, value in found}
        if table == documents:
            assert len(marked) > 10
            for key in marked:
                del expected[key], read[key]
        if read != expected:
            different.append(table)
            print(table, source.rows(f"SHOW CREATE TABLE `{table}`"))
            for text in sorted(text for _, text in conversion.registry.ids if f'"{table}"' in text):
                print(text)
            for key in sorted(set(read) | set(expected), key=str):
                print(key, expected.get(key), read.get(key))
    session.connection.close()
    assert different == []
