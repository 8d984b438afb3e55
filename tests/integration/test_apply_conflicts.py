"""Apply conflicts and foreign keys on real targets."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import pytest

from millrace import faults
from millrace.consumer.write.incidents import Tally
from millrace.consumer.write.lanes import Done
from millrace.consumer.write.target_transaction import BEFORE_LANE_COMMIT
from millrace.deploy.servers import DatabaseServer
from millrace.errors import Fatal, Retryable
from millrace.schemas.documents import ConflictPolicy
from millrace.schemas.table.structure import Column, ColumnType, TypeCode
from tests.kit.apply.local import (
    InlineLanes,
    LocalRecords,
    apply_task,
    backwards,
    ignore,
    run_once,
    started,
)
from tests.kit.apply.tables import (
    ACCOUNTS_SQL,
    UTF8,
    account,
    accounts,
    integer,
    table,
    text,
    uuid,
)
from tests.kit.apply.topic import RecordStream


def test_foreign_key_parents_and_children_keep_their_order(
    name: str, target_server: DatabaseServer
) -> None:
    """The target checks foreign keys: no lane inserts a child before its parent or deletes a parent too early."""
    target_server.execute("CREATE TABLE p (id INT PRIMARY KEY, v INT)", db=name)
    target_server.execute(
        "CREATE TABLE c (id INT PRIMARY KEY, p INT, v INT, FOREIGN KEY (p) REFERENCES p (id))",
        db=name,
    )
    parent = table(name, "p", integer("id"), integer("v", nullable=True))
    child = table(
        name, "c", integer("id"), integer("p", nullable=True), integer("v", nullable=True)
    )
    stream = RecordStream()
    for number in range(200):
        stream.insert(parent, {"id": number, "v": 0})
        stream.insert(child, {"id": number, "p": number, "v": 0})
        if number % 2:
            stream.update(
                child, {"id": number, "p": number, "v": 0}, {"id": number, "p": number - 1, "v": 1}
            )
            stream.delete(parent, {"id": number, "v": 0})
    stream.commit()
    applier = started(target_server, apply_task(name, lanes=4))
    applier.process(LocalRecords(stream.values, lane_order=backwards), ignore)
    applier.close()
    assert target_server.execute(f"SELECT COUNT(*) FROM {name}.p") == [(100,)]
    assert target_server.execute(f"SELECT COUNT(*), SUM(v) FROM {name}.c") == [(200, 100)]


def test_cascade_the_source_did_not_log_runs_on_the_target(
    name: str, target_server: DatabaseServer
) -> None:
    """MariaDB logs only the parent's deletion; the target deletes its children, also children from other groups."""
    target_server.execute("CREATE TABLE p (id INT PRIMARY KEY)", db=name)
    target_server.execute(
        "CREATE TABLE c (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES p (id) ON DELETE CASCADE)",
        db=name,
    )
    parent, child = (
        table(name, "p", integer("id")),
        table(name, "c", integer("id"), integer("p", nullable=True)),
    )
    stream = RecordStream()
    for number in range(50):
        stream.insert(parent, {"id": number})
        stream.insert(child, {"id": number, "p": number})
    stream.update(child, {"id": 3, "p": 3}, {"id": 3, "p": 4})
    stream.delete(parent, {"id": 3})
    stream.delete(parent, {"id": 7})
    stream.delete(child, {"id": 8, "p": 8}, flags=2)
    stream.delete(parent, {"id": 8})
    stream.commit()
    applier = started(target_server, apply_task(name, lanes=4))
    applier.process(LocalRecords(stream.values, lane_order=backwards), ignore)
    applier.close()
    rows = target_server.execute(f"SELECT id FROM {name}.c ORDER BY id")
    assert [number for (number,) in rows] == [n for n in range(50) if n not in (7, 8)]


