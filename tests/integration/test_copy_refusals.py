"""A copy that can't be exact is refused on a real server: with a code, and with nothing committed."""

from collections.abc import Iterator

import pytest

from millrace.consumer.copy import copy_chunk
from millrace.deploy.servers import DatabaseServer
from millrace.errors import Fatal, MillraceError, Retryable
from millrace.schemas.gtid import Flavour
from tests.kit.apply.copying import ALL, Copying, copying


@pytest.fixture
def copies(target_server: DatabaseServer) -> Iterator[Copying]:
    """Both databases on one server."""
    with copying(target_server, target_server) as made:
        yield made


def _refused(copies: Copying, table: str, *, loads: bool = True) -> MillraceError:
    with pytest.raises(Fatal) as caught:
        copies.copy(table, "id > 0", loads=loads)
    copies.target.rollback()
    assert copies.target.query(f"SELECT COUNT(*) FROM {table}") == [(0,)]
    return caught.value


@pytest.mark.parametrize("loads", [True, False])
@pytest.mark.parametrize(
    ("ours", "theirs", "value", "why"),
    [
        ("VARCHAR(9)", "VARCHAR(2)", "'long'", "column 'v'"),
        ("INT", "TINYINT", "300", "Out of range"),
        ("DECIMAL(9,4)", "DECIMAL(9,2)", "1.2345", "truncated"),
        ("VARCHAR(9)", "VARCHAR(9) CHARACTER SET latin1", "'日'", "Incorrect string"),
        ("VARCHAR(9) CHARACTER SET sjis", "VARCHAR(9)", "x'F040'", ""),
        ("INT", "INT NOT NULL", "NULL", "NULL"),
        ("TIMESTAMP NULL", "TIMESTAMP NOT NULL", "NULL", "NULL"),
        ("ENUM('a','b')", "ENUM('b','c')", "'a'", "truncated"),
        ("SET('a','b')", "SET('b','c')", "'a,b'", ""),
    ],
)
def test_row_that_the_target_would_change_is_refused(
    copies: Copying, ours: str, theirs: str, value: str, why: str, *, loads: bool
) -> None:
    """By LOAD DATA, which reports them as warnings, and by INSERT. The error names the table and the chunk."""
    copies.source.query(f"CREATE TABLE t (id INT PRIMARY KEY, v {ours})")
    copies.target.query(f"CREATE TABLE t (id INT PRIMARY KEY, v {theirs})")
    copies.fill(f"INSERT INTO t VALUES (1, {value})")
    error = _refused(copies, "t", loads=loads)
    assert error.code == "MR-5080"
    assert why.lower() in error.message.lower()
    assert error.context["chunk"] == "id > 0"


@pytest.mark.both_flavours
@pytest.mark.parametrize("loads", [True, False])
def test_row_that_breaks_a_check_is_copied(copies: Copying, *, loads: bool) -> None:
    """The source has it, from a session without checks of constraints. MySQL can't switch them off."""
    copies.source.query("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    copies.target.query("CREATE TABLE t (id INT PRIMARY KEY, v INT CHECK (v < 5))")
    copies.fill("INSERT INTO t VALUES (1, 7)")
    if copies.target.flavour is Flavour.MARIADB:
        copies.copy("t", "id > 0", loads=loads)
        assert copies.target.query("SELECT v FROM t") == [(7,)]
    else:
        error = _refused(copies, "t", loads=loads)
        assert error.code == "MR-5080"
        assert "constraint" in error.message


@pytest.mark.parametrize("loads", [True, False])
def test_row_that_exists_is_refused_with_its_key(copies: Copying, *, loads: bool) -> None:
    """The unique key is named."""
    copies.create("CREATE TABLE t (id INT PRIMARY KEY, v INT, UNIQUE KEY second (v))")
    copies.fill("INSERT INTO t VALUES (1, 10), (2, 20)")
    copies.target.query("INSERT INTO t VALUES (5, 20)")
    with pytest.raises(Fatal) as caught:
        copies.copy("t", loads=loads)
    assert caught.value.code == "MR-5081"
    assert "'20'" in caught.value.message
    assert "second" in caught.value.message


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("INT", "DATE"),
        ("VARCHAR(5)", "INT"),
        ("BLOB", "TEXT"),
        ("TEXT CHARACTER SET latin1", "BLOB"),
        ("ENUM('a')", "SET('a')"),
        ("INT", "BIT(8)"),
    ],
)
def test_column_of_another_kind_is_refused(copies: Copying, ours: str, theirs: str) -> None:
    """Before anything is read."""
    copies.source.query(f"CREATE TABLE t (id INT PRIMARY KEY, v {ours})")
    copies.target.query(f"CREATE TABLE t (id INT PRIMARY KEY, v {theirs})")
    with pytest.raises(Fatal) as caught:
        copies.pair("t")
    assert caught.value.code == "MR-5082"
    assert caught.value.context["column"] == "v"


