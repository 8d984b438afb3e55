"""The document of a publish task is changed under load: a subscriber proves that each row has one definition.

The subscriber is a program of its own (``tests/oracle/subscriber.py``). What it must have is computed without the
product from the records of the set topic and the history of definitions (``tests/oracle/published.py``).
"""

import json
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml

from millrace.deploy.local.services import APPLY_TASK, TOPIC
from millrace.schemas.gtid import Flavour
from tests.fixtures.stack import FaultStack, on
from tests.kit.waiting import PATIENCE_S, eventually
from tests.oracle import subscriber
from tests.oracle.published import Condition, Sent, View, compare, read_history
from tests.oracle.reader import Reading, Topic, end_of, read_again
from tests.oracle.record import Change

PAUSE_S = 0.04  # of the load, between two source transactions
ROWS = 300  # of the set topic, under each definition
SHOWN_MIN = 30  # records under each definition
COLLATIONS = {Flavour.MARIADB: "utf8mb4_general_ci", Flavour.MYSQL: "utf8mb4_0900_ai_ci"}
STATUSES = ("paid", "PAID", "Pàid", "paid ", "open", "", None)
PAID = "((`status` = 'paid') OR (`amount` >= 900))"
SQL = (
    "CREATE TABLE orders (id INT PRIMARY KEY, status VARCHAR(20) CHARACTER SET utf8mb4 COLLATE {collation},"
    " name VARCHAR(40) CHARACTER SET utf8mb4, note VARCHAR(40) CHARACTER SET utf8mb4,"
    " mail VARCHAR(60) CHARACTER SET utf8mb4, amount INT NOT NULL)",
    "CREATE TABLE parts (area VARCHAR(8) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, n INT,"
    " v VARCHAR(40) CHARACTER SET utf8mb4, PRIMARY KEY (area, n))",
)
KEYS = {"orders": ("id",), "parts": ("area", "n")}


@dataclass(frozen=True, slots=True)
class Task:
    """The documents of a task, one after the other, in a separate database."""

    name: str
    folder: Path
    access: Mapping[str, Any]

    @property
    def database(self) -> str:
        return self.name

    @property
    def prefix(self) -> str:
        """The first part of its topics' names."""
        return f"{self.name}.of."

    def documents(self) -> Iterator[str]:
        """The path of each document."""
        orders: dict[str, Any] = {"from": f"{self.database}.orders"}
        parts: dict[str, Any] = {"from": f"{self.database}.p*"}
        document: dict[str, Any] = {"task": self.name, "kind": "publish", "topic": TOPIC}
        document |= {**self.access, "tables": [orders, parts], "partitions": 2, "slots": 2}
        document |= {"topics": f"{self.prefix}{{database}}.{{table}}", "records": "json"}
        yield self._written(document)
        orders["where"] = PAID
        yield self._written(document)
        orders["columns"] = {"drop": ["note"], "rename": {"id": "order_id", "name": "title"}}
        parts["columns"] = {"add": {"version": 2}}
        yield self._written(document)
        salt = self.folder / "salt"
        salt.write_text("a key for masks")
        orders["mask"] = {"mail": f"hmac-sha256(file:{salt})", "title": "redact"}
        parts["mask"] = {"v": "truncate(2)"}
        yield self._written(document)
        document["partitions"] = 3
        yield self._written(document)
        document["records"] = {"format": "debezium-json", "types": "exact"}
        yield self._written(document)

    def _written(self, document: Mapping[str, Any]) -> str:
        path = self.folder / "task.yaml"
        path.write_text(yaml.safe_dump(document))
        return str(path)


