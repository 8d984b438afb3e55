"""Loads under a view, on a source and a target of both flavours: the target is judged by SELECTs."""

import hashlib
import hmac
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from millrace.consumer.target.stored_view import insert_view
from millrace.deploy.servers import DatabaseServer
from millrace.drivers.mysql.connection import connect
from millrace.errors import Fatal
from millrace.schemas.documents import LoadRules
from millrace.schemas.view.view import Mask, MaskKind, TableRule, View
from tests.fixtures.load import load_rig, source_of_one
from tests.fixtures.servers import Pool
from tests.kit.apply.loading import LoadRig
from tests.kit.apply.local import endpoint_of

pytestmark = [pytest.mark.usefixtures("target_password"), pytest.mark.both_flavours]

NAME, HOUSE = "viewed", "viewed_house"
SALT = "salt of a test"
PEOPLE = (
    "id INT NOT NULL AUTO_INCREMENT, mail VARCHAR(40) NOT NULL COMMENT 'planted', nick VARCHAR(20),"
    " card CHAR(8) NOT NULL DEFAULT 'planted', note TEXT, state VARCHAR(10), born DATE, raw VARBINARY(9),"
    " size DECIMAL(8,2), seen TIMESTAMP(3) NULL, bits BIT(9), num INT, twice INT GENERATED ALWAYS AS (num * 2) VIRTUAL,"
    " low VARCHAR(40) GENERATED ALWAYS AS (LOWER(nick)) STORED, PRIMARY KEY (id), UNIQUE KEY by_mail (mail),"
    " KEY by_note (note(5)), KEY by_nick (nick), CHECK (state <> 'never')"
)
BAG = "n INT, body VARCHAR(20)"
RULES = LoadRules(chunk_rows=20, parallel=2)


@pytest.fixture
def rig(single_server: DatabaseServer, pool: Pool, tmp_path: Path) -> Iterator[LoadRig]:
    """Two tables: people have a key, the bag has none."""
    source = source_of_one(pool, single_server.flavour)
    (secret := tmp_path / "salt").write_text(SALT)
    with load_rig(pool, source, NAME) as rig:
        rig.target.execute(f"DROP DATABASE IF EXISTS {HOUSE}")
        rig.view = _view(secret)
        rig.source.execute(f"ALTER DATABASE {NAME} CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")
        rig.source.execute(f"CREATE TABLE {NAME}.people ({PEOPLE})")
        rig.source.execute(f"CREATE TABLE {NAME}.bag ({BAG})")
        for number in range(1, 101):
            row = (
                *(number, f"Mäil {number}", f"Nick{number}", f"planted {number}"),
                *(("paid", "open", None)[number % 3], "2026-01-31", bytes([number, 0]), number / 8),
            )
            rig.source.execute(
                f"INSERT INTO {NAME}.people (id, mail, nick, note, state, born, raw, size, num, seen, bits)"
                " VALUES (%s, %s, %s, %s, %s, %s, %s, %s, id, '2026-01-31 10:00:00.125', 5)",
                row,
            )
            rig.source.execute(f"INSERT INTO {NAME}.bag VALUES ({number % 7}, 'b{number % 5}')")
        yield rig
        rig.target.execute(f"DROP DATABASE IF EXISTS {HOUSE}")


def _view(secret: Path) -> View:
    mask = Mask(MaskKind.HMAC, secret=f"file:{secret}")
    people = TableRule(
        f"{NAME}.people",
        f"{HOUSE}.users",
        where="state = 'paid' AND id % 2 = 0",
        drop=("note", "low"),
        rename=(("mail", "email"), ("id", "user")),
        add=(("shard", "{database}"), ("part", -3)),
        masks=(
            ("email", mask),
            ("nick", Mask(MaskKind.TRUNCATE, length=2)),
            ("card", Mask(MaskKind.REDACT)),
        ),
    )
    return View((people, TableRule(f"{NAME}.bag", f"{HOUSE}.sack", where="n <> 3")))


def _digest(text: str) -> str:
    return hmac.new(SALT.encode(), text.encode(), hashlib.sha256).hexdigest()


USERS = "SELECT user, email, nick, card, state, shard, part, twice FROM {}.users ORDER BY user"


def _wanted(rig: LoadRig) -> list[tuple[object, ...]]:
    rows = rig.source.primary.execute(
        f"SELECT id, mail, nick, state FROM {NAME}.people WHERE state = 'paid' AND id % 2 = 0 ORDER BY id"
    )
    return [
        (number, _digest(str(mail)), str(nick)[:2], "", state, NAME, -3, 2 * int(str(number)))
        for number, mail, nick, state in rows
    ]


