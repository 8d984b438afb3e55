"""The converter's small parts: filters, query events, positions, XA names, sizes of unpublished tables."""

import struct
from typing import NoReturn

import numpy as np
import pytest

from millrace.errors import Fatal, Retryable
from millrace.producer.binlog import events as t
from millrace.producer.binlog.zstd import InflatedStream
from millrace.producer.convert.arrays import KernelArrays
from millrace.producer.convert.charset_tables import CharsetTables
from millrace.producer.convert.column_program import ColumnProgram, column_sizes
from millrace.producer.convert.event_sources import PayloadEvents
from millrace.producer.convert.kernel import program as p
from millrace.producer.convert.kernel import state as s
from millrace.producer.convert.position import load_position, read_position
from millrace.producer.convert.query import parse_query, sql_mode_text
from millrace.producer.convert.rows_head import UPDATE, read_rows_head, row_bounds
from millrace.producer.convert.xa import xid_of_prepare, xid_of_statement
from millrace.schemas.documents import TableFilter
from millrace.schemas.gtid import Flavour, parse_gtid_set
from millrace.schemas.place import Coordinates
from millrace.schemas.server_version import ServerVersion
from millrace.schemas.table.table_map import parse_table_map
from tests.kit.binlog.payload import ZSTD
from tests.kit.binlog.table_map_vectors import (
    MARIADB_NUMBERS,
    MARIADB_TEXTS,
    MYSQL_NUMBERS,
    MYSQL_TEXTS,
)


@pytest.mark.parametrize(
    ("include", "exclude", "name", "is_wanted"),
    [
        (("*.*",), (), "shop.orders", True),
        (("shop.*",), (), "shop.orders", True),
        (("shop.*",), (), "shopping.orders", False),
        (("shop.o*",), ("shop.orders",), "shop.orders", False),
        (("shop.o*",), ("shop.orders",), "shop.other", True),
        (("shop.order?",), (), "shop.orders", True),
        (("*.*",), (), "mysql.user", False),
        (("*.*",), (), "MySQL.user", False),
        (("millrace.*",), (), "millrace.progress", False),
        (("a.b+c",), (), "a.b+c", True),
        (("a.b+c",), (), "a.bbc", False),
    ],
)
def test_table_is_published_by_pattern(
    include: tuple[str, ...], exclude: tuple[str, ...], name: str, is_wanted: bool
) -> None:
    """A table needs a matching include and no matching exclude; system tables are never published."""
    database, _, table = name.partition(".")
    assert TableFilter(include, exclude).admits(database, table) is is_wanted


def query_body(text: bytes, status: bytes, database: bytes = b"shop", error_code: int = 0) -> bytes:
    """Return the body of a QUERY event."""
    head = struct.pack("<IIBHH", 9, 0, len(database), error_code, len(status))
    return head + status + database + b"\0" + text


STATUS = (
    b"\x00" + struct.pack("<I", 1 << 26)  # no foreign key checks
    + b"\x01" + struct.pack("<Q", 1 << 22 | 1 << 2)
    + b"\x06\x03std"
    + b"\x03" + struct.pack("<HH", 10, 3)
    + b"\x07" + struct.pack("<H", 5)
    + b"\x04" + struct.pack("<HHH", 8, 33, 255)
    + b"\x05\x06+02:00"
    + b"\x0c\x02shop\0b\0"
    + b"\x0d\1\2\3"
    + b"\x10\1"
    + b"\x12\xff\0"
    + b"\x7e any bytes after an unknown code"
)  # fmt: skip


def test_query_event_gives_its_session_settings() -> None:
    """The event gives SQL modes by name, charset, collations, time zone and checks; reading ends at an unknown code."""
    query = parse_query(query_body("ALTER TABLE ü".encode("latin1"), STATUS), flavour=Flavour.MYSQL)
    assert query.text == "ALTER TABLE ü"
    assert query.database == "shop"
    assert query.session == {
        "foreign_key_checks": "0",
        "unique_checks": "1",
        "sql_mode": "ANSI_QUOTES,STRICT_ALL_TABLES",
        "auto_increment_increment": "10",
        "auto_increment_offset": "3",
        "lc_time_names": "5",
        "charset_client": "latin1",
        "collation_connection": "33",
        "collation_server": "255",
        "time_zone": "+02:00",
        "microseconds": "197121",
        "explicit_defaults_for_timestamp": "1",
        "default_collation_for_utf8mb4": "255",
        "default_database": "shop",
        "in_doubt": "unknown session variable 126 in the binlog",
    }