@pytest.mark.parametrize("action", ["RESTRICT", "CASCADE", "SET NULL"])
def test_replaced_parent_of_mysql_keeps_its_children(
    name: str, target_server: DatabaseServer, action: str
) -> None:
    """MySQL 9.6 logs REPLACE of a parent as DELETE and INSERT with flag 16, and its children stay."""
    target_server.execute("CREATE TABLE p (id INT PRIMARY KEY, v INT)", db=name)
    target_server.execute(
        "CREATE TABLE c (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES p (id)"
        f" ON DELETE {action})",
        db=name,
    )
    target_server.execute("INSERT INTO p VALUES (1, 0)", db=name)
    target_server.execute("INSERT INTO c VALUES (1, 1)", db=name)
    parent = table(name, "p", integer("id"), integer("v", nullable=True))
    stream = RecordStream()
    stream.delete(parent, {"id": 1, "v": 0}, flags=16)
    stream.insert(parent, {"id": 1, "v": 7}, flags=16)
    stream.commit()
    run_once(target_server, apply_task(name), stream)
    assert target_server.execute(f"SELECT * FROM {name}.p") == [(1, 7)]
    assert target_server.execute(f"SELECT * FROM {name}.c") == [(1, 1)]


def test_cascade_over_a_chain_of_tables_keeps_its_order(
    name: str, target_server: DatabaseServer
) -> None:
    """A grandchild's deletion stays before its grandparent's, though only a chain of cascades connects the two."""
    key = "BINARY(16) PRIMARY KEY"
    target_server.execute(f"CREATE TABLE p (id {key})", db=name)
    for which, parent in (("c", "p"), ("g", "c")):
        target_server.execute(
            f"CREATE TABLE {which} (id {key}, up BINARY(16),"
            f" FOREIGN KEY (up) REFERENCES {parent} (id) ON DELETE CASCADE)",
            db=name,
        )
    grandparent = table(name, "p", uuid("id"))
    grandchild = table(name, "g", uuid("id"), uuid("up"))
    stream = RecordStream()
    for number in range(20):
        value = bytes([number]) * 16
        target_server.execute("INSERT INTO p VALUES (%s)", (value,), db=name)
        target_server.execute("INSERT INTO c VALUES (%s, %s)", (value, value), db=name)
        target_server.execute("INSERT INTO g VALUES (%s, %s)", (value, value), db=name)
        stream.delete(grandchild, {"id": value, "up": value})
        stream.delete(grandparent, {"id": value})
    stream.commit()
    applier = started(target_server, apply_task(name, lanes=4))
    applier.process(LocalRecords(stream.values, lane_order=backwards), ignore)
    applier.close()
    for which in "pcg":
        assert target_server.execute(f"SELECT COUNT(*) FROM {name}.{which}") == [(0,)]


def test_disabled_foreign_key_checks_return_with_the_next_transaction(
    name: str, target_server: DatabaseServer
) -> None:
    """A rows event's no-foreign-key-checks flag holds only for its own rows."""
    target_server.execute("CREATE TABLE p (id INT PRIMARY KEY)", db=name)
    target_server.execute(
        "CREATE TABLE c (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES p (id))", db=name
    )
    child = table(name, "c", integer("id"), integer("p", nullable=True))
    stream = RecordStream()
    stream.insert(child, {"id": 1, "p": 1}, flags=2)
    stream.commit()
    applier = started(target_server, apply_task(name))
    applier.process(LocalRecords(stream.values, is_large=False), ignore)
    first = len(stream.values)
    stream.insert(child, {"id": 2, "p": 2})
    stream.commit()
    with pytest.raises(Fatal) as caught:
        applier.process(LocalRecords(stream.values[first:], first, is_large=False), ignore)
    applier.close()
    assert caught.value.code == "MR-5010"


@pytest.mark.parametrize("what", ["a key that changes", "an update", "a deletion"])
def test_missing_row_in_a_single_row_write_blocks_the_task(
    name: str, target_server: DatabaseServer, what: str
) -> None:
    """A changed key or a table without a key is written row by row, and each write checks its row count."""
    target_server.execute(ACCOUNTS_SQL, db=name)
    target_server.execute("CREATE TABLE notes (n INT)", db=name)
    made, notes = accounts(name), table(name, "notes", integer("n"), key=())
    stream = RecordStream()
    stream.insert(made, account(1))
    match what:
        case "a key that changes":
            stream.update(made, account(99), account(98))
        case "an update":
            stream.update(notes, {"n": 1}, {"n": 2})
        case _:
            stream.delete(notes, {"n": 1})
    stream.commit()
    with pytest.raises(Fatal) as caught:
        run_once(target_server, apply_task(name), stream, is_large=False)
    assert (caught.value.code, caught.value.context["seq"]) == ("MR-5010", "2")
    for each in ("accounts", "notes"):
        assert target_server.execute(f"SELECT * FROM {name}.{each}") == []


