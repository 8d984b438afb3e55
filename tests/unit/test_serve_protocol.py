"""The protocol of a served relay log: logins, statements, requests, addresses. PyMySQL is the oracle of passwords."""

import re
import struct
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pymysql._auth import scramble_caching_sha2, scramble_native_password

from millrace.cli.relay.serve import parse_address
from millrace.errors import Fatal
from millrace.producer.relay.layout import Subdir
from millrace.producer.relay.notes import read_source_note, write_source_note
from millrace.producer.serve.artificial import sign_of_life
from millrace.producer.serve.catalogue import served_name
from millrace.producer.serve.login import NATIVE, SHA2, ServedAccount, new_scramble, scrambled
from millrace.producer.serve.requests import (
    check_capability,
    parse_dump,
    parse_gtid_dump,
    parse_registration,
)
from millrace.producer.serve.server import ServeOptions, check_exposure, tls_context
from millrace.producer.serve.statements import (
    Assign,
    Call,
    Expression,
    Literal,
    Nothing,
    Select,
    Show,
    Statement,
    System,
    User,
    is_like,
    parse_statement,
)
from millrace.producer.serve.variables import printed
from millrace.producer.serve.wire import Disconnected, Refusal, packed_number, take_packed_number
from millrace.schemas.documents.secret import SecretReference
from millrace.schemas.gtid import Flavour, GtidSet, MariadbGtidSet, parse_gtid_set
from tests.kit.relay.stream import dump_request, encoded_gtids, gtid_request

PASSWORD = "pässword".encode()
CHECKSUM = {"source_binlog_checksum": "CRC32"}


def test_password_proofs_equal_a_clients() -> None:
    """Both plugins; the scramble has no zero byte."""
    for _ in range(50):
        scramble = new_scramble()
        assert len(scramble) == 20
        assert 0 not in scramble
        native = scramble_native_password(PASSWORD, scramble)
        assert scrambled(PASSWORD, scramble, NATIVE) == native
        sha2 = scramble_caching_sha2(PASSWORD, scramble)
        assert scrambled(PASSWORD, scramble, SHA2) == sha2
    assert scrambled(b"", new_scramble(), SHA2) == b""


@pytest.mark.parametrize("number", [0, 250, 251, 65_535, 65_536, 2**24 - 1, 2**24, 2**40])
def test_packed_numbers_are_read_back(number: int) -> None:
    """At the limits of each length; a cut one is refused."""
    packed = packed_number(number)
    assert take_packed_number(packed, 0) == (number, len(packed))
    with pytest.raises(Disconnected):
        take_packed_number(packed[:-1], 0)


def system(name: str, *, is_global: bool = False) -> Expression:
    """For short expectations."""
    return System(name, is_global)


SUBTRACT = Call("GTID_SUBTRACT", (Literal("a:1"), System("gtid_executed")))


@pytest.mark.parametrize(
    ("sql", "parsed"),
    [
        ("SELECT VERSION()", Select((("VERSION()", Call("VERSION", ())),))),
        (
            "/* driver */ SELECT @@GLOBAL.gtid_mode AS `m`, @@version_comment limit 1;",
            Select((("m", system("gtid_mode", is_global=True)), ("@@version_comment", system("version_comment")))),
        ),
        ("select @x y, 'it''s' from dual", Select((("y", User("x")), ("'it''s'", Literal("it's"))))),
        (
            "SELECT GTID_SUBTRACT('a:1', @@gtid_executed)",
            Select((("GTID_SUBTRACT('a:1', @@gtid_executed)", SUBTRACT),)),
        ),
        (
            "SET @master_heartbeat_period= 30000001024, @slave_uuid='u'",
            Assign(((User("master_heartbeat_period"), Literal(30000001024)), (User("slave_uuid"), Literal("u")))),
        ),
        ("SET GLOBAL read_only := 1", Assign(((System("read_only", is_global=True), Literal(1)),))),
        ("SET sql_mode=ANSI", Assign(((System("sql_mode"), Literal("ANSI")),))),
        ("SET NAMES utf8mb4 COLLATE utf8mb4_bin", Assign(())),
        ("SET SESSION TRANSACTION READ ONLY", Assign(())),
        ("SHOW VARIABLES LIKE 'SERVER_ID'", Show("VARIABLES", like="SERVER_ID")),
        (
            "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('log_bin','Gtid_mode') OR variable_name = 'x'",
            Show("VARIABLES", names=("log_bin", "gtid_mode", "x")),
        ),
        ("SHOW BINARY LOGS", Show("BINARY LOGS")),
        ("SHOW BINLOG EVENTS IN 'f.1' FROM 4 LIMIT 2", Show("BINLOG EVENTS", file="f.1", pos=4, limit=2)),
        ("START TRANSACTION", Nothing()),
        ("commit", Nothing()),
    ],
)  # fmt: skip
def test_statements_of_clients_are_parsed(sql: str, parsed: Statement) -> None:
    """The statements of replicas, programs and drivers."""
    assert parse_statement(sql) == parsed


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT", "SELECT * FROM t", "SELECT 1 FROM mysql.user", "INSERT INTO t VALUES (1)", "SELECT 1; DROP TABLE t",
        "SET @a = ", "SHOW", "DELETE", "SELECT 'open", "SHOW VARIABLES WHERE Value = 'x'", "SELECT f(", "\\",
        "SELECT " + "f(" * 5000, "SELECT " + "9" * 5000, "SELECT ٣", "SELECT '" + "a" * 300,
    ],
)  # fmt: skip
def test_other_statements_are_refused(sql: str) -> None:
    """With error 1235; SHOW alone parses and has no rows."""
    if sql == "SHOW":
        assert parse_statement(sql) == Show("")
        return
    with pytest.raises(Refusal) as refused:
        parse_statement(sql)
    assert refused.value.number == 1235