def test_table_is_created_and_has_the_rows_of_the_view(rig: LoadRig) -> None:
    """Names, columns, rows, masks and constants, in chunks and in a snapshot; nothing hidden reaches the target."""
    log = _general_log(rig.target)
    assert rig.load(rules=RULES) is not None
    assert rig.target.execute(USERS.format(HOUSE)) == _wanted(rig)
    bag = "SELECT n, body, COUNT(*) FROM {} {} GROUP BY n, body ORDER BY n, body"
    assert rig.target.execute(bag.format(f"{HOUSE}.sack", "")) == rig.source.primary.execute(
        bag.format(f"{NAME}.bag", "WHERE n <> 3")
    )
    assert rig.target.execute(f"SHOW TABLES IN {HOUSE}") == [("sack",), ("users",)]
    ((_, created),) = rig.target.execute(f"SHOW CREATE TABLE {HOUSE}.users")
    assert "KEY `by_nick` (`nick`)" in str(created)
    assert "by_mail" not in str(created)  # two texts that the collation calls equal have two HMACs
    assert "planted" not in str(created)
    assert "by_note" not in str(created)
    everything = [
        str(row)
        for (table,) in rig.target.execute("SHOW TABLES IN millrace")
        for row in rig.target.execute(f"SELECT * FROM millrace.{table} WHERE task LIKE '{NAME}%'")
    ]
    text = "\n".join([*everything, *log()])
    assert HOUSE in text
    for hidden in (SALT, "planted", "Mäil", "Nick1"):
        assert hidden not in text
    source_log = _general_log(rig.source.primary)
    assert rig.load_again("people") is not None
    assert SALT not in "\n".join(source_log())


def _general_log(server: DatabaseServer):  # type: ignore[no-untyped-def]
    server.execute("SET GLOBAL log_output = 'TABLE'")
    server.execute("SET GLOBAL general_log = 1")
    ((begin,),) = server.execute("SELECT COALESCE(MAX(event_time), 0) FROM mysql.general_log")

    def read() -> list[str]:
        server.execute("SET GLOBAL general_log = 0")
        rows = server.execute(
            "SELECT argument FROM mysql.general_log WHERE event_time >= %s", (begin,)
        )
        return [row[0].decode() if isinstance(row[0], bytes) else str(row[0]) for row in rows]

    return read


def test_existing_table_takes_wider_and_more_columns(rig: LoadRig) -> None:
    """It keeps its own column; it is read in one snapshot, because a REPLACE would take the column's value."""
    rig.target.execute(f"CREATE DATABASE {HOUSE}")
    rig.target.execute(
        f"CREATE TABLE {HOUSE}.users (own INT DEFAULT 7, email CHAR(70) NOT NULL, user BIGINT PRIMARY KEY,"
        " nick VARCHAR(50), card VARCHAR(90), state VARCHAR(99), born DATE, raw BLOB, size DECIMAL(20,4),"
        " seen DATETIME(6), bits BIGINT, num BIGINT, twice BIGINT, shard VARCHAR(99), part INT)"
    )
    assert rig.load(rules=RULES) is not None
    assert rig.target.execute(USERS.format(HOUSE)) == _wanted(rig)
    assert rig.target.execute(f"SELECT DISTINCT own FROM {HOUSE}.users") == [(7,)]
    table = rig.tables()[NAME, "people"]
    assert (table.is_exact, table.detail) == (True, "only the target has the column own")
    assert table.structure.startswith("sha256:")


@pytest.mark.parametrize(
    ("columns", "code"),
    [
        ("user INT PRIMARY KEY", "MR-5013"),
        (None, "MR-5206"),
    ],
)
def test_table_that_does_not_fit_is_refused(rig: LoadRig, columns: str | None, code: str) -> None:
    """By name, before a row is copied; nothing is stored."""
    rig.target.execute(f"CREATE DATABASE {HOUSE}")
    fitting = (
        "needed INT NOT NULL, email CHAR(70), user BIGINT PRIMARY KEY, nick TEXT, card TEXT, state TEXT, born DATE,"
        " raw BLOB, size DECIMAL(20,4), seen DATETIME(6), bits BIGINT, num BIGINT, twice BIGINT, shard TEXT, part INT"
    )
    rig.target.execute(f"CREATE TABLE {HOUSE}.users ({columns or fitting})")
    with pytest.raises(Fatal, match=rf"{NAME}\.people \({HOUSE}\.users\)") as caught:
        rig.load()
    assert caught.value.code == code
    assert rig.tables() == {}


