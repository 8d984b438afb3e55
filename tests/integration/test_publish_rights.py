"""The rights of a source's account that a publish task needs: `check` and `create` name what is missing, as SQL."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from millrace.cli import run
from millrace.consumer.topic.structures import topic_tables
from millrace.deploy.servers import Account, DatabaseServer, KafkaServer
from millrace.drivers.mysql.grants import Role, needed_grants
from millrace.errors import MillraceError
from millrace.schemas.documents import (
    Brokers,
    PublishTask,
    Start,
    TopicAddress,
    plain_task,
    yaml_from_plain,
)
from millrace.schemas.gtid import Flavour
from millrace.schemas.view.view import TableRule, View
from tests.fixtures.shell import Shell
from tests.kit.apply.tables import integer, table, uuid
from tests.kit.apply.topic import RecordStream, TopicWriter
from tests.kit.waiting import PATIENCE_S, answered, eventually

pytestmark = pytest.mark.both_flavours

LEAN = Account("millrace-lean", "lean-secret")
GRANT = "GRANT SELECT ON `rights`.* TO `millrace-lean`@`%`;"
SET = """
set: shop
members: [{{host: {host}, port: {port}}}]
user: {user}
password: env:MILLRACE_TEST_PASSWORD
tls: {tls}
"""
CAPTURE = """
task: shop-capture
kind: capture
set: shop
topic: {topic}
kafka: {{bootstrap: "{kafka}"}}
registry: http://127.0.0.1:8081
"""
ROWS = table("rights", "t", integer("id"), uuid("u"))


@dataclass(frozen=True)
class Lean:
    """A source whose account may capture, and sees no table; the capture task, which does not run, and its topic."""

    server: DatabaseServer
    shell: Shell
    task: PublishTask

    def create(self, task: PublishTask, *, exit_code: int = 0) -> str:
        """`task create`."""
        return self.shell("task", "create", "-f", self._file(task), exit_code=exit_code)

    def findings(self, task: PublishTask) -> dict[str, str]:
        """Codes and fixes of `check`, with those that a lone server without a worker has left out."""
        self.shell.capsys.readouterr()
        names = (task.name, "shop-capture", "-f", self._file(task))
        run(["check", *names, "--timeout", str(PATIENCE_S), "--json"])
        answer = json.loads(self.shell.capsys.readouterr().out)
        return {one["code"]: one["fix"] for one in answer["requirements"] if one["code"]}

    def _file(self, task: PublishTask) -> str:
        return self.shell.file(yaml_from_plain(plain_task(task)))


@pytest.fixture
def lean(
    server: DatabaseServer, kafka: KafkaServer, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Lean]:
    """With one table, of which the topic has a row."""
    monkeypatch.setenv("MILLRACE_TEST_PASSWORD", LEAN.password)
    flavour, to = server.flavour, f"'{LEAN.user}'@'%'"
    server.execute(f"CREATE USER {to} IDENTIFIED BY '{LEAN.password}'")
    for grant in needed_grants(Role.SOURCE, flavour):
        server.execute(grant.sql(to))
    stream = RecordStream(flavour)
    stream.fence()
    stream.insert(ROWS, {"id": 1, "u": bytes(16)})
    stream.commit()
    writer = TopicWriter(kafka.bootstrap, stream)
    writer.publish()
    kind = "UUID" if flavour is Flavour.MARIADB else "BINARY(16)"
    server.execute("CREATE DATABASE rights")
    server.execute(f"CREATE TABLE t (id INT PRIMARY KEY, u {kind} NOT NULL)", db="rights")
    address = SET.format(
        host=server.host, port=server.port, user=LEAN.user, tls="require-unverified"
    )
    shell("set", "create", "-f", shell.file(address))
    capture = CAPTURE.format(topic=writer.topic, kafka=kafka.bootstrap)
    shell("task", "create", "-f", shell.file(capture))
    source = TopicAddress(topic=writer.topic, brokers=Brokers(kafka.bootstrap))
    eventually(lambda: answered(lambda: topic_tables(source), MillraceError), what="the row")
    view = View((TableRule("rights.*"),))
    try:
        yield Lean(
            server, shell, PublishTask(name=f"{writer.topic}-public", source=source, view=view)
        )
    finally:
        server.execute("DROP DATABASE rights")
        server.execute(f"DROP USER {to}")


def test_snapshot_without_the_right_to_read_is_refused(lean: Lean) -> None:
    """The server hides its tables, so no note could name them. `check` and `create` print the same GRANT."""
    task = replace(lean.task, start=Start(is_snapshot=True))
    assert lean.findings(task)["MR-1005"] == GRANT
    refused = lean.create(task, exit_code=4)
    assert refused.startswith("MR-1005 ")
    assert GRANT in refused
    lean.server.execute(GRANT)
    assert "MR-1005" not in lean.findings(task)
    lean.create(task)


def test_condition_on_what_may_be_a_uuid_needs_the_right(lean: Lean) -> None:
    """MySQL has no UUID columns. On MariaDB the account must see that the column is none, and here it is one."""
    rule = TableRule("rights.*", where=f"u = x'{bytes(16).hex()}'")
    task = replace(lean.task, view=View((rule,)))
    if lean.server.flavour is Flavour.MYSQL:
        assert not {"MR-1005", "MR-5201"} & set(lean.findings(task))
        lean.create(task)
        return
    assert lean.findings(task)["MR-1005"] == GRANT
    refused = lean.create(task, exit_code=4)
    assert refused.startswith("MR-1005 tables[0].where: whether rights.t has UUIDs is not known")
    assert GRANT in refused
    lean.server.execute(GRANT)
    assert "MR-1005" not in lean.findings(task)
    assert "found u of type UUID in rights.t" in lean.create(task, exit_code=4)
