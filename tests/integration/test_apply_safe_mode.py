"""Safe mode on real targets: rows are applied again, or onto a later state, and end as on the source."""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from millrace.deploy.servers import DatabaseServer
from millrace.drivers.mysql.catalog import hold_triggers
from millrace.drivers.mysql.connection import connect
from millrace.errors import Fatal, Retryable
from millrace.schemas.documents import ApplyTask, Consistency
from millrace.schemas.gtid import Flavour
from millrace.schemas.record.control import ResolvedRecord
from millrace.schemas.table.structure import TableSchema
from tests.kit.apply.local import (
    LocalRecords,
    apply_task,
    backwards,
    endpoint_of,
    ignore,
    run_once,
    started,
)
from tests.kit.apply.tables import ACCOUNTS_SQL, accounts, integer, table, text
from tests.kit.apply.topic import COMMIT_MS, SET, RecordStream

WORDS_SQL = (
    "CREATE TABLE words (w VARCHAR(20) PRIMARY KEY, n INT, own INT DEFAULT 1) DEFAULT CHARSET=utf8mb4"
    " COLLATE=utf8mb4_general_ci"
)
Row = dict[str, object]
State = dict[tuple[str, object], Row]


@dataclass
class Source:
    """A source with both tables: makes valid random changes, and keeps its rows after each source transaction."""

    database: str
    chance: random.Random
    stream: RecordStream
    rows: dict[str, dict[object, Row]] = field(
        default_factory=lambda: {"accounts": {}, "words": {}}
    )
    states: list[State] = field(default_factory=lambda: [{}])

    def transaction(self) -> None:
        """A few changes; every fourth is of the table of words."""
        for _ in range(self.chance.randint(1, 6)):
            self._change("words" if self.chance.random() < 0.25 else "accounts")
        self.stream.commit()
        self.states.append(
            {(name, key): dict(row) for name in self.rows for key, row in self.rows[name].items()}
        )

    def _change(self, name: str) -> None:
        made, rows = self._table(name), self.rows[name]
        row = self._word() if name == "words" else self._account()
        key = next(iter(row.values()))
        before = self.chance.choice(list(rows.values())) if rows else None
        others = [other for other in rows.values() if other is not before]
        if before is None or self.chance.random() < 0.35:
            if not self._clashes(row, [*rows.values()]):
                rows[self._folded(key)] = row
                self.stream.insert(made, row)
        elif self.chance.random() < 0.3:
            del rows[self._folded(next(iter(before.values())))]
            self.stream.delete(made, before)
        else:
            kept = next(iter(before))
            after = row if self.chance.random() < 0.5 else {**row, kept: before[kept]}
            if not self._clashes(after, others):
                del rows[self._folded(before[kept])]
                rows[self._folded(after[kept])] = after
                self.stream.update(made, before, after)

    def _table(self, name: str) -> TableSchema:
        if name == "accounts":
            return accounts(self.database)
        return table(self.database, "words", text("w", nullable=False), integer("n", nullable=True))

    def _account(self) -> Row:
        draw = self.chance.randint
        code = draw(0, 15) if self.chance.random() < 0.8 else None
        mail = f"{self.chance.choice('mM')}ail{draw(0, 15)}"
        return {"id": draw(0, 15), "code": code, "mail": mail, "amount": draw(0, 9)}

    def _word(self) -> Row:
        return {"w": self.chance.choice("aAbBcCdD"), "n": self.chance.randint(0, 9)}

    @staticmethod
    def _folded(value: object) -> object:
        return value.lower() if isinstance(value, str) else value

    def _clashes(self, row: Row, others: list[Row]) -> bool:
        """Whether another row has a value of one of the unique keys."""
        unique = ("id", "code", "mail", "w")
        return any(
            row[name] is not None and self._folded(row[name]) == self._folded(other[name])
            for name in unique
            if name in row
            for other in others
        )


def _prepared(name: str, server: DatabaseServer) -> None:
    server.execute(ACCOUNTS_SQL, db=name)
    server.execute(WORDS_SQL, db=name)


def _load(server: DatabaseServer, name: str, state: Mapping[tuple[str, object], Row]) -> None:
    for (which, _), row in state.items():
        values = ", ".join(["%s"] * len(row))
        names = ", ".join(row)
        server.execute(
            f"REPLACE INTO {name}.{which} ({names}) VALUES ({values})", tuple(row.values())
        )