@pytest.mark.parametrize("is_large", [True, False], ids=["lanes", "one lane"])
@pytest.mark.guarantee("applied")
def test_conflict_blocks_by_default_and_names_the_row(
    name: str, target_server: DatabaseServer, *, is_large: bool
) -> None:
    """A missing row and a taken key block the task; the error has table, key and seq, and the batch is rolled back."""
    target_server.execute(ACCOUNTS_SQL, db=name)
    made = accounts(name)
    stream = RecordStream()
    stream.insert(made, account(1))
    stream.update(made, account(99), account(99, amount=5))
    stream.commit()
    with pytest.raises(Fatal) as caught:
        run_once(target_server, apply_task(name), stream, is_large=is_large)
    assert caught.value.code == "MR-5010"
    assert caught.value.context["key"] == "99"
    assert caught.value.context["seq"] == "2"
    target_server.execute(f"INSERT INTO {name}.accounts VALUES (99, NULL, 'Mail99', 0)")
    run_once(target_server, apply_task(name), stream, is_large=is_large)
    rows = target_server.execute(f"SELECT id, amount FROM {name}.accounts ORDER BY id")
    assert rows == [(1, 0), (99, 5)]


@pytest.mark.parametrize(
    ("policy", "wanted"),
    [
        (ConflictPolicy.OVERWRITE, [(1, None, 1), (2, None, 2)]),
        (ConflictPolicy.SKIP, [(1, None, 7), (5, 50, 9)]),
    ],
)
def test_conflicts_follow_the_policy_and_are_recorded(
    name: str,
    target_server: DatabaseServer,
    policy: ConflictPolicy,
    wanted: list[tuple[object, ...]],
) -> None:
    """Overwrite replaces every row in conflict, skip leaves them; both record each decision."""
    target_server.execute(ACCOUNTS_SQL, db=name)
    target_server.execute(
        f"INSERT INTO {name}.accounts VALUES (1, NULL, 'x', 7), (5, 50, 'mail2', 9)"
    )
    made, stream = accounts(name), RecordStream()
    stream.insert(made, account(1, amount=1))
    stream.update(made, account(2), account(2, amount=2))
    stream.delete(made, account(3))
    stream.commit()
    run_once(target_server, apply_task(name, conflict=policy), stream)
    rows = target_server.execute(f"SELECT id, code, amount FROM {name}.accounts ORDER BY id")
    assert rows == wanted
    found = target_server.execute(
        "SELECT seq, op, decision FROM millrace.conflict WHERE task = %s ORDER BY seq", (name,)
    )
    assert found == [(1, "c", str(policy)), (2, "u", str(policy)), (3, "d", str(policy))]


def test_conflict_is_counted_once_by_its_kind(name: str, target_server: DatabaseServer) -> None:
    """A part that is rolled back and applied again is not counted again."""
    target_server.execute(ACCOUNTS_SQL, db=name)
    target_server.execute("CREATE TABLE p (id INT PRIMARY KEY)", db=name)
    target_server.execute(
        "CREATE TABLE c (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES p (id))", db=name
    )
    target_server.execute(
        f"INSERT INTO {name}.accounts VALUES (1, NULL, 'x', 7), (4, NULL, 'y', 4), (5, NULL, 'z', 5)"
    )
    made, stream = accounts(name), RecordStream()
    stream.insert(made, account(1))
    stream.update(made, account(2), account(2, amount=2))
    stream.update(made, account(4), account(5))
    stream.delete(made, account(3))
    child = table(name, "c", integer("id"), integer("p", nullable=True))
    stream.insert(child, {"id": 1, "p": 9})
    stream.commit()
    task, tally, lost = (
        apply_task(name, conflict=ConflictPolicy.SKIP, lanes=1),
        Tally(),
        list[str](),
    )

    def fail(point: str) -> None:
        if point == BEFORE_LANE_COMMIT and not lost:
            lost.append(point)
            raise Retryable("MR-5001", "the connection broke")

    with faults.watched(fail):
        for _ in range(2):
            applier = started(target_server, task)
            with suppress(Retryable):
                applier.process(LocalRecords(stream.values, tally=tally), ignore)
            applier.close()
    assert lost
    assert tally.of(name).conflicts == {
        "insert-exists": 1,
        "update-missing": 1,
        "update-exists": 1,
        "delete-missing": 1,
        "foreign-key": 1,
    }