@dataclass
class Load:
    """Inserts, updates, deletes and changes of keys, committed by a thread until it is stopped."""

    stack: FaultStack
    database: str
    random: Random = field(default_factory=lambda: Random(4))
    count: int = 0
    failure: BaseException | None = None
    stopped: threading.Event = field(default_factory=threading.Event)

    def work(self) -> None:
        try:
            with closing(self.stack.connect(self.database)) as connection:
                while not self.stopped.wait(PAUSE_S):
                    with connection.cursor() as cursor:
                        for _ in range(self.random.randint(1, 4)):
                            self._change(cursor)
                    connection.commit()
        except BaseException as failure:  # noqa: BLE001 - raised by the thread that waits
            self.failure = failure

    def _change(self, cursor: Any) -> None:
        any_of = self.random.randint
        key = any_of(1, self.count + 1)
        match any_of(0, 9):
            case 0 | 1 | 2 | 3:
                self.count += 1
                row = (self.count, self.random.choice(STATUSES), f"n{key} ü", f'no "{key}"')
                cursor.execute(
                    "INSERT INTO orders VALUES (%s, %s, %s, %s, %s, %s)",
                    (*row, self.random.choice((None, f"m{key}@x.org")), any_of(0, 999)),
                )
                cursor.execute(
                    "INSERT INTO parts VALUES (%s, %s, %s)", (f"a{key % 7}", self.count, f"äv{key}")
                )
            case 4 | 5:
                status = self.random.choice(STATUSES)
                cursor.execute(
                    "UPDATE orders SET status = %s, amount = %s WHERE id BETWEEN %s AND %s",
                    (status, any_of(0, 999), key, key + 3),
                )
            case 6:
                cursor.execute("UPDATE parts SET v = CONCAT(v, '+') WHERE n = %s", (key,))
            case 7:
                cursor.execute("DELETE FROM orders WHERE id = %s", (key,))
            case 8:
                cursor.execute("UPDATE orders SET id = id + 1000000 WHERE id = %s", (key,))
                cursor.execute("UPDATE parts SET area = 'b', v = NULL WHERE n = %s", (key,))
            case _:
                cursor.execute("DELETE FROM parts WHERE n = %s", (key,))


@contextmanager
def _loaded(stack: FaultStack, database: str) -> Iterator[Load]:
    load = Load(stack, database)
    thread = threading.Thread(target=load.work, name="load of a changed view")
    thread.start()
    try:
        yield load
    finally:
        load.stopped.set()
        thread.join()
        if load.failure is not None:
            raise load.failure