def _rows(server: DatabaseServer, name: str) -> dict[str, list[tuple[object, ...]]]:
    return {
        which: sorted(server.execute(f"SELECT {names} FROM {name}.{which}"), key=repr)
        for which, names in (("accounts", "id, code, mail, amount"), ("words", "w, n"))
    }


def _wanted(state: State) -> dict[str, list[tuple[object, ...]]]:
    return {
        which: sorted(
            (tuple(row.values()) for (of, _), row in state.items() if of == which), key=repr
        )
        for which in ("accounts", "words")
    }


def _apply(server: DatabaseServer, task: ApplyTask, stream: RecordStream) -> None:
    applier = started(server, task)
    try:
        applier.process(LocalRecords(stream.values, window_rows=40, lane_order=backwards), ignore)
    finally:
        applier.close()


def _reset(server: DatabaseServer, task: str) -> None:
    """Set the mark back to the beginning, as if the past were unknown."""
    server.execute("DELETE FROM millrace.applied WHERE task = %s", (task,))
    server.execute(
        "UPDATE millrace.progress SET seq = 0, next_offset = -1, gtid_set = '', topic_epoch = 0"
        " WHERE task = %s",
        (task,),
    )


@pytest.mark.parametrize("seed", range(6))
def test_any_mixture_of_states_ends_in_the_source_rows(
    name: str, target_server: DatabaseServer, seed: int
) -> None:
    """Each row of the target is from another moment of the range; values of unique keys and keys move meanwhile.

    After the range counts are demanded, so a row that is missing or left over would also stop the task. A column of
    words is only on the target.
    """
    chance = random.Random(seed)
    flavour = (Flavour.MYSQL, Flavour.MARIADB)[seed % 2]
    source = Source(name, chance, RecordStream(flavour))
    for _ in range(60):
        source.transaction()
    until = source.stream.gtid_set
    range_end = len(source.states)
    for _ in range(20):
        source.transaction()
    _prepared(name, target_server)
    for seen in {key for state in source.states for key in state}:
        moment = source.states[chance.randrange(range_end)]
        _load(target_server, name, {seen: moment[seen]} if seen in moment else {})
    _apply(target_server, apply_task(name, safe_until=until), source.stream)
    assert _rows(target_server, name) == _wanted(source.states[-1])


def test_topic_applied_twice_ends_in_the_same_rows(
    name: str, target_server: DatabaseServer
) -> None:
    """The mark is set back after the whole topic; the second pass begins with the rows of the end."""
    source = Source(name, random.Random(7), RecordStream())
    for _ in range(80):
        source.transaction()
    _prepared(name, target_server)
    task = apply_task(name, safe_until=source.stream.gtid_set)
    _apply(target_server, apply_task(name), source.stream)
    first = _rows(target_server, name)
    assert first == _wanted(source.states[-1])
    _reset(target_server, name)
    _apply(target_server, task, source.stream)
    assert _rows(target_server, name) == first
    _reset(target_server, name)
    with pytest.raises(Fatal, match="MR-5010"):
        _apply(target_server, apply_task(name), source.stream)


@pytest.mark.parametrize("is_large", [True, False], ids=["lanes", "one lane"])
def test_counts_are_demanded_after_the_range(
    name: str, target_server: DatabaseServer, *, is_large: bool
) -> None:
    """A missing row in the range is no conflict; the same change in the next source transaction is one."""
    made, stream = table(name, "t", integer("id"), integer("n")), RecordStream()
    target_server.execute("CREATE TABLE t (id INT PRIMARY KEY, n INT)", db=name)
    stream.update(made, {"id": 1, "n": 0}, {"id": 1, "n": 1})
    stream.delete(made, {"id": 2, "n": 0})
    stream.commit()
    until = stream.gtid_set
    stream.update(made, {"id": 3, "n": 0}, {"id": 3, "n": 1})
    stream.commit()
    with pytest.raises(Fatal) as caught:
        run_once(target_server, apply_task(name, safe_until=until), stream, is_large=is_large)
    assert (caught.value.code, caught.value.context["seq"]) == ("MR-5010", "3")
    target_server.execute("INSERT INTO t VALUES (3, 0)", db=name)
    run_once(target_server, apply_task(name, safe_until=until), stream, is_large=is_large)
    assert target_server.execute(f"SELECT * FROM {name}.t ORDER BY id") == [(1, 1), (3, 1)]


