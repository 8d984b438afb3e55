"""Chunks of tables on real servers: each row is in exactly one, for keys of every type."""

from collections.abc import Iterator
from itertools import chain, islice

import pytest

from millrace.deploy.servers import DatabaseServer
from millrace.drivers.mysql.catalog import read_inventory
from millrace.drivers.mysql.chunks.borders import chunks, parts
from millrace.drivers.mysql.chunks.chunk import Border, Chunk
from millrace.drivers.mysql.chunks.key import ChunkKey, chunk_key
from millrace.drivers.mysql.connection import MySqlSession, connect
from millrace.schemas.gtid import Flavour
from millrace.schemas.sql.quoting import table_name
from tests.kit.apply.local import endpoint_of
from tests.kit.apply.plans import explained

CHUNK_ROWS = 3
LABELLED_ROWS, LABELLED_CHUNK = 20_000, 2_000
_LABELS = ", ".join(f"'e{number}'" for number in range(254))
_MEMBERS = ", ".join(f"'m{number}'" for number in range(8))

# the key's columns, and rows of them
KEYS: dict[str, tuple[str, tuple[str, ...]]] = {
    "numbers": (
        "a BIGINT UNSIGNED, b DECIMAL(20,4), PRIMARY KEY (a, b)",
        tuple(f"({a}, {b})" for a in (0, 7, 2**63, 2**64 - 1) for b in (-1.5, 0, 0.0001, 12)),
    ),
    "floats": (
        "a FLOAT, b DOUBLE, PRIMARY KEY (a, b)",
        tuple(f"({a}, {b})" for a in (-3.4e38, -0.1, 0, 0.1, 1e-30) for b in (0.1, 1e300, -5e-324)),
    ),
    "texts": (
        "a VARCHAR(9) COLLATE utf8mb4_general_ci, b CHAR(4) CHARACTER SET latin1, PRIMARY KEY (a, b)",
        tuple(f"('{a}', '{b}')" for a in ("", "a", "É", "f''", "ß", "😀", "日") for b in "zäA"),
    ),
    "wide_texts": (
        "a VARCHAR(9) CHARACTER SET ucs2, b VARCHAR(5) CHARACTER SET gbk, PRIMARY KEY (a, b)",
        tuple(f"('{a}', '{b}')" for a in ("", "a", "\\\\", "日", "ж") for b in ("x", "中")),
    ),
    "labels": (
        "a ENUM('z','a','m'), b SET('q','b','c'), PRIMARY KEY (a, b)",
        tuple(f"('{a}', '{b}')" for a in "zam" for b in ("", "q", "b", "q,b", "c", "b,c")),
    ),
    "many_labels": (
        f"a SET({', '.join(map(repr, map(str, range(64))))}), b BIT(64), PRIMARY KEY (a, b)",
        tuple(
            f"({a}, {b})"
            for a in (0, 1, 2**53, 2**53 + 1, 2**63 - 1, 2**63, 2**63 + 1, 2**64 - 1)
            for b in (0, 2**63 + 1, 2**64 - 1)
        ),
    ),
    "bytes": (
        "a VARBINARY(9), b BINARY(2), c BIT(60), PRIMARY KEY (a, b, c)",
        tuple(
            f"(x'{a}', x'{b}', {c})"
            for a in ("", "00", "27", "5c00", "ff")
            for b in ("0000", "ffff")
            for c in (0, 2**59)
        ),
    ),
    "times": (
        "a DATE, b DATETIME(6), c TIME(3), d YEAR, e TIMESTAMP(2), PRIMARY KEY (a, b, c, d, e)",
        tuple(
            f"('{a}', '{b}', '{c}', {d}, '2026-01-01 00:00:00.25')"
            for a in ("0000-00-00", "2026-02-30", "9999-12-31")
            for b in ("0000-00-00", "2026-01-01 00:00:00.000001")
            for c in ("-838:59:59", "-00:00:00.001", "12:00:00")
            for d in (0, 2026)
        ),
    ),
    "unique": (
        "a INT NOT NULL, b INT, UNIQUE KEY u (a), UNIQUE KEY v (b)",
        tuple(f"({a}, NULL)" for a in range(10)),
    ),
    "downward": ("a INT, PRIMARY KEY (a DESC)", tuple(f"({a})" for a in range(10))),
    "mixed": (
        "a INT, b VARCHAR(9), c INT, PRIMARY KEY (a DESC, b, c DESC)",
        tuple(f"({a}, '{b}', {c})" for a in range(3) for b in ("", "a", "É") for c in (-1, 0, 7)),
    ),
    "mixed_labels": (
        "a ENUM('z','a','m'), b SET('q','b','c'), c INT, PRIMARY KEY (a, b DESC, c)",
        tuple(f"('{a}', '{b}', {c})" for a in "zam" for b in ("", "q", "b,c") for c in (1, 2)),
    ),
}
OWN_KEYS = {
    Flavour.MARIADB: {
        "addresses": (
            "a UUID, b INET6, c INET4, PRIMARY KEY (a, b, c)",
            tuple(
                f"('{a * 8}-{a * 4}-1{a * 3}-8{a * 3}-{a * 12}', '{b}', '10.0.0.{c}')"
                for a in "0f3"
                for b in ("::", "::1", "fe80::5")
                for c in (1, 200)
            ),
        )
    },
    Flavour.MYSQL: {
        "generated": (
            "a INT NOT NULL, g INT AS (-a) STORED NOT NULL, UNIQUE KEY (g)",
            tuple(f"({a}, DEFAULT)" for a in range(10)),
        ),
    },
}


