"""STORED generated columns whose value depended on the source's session: never another value without an error."""

from collections.abc import Iterator
from itertools import count

import pytest

from millrace.deploy.servers import DatabaseServer
from millrace.errors import Fatal
from millrace.schemas.gtid import Flavour
from tests.kit.apply.local import apply_task, run_once
from tests.kit.apply.topic import RecordStream
from tests.kit.binlog.session import LoggedSession, logged
from tests.kit.capture.converter import raw_records

DATABASE = "session_values"
ZONE = "SET time_zone = '+09:00'"
ON_MYSQL = (
    ", tm TIME(3) AS (TIME(ts)) STORED, x VARCHAR(20) AS (CONCAT(c, 'Ä')) STORED,"
    " b VARBINARY(20) AS (CONCAT(c, 'x')) STORED, g FLOAT AS (f / 3) STORED, p DOUBLE AS (f / 7) STORED,"
    " q DECIMAL(20, 9) AS (f / 7) STORED"
)
_tasks = count(1)


@pytest.fixture
def source(
    request: pytest.FixtureRequest, target_server: DatabaseServer
) -> Iterator[LoggedSession]:
    """A session on a server of the target's flavor."""
    server = request.getfixturevalue(f"{target_server.flavour}_server")
    with logged(server, DATABASE) as found:
        yield found
    target_server.execute(f"DROP DATABASE IF EXISTS {DATABASE}")


def _stream(source: LoggedSession) -> RecordStream:
    values = [v for batch in source.conversion().batches() for _, v in raw_records(batch)]
    return RecordStream(flavour=source.server.flavour, values=values)


def _task() -> str:
    return f"session_values{next(_tasks)}"


@pytest.mark.parametrize("rows", [1, 3, 150], ids=["single", "statement", "load"])
@pytest.mark.parametrize("is_large", [True, False], ids=["lanes", "lane"])
def test_value_of_another_time_zone_stops(
    source: LoggedSession, target_server: DatabaseServer, rows: int, is_large: bool
) -> None:
    """After the fix of the error, a plain column, the target has the source's values."""
    source.run(
        "CREATE TABLE t (id INT PRIMARY KEY, ts TIMESTAMP NULL, d DATE AS (DATE(ts)) STORED, n INT)",
        ZONE,
        *(f"INSERT INTO t (id, ts) VALUES ({at}, '2024-01-01 00:30:00')" for at in range(rows)),
        "UPDATE t SET n = 1",
    )
    stream, task = _stream(source), _task()
    with pytest.raises(Fatal) as caught:
        run_once(target_server, apply_task(task), stream, is_large=is_large)
    assert caught.value.code == "MR-5017"
    assert f"d of {DATABASE}.t" in caught.value.message
    assert "2023-12-31" not in caught.value.message  # no value of a row
    target_server.execute(_statement(caught.value.fix))
    run_once(target_server, apply_task(task), stream, is_large=is_large)
    question = f"SELECT id, UNIX_TIMESTAMP(ts), d, n FROM {DATABASE}.t ORDER BY id"
    wanted = source.rows(question)
    assert len(wanted) == rows
    assert target_server.execute(question) == wanted


def _statement(fix: str) -> str:
    """The ALTER TABLE of a fix."""
    begin = fix.index("ALTER TABLE")
    return fix[begin : fix.index("` on the") if "` on the" in fix else fix.index("`. Then")]


def test_value_of_the_same_zone_arrives(
    source: LoggedSession, target_server: DatabaseServer
) -> None:
    """A checked column stops nothing if both sessions compute the same, for each type of a value."""
    is_mysql = target_server.flavour is Flavour.MYSQL
    more = ON_MYSQL if is_mysql else ""
    source.run(
        "CREATE TABLE t (id INT PRIMARY KEY, ts TIMESTAMP(3) NULL, c CHAR(9), f FLOAT, e ENUM('A', 'b'),"
        " d DATE AS (DATE(ts)) STORED, h INT AS (HOUR(ts)) STORED, u BIGINT UNSIGNED AS (TO_DAYS(ts)) STORED,"
        " dt DATETIME(3) AS (ts) STORED, y YEAR AS (YEAR(ts)) STORED,"
        f" k ENUM('A', 'b') AS (IF(HOUR(ts) > 2, e, 'b')) STORED, i BIT(9) AS (HOUR(ts)) STORED{more})",
        *(
            f"INSERT INTO t (id, ts, c, f, e) VALUES ({at}, '2024-01-01 0{at % 9}:30:00.123', 'é{at}', {at} / 3, 'A')"
            for at in range(150)
        ),
        "INSERT INTO t (id) VALUES (999)",
        "UPDATE t SET c = 'y' WHERE id > 3",
        "UPDATE t SET id = id + 1000 WHERE id < 9",
    )
    stream = _stream(source)
    for is_large in (True, False):
        run_once(target_server, apply_task(_task()), stream, is_large=is_large)
        question = f"SELECT * FROM {DATABASE}.t ORDER BY id"
        assert target_server.execute(question) == source.rows(question)
        target_server.execute(f"DROP DATABASE {DATABASE}")


