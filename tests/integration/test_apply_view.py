"""Apply under a view, on targets of both flavours: other names, other columns, and what is refused.

The oracle is the content of the server's tables.
"""

import hmac
import json
import random
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest

from millrace.consumer.checks.target import TargetUse, check_target
from millrace.consumer.target.conflicts import read_conflict, schema_of
from millrace.consumer.target.intents import decide_intent
from millrace.consumer.task import start
from millrace.consumer.write.resolve_conflict import replay
from millrace.deploy.servers import DatabaseServer
from millrace.drivers.mysql.connection import connect
from millrace.errors import Fatal, MillraceError
from millrace.schemas.documents import (
    ApplyTask,
    CaptureTask,
    ConflictPolicy,
    RefusedPolicy,
    SetDocument,
)
from millrace.schemas.gtid import Flavour
from millrace.schemas.record.avro_codec import decode
from millrace.schemas.table.structure import Column, ColumnType, TableSchema, TextEncoding, TypeCode
from millrace.schemas.view.view import Mask, MaskKind, TableRule, View
from tests.kit.apply.documents import local_set
from tests.kit.apply.local import (
    LocalApplier,
    LocalRecords,
    apply_task,
    endpoint_of,
    ignore,
    run_once,
    started,
)
from tests.kit.apply.tables import integer, table, text
from tests.kit.apply.topic import RecordStream
from tests.kit.control.control import a_capture

SALES = (
    "CREATE TABLE {}.sales_1 (email VARCHAR(80), own INT DEFAULT 7, id BIGINT PRIMARY KEY, amount BIGINT NOT NULL,"
    " UNIQUE KEY (email)) DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci"
)


@pytest.fixture
def house(name: str, target_server: DatabaseServer) -> Iterator[str]:
    """The database that the view gives to tables of the source's database ``name``."""
    made = f"{name}_house"
    target_server.execute(f"CREATE DATABASE {made}")
    yield made
    target_server.execute(f"DROP DATABASE IF EXISTS {made}")


def _task(name: str, house: str, **more: object) -> ApplyTask:
    rule = TableRule(
        f"{name}.orders_*", f"{house}.sales_{{1}}", drop=("note",), rename=(("mail", "email"),)
    )
    return replace(apply_task(name, **more), view=View((rule, TableRule(f"{name}.plain"))))  # type: ignore[arg-type]


def _orders(name: str, number: int = 1) -> TableSchema:
    columns = (integer("id"), text("note"), text("mail"), integer("amount"))
    return table(name, f"orders_{number}", *columns)


def _order(number: int, mail: str, amount: int = 0) -> dict[str, object]:
    return {"id": number, "note": f"secret {number}", "mail": mail, "amount": amount}


def _history(name: str) -> tuple[RecordStream, dict[int, tuple[str, int]]]:
    """Many inserts, then changes of rows and keys, and two rows that exchange texts that are equal without case."""
    stream, made, chance = RecordStream(), _orders(name), random.Random(3)
    rows: dict[int, dict[str, object]] = {}
    for number in range(150):
        rows[number] = _order(number, f"Mail{number}")
        stream.insert(made, rows[number])
    stream.commit()
    for _ in range(300):
        number = chance.choice(sorted(rows))
        before = rows.pop(number)
        if chance.random() < 0.1:
            stream.delete(made, before)
            continue
        moved = number if chance.random() < 0.8 else number + 1000
        if moved in rows:
            rows[number] = before
            continue
        rows[moved] = before | {"id": moved, "amount": chance.randrange(100), "note": "other"}
        stream.update(made, before, rows[moved])
    one, two = sorted(rows)[:2]
    left, right = rows[one], rows[two]
    free = left | {"mail": None}
    stream.update(made, left, free)
    rows[two] = right | {"mail": str(left["mail"]).upper()}
    stream.update(made, right, rows[two])
    rows[one] = free | {"mail": str(right["mail"]).lower()}
    stream.update(made, free, rows[one])
    stream.commit()
    return stream, {key: (str(row["mail"]), int(str(row["amount"]))) for key, row in rows.items()}


