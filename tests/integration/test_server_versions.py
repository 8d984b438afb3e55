"""Each supported server version that can be had: settings, choice of a member, relay log, records, apply.

MariaDB 10.11, 11.8 and MySQL 9.7 come from Debian, MariaDB 11.4 from a jar. Without one of MariaDB's the tests fail.
MySQL 8.0 and 8.4 can't be had as packages: ``tests/kit/capture/recorded.py`` has answers from their manuals.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from consumer.compare import Ends, compare_sets
from deploy.servers import DatabaseServer, DatabaseSet, ServerOptions, start_set
from deploy.servers.programs import MARIADB_SUITES
from millrace.errors import Fatal
from producer.upstream.choice import choose
from producer.upstream.connection import SourceConnection
from producer.upstream.members import ask_members
from producer.upstream.preflight import check_settings
from schemas.gtid import Flavour, GtidPosition
from schemas.server_version import ServerVersion
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
    with SourceConnection.connect(member_of(replica), login_of(replica)) as connection:
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