@contextmanager
def _subscribed(stack: FaultStack, prefix: str, output: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The subscriber, which reads from before the task's first record on."""
    program = str(Path(subscriber.__file__))
    command = [sys.executable, "-I", program, stack.stack.endpoints.kafka, prefix]
    with output.open("wb") as lines, output.with_suffix(".log").open("wb") as log:
        process = subprocess.Popen(command, stdout=lines, stderr=log)
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def _wait_for(stack: FaultStack, task: str, definition: int) -> None:
    """Until the task has passed enough rows under its definition of this number."""
    with stack.control() as session:

        def has_passed() -> bool:
            report = stack.report(session, task)
            assert report.state.value != "blocked", (report.code, report.why)
            stage = report.delivered
            return (
                stage is not None
                and stage.definition == definition
                and report.seq - stage.from_seq >= ROWS
            )

        eventually(has_passed, every_s=0.1, what=f"{ROWS} rows under definition {definition}")


def _conditions(stack: FaultStack, flavour: Flavour) -> dict[str, Condition]:
    """The condition of the documents in plain Python. The source decides which texts are equal."""
    collation = COLLATIONS[flavour]
    equal = f"_utf8mb4'{{}}' COLLATE {collation} = _utf8mb4'paid' COLLATE {collation}"
    texts = [one for one in STATUSES if one is not None]
    selected = ", ".join(equal.format(one) for one in texts)
    with closing(stack.connect()) as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT {selected}")
        (answers,) = cursor.fetchall()
    paid = {one for one, answer in zip(texts, answers, strict=True) if answer}
    assert {"paid", "PAID"} <= paid < {*texts}
    return {PAID: lambda row: row["status"] in paid or row["amount"] >= 900}


@dataclass(frozen=True, slots=True)
class Proof:
    """The records that the subscriber must have, from the set topic, and those that it has."""

    stack: FaultStack
    task: Task
    views: tuple[View, ...]

    def view(self, seq: int) -> View:
        """The view that describes the row of this seq."""
        return next(one for one in reversed(self.views) if one.definition.first_seq <= seq)

    def expected(self, start: int) -> Iterator[Sent]:
        """From an offset of the set topic on."""
        endpoints = self.stack.stack.endpoints
        topic = Topic(endpoints.kafka, TOPIC, endpoints.registry)
        for message in read_again(topic, start, end_of(topic), Reading()):
            change = message.change
            if isinstance(change, Change) and change.database == self.task.database:
                yield from self.view(message.seq).sent(message.seq, change, KEYS[change.table])

    def check(self, start: int, output: Path) -> None:
        """The records are equal, and each definition has some of each kind."""
        expected = list(self.expected(start))
        with output.open() as lines:
            count = compare(expected, map(json.loads, lines), self.view)
        shown = Counter(self.view(one.seq).definition.first_seq for one in expected)
        deleted = Counter(
            self.view(one.seq).definition.first_seq for one in expected if one.value is None
        )
        print(f"{self.task.name}: {count} records, by definition {shown}, deletes {deleted}")
        assert len(shown) == len(deleted) == len(self.views)
        assert min(shown.values()) >= SHOWN_MIN


def _created(stack: FaultStack, task: Task, collation: str) -> None:
    """The tables of the task's database, which the next load drops."""
    with closing(stack.connect()) as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {task.database}")
        stack.databases.append(task.database)
        cursor.execute(f"USE {task.database}")
        for statement in SQL:
            cursor.execute(statement.format(collation=collation))


def _changed(stack: FaultStack, task: Task, *, is_killed: bool) -> int:
    """Run the commands of a user, each after rows under the definition before; how many definitions there are."""
    number, run = 0, stack.stack.run_command
    for number, path in enumerate(task.documents(), 1):
        planned = stack.stack.try_command("plan", "-f", path).stdout
        assert f"task {task.name}" in planned, planned
        if number == 1:
            run("task", "create", "-f", path)
        elif number % 2:
            run("plan", "-f", path, "--execute")
        else:
            run("task", "create", "-f", path, "--replace")
        if is_killed and number % 2:
            stack.restart("apply")  # its driver may have taken the document, or not
        _wait_for(stack, task.name, number)
        if is_killed and number == 4:
            stack.restart("apply")
    run("task", "rollback", task.name, "1")
    _wait_for(stack, task.name, number + 1)
    return number + 1


@pytest.mark.guarantee("complete")
@pytest.mark.parametrize("is_killed", [False, True], ids=["driver-lives", "driver-is-killed"])
@on(Flavour.MARIADB)
def test_each_row_is_written_under_one_definition(
    fault_stack: FaultStack, tmp_path: Path, *, is_killed: bool
) -> None:
    """Condition, columns, masks, partitions, format, and a rollback to the first document, while rows change."""
    stack, flavour = fault_stack.stack, fault_stack.stack.options.flavour
    applied = yaml.safe_load((stack.folder / f"{APPLY_TASK}.yaml").read_text())
    access = {name: applied[name] for name in ("kafka", "registry")}
    task = Task(f"changed{int(is_killed)}", tmp_path, access)
    start = end_of(Topic(stack.endpoints.kafka, TOPIC, stack.endpoints.registry))
    _created(fault_stack, task, COLLATIONS[flavour])
    output = tmp_path / "records"
    try:
        with _subscribed(fault_stack, task.prefix, output) as reading:
            with _loaded(fault_stack, task.database):
                count = _changed(fault_stack, task, is_killed=is_killed)
            stack.run_command("task", "wait", task.name, "--timeout", "300")
            reading.terminate()
            assert reading.wait(PATIENCE_S) == 0, output.with_suffix(".log").read_text()
        history = read_history(stack.endpoints.kafka, task.name)
        assert len(history) == count
        conditions = _conditions(fault_stack, flavour)
        views = tuple(View(one, conditions) for one in history)
        Proof(fault_stack, task, views).check(start, output)
        verified = stack.run_command("topic", "verify", "--task", task.name)
        assert verified.count(": whole") == len(KEYS), verified
    finally:
        stack.try_command("task", "delete", task.name)