@pytest.mark.parametrize(
    ("is_large", "executors"), [(True, 1), (False, 1), (True, 3)], ids=["lanes", "serial", "shares"]
)
def test_names_and_columns_are_mapped(
    name: str, house: str, target_server: DatabaseServer, is_large: bool, executors: int
) -> None:
    """By name: the target has another order, wider types, one column less and one more, which keeps its default."""
    target_server.execute(SALES.format(house))
    stream, wanted = _history(name)
    with closing(started(target_server, _task(name, house))) as applier:
        records = LocalRecords(
            stream.values, is_large=is_large, window_rows=130, executors=executors
        )
        applier.process(records, ignore)
        assert applier.mark.seq == stream.seq
    found = target_server.execute(f"SELECT id, email, amount, own FROM {house}.sales_1")
    assert {key: (mail, amount) for key, mail, amount, _ in found} == wanted
    assert {own for *_, own in found} == {7}


def test_conflict_has_both_names_and_is_replayed(
    name: str, house: str, target_server: DatabaseServer
) -> None:
    """The stored record has the names of the view, and nothing of a column that it leaves out."""
    target_server.execute(SALES.format(house))
    target_server.execute(f"INSERT INTO {house}.sales_1 VALUES ('TAKEN', 1, 5, 5)")
    stream = RecordStream()
    stream.insert(_orders(name), _order(1, "taken", 3))
    stream.commit()
    task = _task(name, house, conflict=ConflictPolicy.SKIP)
    run_once(target_server, task, stream)
    with closing(connect(endpoint_of(target_server))) as session:
        conflict = read_conflict(session, name, 1).conflict
        assert conflict.shown_table == f"{name}.orders_1 ({house}.sales_1)"
        assert b"secret" not in conflict.record
        record = decode(schema_of(session, name, conflict), conflict.record[5:])
        assert record["after"] == {"id": 1, "email": "taken", "amount": 3}
    target_server.execute(f"DELETE FROM {house}.sales_1")
    replay(endpoint_of(target_server), name, 1)
    assert target_server.execute(f"SELECT id, email, amount FROM {house}.sales_1") == [
        (1, "taken", 3)
    ]


@pytest.mark.parametrize("has_further_key", [True, False])
def test_overwrite_never_removes_values_that_the_view_does_not_have(
    name: str, house: str, target_server: DatabaseServer, *, has_further_key: bool
) -> None:
    """REPLACE would give the target's own column its default, and an upsert may meet a row of a further key."""
    target_server.execute(SALES.format(house))
    if not has_further_key:
        target_server.execute(f"ALTER TABLE {house}.sales_1 DROP KEY email")
    target_server.execute(
        f"INSERT INTO {house}.sales_1 VALUES ('TAKEN', 1, 1, 5), ('OTHER', 2, 2, 6)"
    )
    stream = RecordStream()
    stream.insert(_orders(name), _order(1, "taken"))
    stream.update(_orders(name), _order(3, "third"), _order(2, "second"))
    stream.commit()
    task = _task(name, house, conflict=ConflictPolicy.OVERWRITE)
    found = f"SELECT id, email, own FROM {house}.sales_1 ORDER BY id"
    if has_further_key:
        with pytest.raises(Fatal, match=r"MR-5010.*would remove the values of own"):
            run_once(target_server, task, stream)
        assert target_server.execute(found) == [(1, "TAKEN", 1), (2, "OTHER", 2)]
        return
    run_once(target_server, task, stream)
    assert target_server.execute(found) == [(1, "taken", 1), (2, "second", 2)]


BUYERS = (
    "CREATE TABLE {0}.buyers (id INT PRIMARY KEY, shard VARCHAR(20) NOT NULL, email VARCHAR(64) CHARACTER SET ascii,"
    " part INT NOT NULL, UNIQUE KEY (shard, id))",
    "CREATE TABLE {0}.bills (id INT PRIMARY KEY, buyer INT, FOREIGN KEY (buyer) REFERENCES {0}.buyers (id))",
)


def _buyers(name: str) -> TableSchema:
    return table(name, "buyers", integer("id"), text("mail"), integer("state"))


