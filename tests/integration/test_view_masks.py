"""The HMAC of a value is that of the text that both servers print, in UTF-8."""

import hashlib
import hmac
from collections.abc import Iterator

import numpy as np
import pytest

from millrace.consumer.kernel.walk import OK
from millrace.consumer.records.numbers import RecordNumbers
from millrace.consumer.records.row_schemas import RowSchemas, make_programs
from millrace.consumer.records.rows import walk_values
from millrace.consumer.view.changes import AFTER, make_changes
from millrace.consumer.view.program import make_view_program, view_of
from millrace.deploy.servers import DatabaseServer
from tests.kit.apply.values import values_of
from tests.kit.apply.view_rows import image, view_from
from tests.kit.binlog.session import LoggedSession, logged
from tests.kit.capture.converter import raw_records

pytestmark = pytest.mark.both_flavours

SECRET = "a key that is longer than a block of SHA-256, which has 64 bytes, and so is hashed first"
PRINTED = "CAST(CONVERT(CAST({0} AS CHAR) USING utf8mb4) AS BINARY)"
STORED, NUMBER = "CAST({0} AS BINARY)", "CAST(CAST({0} + 0 AS CHAR) AS BINARY)"

# type, values, the bytes that are masked
COLUMNS = (
    ("INT", ("0", "-2147483648", "77"), PRINTED),
    ("BIGINT", ("-9223372036854775808", "9223372036854775807", "0"), PRINTED),
    ("BIGINT UNSIGNED", ("18446744073709551615", "9223372036854775808", "0"), PRINTED),
    ("TINYINT UNSIGNED", ("255", "0", "7"), PRINTED),
    ("DECIMAL(10,2)", ("-0.50", "0", "99999999.99"), PRINTED),
    ("DECIMAL(65,30)", ("-1e-30", "12345678901234567890123456789012345.5", "0"), PRINTED),
    ("YEAR", ("0", "1901", "2155"), PRINTED),
    ("DATE", ("'0000-00-00'", "'2024-02-31'", "'9999-12-31'"), PRINTED),
    ("TIME(3)", ("'-838:59:59'", "'00:00:00.5'", "'12:34:56.789'"), PRINTED),
    ("DATETIME(6)", ("'2024-00-00 01:02:03'", "'2024-02-29 23:59:59.123456'", "NULL"), PRINTED),
    ("TIMESTAMP", ("'0000-00-00 00:00:00'", "'2026-03-29 01:30:00'", "NULL"), PRINTED),
    ("CHAR(20) CHARACTER SET latin1", ("'a  '", "'é'", "''"), PRINTED),
    ("VARCHAR(20) CHARACTER SET sjis", ("'a  '", "'あ'", "''"), PRINTED),
    ("TEXT CHARACTER SET utf16", ("'😀'", "'日本'", "REPEAT('ab', 100)"), PRINTED),
    ("VARCHAR(80)", ("REPEAT('x', 55)", "REPEAT('x', 56)", "REPEAT('é', 32)"), PRINTED),
    ("ENUM('a', 'é') CHARACTER SET latin1", ("'a'", "'é'", "NULL"), PRINTED),
    ("SET('a', 'é', 'z')", ("''", "'é,z'", "'a'"), PRINTED),
    ("BINARY(4)", ("''", "x'FF'", "x'00010203'"), STORED),
    ("VARBINARY(80)", ("''", "x'FF00'", "REPEAT(x'FE', 64)"), STORED),
    ("BLOB", ("''", "x'00'", "REPEAT(x'FE', 300)"), STORED),
    ("BIT(64)", ("0", "18446744073709551615", "5"), NUMBER),
)
ROWS = 3


@pytest.fixture
def source(server: DatabaseServer) -> Iterator[LoggedSession]:
    """A session of the server, whose changes are logged."""
    with logged(server, "view_masks") as session:
        yield session


def _masked_rows(source: LoggedSession, mask: str) -> list[tuple[object, ...]]:
    """The inserted rows, with the mask in every column but the first."""
    conversion = source.conversion()
    values = [value for batch in conversion.batches() for _, value in raw_records(batch)]
    texts = {
        number: text for (_, text), number in conversion.registry.ids.items() if "Envelope" in text
    }
    rows = walk_values(
        values_of([value for value in values if value[5] in (0, 2)]),
        make_programs(RowSchemas(texts)),
    )
    assert rows.status == OK
    (layout,) = rows.programs.layouts
    table_view = view_of(view_from(mask={f"c{at}": mask for at in range(len(COLUMNS))}), layout)
    assert table_view is not None
    program = make_view_program(table_view, layout)
    changes = make_changes(program, rows, RecordNumbers(np.arange(len(rows))))
    width = len(layout.table.columns)
    images = [image(changes, int(line[AFTER]), width) for line in changes.lines]
    return [one[1:] for one in images if one is not None]


def test_hmacs_are_those_of_the_texts_that_servers_print(
    source: LoggedSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every type that may have one, at its limits; NULL stays NULL."""
    monkeypatch.setenv("VIEW_MASKS_KEY", SECRET)
    created = ", ".join(f"c{at} {type_} NULL" for at, (type_, _, _) in enumerate(COLUMNS))
    source.run(f"CREATE TABLE facts (id INT PRIMARY KEY, {created}) CHARACTER SET utf8mb4")
    for row in range(ROWS):
        listed = ", ".join(values[row] for _, values, _ in COLUMNS)
        source.run(f"INSERT INTO facts VALUES ({row}, {listed})")
    printed = ", ".join(form.format(f"c{at}") for at, (_, _, form) in enumerate(COLUMNS))
    expected = [
        tuple(
            None
            if text is None
            else hmac.new(SECRET.encode(), _octets(text), hashlib.sha256).hexdigest()
            for text in row
        )
        for row in source.rows(f"SELECT {printed} FROM facts ORDER BY id")
    ]
    assert _masked_rows(source, "hmac-sha256(env:VIEW_MASKS_KEY)") == expected


def _octets(value: object) -> bytes:
    assert isinstance(value, bytes)
    return value
