"""Tables of the source merged into one, on targets of both flavours: rows, statements, several tasks, what is refused.

The oracle is the content of the server's tables.
"""

import random
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pytest

from millrace.consumer.target.intents import decide_intent
from millrace.consumer.target.merged_tables import read_sources
from millrace.consumer.write import merged_ddl
from millrace.deploy.servers import DatabaseServer
from millrace.drivers.mysql.connection import connect
from millrace.errors import Fatal
from millrace.schemas.documents import ApplyTask, ConflictPolicy
from millrace.schemas.table.structure import TableSchema
from millrace.schemas.view.view import TableRule, View
from tests.kit.apply.local import LocalRecords, apply_task, endpoint_of, ignore, run_once, started
from tests.kit.apply.tables import integer, table, text
from tests.kit.apply.topic import RecordStream

ORDERS = (
    "CREATE TABLE {}.orders (id BIGINT NOT NULL, note VARCHAR(40), shard VARCHAR(30) NOT NULL, PRIMARY KEY (shard, id))"
    " DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci"
)
SHARDS = ("1", "2", "3")


class _EndedError(Exception):
    """The driver ends here."""


@pytest.fixture
def house(name: str, target_server: DatabaseServer) -> Iterator[str]:
    """The database of the merged table, which exists."""
    made = f"{name}_house"
    target_server.execute(f"CREATE DATABASE {made}")
    target_server.execute(ORDERS.format(made))
    yield made
    target_server.execute(f"DROP DATABASE IF EXISTS {made}")


def _task(name: str, house: str, task: str = "", **more: object) -> ApplyTask:
    rule = TableRule(f"{name}_*.orders", f"{house}.orders", add=(("shard", "{1}"),), merge=True)
    return replace(apply_task(task or name, **more), view=View((rule,)))  # type: ignore[arg-type]


def _orders(name: str, shard: str, *more: str) -> TableSchema:
    columns = (integer(column, nullable=True) for column in more)
    return table(f"{name}_{shard}", "orders", integer("id"), text("note"), *columns)


def _row(number: int, note: str = "", **more: object) -> dict[str, object]:
    return {"id": number, "note": note, **more}


def _found(
    server: DatabaseServer, house: str, columns: str = "shard, id, note"
) -> list[tuple[object, ...]]:
    return list(server.execute(f"SELECT {columns} FROM {house}.orders ORDER BY shard, id"))


@pytest.mark.parametrize(
    ("is_large", "executors"), [(True, 1), (False, 1), (True, 3)], ids=["lanes", "serial", "shares"]
)
def test_shards_with_equal_keys_share_a_table(
    name: str, house: str, target_server: DatabaseServer, is_large: bool, executors: int
) -> None:
    """Inserts, updates, key changes and deletes of three shards in turn; each has only its own rows."""
    chance, stream = random.Random(5), RecordStream()
    wanted: dict[tuple[str, int], str] = {}
    for step in range(600):
        shard, number = chance.choice(SHARDS), chance.randrange(60)
        made, key = _orders(name, shard), (shard, number)
        moved = (shard, chance.randrange(60))
        if key not in wanted:
            wanted[key] = f"n{step}"
            stream.insert(made, _row(number, wanted[key]))
        elif chance.random() < 0.2:
            stream.delete(made, _row(number, wanted.pop(key)))
        elif moved in wanted:
            stream.update(made, _row(number, wanted[key]), _row(number, f"u{step}"))
            wanted[key] = f"u{step}"
        else:
            stream.update(made, _row(number, wanted[key]), _row(moved[1], f"m{step}"))
            del wanted[key]
            wanted[moved] = f"m{step}"
        if chance.random() < 0.2:
            stream.commit()
    stream.commit()
    with closing(started(target_server, _task(name, house))) as applier:
        records = LocalRecords(
            stream.values, is_large=is_large, window_rows=130, executors=executors
        )
        applier.process(records, ignore)
        assert applier.mark.seq == stream.seq
    assert _found(target_server, house) == [(*key, note) for key, note in sorted(wanted.items())]


def test_tasks_of_several_topics_share_a_table(
    name: str, house: str, target_server: DatabaseServer
) -> None:
    """Equal names on two source sets: the constants of their rules part them; equal constants are refused."""
    tasks = []
    for number, shard in enumerate(("a", "b", "B")):
        rule = TableRule("shop.orders", f"{house}.orders", add=(("shard", shard),), merge=True)
        task = replace(apply_task(f"{name}_{number}"), view=View((rule,)))
        tasks.append(replace(task, source=replace(task.source, topic=f"{name}_{number}")))
    made = table("shop", "orders", integer("id"), text("note"))
    for number, task in enumerate(tasks):
        stream = RecordStream()
        stream.insert(made, _row(7, f"of {number}"))
        stream.commit()
        if number < 2:
            run_once(target_server, task, stream)
            continue
        with pytest.raises(Fatal, match=rf"MR-5208.*shop\.orders \(task {name}_1\)"):
            run_once(target_server, task, stream)
    assert _found(target_server, house) == [("a", 7, "of 0"), ("b", 7, "of 1")]