@pytest.mark.parametrize("policy", list(ConflictPolicy), ids=str)
def test_unique_key_added_at_runtime_orders_later_rows(
    name: str, target_server: DatabaseServer, policy: ConflictPolicy
) -> None:
    """Later lanes are planned with the new key: rows that reuse one of its values share a lane."""
    target_server.execute("CREATE TABLE t (id INT PRIMARY KEY, code INT)", db=name)
    made, stream = table(name, "t", integer("id"), integer("code")), RecordStream()
    for number in range(100):
        stream.insert(made, {"id": number, "code": 7})
        stream.delete(made, {"id": number, "code": 7})
    stream.insert(made, {"id": 100, "code": 7})
    stream.commit()
    applier = started(target_server, apply_task(name, lanes=4, conflict=policy))
    target_server.execute("ALTER TABLE t ADD UNIQUE KEY (code)", db=name)
    applier.process(LocalRecords(stream.values, lane_order=backwards), ignore)
    applier.close()
    assert target_server.execute(f"SELECT id, code FROM {name}.t") == [(100, 7)]
    assert not target_server.execute("SELECT * FROM millrace.conflict WHERE task = %s", (name,))


@dataclass
class _Altered(LocalRecords):
    """Alters a table after the lanes are planned and before they are applied."""

    alter: Callable[[], object] = list

    def lanes(self) -> InlineLanes:
        """Lanes that run the statement first."""
        return _AlteringLanes(self.lane_order, alter=self.alter)


@dataclass
class _AlteringLanes(InlineLanes):
    alter: Callable[[], object] = list

    def take(self, *, wait: bool) -> list[Done]:
        if wait:
            self.alter()
            self.alter = list
        return super().take(wait=wait)


@pytest.mark.parametrize("policy", list(ConflictPolicy), ids=str)
@pytest.mark.parametrize(
    "added", ["FOREIGN KEY (p) REFERENCES p (id)", "UNIQUE KEY (p)"], ids=["foreign", "unique"]
)
def test_key_added_mid_run_causes_no_conflict(
    name: str, target_server: DatabaseServer, policy: ConflictPolicy, added: str
) -> None:
    """The run ends with MR-5023 instead of deciding apparent conflicts; the next run knows the key."""
    target_server.execute("CREATE TABLE p (id INT PRIMARY KEY)", db=name)
    target_server.execute("CREATE TABLE c (id INT PRIMARY KEY, p INT)", db=name)
    parent = table(name, "p", integer("id"))
    child = table(name, "c", integer("id"), integer("p", nullable=True))
    stream = RecordStream()
    for number in range(100):
        row = {"id": number, "p": number}
        stream.insert(parent, {"id": number})
        stream.insert(child, row)
        stream.update(child, row, {"id": number + 200, "p": None})
        stream.insert(child, {"id": number + 100, "p": number})
    stream.commit()
    task = apply_task(name, lanes=4, conflict=policy)
    applier = started(target_server, task)

    def alter() -> None:
        target_server.execute(f"ALTER TABLE c ADD {added}", db=name)

    with pytest.raises(Retryable) as caught:
        applier.process(_Altered(stream.values, lane_order=backwards, alter=alter), ignore)
    assert caught.value.code == "MR-5023"
    assert not target_server.execute("SELECT * FROM millrace.conflict WHERE task = %s", (name,))
    applier.close()


