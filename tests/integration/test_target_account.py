"""The GRANT statements in docs/install.md for a target: each is needed, and together they suffice."""

import re
from collections.abc import Iterator
from dataclasses import replace

import pytest

from millrace.consumer.target import fence
from millrace.consumer.target.sessions import Sessions
from millrace.deploy.servers import DatabaseServer
from millrace.drivers.mysql.connection import connect
from millrace.drivers.mysql.primary import sources_of
from millrace.errors import Fatal
from millrace.schemas.gtid import Flavour
from tests.kit.apply.faults import Supervised
from tests.kit.apply.granted import privileged_stream
from tests.kit.apply.local import apply_task, endpoint_of
from tests.kit.apply.topic import RecordStream
from tests.kit.paths import ROOT

pytestmark = pytest.mark.both_flavours

INSTALL = ROOT / "docs/install.md"
DATABASE = "granted"
EXCLUDED = "not_granted"
USER, PASSWORD = "granted", "granted-secret"
TASK = "granted-task"


def _statements(flavour: Flavour) -> list[str]:
    """The statements after "An apply task names": CREATE USER, then each GRANT, for the test's account."""
    part = INSTALL.read_text().partition("An apply task names")[2]
    found = re.findall(r"^    (CREATE USER|GRANT)( .*?);(?: +-- (.*))?$", part, re.MULTILINE)
    assert len(found) == 4
    statements = []
    for verb, rest, remark in found:
        name = "MariaDB" if flavour is Flavour.MARIADB else "MySQL"
        more = remark.partition(f"{name} also: ")[2]
        text = f"{verb}{rest}".replace(" ON ", f", {more} ON " if more else " ON ")
        text = re.sub(r"(TO|USER) millrace\b", rf"\1 {USER}", text)
        statements.append(text.replace("ON shop.", f"ON {DATABASE}.").replace("…", PASSWORD))
    assert statements[0] == f"CREATE USER {USER} IDENTIFIED BY '{PASSWORD}'"
    return statements


@pytest.fixture
def server(target_server: DatabaseServer) -> Iterator[DatabaseServer]:
    """Drops the account and its databases after the test."""
    yield target_server
    for database in (DATABASE, EXCLUDED):
        target_server.execute(f"DROP DATABASE IF EXISTS {database}")
    target_server.execute(f"DROP USER IF EXISTS {USER}")


def test_readme_grants_are_exactly_what_apply_needs(
    server: DatabaseServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before each grant the task fails with its code and a GRANT; with all it applies and kills a hung predecessor."""
    monkeypatch.setattr(fence, "HUNG_S", 0.3)
    create, *grants = _statements(server.flavour)
    server.execute(create)
    endpoint = replace(endpoint_of(server), user=USER, password=PASSWORD)
    task = Supervised(
        endpoint, apply_task(TASK, lanes=3), privileged_stream(server.flavour, DATABASE), cuts=(9,)
    )
    for grant in grants:
        with pytest.raises(Fatal) as caught:
            task.run_once()
        assert caught.value.code == "MR-5007", grant
        assert caught.value.fix.startswith("GRANT "), grant
        server.execute(grant)
    applier = task.run_once()
    assert applier.mark.seq == task.stream.seq
    assert server.execute(f"SELECT COUNT(*) FROM {DATABASE}.child") == [(19,)]
    hung = Sessions(endpoint, applier.owner).for_lane()
    hung.query("SELECT * FROM millrace.fence WHERE task = %s LOCK IN SHARE MODE", (TASK,))
    assert task.run_once().owner.run == applier.owner.run + 1
    session = connect(endpoint)
    try:
        assert not sources_of(session)
        session.query("SHOW REPLICA STATUS")  # no refusal named this grant
    finally:
        session.close()


def test_excluded_table_is_named_without_a_privilege(
    server: DatabaseServer,
) -> None:
    """The account has no privilege on the excluded table, and needs none to report it."""
    for statement in _statements(server.flavour):
        server.execute(statement)
    server.execute(f"CREATE DATABASE {EXCLUDED}")
    server.execute("CREATE TABLE t (id INT PRIMARY KEY)", db=EXCLUDED)
    reason = f"names {EXCLUDED}.t, which the capture task leaves out"
    stream = RecordStream(flavour=server.flavour)
    stream.ddl(
        f"RENAME TABLE {EXCLUDED}.t TO t",
        database=DATABASE,
        session={"in_doubt": reason},
        kind="unknown",
    )
    endpoint = replace(endpoint_of(server), user=USER, password=PASSWORD)
    task = Supervised(endpoint, apply_task(f"{TASK}-excluded"), stream, cuts=())
    for _ in range(2):
        with pytest.raises(Fatal, match=reason) as caught:
            task.run_once()
        assert caught.value.code == "MR-5042"