@pytest.mark.parametrize("is_large", [True, False], ids=["lanes", "one lane"])
def test_snapshot_rows_are_written_whatever_the_target_has(
    name: str, target_server: DatabaseServer, *, is_large: bool
) -> None:
    """A row of a snapshot is an upsert without safe mode; changes around it are demanded as always."""
    made = table(name, "t", integer("id"), integer("n"))
    target_server.execute("CREATE TABLE t (id INT PRIMARY KEY, n INT)", db=name)
    target_server.execute("INSERT INTO t VALUES (1, 7), (2, 7)", db=name)
    stream = RecordStream(target_server.flavour)
    stream.update(made, {"id": 1, "n": 7}, {"id": 1, "n": 8})
    stream.commit()
    stream.snapshot(made, {"id": 1, "n": 8})
    stream.snapshot(made, {"id": 2, "n": 9})
    stream.snapshot(made, {"id": 3, "n": 9})
    stream.control(ResolvedRecord(stream.progress, SET, 1, COMMIT_MS))
    stream.update(made, {"id": 3, "n": 9}, {"id": 3, "n": 10})
    stream.commit()
    run_once(target_server, apply_task(name), stream, is_large=is_large)
    assert target_server.execute(f"SELECT * FROM {name}.t ORDER BY id") == [(1, 8), (2, 9), (3, 10)]


def test_snapshot_of_a_table_without_a_key_is_refused(
    name: str, target_server: DatabaseServer
) -> None:
    """The target's table has none, so a row can't be an upsert; nothing is written."""
    made = table(name, "t", integer("id"), integer("n"))
    target_server.execute("CREATE TABLE t (id INT, n INT)", db=name)
    stream = RecordStream(target_server.flavour)
    stream.snapshot(made, {"id": 1, "n": 1})
    stream.commit()
    with pytest.raises(Fatal, match="no key that identifies a row") as caught:
        run_once(target_server, apply_task(name), stream)
    assert caught.value.code == "MR-5024"
    assert target_server.execute(f"SELECT * FROM {name}.t") == []


def test_replaced_parent_keeps_its_children(name: str, target_server: DatabaseServer) -> None:
    """REPLACE and the DELETE before it fire no cascade; a DELETE of the source does, because it may not be logged."""
    target_server.execute("CREATE TABLE p (id INT PRIMARY KEY, u INT UNIQUE, v INT)", db=name)
    target_server.execute(
        "CREATE TABLE c (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES p (u) ON DELETE CASCADE)",
        db=name,
    )
    for number in range(1, 5):
        target_server.execute(f"INSERT INTO p VALUES ({number}, {number}, 0)", db=name)
        target_server.execute(f"INSERT INTO c VALUES ({number}, {number})", db=name)
    parent = table(name, "p", integer("id"), integer("u"), integer("v"))
    stream = RecordStream()
    stream.insert(parent, {"id": 1, "u": 1, "v": 1})
    stream.update(parent, {"id": 2, "u": 2, "v": 0}, {"id": 2, "u": 2, "v": 2})
    stream.update(parent, {"id": 3, "u": 3, "v": 0}, {"id": 9, "u": 3, "v": 3})
    stream.delete(parent, {"id": 4, "u": 4, "v": 0})
    stream.commit()
    run_once(target_server, apply_task(name, safe_until=stream.gtid_set), stream)
    rows = target_server.execute(f"SELECT * FROM {name}.p ORDER BY id")
    assert rows == [(1, 1, 1), (2, 2, 2), (9, 3, 3)]
    assert target_server.execute(f"SELECT id FROM {name}.c ORDER BY id") == [(1,), (2,), (3,)]


