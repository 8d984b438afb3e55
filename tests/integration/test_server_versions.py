"""Each supported server version that can be had: settings, choice of a member, relay log, records, apply.

MariaDB 10.11, 11.8 and MySQL 9.7 come from Debian, MariaDB 11.4 from a jar. Without one of MariaDB's the tests fail.
MySQL 8.0 and 8.4 can't be had as packages: ``tests/kit/capture/recorded.py`` has answers from their manuals.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from millrace.consumer.compare import Ends, compare_sets
from millrace.deploy.servers import DatabaseServer, DatabaseSet, ServerOptions, start_set
from millrace.deploy.servers.programs import MARIADB_SUITES
from millrace.drivers.mysql.preflight import check_settings
from millrace.errors import Fatal
from millrace.producer.source.choose.choice import choose
from millrace.producer.source.choose.chooser import ask_members
from millrace.producer.source.connection import connect_member
from millrace.schemas.gtid import Flavour, GtidPosition
from millrace.schemas.server_version import ServerVersion
from tests.fixtures.servers import FLAVOURS, SERVICE, SMALL, NewServer
from tests.kit.apply.local import apply_task, endpoint_of, run_once
from tests.kit.apply.topic import RecordStream
from tests.kit.binlog.session import logged
from tests.kit.binlog.type_tables import check_records, fill_types
from tests.kit.relay.relay import (
    assert_identical,
    flush_and_wait,
    login_of,
    member_of,
    members_of,
    position_of,
    receiving,
    run_mixed_workload,
)
from tests.kit.type_values import AS_HEX, AS_TEXT, CASES, MARIADB, TypeCase, hex_of
from tests.kit.waiting import eventually

# other tests read every type and apply it with the usual servers
EXTRA = [(Flavour.MARIADB, release) for release in MARIADB_SUITES]
VERSIONS = [*EXTRA, *((flavour, "") for flavour in FLAVOURS)]
BAD_SETTINGS = {
    "binlog_row_metadata": ("'MINIMAL'", "MR-1014"),
    "binlog_row_image": ("'MINIMAL'", "MR-1013"),
    "binlog_format": ("'STATEMENT'", "MR-1012"),
    "binlog_checksum": ("'NONE'", "MR-1019"),
}
GENERATED = {
    "virtual": "id INT PRIMARY KEY, s INT, w INT AS (s * 2) VIRTUAL, t INT)",
    "stored": "id INT PRIMARY KEY, s INT, w INT AS (s * 2) STORED, t INT)",
    "indexed": "id INT PRIMARY KEY, s INT, w INT AS (s * 2) VIRTUAL UNIQUE, t INT)",
    "keyless": "id INT, s INT, w INT AS (s * 2) VIRTUAL, x INT AS (s * 3) STORED, t INT)",
    "loose": "id INT, s INT, w INT AS (s * 2) STORED UNIQUE, t INT, UNIQUE (id))",
    "promoted": "id INT NOT NULL UNIQUE, s INT, w INT AS (s * 2), t INT)",
    "hashed": "id INT PRIMARY KEY, s LONGTEXT, t INT, UNIQUE (s))",
    "document": "id INT PRIMARY KEY, s TEXT, w TEXT AS (CONCAT(s, '!')), t INT)",
    "versioned": "id INT PRIMARY KEY, s INT, w INT AS (s * 2), t INT) WITH SYSTEM VERSIONING",
    "chained": "id INT PRIMARY KEY, s INT, w INT AS (s * 2), x INT AS (w + 1) STORED, t INT DEFAULT (s))",
    "parted": "id INT, s INT, w INT AS (s % 5) STORED, t INT) PARTITION BY HASH (w) PARTITIONS 3",
}
ONE_FLAVOUR = {
    Flavour.MARIADB: {"gtid_strict_mode": ("OFF", "MR-1017")},
    Flavour.MYSQL: {"binlog_row_value_options": ("'PARTIAL_JSON'", "MR-1015")},
}


def name_of(version: tuple[Flavour, str]) -> str:
    """Such as ``mariadb-10.11``."""
    return "-".join(version).rstrip("-")


@pytest.fixture(scope="module", params=VERSIONS, ids=name_of)
def version_set(request: pytest.FixtureRequest, servers_folder: Path) -> Iterator[DatabaseSet]:
    """A primary and a replica of one version; the tests of a version share it."""
    flavour, release = request.param
    options = ServerOptions(extra=SMALL[flavour], release=release)
    folder = servers_folder / f"version-{flavour}-{release}"
    made = start_set(folder, flavour=flavour, account=SERVICE, replica_count=1, options=options)
    yield made
    made.discard()


def test_account_of_the_readme_may_ask_everything(version_set: DatabaseSet) -> None:
    """The statements of a version run with the privileges that the README grants, and no others."""
    replica = version_set.replicas[0]
    ((text,),) = replica.execute("SELECT VERSION()")
    server = ServerVersion.parse(str(text))
    with connect_member(member_of(replica), login_of(replica)) as connection:
        assert connection.query(server.replica_status)
        assert connection.query(server.binlog_status)


def test_caught_up_replica_of_the_version_is_chosen(version_set: DatabaseSet) -> None:
    """Both members are admissible, and each has its role."""
    version_set.wait_for_replicas()
    login, replica = login_of(version_set.primary), version_set.replicas[0]
    choice = choose(ask_members(members_of(version_set), login, wanted=None), wanted=None)
    assert choice.member == member_of(replica)
    assert [verdict.role for verdict in choice.verdicts] == ["primary", "replica"]
    assert all(verdict.is_admissible for verdict in choice.verdicts), choice.reasons()


def test_bad_settings_are_found_and_their_fixes_work(version_set: DatabaseSet) -> None:
    """Each has its code; the SQL of the fix runs as printed."""
    replica = version_set.replicas[0]
    login, member = login_of(replica), member_of(replica)
    for name, (value, code) in (BAD_SETTINGS | ONE_FLAVOUR[replica.flavour]).items():
        if name == "binlog_format" and replica.flavour is Flavour.MYSQL:
            replica.execute("STOP REPLICA SQL_THREAD")
        replica.execute(f"SET GLOBAL {name} = {value}")
        facts = ask_members([member], login, wanted=None)
        (finding,) = check_settings(facts[0])
        assert finding.code == code
        with pytest.raises(Fatal, match=code):
            choose(facts, wanted=None)
        for statement in finding.fix.partition(" (")[0].split(";")[:-1]:
            replica.execute(statement)
        assert check_settings(ask_members([member], login, wanted=None)[0]) == ()
    replica.execute("FLUSH BINARY LOGS")  # the next test begins with the newest file


def test_relay_files_equal_the_files_of_the_version(
    version_set: DatabaseSet, tmp_path: Path
) -> None:
    """Primary and replica, byte for byte."""
    primary = version_set.primary
    for number, server in enumerate(version_set.members):
        with receiving(server, tmp_path / str(number)) as reception:
            run_mixed_workload(primary, f"mixed{number}")
            wanted = position_of(primary)
            eventually(partial(_has, server, wanted))
            reception.wait_for(server)
            assert_identical(server, reception, flush_and_wait(server, reception))
        primary.execute(f"DROP DATABASE mixed{number}")


@pytest.mark.parametrize("version_set", EXTRA, ids=name_of, indirect=True)
def test_records_of_the_version_hold_what_select_returns(version_set: DatabaseSet) -> None:
    """Every type that the version has."""
    server = version_set.primary
    cases = [case for case in CASES if server.flavour in case.flavours]
    check_records(server, "version_types", cases + _newer_cases(server.options.release))


@pytest.mark.parametrize("version_set", EXTRA, ids=name_of, indirect=True)
def test_target_of_the_version_equals_its_source(
    version_set: DatabaseSet, new_server: NewServer
) -> None:
    """DDL and rows from a binlog of the version, applied to a server of the version."""
    release = version_set.primary.options.release
    cases = [case for case in CASES if Flavour.MARIADB in case.flavours][:: len(CASES) // 12]
    target = new_server(Flavour.MARIADB, options=ServerOptions(release=release))
    with logged(version_set.primary, "applied") as source:
        for number, case in enumerate([*cases, *_newer_cases(release)]):
            fill_types(source.cursor, case, f"t{number}")
            source.run(f"INSERT INTO t{number} VALUES (7, {case.values[0]})")
        stream = RecordStream(flavour=Flavour.MARIADB, values=source.record_values())
        run_once(target, apply_task("version"), stream)
        reader = replace(endpoint_of(target), port=version_set.primary.port)
        found = compare_sets(Ends(reader, endpoint_of(target)), lambda name, _: name == "applied")
    assert found.differences == []
    assert found.tables >= 12
    reached = target.execute("CALL millrace.wait_for_gtid('version', '0-1-1', 0)")
    assert reached == [(0,)], "the publisher writes positions, and there was none"


@pytest.mark.parametrize("version_set", EXTRA, ids=name_of, indirect=True)
def test_changes_beside_generated_columns_reach_the_target(
    version_set: DatabaseSet, new_server: NewServer
) -> None:
    """MariaDB 11.8 logs no values of generated and of hidden hash columns for UPDATE and DELETE."""
    release = version_set.primary.options.release
    target = new_server(Flavour.MARIADB, options=ServerOptions(release=release))
    with logged(version_set.primary, "generated") as source:
        for name, columns in GENERATED.items():
            source.run(f"CREATE TABLE {name} ({columns}")
        for name in GENERATED:
            numbers = "(1, 1), (2, 20), (3, 30), (4, 40), (5, 50)"
            source.run(
                f"INSERT INTO {name} (id, s) VALUES {numbers}",
                f"UPDATE {name} SET s = 7 WHERE id = 1",
                f"UPDATE {name} SET s = s + 100 ORDER BY s DESC",
                f"UPDATE {name} SET id = 9 WHERE id = 2",
                f"REPLACE INTO {name} (id, s) VALUES (3, 33)",
                f"INSERT INTO {name} (id, s) VALUES (4, 44) ON DUPLICATE KEY UPDATE t = 8",
                f"DELETE FROM {name} WHERE id = 5",
                f"INSERT INTO {name} (id, s) VALUES (5, 7)",
            )
        source.run(
            "CREATE TABLE spans (id INT, f DATE, t DATE, w INT AS (id * 2), PERIOD FOR p (f, t))",
            "INSERT INTO spans (id, f, t) VALUES (1, '2020-01-01', '2021-01-01')",
            "DELETE FROM spans FOR PORTION OF p FROM '2020-03-01' TO '2020-04-01'",
            "UPDATE spans FOR PORTION OF p FROM '2020-02-01' TO '2020-02-03' SET id = 5",
        )
        stream = RecordStream(flavour=Flavour.MARIADB, values=source.record_values())
        rows = [row for row in source.conversion().rows() if row.source.table == "stored"]
        run_once(target, apply_task("generated"), stream)
        reader = replace(endpoint_of(target), port=version_set.primary.port)
        found = compare_sets(Ends(reader, endpoint_of(target)), lambda name, _: name == "generated")
        for name in GENERATED:
            query = f"SELECT * FROM generated.{name} ORDER BY id, s"
            assert target.execute(query) == source.rows(query), name
    assert found.differences == []
    inserted, updated = rows[0].change.after, rows[5].change.after
    assert inserted == {"id": 1, "s": 1, "w": 2, "t": None}
    assert updated == {"id": 1, "s": 7, "t": None} | ({} if release == "11.8" else {"w": 14})


@pytest.mark.parametrize("version_set", EXTRA, ids=name_of, indirect=True)
@pytest.mark.parametrize("image", ["MINIMAL", "NOBLOB", "FULL_NODUP"])
def test_images_without_plain_columns_stop_the_conversion(
    version_set: DatabaseSet, image: str
) -> None:
    """Also where both images of an UPDATE are without the same columns, as they are beside generated ones."""
    if image == "FULL_NODUP" and version_set.primary.options.release == "10.11":
        image = "MINIMAL"
    columns = "id INT PRIMARY KEY, a TEXT, b TEXT AS (a) STORED, n INT"
    changes = ["UPDATE t SET n = 4", "DELETE FROM t"] if image != "FULL_NODUP" else []
    changes += ["UPDATE t SET id = 4"] if image != "NOBLOB" else []
    for number, change in enumerate(changes):
        with logged(version_set.primary, f"partial{number}") as source:
            source.run(
                f"CREATE TABLE t ({columns})",
                "INSERT INTO t (id, a, n) VALUES (1, 'x', 3)",
                f"SET binlog_row_image = {image}",
                change,
            )
            conversion = source.conversion()
        with pytest.raises(Fatal, match=r"MR-6504 row images of partial\d\.t without all columns:"):
            conversion.records()


@pytest.mark.parametrize("version_set", EXTRA, ids=name_of, indirect=True)
@pytest.mark.parametrize("columns", ["id, s, d", "id, s"])
def test_insert_alone_shows_no_generated_column(version_set: DatabaseSet, columns: str) -> None:
    """Under MINIMAL it is without virtual columns and without each column that it does not name."""
    values = ", ".join(["2"] * (columns.count(",") + 1))
    with logged(version_set.primary, "partial_insert") as source:
        source.run(
            "CREATE TABLE t (id INT PRIMARY KEY, s INT, w INT AS (s * 2), d INT DEFAULT 5)",
            "INSERT INTO t (id, s) VALUES (1, 1)",
            "UPDATE t SET s = 2",
            "SET binlog_row_image = MINIMAL",
            f"INSERT INTO t ({columns}) VALUES ({values})",
        )
        conversion = source.conversion()
    with pytest.raises(Fatal, match=r"MR-6504 row images of partial_insert\.t without all"):
        conversion.records()


def _has(server: DatabaseServer, wanted: GtidPosition) -> bool:
    return position_of(server).includes(wanted)


def _newer_cases(release: str) -> list[TypeCase]:
    """The cases that only later versions than MariaDB 11.4 have."""
    if release != "11.8":
        return []
    return [
        TypeCase("VECTOR(3)", ("VEC_FromText('[1, -2.5, 3]')",), AS_HEX, hex_of, MARIADB),
        TypeCase("TIMESTAMP(6) NULL", ("'2106-02-07 06:28:15.999999'",), AS_TEXT, str, MARIADB),
    ]
