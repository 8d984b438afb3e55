"""Settings of source servers: each wrong setting has its code, and its fix works."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from millrace.deploy.servers import DatabaseServer, DatabaseSet, ServerOptions
from millrace.drivers.mysql.preflight import Finding, check_settings
from millrace.errors import Fatal
from millrace.producer.source.choose.choice import choose
from millrace.producer.source.choose.chooser import ask_members
from millrace.schemas.gtid import Flavour
from tests.fixtures.servers import NewSet, mostly
from tests.kit.relay.relay import login_of, member_of, members_of

pytestmark = pytest.mark.both_flavours


def findings_of(server: DatabaseServer) -> dict[str, Finding]:
    """The pre-flight findings by code."""
    (facts,) = ask_members([member_of(server)], login_of(server), wanted=None)
    assert facts.error is None, facts.error
    return {finding.code: finding for finding in check_settings(facts)}


def refused(server: DatabaseServer, code: str) -> Finding:
    """The only finding; a set with only this member is refused with the finding's code."""
    (finding,) = findings_of(server).values()
    assert finding.code == code
    with pytest.raises(Fatal) as caught:
        choose(ask_members([member_of(server)], login_of(server), wanted=None), wanted=None)
    assert caught.value.code == code
    assert caught.value.fix.startswith(finding.fix.partition(" (")[0].rstrip("; "))
    return finding


def run_fix(server: DatabaseServer, finding: Finding) -> None:
    """Run the fix as printed; the check then finds nothing."""
    for statement in finding.fix.partition(" (")[0].split(";")[:-1]:
        server.execute(statement)
    assert findings_of(server) == {}


@contextmanager
def setting(server: DatabaseServer, name: str, value: str) -> Iterator[None]:
    """Change a global variable during the block."""
    before = server.execute(f"SELECT @@GLOBAL.{name}")[0][0]
    if name == "binlog_format" and server.flavour is Flavour.MYSQL:
        server.execute("STOP REPLICA SQL_THREAD")
    server.execute(f"SET GLOBAL {name} = {value}")
    try:
        yield
    finally:
        if server.execute(f"SELECT @@GLOBAL.{name}")[0][0] != before:
            server.execute(f"SET GLOBAL {name} = %s", (before,))


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("binlog_row_metadata", "'MINIMAL'", "MR-1014"),
        ("binlog_row_image", "'MINIMAL'", "MR-1013"),
        ("binlog_format", "'STATEMENT'", "MR-1012"),
        ("binlog_checksum", "'NONE'", "MR-1019"),
    ],
)
def test_bad_setting_is_found_and_its_fix_works(
    source_set: DatabaseSet, name: str, value: str, code: str
) -> None:
    """The SQL in the fix runs as printed."""
    server = source_set.replicas[1]
    assert findings_of(server) == {}
    with setting(server, name, value):
        run_fix(server, refused(server, code))


def test_lax_gtid_mode_and_partial_json_are_found(source_set: DatabaseSet) -> None:
    """Settings that only one flavor has."""
    server = source_set.replicas[1]
    if server.flavour is Flavour.MARIADB:
        with setting(server, "gtid_strict_mode", "OFF"):
            run_fix(server, refused(server, "MR-1017"))
    else:
        with setting(server, "binlog_row_value_options", "'PARTIAL_JSON'"):
            run_fix(server, refused(server, "MR-1015"))
        with setting(server, "gtid_mode", "'ON_PERMISSIVE'"):
            run_fix(server, refused(server, "MR-1016"))


def test_filtered_replica_is_refused(source_set: DatabaseSet) -> None:
    """A filter set at runtime; filtered rows would be missing in the topic."""
    server = source_set.replicas[1]
    if server.flavour is Flavour.MARIADB:
        stop, start = "STOP SLAVE", "START SLAVE"
        filtered, whole = (f"SET GLOBAL replicate_do_db = '{name}'" for name in ("shop", ""))
    else:
        stop, start = "STOP REPLICA SQL_THREAD", "START REPLICA SQL_THREAD"
        filtered, whole = (
            f"CHANGE REPLICATION FILTER REPLICATE_DO_DB = ({name})" for name in ("shop", "")
        )
    try:
        for statement in (stop, filtered, start):
            server.execute(statement)
        assert "Replicate_Do_DB=shop" in refused(server, "MR-1018").message
    finally:
        for statement in (stop, whole, start):
            server.execute(statement)
    assert findings_of(server) == {}
    source_set.wait_for_replicas()


@mostly(Flavour.MARIADB)  # test_source_choice.py has the rule for MySQL's answers
def test_replica_that_does_not_log_changes_is_refused(new_set: NewSet, flavour: Flavour) -> None:
    """Its binlog has no rows from the primary, so the primary is read instead."""
    option = (
        "--skip-log-slave-updates" if flavour is Flavour.MARIADB else "--skip-log-replica-updates"
    )
    made = new_set(flavour, options=ServerOptions(extra=(option,)))
    choice = choose(ask_members(members_of(made), login_of(made.primary), wanted=None), wanted=None)
    assert choice.member == member_of(made.primary)
    assert "MR-1011" in choice.reasons()[str(member_of(made.replicas[0]))]
    refused(made.replicas[0], "MR-1011")