def _masking(name: str, house: str, secret: Path, **more: object) -> ApplyTask:
    rule = TableRule(
        f"{name}.buyers",
        f"{house}.{{table}}",
        where="state < 5",
        drop=("state",),
        rename=(("mail", "email"),),
        add=(("part", -3), ("shard", "{database}")),
        masks=(("email", Mask(MaskKind.HMAC, secret=f"file:{secret}")),),
    )
    rules = (rule, TableRule(f"{name}.bills", f"{house}.{{table}}"))
    return replace(apply_task(name, **more), view=View(rules))  # type: ignore[arg-type]


@pytest.mark.parametrize("is_large", [True, False])
def test_target_has_only_rows_and_values_of_the_view(
    name: str, house: str, target_server: DatabaseServer, tmp_path: Path, is_large: bool
) -> None:
    """A parent row leaves the view and comes back while its child stays: the target's foreign key does not see it."""
    for sql in BUYERS:
        target_server.execute(sql.format(house))
    (secret := tmp_path / "salt").write_text("pepper")
    stream, buyers = RecordStream(), _buyers(name)
    bills = table(name, "bills", integer("id"), integer("buyer", nullable=True))
    rows: dict[int, dict[str, object]] = {}
    for number in range(240):
        rows[number] = {"id": number, "mail": f"planted{number}", "state": number % 10}
        stream.insert(buyers, rows[number])
    for number in range(0, 240, 10):
        stream.insert(bills, {"id": number, "buyer": number})
    stream.commit()
    chance = random.Random(5)
    for _ in range(300):
        number = chance.randrange(240)
        before = rows[number]
        rows[number] = before | {"state": chance.randrange(10)}
        stream.update(buyers, before, rows[number])
    stream.commit()
    run_once(target_server, _masking(name, house, secret), stream, is_large=is_large)
    found = target_server.execute(f"SELECT id, shard, email, part FROM {house}.buyers ORDER BY id")
    assert found == [
        (number, name, hmac.new(b"pepper", str(row["mail"]).encode(), "sha256").hexdigest(), -3)
        for number, row in sorted(rows.items())
        if int(str(row["state"])) < 5
    ]
    assert target_server.execute(f"SELECT COUNT(*) FROM {house}.bills") == [(24,)]


def test_masked_values_are_in_no_table_of_millrace(
    name: str, house: str, target_server: DatabaseServer, tmp_path: Path
) -> None:
    """Conflicts and statements are stored as the view has them; a replay writes the masked value."""
    for sql in BUYERS:
        target_server.execute(sql.format(house))
    (secret := tmp_path / "salt").write_text("pepper")
    target_server.execute(f"INSERT INTO {house}.buyers VALUES (1, 'x', 'y', 1)")
    stream = RecordStream()
    stream.insert(_buyers(name), {"id": 1, "mail": "planted", "state": 1})
    stream.ddl(f"ALTER TABLE {name}.buyers ALTER mail SET DEFAULT 'planted too'")
    stream.commit()
    task = _masking(name, house, secret, conflict=ConflictPolicy.SKIP)
    with pytest.raises(Fatal, match="MR-5042") as caught:
        run_once(target_server, task, stream)
    assert "planted" not in f"{caught.value} {caught.value.fix}"
    for (made,) in target_server.execute("SHOW TABLES IN millrace"):
        rows = target_server.execute(f"SELECT * FROM millrace.{made}")
        assert not any("planted" in str(row) and str(row[0]) == name for row in rows), made
    target_server.execute(f"DELETE FROM {house}.buyers")
    replay(endpoint_of(target_server), name, 1)
    masked = hmac.new(b"pepper", b"planted", "sha256").hexdigest()
    assert target_server.execute(f"SELECT email, shard FROM {house}.buyers") == [(masked, name)]
    secret.write_text("salt")
    with pytest.raises(Fatal, match="MR-5203"):
        started(target_server, task)


