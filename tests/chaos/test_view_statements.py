"""Statements on the source under a publish task on a whole stack: new tables pass, others wait for the operator.

The operator follows the fix of the task's status alone.
"""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from millrace.deploy.local.services import APPLY_TASK, TOPIC
from millrace.errors import Retryable
from millrace.schemas.documents import PublishTask, parse_task
from millrace.schemas.gtid import Flavour
from millrace.schemas.status import TaskReport, TaskState
from tests.fixtures.stack import FaultStack, on
from tests.kit.publish.local import Published, published
from tests.kit.waiting import answered, eventually

NAME = "stated"
DOCUMENT: dict[str, Any] = {
    "task": NAME,
    "kind": "publish",
    "topic": TOPIC,
    "tables": [
        {
            "from": f"{NAME}.*",
            "where": "amount < 100 OR status = 'Paid'",
            "columns": {"drop": ["note"]},
        }
    ],
    "topics": f"{NAME}.of.{{table}}",
    "partitions": 2,
    "slots": 2,
    "records": "json",
}
COLUMNS = (
    "(id INT PRIMARY KEY, status VARCHAR(20) COLLATE utf8mb4_general_ci, amount INT, note TEXT)"
)


@dataclass
class Stated:
    """The task, its document as the operator has it, and the statements on the source."""

    stack: FaultStack
    path: Path
    document: dict[str, Any] = field(default_factory=lambda: {**DOCUMENT})

    def write(self, *options: str) -> None:
        """`task create -f FILE`."""
        self.path.write_text(yaml.safe_dump(self.document))
        self.stack.stack.run_command("task", "create", "-f", str(self.path), *options)

    def execute(self, *statements: str) -> None:
        """On the source's primary."""
        with closing(self.stack.connect()) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
                connection.commit()

    def wait_blocked(self) -> TaskReport:
        """Until a statement needs a decision."""
        return self.stack.wait_report(NAME, TaskState.BLOCKED, "MR-5204")

    def accept(self, blocked: TaskReport) -> None:
        """Add the seq of the status to the document, as its fix says."""
        assert "accept_ddl" in blocked.fix
        seq = int(blocked.why.partition("at seq ")[2].split()[0])
        self.document["accept_ddl"] = [*self.document.get("accept_ddl", ()), seq]
        self.write("--replace")
        self.stack.wait_running(NAME)

    def rows(self, table: str) -> list[Published]:
        """The records of a table's topic; [] without it."""
        task = parse_task(self.document)
        assert isinstance(task, PublishTask)
        topics = [f"{NAME}.of.{table}"]
        return answered(lambda: published(task, topics), Retryable)

    def wait_for(self, table: str, *ids: int) -> None:
        """Until the topic has records of these keys, of each one."""

        def has_them() -> bool:
            with self.stack.control() as session:
                report = self.stack.report(session, NAME)
            assert report.state is not TaskState.BLOCKED, (report.code, report.why)
            return sorted(one.key["id"] for one in self.rows(table)) == sorted(ids)

        eventually(has_them, every_s=0.5, what=f"rows {ids} of {table}")


@pytest.fixture
def stated(fault_stack: FaultStack, tmp_path: Path) -> Iterator[Stated]:
    """The task runs, and has published a row of a table."""
    applied = yaml.safe_load((fault_stack.stack.folder / f"{APPLY_TASK}.yaml").read_text())
    task = Stated(fault_stack, tmp_path / "task.yaml")
    task.document |= {name: applied[name] for name in ("kafka", "registry")}
    task.execute(f"CREATE DATABASE {NAME}", f"CREATE TABLE {NAME}.t {COLUMNS}")
    try:
        task.write()
        task.execute(
            f"INSERT INTO {NAME}.t VALUES (1, 'PAID', 500, 'a'), (2, 'open', 500, 'b'), (3, 'open', 5, 'c')"
        )
        task.wait_for("t", 1, 3)
        yield task
    finally:
        fault_stack.stack.try_command("task", "delete", NAME)
        task.execute(f"DROP DATABASE {NAME}")


@on(Flavour.MYSQL)
@pytest.mark.usefixtures("fault_stack")
def test_statements_pass_or_wait_for_the_operator(stated: Stated) -> None:
    """A new table has its topic without a restart. Rows after a statement that stops come when it is accepted."""
    epoch = stated.stack.epoch(NAME)
    stated.execute(
        f"CREATE TABLE {NAME}.u {COLUMNS}",
        f"INSERT INTO {NAME}.u VALUES (7, 'pAID', 1000, 'd'), (8, 'open', 1000, 'd')",
        f"ALTER TABLE {NAME}.u ADD COLUMN more INT",
        f"INSERT INTO {NAME}.u VALUES (9, NULL, 9, 'e', 99)",
    )
    stated.wait_for("u", 7, 9)
    assert stated.rows("u")[-1].value == {"id": 9, "status": None, "amount": 9, "more": 99}
    assert stated.stack.epoch(NAME) == epoch

    stated.execute(
        f"INSERT INTO {NAME}.t VALUES (4, 'open', 4, NULL)",
        f"ALTER TABLE {NAME}.t MODIFY amount SMALLINT",
        f"INSERT INTO {NAME}.t VALUES (5, 'open', 5, NULL)",
    )
    blocked = stated.wait_blocked()
    assert "amount" in blocked.why
    assert sorted(one.key["id"] for one in stated.rows("t")) == [1, 3, 4]
    stated.accept(blocked)
    stated.wait_for("t", 1, 3, 4, 5)

    stated.execute(
        f"ALTER TABLE {NAME}.t DROP COLUMN note", f"INSERT INTO {NAME}.t VALUES (6, 'paid', 600)"
    )
    blocked = stated.wait_blocked()
    assert "note" in blocked.why
    first = {**stated.document["tables"][0], "from": f"{NAME}.t"}
    del first["columns"]
    stated.document["tables"] = [first, *stated.document["tables"]]
    stated.accept(blocked)
    stated.wait_for("t", 1, 3, 4, 5, 6)

    stated.execute(f"RENAME TABLE {NAME}.u TO {NAME}.t2, {NAME}.t TO {NAME}.u2")
    blocked = stated.wait_blocked()
    stated.accept(blocked)
    stated.execute(f"INSERT INTO {NAME}.t2 VALUES (10, 'paid', 600, NULL, 1)")
    stated.wait_for("t2", 10)