def test_task_that_does_not_merge_is_refused(
    name: str, house: str, target_server: DatabaseServer
) -> None:
    """A task without a view writes the table of the same name: nothing of the second one is written."""
    stream = RecordStream()
    stream.insert(_orders(name, "1"), _row(1))
    stream.commit()
    run_once(target_server, _task(name, house), stream)
    other = RecordStream()
    other.insert(
        table(house, "orders", integer("id"), text("note"), text("shard")), _row(9, shard="1")
    )
    other.commit()
    task = apply_task(f"{name}_other")
    with pytest.raises(Fatal, match=r"MR-5207.*merged into"):
        run_once(target_server, replace(task, source=replace(task.source, topic="other")), other)
    assert _found(target_server, house) == [("1", 1, "")]


def test_table_that_another_task_writes_is_not_merged_into(
    name: str, house: str, target_server: DatabaseServer
) -> None:
    """Its statements and loads would remove the rows of all."""
    stream = RecordStream()
    made = table(
        house, "orders", integer("id"), text("note"), text("shard", nullable=False), key=(2, 0)
    )
    stream.insert(made, _row(9, shard="9"))
    stream.commit()
    task = apply_task(f"{name}_plain")
    run_once(target_server, replace(task, source=replace(task.source, topic="plain")), stream)
    other = RecordStream()
    other.insert(_orders(name, "1"), _row(1))
    other.commit()
    with pytest.raises(Fatal, match=rf"MR-5207.*{name}_plain writes"):
        run_once(target_server, _task(name, house), other)
    assert _found(target_server, house) == [("9", 9, "")]


@pytest.mark.parametrize(
    "sql", ["TRUNCATE TABLE {}.orders", "DROP TABLE {}.orders", "DROP DATABASE {}"]
)
def test_statement_of_another_task_about_a_merged_table_waits(
    name: str, house: str, target_server: DatabaseServer, sql: str
) -> None:
    """A source has a table of the merged table's name; its statement is not executed on the rows of others."""
    stream = RecordStream()
    stream.insert(_orders(name, "1"), _row(1))
    stream.commit()
    run_once(target_server, _task(name, house), stream)
    other = RecordStream()
    other.ddl(sql.format(house))
    task = apply_task(f"{name}_other")
    with pytest.raises(Fatal, match=r"MR-5042.*tables are merged into"):
        run_once(target_server, replace(task, source=replace(task.source, topic="other")), other)
    assert _found(target_server, house) == [("1", 1, "")]


@pytest.mark.parametrize("sql", ["TRUNCATE TABLE {}_1.orders", "DROP TABLE {}_1.orders"])
def test_emptied_shard_leaves_the_rows_of_others(
    name: str, house: str, target_server: DatabaseServer, sql: str
) -> None:
    """The statement deletes by the constants. Rows that another client wrote with equal letters stay."""
    stream = RecordStream()
    for shard in SHARDS:
        stream.insert(_orders(name, shard), _row(1))
    stream.commit()
    stream.ddl(sql.format(name))
    stream.ddl(f"CREATE TABLE {name}_1.orders (id INT PRIMARY KEY, note VARCHAR(20))")
    stream.insert(_orders(name, "1"), _row(2))
    stream.commit()
    run_once(target_server, _task(name, house), stream)
    assert _found(target_server, house) == [("1", 2, ""), ("2", 1, ""), ("3", 1, "")]