def test_refused_row_is_kept_as_the_view_has_it(
    name: str, house: str, target_server: DatabaseServer, tmp_path: Path
) -> None:
    """Its keys are those of the view's row, also when they are computed from the stored record."""
    for sql in BUYERS:
        target_server.execute(sql.format(house))
    target_server.execute(f"ALTER TABLE {house}.buyers ADD CONSTRAINT small CHECK (id < 2)")
    (secret := tmp_path / "salt").write_text("pepper")
    stream = RecordStream()
    for number in (1, 2):
        stream.insert(_buyers(name), {"id": number, "mail": "planted", "state": 1})
        stream.insert(
            table(name, "bills", integer("id"), integer("buyer")), {"id": number, "buyer": number}
        )
    stream.commit()
    task = _masking(name, house, secret, refused=RefusedPolicy.ASIDE)
    run_once(target_server, task, stream)
    keys = "SELECT * FROM millrace.aside_key WHERE task = %s ORDER BY hash, seq"
    before = target_server.execute(keys, (name,))
    assert {row[2] for row in before} == {3, 4}
    for (made,) in target_server.execute("SHOW TABLES IN millrace"):
        rows = target_server.execute(f"SELECT * FROM millrace.{made}")
        assert not any("planted" in str(row) and str(row[0]) == name for row in rows), made
    # the row leaves the view, which is a delete of it
    first = len(stream.values)
    stream.update(
        _buyers(name),
        {"id": 2, "mail": "planted", "state": 1},
        {"id": 2, "mail": "planted", "state": 7},
    )
    stream.ddl(f"ALTER TABLE {name}.buyers COMMENT 'x'")
    with (
        closing(started(target_server, task)) as applier,
        pytest.raises(Fatal, match=f"MR-5046 .*2 of {house}.buyers"),
    ):
        applier.process(LocalRecords(stream.values[first:], first=first), ignore)
    found = target_server.execute(keys, (name,))
    assert [row for row in found if row[2] != 5] == list(before)
    assert {row[2] for row in found} == {3, 4, 5}
    target_server.execute(f"ALTER TABLE {house}.buyers DROP CONSTRAINT small")
    assert replay(endpoint_of(target_server), name, 4) == [3, 4, 5]
    assert target_server.execute(f"SELECT id FROM {house}.buyers") == [(1,)]
    assert target_server.execute(f"SELECT id, buyer FROM {house}.bills") == [(1, 1), (2, 2)]


def test_edited_view_is_refused(name: str, house: str, target_server: DatabaseServer) -> None:
    """Rows above the mark may have been applied under the other one. The task's own view is accepted."""
    target_server.execute(SALES.format(house))
    stream, _ = _history(name)
    task = _task(name, house)
    run_once(target_server, task, stream)
    for view in (View((TableRule(f"{name}.*", f"{house}.{{table}}"),)), apply_task(name).view):
        with pytest.raises(Fatal, match="MR-5209"):
            started(target_server, replace(task, view=view))
    started(target_server, task).close()
    other = f"{name}-plain"
    run_once(target_server, apply_task(other, exclude=(f"{name}.*",)), stream)
    with pytest.raises(Fatal, match="MR-5209"):
        started(target_server, replace(apply_task(other), view=task.view))
    started(target_server, apply_task(other)).close()


@pytest.mark.parametrize(
    "sql",
    [
        "ALTER TABLE {name}.plain RENAME TO {name}.orders_7",
        "CREATE TABLE {name}.copy LIKE {name}.orders_1",
        "CREATE TABLE {house}.sales_9 (id INT)",
        "DROP DATABASE {house}",
        "DROP DATABASE {name}",
        "TRUNCATE {house}.sales_1",
    ],
)
def test_statement_about_a_changed_name_blocks(
    name: str, house: str, target_server: DatabaseServer, sql: str
) -> None:
    """Also one that names a table of the source as the view names another one. No decision executes its text."""
    _check_blocked(name, house, target_server, sql)


def test_unknown_statement_is_not_executed_under_a_view(
    name: str, house: str, target_server: DatabaseServer
) -> None:
    """It may have names that the view changes."""
    _check_blocked(name, house, target_server, "FROBNICATE {house}.sales_1")