@pytest.mark.parametrize("flags", [2, 16], ids=["no checks", "checks in SQL"])
def test_logged_cascade_is_not_repeated(
    name: str, target_server: DatabaseServer, flags: int
) -> None:
    """A record with a flag of its rows event leaves children to their own records; a key change, too."""
    target_server.execute("CREATE TABLE p (id INT PRIMARY KEY)", db=name)
    target_server.execute(
        "CREATE TABLE c (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES p (id)"
        " ON DELETE CASCADE ON UPDATE CASCADE)",
        db=name,
    )
    target_server.execute("INSERT INTO p VALUES (1), (2)", db=name)
    target_server.execute("INSERT INTO c VALUES (1, 1), (2, 2)", db=name)
    parent, stream = table(name, "p", integer("id")), RecordStream()
    stream.delete(parent, {"id": 1}, flags=flags)
    stream.update(parent, {"id": 2}, {"id": 3}, flags=flags)
    stream.commit()
    run_once(target_server, apply_task(name, safe_until=stream.gtid_set), stream)
    assert target_server.execute(f"SELECT * FROM {name}.p") == [(3,)]
    assert target_server.execute(f"SELECT * FROM {name}.c ORDER BY id") == [(1, 1), (2, 2)]


@pytest.mark.parametrize(
    ("is_large", "consistency"),
    [
        (True, Consistency.CAUSAL),
        (False, Consistency.CAUSAL),
        (True, Consistency.TRANSACTIONAL),
    ],
)
def test_trigger_created_while_the_task_runs_is_refused(
    name: str, target_server: DatabaseServer, *, is_large: bool, consistency: Consistency
) -> None:
    """It comes after the task has read the triggers; no row is written, so it does not fire."""
    target_server.execute("CREATE TABLE t (id INT PRIMARY KEY, n INT)", db=name)
    target_server.execute("CREATE TABLE audit (id INT)", db=name)
    target_server.execute("INSERT INTO t VALUES (1, 0)", db=name)
    made, stream = table(name, "t", integer("id"), integer("n", nullable=True)), RecordStream()
    for value in range(8):  # larger than a window
        stream.update(made, {"id": 1, "n": value}, {"id": 1, "n": value + 1})
    stream.commit()

    triggers = [
        "CREATE TRIGGER t_log AFTER INSERT ON t FOR EACH ROW INSERT INTO audit VALUES (NEW.id)"
    ]

    def create_trigger() -> None:
        while triggers:
            target_server.execute(triggers.pop(), db=name)

    task = apply_task(name, safe_until=stream.gtid_set, consistency=consistency)
    applier = started(target_server, task)
    records = LocalRecords(stream.values, is_large=is_large, window_rows=5, begun=create_trigger)
    with pytest.raises(Fatal, match=r"t: trigger t_log on the target") as caught:
        applier.process(records, ignore)
    applier.close()
    assert caught.value.code == "MR-5024"
    assert target_server.execute(f"SELECT * FROM {name}.audit") == []
    assert target_server.execute(f"SELECT n FROM {name}.t") == [(0,)]
    target_server.execute("DROP TRIGGER t_log", db=name)
    run_once(target_server, task, stream, is_large=is_large)
    assert target_server.execute(f"SELECT n FROM {name}.t") == [(8,)]


@pytest.mark.parametrize("is_large", [True, False], ids=["lanes", "one lane"])
def test_columns_of_the_target_alone_keep_their_values(
    name: str, target_server: DatabaseServer, *, is_large: bool
) -> None:
    """Also if a row gets the key of one that the target has already, or another spelling of its own key."""
    target_server.execute(
        "CREATE TABLE t (w VARCHAR(9) PRIMARY KEY, n INT, own INT DEFAULT 1)"
        " DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci",
        db=name,
    )
    made = table(name, "t", text("w", nullable=False), integer("n"))
    has = {"there": 0, "moves": 0, "same": 0, "from": 0, "to": 0, "gone": 0}
    for own, (key, n) in enumerate(has.items(), 10):
        target_server.execute(f"INSERT INTO {name}.t VALUES (%s, %s, %s)", (key, n, own))
    stream = RecordStream(target_server.flavour)
    stream.insert(made, {"w": "there", "n": 1})
    stream.insert(made, {"w": "new", "n": 1})
    stream.update(made, {"w": "moves", "n": 0}, {"w": "moved", "n": 1})
    stream.update(made, {"w": "same", "n": 0}, {"w": "SAME", "n": 1})
    stream.update(made, {"w": "from", "n": 0}, {"w": "to", "n": 1})
    stream.update(made, {"w": "no", "n": 0}, {"w": "made", "n": 1})
    stream.delete(made, {"w": "gone", "n": 0})
    stream.commit()
    run_once(target_server, apply_task(name, safe_until=stream.gtid_set), stream, is_large=is_large)
    found = target_server.execute(f"SELECT w, n, own FROM {name}.t ORDER BY BINARY w")
    assert found == [
        ("SAME", 1, 12),
        ("made", 1, 1),
        ("moved", 1, 11),
        ("new", 1, 1),
        ("there", 1, 10),
        ("to", 1, 14),
    ]