def test_variables_after_those_of_mariadb_are_read() -> None:
    """MariaDB writes code 131 before the charset and the time zone, and code 130 for a two-phase ALTER."""
    for phase in (b"\x82\x00", b"\x82\x02", b"\x82\x04" + bytes(8), b"\x82\x08" + bytes(8)):
        status = (
            phase
            + b"\x83\x02"
            + struct.pack("<HHHH", 8, 47, 45, 2306)
            + STATUS.partition(b"\x7e")[0]
        )
        query = parse_query(
            query_body("ENUM('é')".encode("latin1"), status), flavour=Flavour.MARIADB
        )
        assert query.text == "ENUM('é')"
        assert query.session["character_set_collations"] == "latin1=47,utf8mb4=2306"
        assert query.session["time_zone"] == "+02:00"
        assert "in_doubt" not in query.session


@pytest.mark.parametrize(
    ("collation", "text", "is_exact"),
    [
        (45, b"DEFAULT _binary'\xff\xfe'", False),
        (45, "DEFAULT _latin1'é'".encode(), True),
        (8, "DEFAULT 'é'".encode("latin1"), True),
        (8, b"DEFAULT _latin1'e'", True),
        (8, "DEFAULT _latin1 'é'".encode("latin1"), False),
        (8, 'DEFAULT N"é"'.encode("latin1"), False),
        (13, "DEFAULT '表'".encode("cp932"), True),
        (13, b"DEFAULT 'a\\n'", False),
        (13, b"DEFAULT 'a\x81\x5f'", False),
        (95, b"DEFAULT '\x95\x5c\\n'", True),
        (10, b"DEFAULT 'a'", True),
        (10, b"DEFAULT 'a\\n'", False),
    ],
)
def test_statement_that_its_text_cannot_represent_is_doubtful(
    collation: int, text: bytes, is_exact: bool
) -> None:
    """Undecodable bytes, bytes that an introducer takes literally, and backslashes that are not text are doubtful."""
    status = b"\x04" + struct.pack("<HHH", collation, 33, 255)
    session = parse_query(query_body(text, status), flavour=Flavour.MYSQL).session
    assert ("in_doubt" not in session) is is_exact


def test_truncated_query_event_is_refused() -> None:
    """Every shorter body is refused."""
    whole = query_body(b"", STATUS[:40])
    for size in range(len(whole)):
        with pytest.raises(Fatal) as caught:
            parse_query(whole[:size], flavour=Flavour.MYSQL)
        assert caught.value.code == "MR-6003"


def test_sql_modes_have_the_names_of_their_flavour() -> None:
    """Bit 32 has two meanings."""
    assert sql_mode_text(1 << 32, Flavour.MYSQL) == "TIME_TRUNCATE_FRACTIONAL"
    assert sql_mode_text(1 << 32, Flavour.MARIADB) == "EMPTY_STRING_IS_NULL"


# sql_priv.h and query_options.h of the servers, and their modes
FLAGS = {
    Flavour.MYSQL: {14, 19, 26, 27},
    Flavour.MARIADB: {14, 15, 19, 24, 26, 27, 28, 30},
}
MODES = {
    Flavour.MYSQL: {*range(8), *range(18, 28), 29, 30, 31, 32, 33},
    Flavour.MARIADB: set(range(35)),
}