def _check_blocked(name: str, house: str, target_server: DatabaseServer, sql: str) -> None:
    """The statement blocks the task until an operator says that it is done."""
    target_server.execute(SALES.format(house))
    target_server.execute(f"INSERT INTO {house}.sales_1 VALUES ('kept', 1, 1, 5)")
    stream = RecordStream()
    stream.ddl(sql.format(name=name, house=house))
    stream.insert(_orders(name), _order(2, "next"))
    stream.commit()
    rules = (*_task(name, house).view.rules, TableRule(f"{house}.*"), TableRule(f"{name}.copy"))
    task = replace(apply_task(name), view=View(rules))
    with pytest.raises(Fatal, match=r"MR-5042.*the view of the task changes"):
        run_once(target_server, task, stream)
    with closing(connect(endpoint_of(target_server))) as session:
        decide_intent(session, name, seq=1, decision="execute")
        with pytest.raises(Fatal, match="MR-5042"):
            run_once(target_server, task, stream)
        decide_intent(session, name, seq=1, decision="done")
    run_once(target_server, task, stream)
    assert target_server.execute(f"SELECT email FROM {house}.sales_1 ORDER BY id") == [
        ("kept",),
        ("next",),
    ]


def test_statement_about_an_unchanged_table_is_executed(
    name: str, house: str, target_server: DatabaseServer
) -> None:
    """And its rows go to the table of the same name."""
    stream = RecordStream()
    stream.ddl(f"CREATE TABLE {name}.plain (id INT PRIMARY KEY)")
    stream.insert(table(name, "plain", integer("id")), {"id": 4})
    stream.commit()
    run_once(target_server, _task(name, house), stream)
    assert target_server.execute(f"SELECT id FROM {name}.plain") == [(4,)]


@pytest.mark.parametrize(
    ("columns", "code", "says"),
    [
        ("id INT PRIMARY KEY, amount INT", "MR-5013", "has no column email"),
        ("id INT PRIMARY KEY, mail TEXT, amount INT", "MR-5013", "has no column email"),
        (
            "id INT PRIMARY KEY, email TEXT, amount INT, x INT NOT NULL",
            "MR-5206",
            "x of the target",
        ),
    ],
)
def test_target_that_does_not_fit_is_named(
    name: str, house: str, target_server: DatabaseServer, columns: str, code: str, says: str
) -> None:
    """The message names what differs, and the fix how to map it. Nothing is written."""
    target_server.execute(f"CREATE TABLE {house}.sales_1 ({columns})")
    stream, _ = _history(name)
    with pytest.raises(Fatal, match=says) as caught:
        run_once(target_server, _task(name, house), stream)
    assert caught.value.code == code
    assert f"{name}.orders_1 ({house}.sales_1)" in caught.value.message
    assert "`columns: {rename: {" in caught.value.fix
    assert target_server.execute(f"SELECT COUNT(*) FROM {house}.sales_1") == [(0,)]


def test_second_table_of_one_name_is_refused(
    name: str, house: str, target_server: DatabaseServer
) -> None:
    """Its first row blocks the task, and the first table's rows stay as they are."""
    target_server.execute(SALES.format(house))
    rule = TableRule(
        f"{name}.orders_*", f"{house}.sales_1", drop=("note",), rename=(("mail", "email"),)
    )
    task = replace(apply_task(name), view=View((rule,)))
    stream = RecordStream()
    stream.insert(_orders(name, 1), _order(1, "a"))
    stream.commit()
    run_once(target_server, task, stream)
    stream.insert(_orders(name, 2), _order(2, "b"))
    stream.commit()
    with pytest.raises(Fatal, match=r"MR-5207.*orders_1"):
        run_once(target_server, task, stream)
    assert target_server.execute(f"SELECT id, email FROM {house}.sales_1") == [(1, "a")]


def test_stored_view_shows_no_more_than_the_document(
    name: str, house: str, target_server: DatabaseServer
) -> None:
    """A task that only chooses tables stores none."""
    target_server.execute(SALES.format(house))
    stream, _ = _history(name)
    run_once(target_server, _task(name, house), stream)
    run_once(target_server, apply_task(f"{name}-plain", exclude=(f"{name}.*",)), stream)
    found = target_server.execute(
        f"SELECT task, begin_seq, content FROM millrace.view WHERE task LIKE '{name}%'"
    )
    ((task, begin, content),) = found
    assert (task, begin) == (name, 0)
    assert json.loads(str(content))["tables"][0]["from"] == f"{name}.orders_*"


@dataclass
class _OneSource:
    """Documents of a task whose topic comes from this set."""

    document: SetDocument

    def set_document(self, _: str) -> SetDocument:
        """The set."""
        return self.document

    def capture_task_of(self, _: ApplyTask) -> CaptureTask:
        """The task that captures it."""
        return a_capture()


