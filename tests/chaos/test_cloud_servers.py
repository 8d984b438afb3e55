"""Accounts as RDS, Aurora and Cloud SQL give them, on real servers: no SUPER, no FILE, no SET GLOBAL.

The master account has the privileges that the provider's manual lists. It creates the service's account, with which the
source is checked and read and the target written. Nothing here runs on the clouds themselves.
"""

from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pymysql
import pytest

from millrace.checks.requirement import Level
from millrace.consumer.checks.target import TargetUse, check_target
from millrace.deploy.servers import Account, DatabaseServer
from millrace.drivers.mysql import cloud
from millrace.drivers.mysql.connection import connect
from millrace.drivers.mysql.grants import Role, needed_grants
from millrace.drivers.mysql.members import ask_members
from millrace.errors import MillraceError
from millrace.producer.checks.source import SourceUse, check_set
from millrace.producer.source.choose.choice import choose
from millrace.producer.source.connection import Login, connect_member
from millrace.producer.trial.trial import Trial, TrialOrder
from millrace.schemas.documents import Account as SetAccount
from millrace.schemas.documents import (
    SecretPlace,
    SecretReference,
    SetDocument,
    TableFilter,
)
from millrace.schemas.gtid import Flavour
from tests.kit.apply.faults import Supervised
from tests.kit.apply.granted import privileged_stream
from tests.kit.apply.local import apply_task, endpoint_of
from tests.kit.relay.relay import UNVERIFIED, member_of, position_of, receiving
from tests.kit.waiting import eventually

MASTER, SERVICE, PASSWORD = "cloud_master", "cloud_service", "cloud-secret"
DATABASE = "cloud_shop"
VARIABLE = "MILLRACE_TEST_CLOUD_PASSWORD"

_ROWS = "SELECT, INSERT, UPDATE, DELETE, CREATE, DROP, RELOAD, PROCESS, REFERENCES, INDEX, ALTER, SHOW DATABASES"
_MORE = "CREATE TEMPORARY TABLES, LOCK TABLES, EXECUTE, REPLICATION SLAVE, REPLICATION CLIENT, CREATE VIEW, SHOW VIEW"
_REST = "CREATE ROUTINE, ALTER ROUTINE, CREATE USER, EVENT, TRIGGER"
BASIC = f"{_ROWS}, {_MORE}, {_REST}"
# SET_USER_ID, which the manuals list too, is not in MySQL 8.4 and later
DYNAMIC = "APPLICATION_PASSWORD_ADMIN, ROLE_ADMIN, XA_RECOVER_ADMIN"


@dataclass(frozen=True)
class Provider:
    """The master account gets ``privileges`` on *.*, without those on ``mysql`` that are ``revoked``."""

    name: str
    flavour: Flavour
    privileges: str
    revoked: str = ""


RDS = Provider("rds", Flavour.MYSQL, f"{BASIC}, CREATE ROLE, DROP ROLE, {DYNAMIC}")
AURORA = Provider("aurora", Flavour.MYSQL, f"{RDS.privileges}, CONNECTION_ADMIN, SHOW_ROUTINE")
# all but SUPER and FILE, and no right to write in its own tables
CLOUD_SQL = Provider(
    "cloud_sql",
    Flavour.MYSQL,
    f"{RDS.privileges}, CONNECTION_ADMIN",
    "INSERT, UPDATE, DELETE, CREATE, DROP, ALTER, INDEX, TRIGGER",
)
RDS_MARIADB = Provider("rds_mariadb", Flavour.MARIADB, BASIC)
PROVIDERS = {one.name: one for one in (RDS, AURORA, CLOUD_SQL, RDS_MARIADB)}


@pytest.fixture(params=PROVIDERS)
def provider(request: pytest.FixtureRequest) -> Provider:
    """Each provider."""
    return PROVIDERS[request.param]