@pytest.fixture
def session(target_server: DatabaseServer) -> Iterator[MySqlSession]:
    """A session on a server with the database ``chunked``, which is dropped afterwards."""
    made = connect(endpoint_of(target_server))
    made.query("DROP DATABASE IF EXISTS chunked")
    made.query("CREATE DATABASE chunked DEFAULT CHARSET utf8mb4")
    yield made
    made.query("DROP DATABASE chunked")
    made.close()


def _filled(session: MySqlSession) -> dict[str, int]:
    """Create and fill the tables; the number of rows of each."""
    made = KEYS | OWN_KEYS[session.flavour]
    for name, (definition, rows) in made.items():
        session.query(f"CREATE TABLE chunked.{name} ({definition})")
        session.query(f"INSERT INTO chunked.{name} VALUES {', '.join(rows)}")
    session.commit()
    return {name: len(rows) for name, (_, rows) in made.items()}


def _key(session: MySqlSession, name: str) -> ChunkKey:
    table = read_inventory(session, with_folds=False).tables["chunked", name]
    key = chunk_key(table.columns, table.unique_keys)
    assert key is not None
    return key


def _chunks(
    session: MySqlSession, name: str, key: ChunkKey, rows: int, begin: Chunk | None = None
) -> Iterator[Chunk]:
    return chunks(session.query, f"chunked.{name}", key, rows=lambda: rows, begin=begin)


def _keys(session: MySqlSession, name: str, key: ChunkKey, chunk: Chunk) -> list[object]:
    read, order = (", ".join(getattr(c, what) for c in key.columns) for what in ("read", "sorting"))
    where = chunk.where(key)
    return list(session.query(f"SELECT {read} FROM chunked.{name} WHERE {where} ORDER BY {order}"))


def test_chunks_of_any_key_hold_each_row_once(session: MySqlSession) -> None:
    """In the order of the key, and none has more rows than asked for."""
    for name, count in _filled(session).items():
        key = _key(session, name)
        found = list(_chunks(session, name, key, CHUNK_ROWS))
        held = [_keys(session, name, key, chunk) for chunk in found]
        assert list(chain(*held)) == _keys(session, name, key, Chunk(0)), name
        assert sum(map(len, held)) == count, name
        assert {len(rows) for rows in held[:-1]} == {CHUNK_ROWS}, name
        assert 0 < len(held[-1]) <= CHUNK_ROWS, name


def test_chunks_continue_after_any_known_chunk(session: MySqlSession) -> None:
    """The chunks after the fourth are those of an unbroken search."""
    _filled(session)
    for name in ("texts", "times", "mixed"):
        key = _key(session, name)
        every = list(_chunks(session, name, key, CHUNK_ROWS))
        begin = every[3]
        assert list(_chunks(session, name, key, CHUNK_ROWS, begin=begin)) == every[4:]
        assert not list(_chunks(session, name, key, CHUNK_ROWS, begin=every[-1]))