def test_source_decides_which_texts_a_condition_admits(
    name: str, house: str, target_server: DatabaseServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its weights are stored with the view: the task continues with them while the source is away."""
    is_mysql = target_server.flavour is Flavour.MYSQL
    number, collation = (255, "utf8mb4_0900_ai_ci") if is_mysql else (45, "utf8mb4_general_ci")
    encoding = TextEncoding("utf8mb4", number)
    state = Column("state", ColumnType(TypeCode.VARCHAR, 80, text=encoding), nullable=True)
    source = table(name, "people", integer("id"), state)
    monkeypatch.setattr(start, "topic_tables", lambda _: (source,))
    monkeypatch.setenv("MILLRACE_TEST_VIEWS", target_server.password)
    document = local_set(
        "source", [target_server.port], user=target_server.user, variable="MILLRACE_TEST_VIEWS"
    )
    away = replace(document, members=(replace(document.members[0], port=1),))
    target_server.execute(f"CREATE TABLE {house}.people (id INT PRIMARY KEY, state VARCHAR(20))")
    texts = ("straße", "STRASSE", "Strase", "other", "", None)
    equal = [
        at
        for at, one in enumerate(texts)
        if one is not None
        and target_server.execute("SELECT %s = 'straße' COLLATE " + collation, (one,)) == [(1,)]
    ]
    stream = RecordStream()
    for at, one in enumerate(texts):
        stream.insert(source, {"id": at, "state": one})
    stream.commit()
    rule = TableRule(f"{name}.*", f"{house}.{{table}}", where="state = 'straße'")
    task = replace(apply_task(name), view=View((rule,)))
    endpoint = endpoint_of(target_server)

    def run(asked: SetDocument) -> None:
        weigh = partial(start.weighed, task, _OneSource(asked))
        with closing(connect(endpoint)) as session:
            owner = start.owner_of(session, task, epoch=1)
            assert owner is not None
            made = start.applier_of(session, endpoint, task, owner, weigh=weigh)
        with closing(LocalApplier(made.assignment, made.owner, made.mark)) as applier:
            applier.process(LocalRecords(stream.values), ignore)

    with pytest.raises(MillraceError):
        run(away)
    run(document)
    stream.insert(source, {"id": 10, "state": "STRASSE"})
    stream.commit()
    run(away)
    wanted = [*equal, *([10] if 1 in equal else [])]
    assert target_server.execute(f"SELECT id FROM {house}.people ORDER BY id") == [
        (at,) for at in wanted
    ]
    assert equal[:1] == [0]


def test_view_of_an_earlier_task_of_the_name_is_forgotten(
    name: str, house: str, target_server: DatabaseServer
) -> None:
    """Its progress was deleted manually: the first mark of the new one comes with its own view."""
    target_server.execute(SALES.format(house))
    stream, _ = _history(name)
    run_once(target_server, _task(name, house), stream)
    target_server.execute(f"DELETE FROM millrace.progress WHERE task = '{name}'")
    left_out = apply_task(name, exclude=(f"{name}.*",))
    for _ in range(2):
        started(target_server, left_out).close()


def test_check_judges_the_tables_that_the_view_names(
    name: str, house: str, target_server: DatabaseServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A column without a value, and one that a rule must map."""
    target_server.execute(SALES.format(house))
    stream, _ = _history(name)
    task = _task(name, house)
    run_once(target_server, task, stream)
    monkeypatch.setenv("MILLRACE_TEST_VIEWS", target_server.password)
    document = local_set(
        "target", [target_server.port], user=target_server.user, variable="MILLRACE_TEST_VIEWS"
    )

    def found(task: ApplyTask) -> dict[str, str]:
        return {
            each.code: f"{each.found} {each.fix}"
            for each in check_target(document, TargetUse([task]))
            if each.code
        }

    assert not {"MR-5013", "MR-5206", "MR-5207"} & set(found(task))
    target_server.execute(f"ALTER TABLE {house}.sales_1 ADD must INT NOT NULL")
    assert "must of the target" in str(found(task))
    target_server.execute(f"ALTER TABLE {house}.sales_1 DROP must, CHANGE email post VARCHAR(80)")
    assert "rename: {email: NAME}" in str(found(task))
