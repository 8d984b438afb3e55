"""DDL session settings, from a source's binlog to a target of the same flavor: both tables are equal."""

from collections.abc import Iterator
from datetime import datetime
from itertools import count

import pytest

from deploy.servers import DatabaseServer
from millrace.errors import Fatal
from schemas.gtid import Flavour
from tests.kit.apply.local import apply_task, run_once
from tests.kit.apply.topic import RecordStream
from tests.kit.binlog.session import LoggedSession, logged
from tests.kit.capture.converter import raw_records

pytestmark = pytest.mark.both_flavours

_names = count(1)


@pytest.fixture
def source(
    request: pytest.FixtureRequest, target_server: DatabaseServer
) -> Iterator[LoggedSession]:
    """A session on a server of the target's flavor; both servers drop its database afterwards."""
    server = request.getfixturevalue(f"{target_server.flavour}_server")
    name = f"session{next(_names)}"
    with logged(server, name) as made:
        yield made
    target_server.execute(f"DROP DATABASE IF EXISTS {name}")


def apply_all(source: LoggedSession, target: DatabaseServer) -> None:
    """Execute everything that was logged on the target."""
    values = [value for batch in source.conversion().batches() for _, value in raw_records(batch)]
    stream = RecordStream(flavour=target.flavour, values=values)
    run_once(target, apply_task(source.database), stream)


def test_charset_without_collation_keeps_other_session_settings(
    source: LoggedSession, target_server: DatabaseServer
) -> None:
    """A latin1 client, a time zone, and on MariaDB the default collations of character sets."""
    if target_server.flavour is Flavour.MARIADB:
        source.run("SET character_set_collations = 'utf8mb4=uca1400_as_ci,latin1=latin1_bin'")
    source.run("SET NAMES latin1", "SET time_zone = '+05:00'")
    source.cursor.connection.encoding = "latin1"
    source.run(
        "CREATE TABLE t (id INT PRIMARY KEY, v ENUM('é'), w CHAR(1) CHARACTER SET latin1,"
        " at TIMESTAMP NOT NULL DEFAULT '2023-11-15 00:00:00') CHARSET=utf8mb4",
    )
    source.run("INSERT INTO t (id) VALUES (1)")
    source.run("ALTER TABLE t ADD n VARCHAR(3) CHARACTER SET utf8mb4, MODIFY at DATETIME")
    source.cursor.connection.encoding = "utf8"
    source.run("SET NAMES utf8mb4")
    apply_all(source, target_server)
    (shown,) = source.rows("SHOW CREATE TABLE t")
    assert "'é'" in str(shown[1])
    assert target_server.execute("SHOW CREATE TABLE t", db=source.database) == [shown]
    rows = source.rows("SELECT CAST(at AS CHAR) FROM t")
    assert rows == [("2023-11-15 00:00:00",)]
    assert target_server.execute("SELECT CAST(at AS CHAR) FROM t", db=source.database) == rows


def test_ambiguous_ddl_waits_for_an_operator(
    source: LoggedSession, target_server: DatabaseServer
) -> None:
    """A statement whose meaning is not exactly known is not executed, and the error says why."""
    source.run("CREATE TABLE t (id INT)")
    apply_all(source, target_server)
    stream = RecordStream(flavour=target_server.flavour)
    stream.ddl(
        "DROP TABLE t", database=source.database, session={"in_doubt": "no text"}, kind="unknown"
    )
    with pytest.raises(Fatal, match="no text") as caught:
        run_once(target_server, apply_task(f"{source.database}-doubt"), stream)
    assert caught.value.code == "MR-5042"
    assert target_server.execute("SHOW TABLES", db=source.database) == [("t",)]


def test_rows_get_the_ddl_time_to_the_microsecond(
    source: LoggedSession, target_server: DatabaseServer
) -> None:
    """DEFAULT CURRENT_TIMESTAMP(6) of a new column, also for times that a double cannot represent."""
    source.run("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    for number, micros in enumerate((1, 123456, 123457, 500_000, 999_999)):
        source.run(
            f"SET timestamp = 1763774801.{micros:06}3",
            f"ALTER TABLE t ADD c{number} DATETIME(6) DEFAULT CURRENT_TIMESTAMP(6)",
        )
    source.run("SET timestamp = DEFAULT")
    source.run("ALTER TABLE t ADD now DATETIME(6) DEFAULT CURRENT_TIMESTAMP(6)")
    apply_all(source, target_server)
    rows = source.rows("SELECT * FROM t")
    assert [value.microsecond for value in rows[0][1:6] if isinstance(value, datetime)] == [
        1,
        123456,
        123457,
        500_000,
        999_999,
    ]
    assert target_server.execute("SELECT * FROM t", db=source.database) == rows