def test_like_patterns_match_as_on_a_server() -> None:
    """Without regard to case; an escaped wildcard is a letter."""
    assert is_like("server_id", "SERVER_ID")
    assert is_like("GTID_MODE", "gtid%")
    assert not is_like("serverxid", "server\\_id")
    assert is_like("server_id", "server\\_id")
    assert is_like("a%c", "a\\%c")
    assert is_like("", "%%")
    assert not is_like("", "_")


@given(text=st.text("aB_%", max_size=8), pattern=st.text("ab_%\\", max_size=8))
def test_like_matches_as_the_regular_expression(text: str, pattern: str) -> None:
    """Both judge the same pattern."""
    expression = re.sub(
        r"\\(.?)|(%)|(_)|(.)",
        lambda m: re.escape(m[1] or m[4] or "") if not (m[2] or m[3]) else ".*" if m[2] else ".",
        pattern,
    )
    assert is_like(text, pattern) == bool(re.fullmatch(expression, text, re.IGNORECASE))


def test_like_pattern_with_many_wildcards_is_quick() -> None:
    """A client may send any; a regular expression takes exponential time here, and holds the interpreter."""
    assert not is_like("a" * 2_000, "%a" * 500 + "%x")
    assert is_like("a" * 2_000, "%a" * 500 + "%")


def test_position_beyond_4_gib_is_not_cut() -> None:
    """A replica stops at a heartbeat with a position before its own."""
    for pos, kind in ((4, 27), (0xFFFFFFFF, 27), (1 << 32, 4), ((1 << 40) + 7, 4)):
        event = sign_of_life(1, "f.000001", pos)
        assert event[4] == kind
        shown = event[13:17] if kind == 27 else event[19:27]
        assert int.from_bytes(shown, "little") == pos


def test_dump_requests_are_parsed() -> None:
    """By position, by GTID, and by MariaDB's position."""
    found = parse_dump(dump_request(file="f.1", pos=7, server_id=9), CHECKSUM, Flavour.MYSQL)
    assert (found.file, found.pos, found.server_id, found.is_endless) == ("f.1", 7, 9, False)
    uuid = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
    found = parse_gtid_dump(gtid_request(encoded_gtids(f"{uuid}:1-3:7")), CHECKSUM)
    assert found.done == GtidSet.parse(f"{uuid}:1-3:7")
    variables = CHECKSUM | {"slave_connect_state": "0-1-5", "master_heartbeat_period": "500000000"}
    found = parse_dump(dump_request(file="", flags=0), variables, Flavour.MARIADB)
    assert found.done == MariadbGtidSet.parse("0-1-5")
    assert found.heartbeat_s == 0.5
    assert found.is_endless
    host = b"\x09\x00\x00\x00\x02ab\x00\x00" + struct.pack("<HII", 3306, 0, 0)
    registered = parse_registration(host, "u")
    assert (registered.server_id, registered.host, registered.port) == (9, "ab", 3306)