def test_trigger_waits_for_a_target_transaction_in_safe_mode(
    name: str, target_server: DatabaseServer
) -> None:
    """Between the look for triggers and the commit none can be created."""
    target_server.execute("CREATE TABLE t (id INT PRIMARY KEY)", db=name)
    session = connect(endpoint_of(target_server))
    assert hold_triggers(session, (name, "t")) == ()
    client = connect(endpoint_of(target_server))
    client.query("SET SESSION lock_wait_timeout = 1")
    trigger = f"CREATE TRIGGER {name}.t_log AFTER INSERT ON {name}.t FOR EACH ROW SET @n = 1"
    with pytest.raises(Retryable, match="MR-5005"):
        client.query(trigger)
    session.commit()
    client.query(trigger)
    assert hold_triggers(session, (name, "t")) == ("t_log",)
    session.close()
    client.close()


def test_generated_values_follow_replaced_rows(name: str, target_server: DatabaseServer) -> None:
    """On MySQL the generated column is the key, so each row has a separate statement, and its key is checked."""
    is_mysql = target_server.flavour is Flavour.MYSQL
    key = " NOT NULL PRIMARY KEY" if is_mysql else ", PRIMARY KEY (a)"
    target_server.execute(
        f"CREATE TABLE t (v INT, a INT NOT NULL, g INT AS (a + 1) STORED{key})", db=name
    )
    made = table(name, "t", integer("a"), integer("g"), integer("v"), key=())
    stream = RecordStream()
    for value in (0, 1):
        target_server.execute(f"INSERT INTO t (a, v) VALUES ({value + 5}, 7)", db=name)
    stream.insert(made, {"a": 5, "g": 6, "v": 0})
    stream.update(made, {"a": 5, "g": 6, "v": 0}, {"a": 7, "g": 8, "v": 1})
    stream.delete(made, {"a": 6, "g": 7, "v": 0})
    stream.delete(made, {"a": 9, "g": 10, "v": 0})
    stream.commit()
    run_once(target_server, apply_task(name, safe_until=stream.gtid_set), stream)
    assert target_server.execute(f"SELECT a, g, v FROM {name}.t") == [(7, 8, 1)]


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("CREATE TABLE t (id INT, n INT)", "no key"),
        (
            "CREATE TABLE t (id INT PRIMARY KEY, n INT UNIQUE, extra INT DEFAULT 3)",
            "the column extra",
        ),
        ("CREATE TABLE t (id INT PRIMARY KEY, n INT)", "trigger t_log"),
        ("CREATE TABLE t (id INT PRIMARY KEY, n INT) WITH SYSTEM VERSIONING", "history"),
    ],
)
def test_table_that_replace_would_harm_is_refused(
    name: str, target_server: DatabaseServer, sql: str, why: str
) -> None:
    """No row of the window is written, also of other tables; the task continues when the table is excluded."""
    if "VERSIONING" in sql and target_server.flavour is not Flavour.MARIADB:
        return
    target_server.execute(sql, db=name)
    target_server.execute("CREATE TABLE other (id INT PRIMARY KEY, n INT)", db=name)
    if "trigger" in why:
        target_server.execute(
            "CREATE TRIGGER t_log AFTER DELETE ON t FOR EACH ROW SET @n = 1", db=name
        )
    stream = RecordStream()
    for which in ("other", "t"):
        stream.insert(
            table(name, which, integer("id"), integer("n", nullable=True)), {"id": 1, "n": 1}
        )
    stream.commit()
    until = stream.gtid_set
    with pytest.raises(Fatal, match=why) as caught:
        run_once(target_server, apply_task(name, safe_until=until), stream)
    assert caught.value.code == "MR-5024"
    assert target_server.execute(f"SELECT * FROM {name}.other") == []
    run_once(target_server, apply_task(name, safe_until=until, exclude=(f"{name}.t",)), stream)
    assert target_server.execute(f"SELECT * FROM {name}.other") == [(1, 1)]
    assert target_server.execute(f"SELECT COUNT(*) FROM {name}.t") == [(0,)]