def test_parts_of_a_chunk_hold_its_rows_once(session: MySqlSession) -> None:
    """Those of a chunk in the middle, and those of the last, begin and end where the chunk does."""
    _filled(session)
    for name in ("texts", "times", "downward", "mixed", "mixed_labels"):
        key = _key(session, name)
        for chunk in list(_chunks(session, name, key, 2 * CHUNK_ROWS + 1))[-2:]:
            found = list(
                parts(session.query, f"chunked.{name}", key, chunk, rows=lambda: CHUNK_ROWS)
            )
            held = [_keys(session, name, key, part) for part in found]
            assert list(chain(*held)) == _keys(session, name, key, chunk), name
            assert {len(rows) for rows in held[:-1]} <= {CHUNK_ROWS}, name
            assert (found[0].after, found[-1].through) == (chunk.after, chunk.through), name


def test_rows_that_come_later_are_in_known_chunks(session: MySqlSession) -> None:
    """Rows before the first, between all, and after the last key."""
    session.query("CREATE TABLE chunked.later (a INT PRIMARY KEY)")
    session.query("INSERT INTO chunked.later VALUES (10), (20), (30), (40), (50), (60)")
    key = _key(session, "later")
    found = list(_chunks(session, "later", key, 2))
    session.query("INSERT INTO chunked.later VALUES (-5), (25), (45), (1000)")
    held = [_keys(session, "later", key, chunk) for chunk in found]
    assert [len(rows) for rows in held] == [3, 3, 4]


def test_an_empty_table_is_one_chunk(session: MySqlSession) -> None:
    """Without borders."""
    session.query("CREATE TABLE chunked.nothing (a INT PRIMARY KEY)")
    key = _key(session, "nothing")
    assert list(_chunks(session, "nothing", key, 2)) == [Chunk(0)]


def test_borders_of_a_primary_key_read_only_the_index(session: MySqlSession) -> None:
    """The search from a border does not begin at the first row: it reads as many index entries as the chunk has."""
    session.query("CREATE TABLE chunked.big (a INT, b INT, v INT, PRIMARY KEY (a, b))")
    for number in range(20):
        values = ", ".join(f"({number}, {n}, 0)" for n in range(200))
        session.query(f"INSERT INTO chunked.big VALUES {values}")
    session.commit()
    key = _key(session, "big")
    session.query("FLUSH STATUS")
    found = list(islice(_chunks(session, "big", key, 100), 30))
    ((_, read),) = session.query("SHOW SESSION STATUS LIKE 'Handler_read_next'")
    assert found[-1].after == Border(("14", "99"))
    assert int(str(read)) < 30 * 2 * 100 + 100


@pytest.mark.parametrize("directions", ["a DESC, b", "a, b DESC", "a DESC, b DESC"])
def test_borders_of_descending_keys_sort_nothing(
    session: MySqlSession, target_server: DatabaseServer, directions: str
) -> None:
    """The order of the chunks is that of the index, or its reverse, and each look reads the rows of its chunk."""
    session.query(f"CREATE TABLE chunked.big (a INT, b INT, v INT, PRIMARY KEY ({directions}))")
    for number in range(20):
        values = ", ".join(f"({number}, {n}, 0)" for n in range(200))
        session.query(f"INSERT INTO chunked.big VALUES {values}")
    session.commit()
    session.query("ANALYZE TABLE chunked.big")
    key = _key(session, "big")
    with explained(target_server, "chunked") as plans:
        found = list(_chunks(session, "big", key, 150))
    assert len(found) == 27
    assert not [each for each in plans.accesses if "filesort" in each.extra], plans.accesses
    session.query("FLUSH STATUS")
    assert len(list(_chunks(session, "big", key, 150))) == 27
    read = session.query("SHOW SESSION STATUS LIKE 'Handler_read%'")
    assert sum(int(str(count)) for _, count in read) < 3 * 4_000
    held = [_keys(session, "big", key, chunk) for chunk in found]
    assert {len(rows) for rows in held[:-1]} == {150}
    assert len(set(chain(*held))) == 4_000