@pytest.mark.parametrize("flavour", Flavour)
def test_each_bit_of_a_session_is_known_or_in_doubt(flavour: Flavour) -> None:
    """The bits of the session's flags, and those of sql_mode."""
    for known, code, layout, bits in (
        (FLAGS[flavour], b"\0", "<I", 32),
        (MODES[flavour], b"\1", "<Q", 64),
    ):
        plain = parse_query(query_body(b"", code + bytes(bits // 8)), flavour=flavour).session
        for bit in range(bits):
            status = code + struct.pack(layout, 1 << bit)
            session = parse_query(query_body(b"", status), flavour=flavour).session
            assert ("in_doubt" not in session) is (bit in known), (bits, bit)
            if bits == 64 and bit in known:
                assert session["sql_mode"] != plain["sql_mode"]


def test_older_mariadb_does_not_log_timestamp_defaults() -> None:
    """The bit of explicit_defaults_for_timestamp means nothing in its files."""
    body = query_body(b"", b"\0" + bytes(4))
    for text, is_logged in {
        "10.5.16-MariaDB": False,
        "10.5.17-MariaDB-log": True,
        "10.6.8-MariaDB": False,
        "10.9.2-MariaDB": True,
        "10.4.33-MariaDB": False,
        "10.11.2-MariaDB": True,
        "12.0.1-MariaDB": True,
        "unknown MariaDB": True,
    }.items():
        server = ServerVersion.parse(text)
        session = parse_query(body, flavour=Flavour.MARIADB, server=server).session
        assert ("explicit_defaults_for_timestamp" in session) is is_logged, text


@pytest.mark.parametrize(
    ("error_code", "is_certain"), [(1060, True), (1051, True), (1317, False), (1205, False)]
)
def test_failed_statement_has_its_error_code(error_code: int, *, is_certain: bool) -> None:
    """The effect of an interrupted one, or of one that failed on a lock, is not known."""
    body = query_body(b"CREATE TABLE t (b INT, b INT)", b"", error_code=error_code)
    session = parse_query(body, flavour=Flavour.MARIADB).session
    assert session["error_code"] == str(error_code)
    assert ("in_doubt" not in session) is is_certain


def test_xid_is_equal_in_event_and_statement() -> None:
    """The parts are gtrid, bqual and format."""
    body = b"\0" + struct.pack("<III", 3, 2, 1) + b"ab" + b"c"
    assert xid_of_prepare(body) == ("6162.63.3", False)
    assert xid_of_statement("XA COMMIT X'6162',X'63',3") == "6162.63.3"
    assert xid_of_statement("XA ROLLBACK X'6162',X'',1") == "6162..1"


UUID_A = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
UUID_B = "fbe6bc51-e598-11f1-b8ce-02fc00000001"


@pytest.mark.parametrize(
    "text",
    [
        "",
        f"{UUID_A}:1-5:8",
        f"{UUID_A}:1-5:blue:1-3:9,{UUID_B}:7",
        ",".join(f"{UUID_A[:-3]}{n:03}:1-{n + 1}" for n in range(200)),
    ],
)
def test_position_round_trips_through_the_kernel(text: str) -> None:
    """The position is equal if nothing changed, and also if every interval changed."""
    arrays = KernelArrays()
    position = parse_gtid_set(Flavour.MYSQL, text)
    load_position(arrays, position)
    assert read_position(arrays, position) is position
    arrays.intervals[: arrays.state[s.INTERVAL_COUNT], s.I_CHANGED] = 1
    assert read_position(arrays, parse_gtid_set(Flavour.MYSQL, "")) == position


def test_scattered_intervals_are_compacted() -> None:
    """Transactions out of order leave gaps; many intervals become the exact set again."""
    arrays = KernelArrays()
    load_position(arrays, parse_gtid_set(Flavour.MYSQL, f"{UUID_A}:1"))
    for number in range(2, 202):
        arrays.intervals[number - 1, :4] = 0, number, number + 1, 1
    arrays.state[s.INTERVAL_COUNT] = 201
    after = read_position(arrays, parse_gtid_set(Flavour.MYSQL, f"{UUID_A}:1"))
    assert str(after) == f"{UUID_A}:1-201"
    assert arrays.state[s.INTERVAL_COUNT] == 1


@pytest.mark.parametrize(
    ("body", "flavour"),
    [
        (MYSQL_NUMBERS, Flavour.MYSQL),
        (MYSQL_TEXTS, Flavour.MYSQL),
        (MARIADB_NUMBERS, Flavour.MARIADB),
        (MARIADB_TEXTS, Flavour.MARIADB),
    ],
)
def test_column_sizes_do_not_depend_on_names(body: bytes, flavour: Flavour) -> None:
    """A table that is not published is measured like one that is."""
    arrays = KernelArrays()
    program = ColumnProgram(parse_table_map(body, flavour=flavour)[1], arrays, CharsetTables())
    alone = column_sizes(body, flavour=flavour)
    for which in (p.SIZE, p.IS_PREFIXED):
        assert np.array_equal(program.columns[:, which], alone[:, which])


@pytest.mark.parametrize(
    ("flavour", "code", "is_known"),
    [
        *((Flavour.MYSQL, code, True) for code in (7, 11, 12)),  # TIMESTAMP, TIME, DATETIME
        *((Flavour.MARIADB, code, False) for code in (7, 11, 12)),
        *((flavour, code, False) for flavour in Flavour for code in (0, 6, 20, 99)),
    ],
)
def test_size_missing_from_the_table_map_is_none(
    flavour: Flavour, code: int, is_known: bool
) -> None:
    """Unknown types and MariaDB's fractional times have no size, nor do the columns after them."""
    sizes = column_sizes(_a_table(code), flavour=flavour)[:, p.SIZE].tolist()
    assert (sizes[0], len(sizes)) == (4, 3)
    assert (min(sizes[1:]) > 0) == is_known
    assert is_known or sizes[1:] == [-1, -1]


@pytest.mark.parametrize(("length_bytes", "prefix_bytes"), [(255, 1), (256, 2), (1020, 2)])
def test_long_char_has_two_length_bytes(length_bytes: int, prefix_bytes: int) -> None:
    """CHAR(255) of utf8mb4 has 1020 bytes."""
    metadata = bytes([0xFE ^ (length_bytes >> 8 << 4), length_bytes & 0xFF])
    body = bytes(8) + b"\1d\0\1t\0" + bytes([1, 0xFE, 2]) + metadata + b"\0"
    (sizes,) = column_sizes(body, flavour=Flavour.MYSQL)
    assert (sizes[p.SIZE], sizes[p.IS_PREFIXED]) == (prefix_bytes, 1)


def _a_table(code: int) -> bytes:
    """Return the body of the map of an INT, a column of this type, and an INT."""
    return bytes(8) + b"\1d\0\1t\0" + bytes([3, 3, code, 3, 0, 0])


_INT_ROW = b"\0" + bytes(4)  # the NULL bitmap and an INT


def _rows_event(rows: bytes) -> "np.ndarray[tuple[int], np.dtype[np.uint8]]":
    """Return the body of an UPDATE_ROWS event of one INT column."""
    head = bytes(6) + bytes(2) + b"\2\0" + b"\1" + b"\1\1"
    return np.frombuffer(bytearray(head + rows), np.uint8)


def test_rows_of_an_event_have_bounds() -> None:
    """Two images are one row; a table with a column of unknown length has no bounds; a cut row is refused."""
    head = read_rows_head(t.UPDATE_ROWS, _rows_event(4 * _INT_ROW))
    assert head.operation == UPDATE
    known = column_sizes(bytes(8) + b"\1d\0\1t\0" + bytes([1, 3, 0, 0]), flavour=Flavour.MYSQL)
    bounds = row_bounds(head, known)
    assert bounds is not None
    assert list(bounds) == [(0, 10), (10, 20)]
    unknown = column_sizes(_a_table(99), flavour=Flavour.MYSQL)
    assert row_bounds(head, unknown) is None
    assert row_bounds(head, unknown[1:2]) is None
    cut = row_bounds(read_rows_head(t.UPDATE_ROWS, _rows_event(4 * _INT_ROW)[:-1]), known)
    assert cut is not None
    with pytest.raises(Fatal, match="a row ends after its event") as caught:
        list(cut)
    assert caught.value.code == "MR-6003"


def test_compressed_rows_that_cannot_be_inflated_are_refused() -> None:
    """MariaDB's compressed events: no bytes, and bytes that are not zlib's."""
    for rows in (b"", b"\1\4nothing"):
        with pytest.raises(Fatal) as caught:
            read_rows_head(t.MARIADB_UPDATE_ROWS_COMPRESSED_V1, _rows_event(rows))
        assert caught.value.code == "MR-6003"


def test_event_of_no_size_ends_a_payload() -> None:
    """A payload is not read on in search of an end."""
    at = Coordinates("a.000001", "b.000001", 4)
    stored = bytes(
        [2, 3, 252, 255, 0, 0]
    )  # the field "compression" with the value "none", and the end
    event = bytes(9) + (23).to_bytes(4, "little") + bytes(10)
    good = PayloadEvents(stored + 2 * event, at, end_pos=99)
    assert [len(found) for found in good.events()] == [23, 23]
    bad = PayloadEvents(stored + event + bytes(23), at, end_pos=99)
    with pytest.raises(Fatal) as caught:
        list(bad.events())
    assert caught.value.code == "MR-6003"


def test_payload_that_exceeds_free_memory_is_retried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Retryable MR-4014: the same bytes are inflated later."""

    def no_memory(*_: object) -> NoReturn:
        raise MemoryError

    monkeypatch.setattr(InflatedStream, "read", no_memory)
    events = PayloadEvents(ZSTD, Coordinates("a.000001", "b.000001", 4), end_pos=99)
    with pytest.raises(Retryable) as caught:
        events.load_next()
    assert caught.value.code == "MR-4014"