@pytest.fixture
def server(
    provider: Provider, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[DatabaseServer]:
    """A server with the master account, and the tables and procedures that RDS adds."""
    found = request.getfixturevalue(f"{provider.flavour}_server")
    assert isinstance(found, DatabaseServer)
    run = found.execute
    if provider is not CLOUD_SQL:
        ((data,),) = run("SELECT @@datadir")
        monkeypatch.setattr(cloud, "RDS_DATA", str(data))
        run("CREATE TABLE mysql.rds_configuration (name VARCHAR(100), value VARCHAR(100))")
        run("INSERT INTO mysql.rds_configuration VALUES ('binlog retention hours', NULL)")
    if provider is RDS_MARIADB:
        run("CREATE PROCEDURE mysql.rds_replica_status() SHOW SLAVE STATUS")
    if provider.revoked:
        run("SET GLOBAL partial_revokes = ON")
    run(f"CREATE USER {MASTER} IDENTIFIED BY '{PASSWORD}'")
    run(f"GRANT {provider.privileges} ON *.* TO {MASTER} WITH GRANT OPTION")
    if provider.revoked:
        run(f"REVOKE {provider.revoked} ON mysql.* FROM {MASTER}")
    try:
        yield found
    finally:
        run(f"DROP DATABASE IF EXISTS {DATABASE}")
        with suppress(pymysql.MySQLError):  # if no test has created the database
            run("DROP PROCEDURE IF EXISTS millrace.wait_for_gtid")
        run("DROP TABLE IF EXISTS mysql.rds_configuration")
        run("DROP PROCEDURE IF EXISTS mysql.rds_replica_status")
        run(f"DROP USER IF EXISTS {SERVICE}")
        run(f"DROP USER {MASTER}")
        if provider.revoked:
            run("SET GLOBAL partial_revokes = OFF")


def as_master(server: DatabaseServer, *statements: str) -> None:
    """Run statements with the privileges of the provider's master account."""
    endpoint = replace(endpoint_of(server), user=MASTER, password=PASSWORD)
    with closing(connect(endpoint, autocommit=True)) as session:
        for statement in statements:
            session.query(statement.rstrip(";"))


def create_service(server: DatabaseServer, *roles: Role) -> None:
    """The master creates the account with the statements of `millrace grants print`."""
    grants = [
        one for role in roles for one in needed_grants(role, server.flavour, (r"cloud\_shop",))
    ]
    statements = []
    for one in grants:
        kept = tuple(name for name in one.privileges if not is_hidden(server, name))
        statements.append(replace(one, privileges=kept).sql(SERVICE))
    if server.flavour is Flavour.MARIADB:
        statements.append(f"GRANT EXECUTE ON PROCEDURE {cloud.REPLICA_STATUS} TO {SERVICE}")
    as_master(server, f"CREATE USER {SERVICE} IDENTIFIED BY '{PASSWORD}'", *statements)


def is_hidden(server: DatabaseServer, privilege: str) -> bool:
    """RDS for MariaDB gives no account SLAVE MONITOR."""
    return server.flavour is Flavour.MARIADB and privilege == "SLAVE MONITOR"


def document_of(server: DatabaseServer) -> SetDocument:
    """The set of this server, with the service's account."""
    return SetDocument(
        name="cloud",
        members=(member_of(server),),
        account=SetAccount(SERVICE, SecretReference(SecretPlace.ENVIRONMENT, VARIABLE)),
        tls=UNVERIFIED,
    )


def test_source_is_read_with_what_the_master_can_grant(
    server: DatabaseServer,
    provider: Provider,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """`millrace check`, `millrace try` and the receiver. On RDS the check names how long binlogs are kept."""
    create_service(server, Role.SOURCE, Role.SNAPSHOT, Role.LOAD, Role.COMPARE)
    monkeypatch.setenv(VARIABLE, PASSWORD)
    use = SourceUse(asked=(f"{DATABASE}.*",), pause_s=72 * 3600.0)
    found = [one for one in check_set(document_of(server), use) if one.level is not Level.OK]
    found = [one for one in found if one.code not in ("MR-4161", "MR-4164")]
    if provider is not CLOUD_SQL:
        (horizon,) = found
        assert horizon.code == "MR-4162"
        assert "can't read mysql.rds_configuration" in horizon.found
        grant, call = horizon.fix.rstrip(";").split("; ")
        as_master(server, grant)
        assert call == "CALL mysql.rds_set_configuration('binlog retention hours', 72)"
        (horizon,) = (one for one in check_set(document_of(server), use) if one.code == "MR-4162")
        assert "is NULL" in horizon.found
        server.execute("UPDATE mysql.rds_configuration SET value = '72'")
        found = [one for one in check_set(document_of(server), use) if one.code == "MR-4162"]
    assert found == []
    read(server, tmp_path)


@pytest.mark.parametrize("provider", [RDS_MARIADB.name], indirect=True)
def test_check_prints_only_what_the_master_can_grant(
    server: DatabaseServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fixes for an account without a grant, run by the master one after the other, are enough for both roles."""
    as_master(server, f"CREATE USER {SERVICE} IDENTIFIED BY '{PASSWORD}'")
    monkeypatch.setenv(VARIABLE, PASSWORD)
    document = document_of(server)

    def missing() -> set[str]:
        found = list(check_set(document, SourceUse()))
        with suppress(MillraceError):  # the primary is not known without SHOW SLAVE STATUS
            found += check_target(document, TargetUse())
        refused = [one for one in found if one.code in ("MR-1005", "MR-5007")]
        return {one.fix.partition(" (")[0] for one in refused}

    printed: set[str] = set()
    while fixes := missing():
        assert fixes - printed, f"{fixes} did not help"
        printed |= fixes
        for fix in fixes:
            as_master(server, *fix.replace("the account", SERVICE).split("; "))
    assert any(cloud.REPLICA_STATUS in fix for fix in printed)


def read(server: DatabaseServer, folder: Path) -> None:
    """Choose the member, receive its binlog, and look at a row as `millrace try` does."""
    server.execute(f"CREATE DATABASE {DATABASE}")
    login = Login(user=SERVICE, password=PASSWORD, tls=UNVERIFIED)
    members = (member_of(server),)
    facts = ask_members(members, lambda member: connect_member(member, login))
    choose(facts, wanted=None)
    service = Account(SERVICE, PASSWORD)
    account, server.account = server.account, service
    try:
        with receiving(server, folder / "relay", wanted=position_of(server)) as reception:
            server.execute("CREATE TABLE t (id INT PRIMARY KEY)", db=DATABASE)
            wanted = position_of(server)
            eventually(lambda: reception.error or reception.relay.position().includes(wanted))
            assert reception.error is None
    finally:
        server.account = account
    order = TrialOrder(members, login, TableFilter((f"{DATABASE}.*",)), "")
    with Trial.open(order) as trial:
        server.execute("INSERT INTO t VALUES (1)", db=DATABASE)
        assert next(batch for batch in trial.batches() if batch)


def test_target_is_written_with_what_the_master_can_grant(server: DatabaseServer) -> None:
    """Statements and rows that need every privilege of an apply task."""
    create_service(server, Role.TARGET)
    endpoint = replace(endpoint_of(server), user=SERVICE, password=PASSWORD)
    stream = privileged_stream(server.flavour, DATABASE)
    task = Supervised(endpoint, apply_task("cloud-task", lanes=3), stream, cuts=(9,))
    assert task.run().mark.seq == task.stream.seq