def test_skipped_row_leaves_strict_mode_on(name: str, target_server: DatabaseServer) -> None:
    """Millrace turns strict mode off to write an ENUM's index 0, and on again even if that write fails."""
    target_server.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, e ENUM('x'), v VARCHAR(3))"
        " DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci",
        db=name,
    )
    target_server.execute(f"INSERT INTO {name}.t VALUES (1, 'x', 'old')")
    labels = Column("e", ColumnType(TypeCode.ENUM, 1, text=UTF8, labels=("x",)), True)
    made, stream = table(name, "t", integer("id"), labels, text("v")), RecordStream()
    stream.insert(made, {"id": 1, "e": 0, "v": "new"})
    stream.commit()
    task = apply_task(name, conflict=ConflictPolicy.SKIP)
    applier = started(target_server, task)
    applier.process(LocalRecords(stream.values, is_large=False), ignore)
    first = len(stream.values)
    stream.insert(made, {"id": 2, "e": "x", "v": "too long"})
    stream.commit()
    with pytest.raises(Fatal) as caught:
        applier.process(LocalRecords(stream.values[first:], first, is_large=False), ignore)
    applier.close()
    assert (caught.value.code, caught.value.context["seq"]) == ("MR-5011", "2")
    assert target_server.execute(f"SELECT id, v FROM {name}.t") == [(1, "old")]


def test_overwriting_a_row_leaves_children_of_removed_rows(
    name: str, target_server: DatabaseServer
) -> None:
    """Overwriting changes no row of a child table, and children never block it; an ordinary deletion still cascades."""
    target_server.execute("CREATE TABLE p (id INT PRIMARY KEY, code INT UNIQUE)", db=name)
    actions = {"gone": "CASCADE", "cut": "SET NULL", "held": "RESTRICT"}
    for which, action in actions.items():
        target_server.execute(
            f"CREATE TABLE {which} (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES p (id)"
            f" ON DELETE {action})",
            db=name,
        )
    target_server.execute("INSERT INTO p VALUES (1, 10), (2, 20), (3, 30), (4, 40)", db=name)
    for which in actions:
        target_server.execute(f"INSERT INTO {which} VALUES (11, 1), (12, 2), (13, 3)", db=name)
    target_server.execute("INSERT INTO gone VALUES (14, 4)", db=name)
    parent = table(name, "p", integer("id"), integer("code", nullable=True))
    child = table(name, "gone", integer("id"), integer("p", nullable=True))
    stream = RecordStream()
    stream.update(parent, {"id": 1, "code": 10}, {"id": 1, "code": 20})  # takes the code of row 2
    stream.insert(child, {"id": 15, "p": 1})
    stream.insert(child, {"id": 16, "p": 9})
    stream.delete(parent, {"id": 3, "code": 30})
    stream.delete(parent, {"id": 4, "code": 40})
    stream.commit()
    run_once(target_server, apply_task(name, conflict=ConflictPolicy.OVERWRITE), stream)
    assert target_server.execute(f"SELECT id, code FROM {name}.p") == [(1, 20)]
    left = [(11, 1), (12, 2), (13, 3)]
    for which in ("cut", "held"):
        assert target_server.execute(f"SELECT id, p FROM {name}.{which} ORDER BY id") == left
    rows = target_server.execute(f"SELECT id, p FROM {name}.gone ORDER BY id")
    assert rows == [*left, (15, 1), (16, 9)], "children are gone, or were not checked"
    found = target_server.execute(
        "SELECT seq, op, decision FROM millrace.conflict WHERE task = %s ORDER BY seq", (name,)
    )
    assert found == [(1, "u", "overwrite"), (3, "c", "overwrite"), (4, "d", "overwrite")]


def test_overwrite_is_not_advised_where_it_is_set(name: str, target_server: DatabaseServer) -> None:
    """A table without a key has no row to overwrite; the fix names what helps, with task and seq."""
    target_server.execute("CREATE TABLE notes (n INT)", db=name)
    stream = RecordStream()
    stream.delete(table(name, "notes", integer("n"), key=()), {"n": 1})
    stream.commit()
    with pytest.raises(Fatal, match="no row to overwrite") as caught:
        run_once(target_server, apply_task(name, conflict=ConflictPolicy.OVERWRITE), stream)
    assert caught.value.code == "MR-5010"
    assert f"`millrace conflict discard {name} 1`" in caught.value.fix
    assert "overwrite" not in caught.value.fix
