"""Every type at its extremes on real servers: every image in a record holds what SELECT returns.

The tests read the server's binlog files, which the relay log copies byte for byte.
"""

import pymysql
import pytest

from millrace.deploy.servers import DatabaseServer
from tests.kit.binlog.session import logged
from tests.kit.binlog.type_tables import check_records
from tests.kit.type_values import CASES, CHARSETS

pytestmark = pytest.mark.both_flavours


@pytest.mark.guarantee("exact")
def test_record_holds_what_select_returns(server: DatabaseServer) -> None:
    """Insert, both images of an update, delete, and NULL."""
    cases = [case for case in CASES if server.flavour in case.flavours]
    check_records(server, "types_of_rows", cases)


@pytest.mark.guarantee("exact")
def test_text_of_every_charset_arrives_as_text_or_bytes(server: DatabaseServer) -> None:
    """Text that the server converts to utf8mb4 and back without loss arrives as text, everything else as bytes."""
    with logged(server, "charsets_of_rows") as source:
        cursor = source.cursor
        cursor.execute("SHOW CHARACTER SET")
        known = {row[0] for row in cursor.fetchall()}
        expected = {}
        for charset, samples in CHARSETS.items():
            if charset not in known:
                continue
            cursor.execute(f"CREATE TABLE {charset} (id INT PRIMARY KEY, v BLOB)")
            for number, sample in enumerate(samples.split(), 1):
                cursor.execute(f"INSERT INTO {charset} VALUES ({number}, x'{sample}')")
            cursor.execute(
                f"CREATE TABLE {charset}_text (id INT PRIMARY KEY, v TEXT CHARACTER SET {charset})"
            )
            for number, sample in enumerate(samples.split(), 1):
                try:
                    cursor.execute(f"INSERT INTO {charset}_text VALUES ({number}, x'{sample}')")
                except pymysql.err.Error:
                    continue  # the server itself rejects these bytes
            back = f"CONVERT(CONVERT(v USING utf8mb4) USING {charset})"
            cursor.execute(
                f"SELECT id, HEX(v), HEX(CONVERT(v USING utf8mb4)), HEX({back}) FROM {charset}_text"
            )
            expected[f"{charset}_text"] = {row[0]: row[1:] for row in cursor.fetchall()}
        conversion = source.conversion()
    compared = 0
    for row in conversion.rows():
        if row.source.table not in expected or row.change.after is None:
            continue
        raw, text, back = expected[row.source.table][int(str(row.change.after["id"]))]
        value = row.change.after["v"]
        if isinstance(value, str):
            assert (value.encode().hex().upper(), back) == (text, raw), (row.source.table, raw)
        else:
            assert isinstance(value, bytes)
            assert value.hex().upper() == raw
            assert back != raw or "3F" in text or "EFBFBD" in text or text.startswith("ED"), raw
        compared += 1
    assert compared > 40