def test_missing_column_and_lax_engine_are_refused(copies: Copying) -> None:
    """A column that the target generates is not missed."""
    copies.source.query("CREATE TABLE a (id INT PRIMARY KEY, v INT)")
    copies.target.query("CREATE TABLE a (id INT PRIMARY KEY)")
    copies.create("CREATE TABLE b (id INT PRIMARY KEY)", also="ALTER TABLE b ENGINE=MyISAM")
    for table, code in (("a", "MR-5013"), ("b", "MR-5015")):
        with pytest.raises(Fatal) as caught:
            copies.pair(table)
        assert caught.value.code == code


def test_switched_off_load_is_retried_by_insert(
    copies: Copying, target_server: DatabaseServer
) -> None:
    """The pair was made while it was on."""
    copies.create("CREATE TABLE t (id INT PRIMARY KEY)")
    copies.fill("INSERT INTO t VALUES (1)")
    pair = copies.pair("t")
    target_server.execute("SET GLOBAL local_infile = OFF")
    try:
        with pytest.raises(Retryable) as caught:
            copy_chunk(copies.source, copies.target, pair, ALL)
        assert caught.value.code == "MR-5083"
        assert copies.copy("t").rows == 1
    finally:
        target_server.execute("SET GLOBAL local_infile = ON")


def test_error_of_the_source_inside_a_result_is_raised(copies: Copying) -> None:
    """After rows that were sent. The source's session can be used again; the target's has to be opened again."""
    copies.create("CREATE TABLE t (id INT PRIMARY KEY, v LONGTEXT)")
    rows = ", ".join(f"({n}, REPEAT('x', 100000))" for n in range(20))
    copies.fill(f"INSERT INTO t VALUES {rows}, (1000, 'too large for EXP')")
    with pytest.raises(Fatal) as caught:
        copies.copy("t", "EXP(id) > 0")
    assert caught.value.context["errno"] == "1690"
    assert copies.source.query("SELECT COUNT(*) FROM t") == [(21,)]
    assert not copies.target.is_open


def test_lost_source_is_retryable(
    copies: Copying, target_server: DatabaseServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The result is larger than what the sockets hold."""
    copies.create("CREATE TABLE t (id INT PRIMARY KEY, v LONGTEXT)")
    for first in range(0, 40, 20):
        rows = ", ".join(f"({n}, REPEAT('x', 1000000))" for n in range(first, first + 20))
        copies.fill(f"INSERT INTO t VALUES {rows}")
    begin, source_id = copies.target.begin_load, copies.source.id

    def begin_and_kill(sql: bytes) -> object:
        target_server.execute(f"KILL {source_id}")
        return begin(sql)

    monkeypatch.setattr(copies.target, "begin_load", begin_and_kill)
    with pytest.raises(Retryable) as caught:
        copies.copy("t")
    assert caught.value.code == "MR-5001"
    assert not copies.source.is_open