SETTINGS = {
    Flavour.MYSQL: {
        "d DATE, g VARCHAR(20) AS (MONTHNAME(d)) STORED": (
            "lc_time_names = 'de_DE'",
            "'2024-03-05'",
        ),
        "u INT, g DATETIME AS (FROM_UNIXTIME(u)) STORED": ("time_zone = '+09:00'", "1700000000"),
        "c CHAR(5), g TEXT AS (CONCAT(c, 'x')) STORED": (
            "sql_mode = 'PAD_CHAR_TO_FULL_LENGTH'",
            "'ab'",
        ),
        "x TIME(6), g TIME(2) AS (x) STORED": (
            "sql_mode = 'TIME_TRUNCATE_FRACTIONAL'",
            "'10:00:00.999999'",
        ),
        "s TEXT, g DATETIME AS (CAST(s AS DATETIME)) STORED": ("sql_mode = ''", "'2024-02-30'"),
        "j TIMESTAMP, g JSON AS (JSON_OBJECT('h', HOUR(j), 'n', 1.50)) STORED": (
            "time_zone = '+09:00'",
            "'2024-01-01 00:30:00'",
        ),
    },
    Flavour.MARIADB: {
        "ts TIMESTAMP, g VARCHAR(30) AS (ts) PERSISTENT": (
            "time_zone = '+09:00'",
            "'2024-01-01 00:30:00'",
        ),
    },
}


def test_value_of_another_setting_stops(
    request: pytest.FixtureRequest, target_server: DatabaseServer
) -> None:
    """In the target session's own setting, the same row arrives."""
    server = request.getfixturevalue(f"{target_server.flavour}_server")
    for columns, (setting, value) in SETTINGS[target_server.flavour].items():
        for number, settings in enumerate(([], [f"SET {setting}"])):
            with logged(server, DATABASE) as source:
                name = columns.split()[0]
                source.run(f"CREATE TABLE t (id INT PRIMARY KEY, {columns})", *settings)
                source.run(f"INSERT INTO t (id, {name}) VALUES (1, {value})")
                stream = _stream(source)
                if number:
                    with pytest.raises(Fatal) as caught:
                        run_once(target_server, apply_task(_task()), stream)
                    assert caught.value.code == "MR-5017", columns
                else:
                    run_once(target_server, apply_task(_task()), stream)
                    question = f"SELECT g FROM {DATABASE}.t"
                    assert target_server.execute(question) == source.rows(question)
            target_server.execute(f"DROP DATABASE {DATABASE}")


REFUSED = {
    "unique_stored": (
        "id INT PRIMARY KEY, ts TIMESTAMP NULL, d DATE AS (DATE(ts)) STORED, UNIQUE KEY (d)",
        "MR-5017",
    ),
    "unique_virtual": (
        "id INT PRIMARY KEY, ts TIMESTAMP NULL, d DATE AS (DATE(ts)) VIRTUAL, UNIQUE KEY (d)",
        "MR-5010",
    ),
    "check": ("id INT PRIMARY KEY, ts TIMESTAMP NULL, CHECK (DAY(ts) < 2)", "MR-5011"),
}
ON_MYSQL_REFUSED = {
    "expression": ("id INT PRIMARY KEY, ts TIMESTAMP NULL, UNIQUE KEY k ((DATE(ts)))", "MR-5010"),
    "primary": ("id INT, ts TIMESTAMP, d DATE AS (DATE(ts)) STORED PRIMARY KEY", "MR-5017"),
    "only": ("id INT, ts TIMESTAMP, d DATE AS (DATE(ts)) VIRTUAL NOT NULL UNIQUE", "MR-5017"),
}


def test_printed_fix_lets_keys_and_checks_pass(
    request: pytest.FixtureRequest, target_server: DatabaseServer
) -> None:
    """The source has checked its rows in another time zone. After the SQL of the fix they arrive."""
    server = request.getfixturevalue(f"{target_server.flavour}_server")
    is_mysql = target_server.flavour is Flavour.MYSQL
    for name, (columns, code) in (REFUSED | (ON_MYSQL_REFUSED if is_mysql else {})).items():
        with logged(server, DATABASE) as source:
            source.run(f"CREATE TABLE t ({columns})", ZONE)
            second = "'2024-01-01 00:20:00'" if name == "check" else "'2023-12-31 10:00:00'"
            source.run(
                f"INSERT INTO t (id, ts) VALUES (1, '2024-01-01 00:30:00'), (2, {second})",
                "UPDATE t SET id = 3 WHERE id = 2",
            )
            stream, task = _stream(source), _task()
            with pytest.raises(Fatal) as caught:
                run_once(target_server, apply_task(task), stream)
            assert caught.value.code == code, name
            target_server.execute(_statement(caught.value.fix))
            run_once(target_server, apply_task(task), stream)
            question = f"SELECT id, UNIX_TIMESTAMP(ts) FROM {DATABASE}.t ORDER BY id"
            assert target_server.execute(question) == source.rows(question), name
        target_server.execute(f"DROP DATABASE {DATABASE}")