def test_table_of_another_task_is_not_emptied(rig: LoadRig) -> None:
    """Its view names the same table. Nothing is deleted."""
    assert rig.run(rules=RULES)
    with closing(connect(endpoint_of(rig.target))) as session:
        view = View((TableRule("other.*", f"{HOUSE}.{{table}}"),))
        insert_view(session, "another", view, begin_seq=1)
        session.commit()
    try:
        with pytest.raises(Fatal, match=r"MR-5207 another may write viewed_house\.users"):
            rig.load_again("people")
    finally:
        rig.target.execute("DELETE FROM millrace.view WHERE task = 'another'")
    assert rig.target.execute(USERS.format(HOUSE)) == _wanted(rig)


def test_view_is_that_of_the_first_run(rig: LoadRig) -> None:
    """A load that was planned under one view is not continued under another one."""
    kept = rig.view
    stop = threading.Event()
    stop.set()
    assert rig.load(stop=stop) is None
    rig.view = View((TableRule(f"{NAME}.people", f"{HOUSE}.others"),))
    with pytest.raises(Fatal, match="MR-5209"):
        rig.load()
    rig.view = kept
    assert rig.load(rules=RULES) is not None
    assert rig.target.execute(USERS.format(HOUSE)) == _wanted(rig)


def test_later_load_removes_rows_that_left_the_view(rig: LoadRig) -> None:
    """It empties the table, which is not dropped. Rows of another task there are kept: it is refused."""
    assert rig.run(rules=RULES)
    rig.target.execute(f"ALTER TABLE {HOUSE}.users ADD COLUMN own INT DEFAULT 3")
    rig.source.execute(f"UPDATE {NAME}.people SET state = 'open' WHERE id < 50")
    rig.source.execute(f"UPDATE {NAME}.people SET state = 'paid' WHERE id > 60")
    assert rig.load_again("people") is not None
    assert rig.target.execute(USERS.format(HOUSE)) == _wanted(rig)
    assert rig.target.execute(f"SELECT DISTINCT own FROM {HOUSE}.users") == [(3,)]


KINDS = {  # the bytes of docs/views.md for each value
    "a INT(8) ZEROFILL": ("42", b"42"),
    "b DECIMAL(8,3) ZEROFILL": ("1.5", b"1.500"),
    "c DECIMAL(6,2)": ("-0.5", b"-0.50"),
    "d YEAR": ("2026", b"2026"),
    "e DATE": ("'2026-01-31'", b"2026-01-31"),
    "f TIME(2)": ("'-01:02:03.5'", b"-01:02:03.50"),
    "g DATETIME(3)": ("'2026-01-31 10:00:00.125'", b"2026-01-31 10:00:00.125"),
    "h TIMESTAMP NULL": ("'2026-01-31 10:00:00'", b"2026-01-31 10:00:00"),
    "i VARCHAR(9) CHARACTER SET latin1": ("'Mäil'", "Mäil".encode()),
    "j VARBINARY(9)": ("x'00ff'", b"\x00\xff"),
    "k BINARY(4)": ("x'0a'", b"\x0a\0\0\0"),
    "l BIT(12)": ("2049", b"2049"),
    "m BIGINT UNSIGNED": ("18446744073709551615", b"18446744073709551615"),
    "n LONGTEXT": ("REPEAT('x', 17000000)", b"x" * 17_000_000),
    "o TINYINT": ("NULL", None),
}


def test_each_type_has_the_documented_hmac(rig: LoadRig, tmp_path: Path) -> None:
    """Also the value of a row of several packets, and NULL."""
    assert rig.view is not None
    mask = Mask(MaskKind.HMAC, secret=f"file:{tmp_path / 'salt'}")
    names = [kind[0] for kind in KINDS]
    rule = TableRule(f"{NAME}.kinds", f"{HOUSE}.kinds", masks=tuple((name, mask) for name in names))
    rig.view = View((rule,))
    rig.source.execute("SET GLOBAL max_allowed_packet = 67108864")
    rig.source.execute(f"CREATE TABLE {NAME}.kinds (id INT PRIMARY KEY, {', '.join(KINDS)})")
    values = ", ".join(sql for sql, _ in KINDS.values())
    rig.source.execute(f"INSERT INTO {NAME}.kinds VALUES (1, {values})")
    assert rig.load() is not None
    (found,) = rig.target.execute(f"SELECT {', '.join(names)} FROM {HOUSE}.kinds")
    wanted = [
        None if text is None else hmac.new(SALT.encode(), text, hashlib.sha256).hexdigest()
        for _, text in KINDS.values()
    ]
    assert dict(zip(names, found, strict=True)) == dict(zip(names, wanted, strict=True))