@pytest.mark.parametrize(
    ("variables", "text"),
    [
        ({}, "can not handle replication events with the checksum"),
        (CHECKSUM | {"slave_connect_state": "x"}, "slave_connect_state"),
    ],
)
def test_unusable_dump_requests_are_refused(variables: dict[str, str], text: str) -> None:
    """With error 1236; malformed ones with another."""
    with pytest.raises(Refusal, match=text):
        parse_dump(dump_request(file="f.1"), variables, Flavour.MARIADB)
    for body in (b"", b"\x01\x02\x03"):
        with pytest.raises(Refusal, match="Malformed"):
            parse_dump(body, CHECKSUM, Flavour.MYSQL)
        with pytest.raises(Refusal, match="Malformed"):
            parse_gtid_dump(body, CHECKSUM)
    with pytest.raises(Refusal, match="malformed"):
        parse_gtid_dump(gtid_request(b"\xff" * 9), CHECKSUM)
    with pytest.raises(Refusal, match="capability"):
        check_capability({"mariadb_slave_capability": 2}, Flavour.MARIADB)


def test_served_names_differ_between_sub_directories() -> None:
    """The number stays at the end, where clients look for it."""
    assert served_name(Subdir("a", 1), "mysql-bin.000017") == "mysql-bin-000001.000017"
    assert served_name(Subdir("b", 2), "mysql-bin.000017") == "mysql-bin-000002.000017"


@pytest.mark.guarantee("secret")
def test_unprotected_address_is_refused(tmp_path: Path) -> None:
    """Beyond loopback, TLS and a password are needed."""
    reference = SecretReference.parse("env:PASSWORD")
    closed, open_ = ServedAccount("replica", reference), ServedAccount("replica", None)
    pem = tmp_path / "pem"
    for host in ("127.0.0.1", "::1", "localhost"):
        check_exposure(ServeOptions(host=host, port=0, account=open_))
    for host in ("0.0.0.0", "10.0.0.1", "::", "db.example"):
        for options in (
            ServeOptions(host=host, port=0, account=closed),
            ServeOptions(host=host, port=0, account=open_, certificate=pem, key=pem),
        ):
            with pytest.raises(Fatal) as refused:
                check_exposure(options)
            assert refused.value.code == "MR-2020"
    check_exposure(ServeOptions(host="0.0.0.0", port=0, account=closed, certificate=pem, key=pem))


def test_unusable_certificate_is_refused(tmp_path: Path) -> None:
    """Missing, without a key, or no certificate."""
    pem = tmp_path / "pem"
    pem.write_text("no certificate")
    for pair in ((pem, None), (None, pem), (tmp_path / "none", pem), (pem, pem)):
        with pytest.raises(Fatal) as refused:
            tls_context(*pair)
        assert refused.value.code == "MR-2021"
    assert tls_context(None, None) is None


def test_malformed_address_is_refused() -> None:
    """HOST:PORT, with brackets around an IPv6 address."""
    assert parse_address("127.0.0.1:3307") == ("127.0.0.1", 3307)
    assert parse_address("[::1]:0") == ("::1", 0)
    for text in ("3307", ":3307", "host:", "host:70000", "host:x"):
        with pytest.raises(Fatal) as refused:
            parse_address(text)
        assert refused.value.code == "MR-2022"


def test_source_note_is_read_back(tmp_path: Path) -> None:
    """Without a note, or with a damaged one, names are taken as they are."""
    assert read_source_note(tmp_path) == 0
    write_source_note(tmp_path, folds_names=True)
    assert read_source_note(tmp_path) == 1
    (tmp_path / "relay.source").write_text("{")
    assert read_source_note(tmp_path) == 0


def test_gtid_set_of_several_sources_is_printed_as_mysql_does() -> None:
    """MySQL begins a line for each source; its own clients, and this set's parser, take both forms."""
    first, second = f"{UUID(int=1)}:1-5", f"{UUID(int=2)}:1-2"
    position = parse_gtid_set(Flavour.MYSQL, f"{first},{second}")
    assert printed(position) == f"{first},\n{second}"
    assert parse_gtid_set(Flavour.MYSQL, printed(position)) == position
    assert printed(parse_gtid_set(Flavour.MARIADB, "0-1-5,1-2-3")) == "0-1-5,1-2-3"