def test_truncated_shard_is_emptied_by_the_next_run(
    name: str, house: str, target_server: DatabaseServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run ends after each chunk: rows that the shard has gotten since stay."""
    stream = RecordStream()
    for number in range(5):
        for shard in SHARDS[:2]:
            stream.insert(_orders(name, shard), _row(number))
    stream.commit()
    stream.ddl(f"TRUNCATE TABLE {name}_1.orders")
    stream.insert(_orders(name, "1"), _row(9))
    stream.commit()
    points: list[str] = []

    def end(point: str) -> None:
        points.append(point)
        raise _EndedError

    monkeypatch.setattr(merged_ddl, "CHUNK_ROWS", 2)
    monkeypatch.setattr(merged_ddl, "fault_point", end)
    for left in (3, 1, 0):
        with pytest.raises(_EndedError):
            run_once(target_server, _task(name, house), stream)
        assert len(_found(target_server, house)) == 5 + left
    monkeypatch.setattr(merged_ddl, "fault_point", points.append)
    run_once(target_server, _task(name, house), stream)
    assert set(points) == {merged_ddl.AFTER_CHUNK}
    assert _found(target_server, house)[:2] == [("1", 9, ""), ("2", 0, "")]


def _states(server: DatabaseServer, house: str) -> dict[str, list[str]]:
    with closing(connect(endpoint_of(server))) as session:
        sources = read_sources(session, (house, "orders"))
        return {source.name[0][-1]: sorted(source.missing) for source in sources}


def test_columns_come_with_the_first_and_go_with_the_last(
    name: str, house: str, target_server: DatabaseServer
) -> None:
    """Rows between have the default; a column that one shard still has keeps its values."""
    stream = RecordStream()
    for shard in SHARDS:
        stream.insert(_orders(name, shard), _row(1))
    stream.commit()
    add = "ALTER TABLE {}_{}.orders ADD COLUMN n INT DEFAULT 5 AFTER id"
    drop = "ALTER TABLE {}_{}.orders DROP n"
    for at, shard in enumerate(SHARDS):
        stream.ddl(add.format(name, shard))
        for other in SHARDS:
            if other <= shard:
                stream.insert(_orders(name, other, "n"), _row(10 + at, n=at))
            else:
                stream.insert(_orders(name, other), _row(10 + at))
        stream.commit()
    run_once(target_server, _task(name, house), stream)
    assert _states(target_server, house) == {"1": [], "2": [], "3": []}
    assert _found(target_server, house, "shard, id, n") == [
        *(("1", 1, 5), ("1", 10, 0), ("1", 11, 1), ("1", 12, 2)),
        *(("2", 1, 5), ("2", 10, 5), ("2", 11, 1), ("2", 12, 2)),
        *(("3", 1, 5), ("3", 10, 5), ("3", 11, 5), ("3", 12, 2)),
    ]
    for shard in ("2", "3"):
        stream.ddl(drop.format(name, shard))
    stream.insert(_orders(name, "2"), _row(20))
    stream.insert(_orders(name, "1", "n"), _row(20, n=9))
    stream.commit()
    run_once(target_server, _task(name, house), stream)
    assert _states(target_server, house) == {"1": [], "2": ["n"], "3": ["n"]}
    assert _found(target_server, house, "shard, id, n")[3:6] == [
        ("1", 12, 2),
        ("1", 20, 9),
        ("2", 1, 5),
    ]
    stream.ddl(drop.format(name, "1"))
    stream.insert(_orders(name, "1"), _row(21))
    stream.commit()
    run_once(target_server, _task(name, house), stream)
    assert _states(target_server, house) == {"1": [], "2": [], "3": []}
    columns = target_server.execute(f"SHOW COLUMNS FROM {house}.orders")
    assert [column[0] for column in columns] == ["id", "note", "shard"]


@pytest.mark.parametrize(
    "sql",
    [
        "ALTER TABLE {}_1.orders MODIFY note VARCHAR(50)",
        "ALTER TABLE {}_1.orders ADD n INT NOT NULL",
        "ALTER TABLE {}_1.orders ADD n INT, ADD KEY (n)",
        "ALTER TABLE {}_1.orders RENAME COLUMN note TO notes",
        "RENAME TABLE {0}_1.orders TO {0}_1.other",
        "ALTER TABLE {}_1.orders DROP PARTITION p1",
        "DROP TABLE {0}_1.orders, {0}_1.plain",
    ],
)
def test_other_statements_wait_with_the_states_of_all_sources(
    name: str, house: str, target_server: DatabaseServer, sql: str
) -> None:
    """Nothing is executed until an operator has decided."""
    _check_waits(name, house, target_server, sql)


def test_column_of_rows_without_a_known_source_stays(
    name: str, house: str, target_server: DatabaseServer
) -> None:
    """A shard was copied to the target, and has no record yet: another one does not remove its column."""
    _check_waits(name, house, target_server, "ALTER TABLE {}_1.orders DROP note")


def _check_waits(name: str, house: str, target_server: DatabaseServer, sql: str) -> None:
    target_server.execute(
        f"INSERT INTO {house}.orders VALUES (1, 'of a shard without records', '9')"
    )
    stream = RecordStream()
    stream.insert(_orders(name, "1"), _row(1, "kept"))
    stream.commit()
    stream.ddl(sql.format(name))
    with pytest.raises(Fatal, match=rf"MR-5042.*sources of {house}\.orders: {name}_1\.orders"):
        run_once(target_server, _task(name, house), stream)
    assert [row[2] for row in _found(target_server, house)] == [
        "kept",
        "of a shard without records",
    ]
    with closing(connect(endpoint_of(target_server))) as session:
        decide_intent(session, name, seq=2, decision="done")
    run_once(target_server, _task(name, house), stream)


def test_conflict_overwrites_only_its_row(
    name: str, house: str, target_server: DatabaseServer
) -> None:
    """Rows of other shards have the same key, and columns that the shard does not have keep their values."""
    target_server.execute(f"ALTER TABLE {house}.orders ADD own INT DEFAULT 3")
    target_server.execute(
        f"INSERT INTO {house}.orders VALUES (1, 'old', '1', 8), (1, 'of 2', '2', 9)"
    )
    stream = RecordStream()
    stream.insert(_orders(name, "1"), _row(1, "new"))
    stream.delete(_orders(name, "3"), _row(1))
    stream.commit()
    run_once(target_server, _task(name, house, conflict=ConflictPolicy.OVERWRITE), stream)
    found = _found(target_server, house, "shard, note, own")
    assert found == [("1", "new", 8), ("2", "of 2", 9)]