def test_hidden_and_hash_keys_divide_no_table(
    session: MySqlSession, target_server: DatabaseServer
) -> None:
    """The servers find no row by a key that is hidden from them, nor by MariaDB's hashes of long columns."""
    columns = "a INT NOT NULL, b INT NOT NULL, UNIQUE KEY z (b)"
    if session.flavour is Flavour.MARIADB:
        session.query(f"CREATE TABLE chunked.hidden ({columns}, UNIQUE KEY y (a) IGNORED)")
        long = "v VARCHAR(5000) NOT NULL, w TEXT NOT NULL, i INT NOT NULL"
        session.query(f"CREATE TABLE chunked.hashed ({long}, UNIQUE (v), UNIQUE (w), UNIQUE z (i))")
        session.query("CREATE TABLE chunked.only (v VARCHAR(5000) NOT NULL, UNIQUE (v))")
        assert _key(session, "hashed").name == "z"
        table = read_inventory(session, with_folds=False).tables["chunked", "only"]
        assert chunk_key(table.columns, table.unique_keys) is None
    else:
        session.query(f"CREATE TABLE chunked.hidden ({columns}, UNIQUE KEY y (a) INVISIBLE)")
    assert _key(session, "hidden").name == "z"


@pytest.mark.parametrize(
    ("columns", "values"),
    [
        ("k ENUM('z', 'a', 'm'), s SET('q', 'b'), i INT, PRIMARY KEY (k, s, i)", "n % 4, n % 3, n"),
        (f"k ENUM({_LABELS}), i INT, PRIMARY KEY (k, i)", "1 + n % 254, n"),
        (f"i INT, s SET({_MEMBERS}), j INT, PRIMARY KEY (i, s, j)", "n % 7, n % 256, n"),
        ("s SET('q', 'b', 'c'), PRIMARY KEY (s)", "n % 8"),
    ],
)
def test_chunk_of_labels_is_a_range_of_the_key(
    session: MySqlSession, target_server: DatabaseServer, columns: str, values: str
) -> None:
    """The servers find no value above or below a label by an index, so a chunk lists numbers. It holds each row once.

    A row is found by its key, too: by a number above what MySQL's comparison distinguishes as well.
    """
    session.query(f"CREATE TABLE chunked.labelled ({columns})")
    digits = " UNION ALL ".join(f"SELECT {digit} AS d" for digit in range(10))
    session.query(f"CREATE TABLE chunked.digit AS {digits}")
    session.query("SET SESSION sql_mode = ''")  # for index 0 of an ENUM
    place = " + ".join(f"{10**power} * t{power}.d" for power in range(5))
    digit_tables = ", ".join(f"chunked.digit t{power}" for power in range(5))
    session.query(
        f"INSERT IGNORE INTO chunked.labelled SELECT {values} FROM (SELECT {place} AS n"
        f" FROM {digit_tables} WHERE t4.d < {LABELLED_ROWS // 10_000}) AS source"
    )
    session.commit()
    session.query("ANALYZE TABLE chunked.labelled")
    key, name = _key(session, "labelled"), table_name("chunked", "labelled").decode()
    count = _count(session, name, "TRUE")
    rows = min(LABELLED_CHUNK, count // 4)
    found = list(chunks(session.query, name, key, rows=lambda: rows))
    held = [_count(session, name, chunk.where(key)) for chunk in found]
    assert held[:-1] == [rows] * (len(found) - 1)
    assert sum(held) == count
    half = len(found) // 2  # near the begin, a range and the whole index are nearly the same
    with explained(target_server, "chunked") as plans:
        assert list(chunks(session.query, name, key, rows=lambda: rows, begin=found[half]))
        for chunk in found[half:]:
            _count(session, name, chunk.where(key))
        for chunk in found[:-1]:
            assert chunk.through is not None
            named = " AND ".join(
                column.equals(text)
                for column, text in zip(key.columns, chunk.through.texts, strict=True)
            )
            assert _count(session, name, named) == 1
    if count > LABELLED_CHUNK:  # a table of 8 rows may be scanned
        assert not [each for each in plans.accesses if each.kind in ("ALL", "index")]


def _count(session: MySqlSession, name: str, where: str) -> int:
    ((count,),) = session.query(f"SELECT COUNT(*) FROM {name} WHERE {where}")
    assert isinstance(count, int)
    return count
