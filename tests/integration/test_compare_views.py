"""Comparisons under a view that changes names, rows and columns, between both flavours in each direction.

The rows of both sides are written by SQL. Each planted difference must be found, and nothing else.
"""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from millrace.consumer.compare import Comparison, Ends, Rules, Threads, Work, compare_sets, tables
from millrace.consumer.compare.table import viewed_pair
from millrace.consumer.compare.tables import WHOLE_VIEW
from millrace.consumer.compare.viewed import viewed_rows
from millrace.consumer.target.progress import create_tables
from millrace.consumer.target.stored_view import insert_view
from millrace.deploy.servers import DatabaseServer
from millrace.drivers.mysql.catalog import Inventory, read_collations, read_inventory
from millrace.drivers.mysql.chunks.chunk import Border, Chunk
from millrace.drivers.mysql.connection import connect
from millrace.drivers.mysql.table_schema import table_schema
from millrace.drivers.mysql.weights import read_weights
from millrace.errors import Fatal
from millrace.schemas.view.view import Mask, MaskKind, TableRule, View
from tests.kit.apply.follower import following
from tests.kit.apply.local import apply_task, endpoint_of, run_once, started
from tests.kit.apply.tables import integer, table
from tests.kit.apply.topic import RecordStream
from tests.kit.waiting import PATIENCE_S

ORDERS = (
    "CREATE TABLE {}.orders_1 (id BIGINT PRIMARY KEY, note TEXT, mail VARCHAR(80), amount INT NOT NULL, state"
    " VARCHAR(9) COLLATE utf8mb4_bin) DEFAULT CHARSET=utf8mb4"
)
SALES = (
    "CREATE TABLE {}.sales_1 (email VARCHAR(80), own INT DEFAULT 7, {} shard CHAR(20) NOT NULL, part INT,"
    " amount BIGINT NOT NULL) DEFAULT CHARSET=latin1"
)
KEYED = "id BIGINT PRIMARY KEY,"
OTHERWISE = "id BIGINT NOT NULL, UNIQUE KEY (shard, id),"
PLAIN = "CREATE TABLE {}.plain (id INT PRIMARY KEY, v INT)"
BUYERS = "CREATE TABLE {}.buyers (id INT PRIMARY KEY, mail VARCHAR(80), state INT)"

PEOPLE = "CREATE TABLE {}.people (id INT PRIMARY KEY, v VARCHAR(20)) COLLATE utf8mb4_general_ci"


class Scene:
    """A source and a target, and the view between their databases."""

    def __init__(self, source: DatabaseServer, target: DatabaseServer, name: str) -> None:
        self.source, self.target, self.name, self.house = source, target, name, f"{name}_house"
        self.orders = TableRule(
            f"{name}.orders_*",
            f"{self.house}.sales_{{1}}",
            where="state = 'paid' AND amount % 2 = 0",
            drop=("note", "state"),
            rename=(("mail", "email"),),
            add=(("shard", "shop {1}"), ("part", -3)),
        )
        mask = (("mail", Mask(MaskKind.HMAC, secret="file:/planted")),)
        buyers = TableRule(f"{name}.buyers", f"{self.house}.buyers", masks=mask)
        self.view = View((self.orders, buyers, TableRule(f"{name}.plain")))

    def fill(self, keys: str) -> None:
        """Forty orders, of which the view has seven, and the target has these."""
        self.source.execute(ORDERS.format(self.name))
        self.target.execute(SALES.format(self.house, keys))
        for number in range(40):
            mail = None if number == 6 else f"Mail é {number}"
            state = ("paid", "PAID", None)[number // 2 % 3]
            row = (number, f"secret {number}", mail, number, state)
            self.source.execute(
                f"INSERT INTO {self.name}.orders_1 VALUES (%s, %s, %s, %s, %s)", row
            )
            if state == "paid" and number % 2 == 0:
                self.target.execute(
                    f"INSERT INTO {self.house}.sales_1 (id, email, amount, shard, part) VALUES (%s, %s, %s, %s, -3)",
                    (number, mail, number, "shop 1"),
                )

    def compared(self, view: View | None = None, **rules: object) -> Comparison:
        """Compare in chunks of a few rows."""
        given = Rules(chunk_rows=5, view=view or self.view, **rules)  # type: ignore[arg-type]
        ends = Ends(endpoint_of(self.source), endpoint_of(self.target))
        return compare_sets(
            ends, lambda database, _: database == self.name, written_by=self.name, rules=given
        )

    def repaired(self) -> Comparison:
        """Compare and repair, beside a task that has applied all."""
        wait_s = PATIENCE_S
        ends = Ends(endpoint_of(self.source), endpoint_of(self.target), self.name, wait_s)
        rules = Rules(chunk_rows=5, view=self.view, work=Work(repairs=True), pool=Threads(ends, 1))
        with following(self.source, self.target, self.name):
            return compare_sets(ends, lambda database, _: database == self.name, rules=rules)


@pytest.fixture(params=["from MariaDB", "to MariaDB"])
def scene(
    request: pytest.FixtureRequest,
    mariadb_server: DatabaseServer,
    target_server: DatabaseServer,
    name: str,
) -> Iterator[Scene]:
    """See ``Scene``."""
    both = (mariadb_server, target_server)
    source, target = both if request.param == "from MariaDB" else both[::-1]
    for server in both:
        server.execute(f"CREATE DATABASE IF NOT EXISTS {name}")
        server.execute(f"ALTER DATABASE {name} CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")
        server.execute(f"CREATE DATABASE {name}_house")
    yield Scene(source, target, name)
    for server in both:
        server.execute(f"DROP DATABASE {name}")
        server.execute(f"DROP DATABASE {name}_house")


@pytest.mark.parametrize("keys", [KEYED, OTHERWISE], ids=["by key", "by digest"])
def test_each_planted_difference_is_found(scene: Scene, keys: str) -> None:
    """A value under another name, rows on the wrong side of the condition, a missing row, a wrong constant."""
    scene.fill(keys)
    found = scene.compared()
    assert (found.tables, found.rows, found.is_equal) == (1, 7, True)
    shown = f"{scene.name}.orders_1 ({scene.house}.sales_1)"
    sales, orders = f"{scene.house}.sales_1", f"{scene.name}.orders_1"
    target, source = scene.target, scene.source
    cases = [
        (target, f"UPDATE {sales} SET email = 'mail é 0' WHERE id = 0", "different"),
        (target, f"UPDATE {sales} SET email = '' WHERE id = 6", "different"),
        (target, f"UPDATE {sales} SET amount = 1 WHERE id = 12", "different"),
        (target, f"DELETE FROM {sales} WHERE id = 18", "missing"),
        (target, f"UPDATE {sales} SET shard = 'SHOP 1' WHERE id = 24", "missing"),
        (target, f"UPDATE {sales} SET part = NULL WHERE id = 30", "missing"),
        (target, f"INSERT INTO {sales} VALUES ('Mail é 1', 7, 1, 'shop 1', -3, 1)", "extra"),
        (target, f"INSERT INTO {sales} VALUES ('x', 7, 99, 'shop 1', -3, 1)", "extra"),
        (source, f"UPDATE {orders} SET state = 'PAID' WHERE id = 36", "extra"),
        (source, f"UPDATE {orders} SET state = 'paid' WHERE id = 2", "missing"),
        (source, f"UPDATE {orders} SET amount = 5 WHERE id = 6", "extra"),
    ]
    for done, (server, sql, what) in enumerate(cases, 1):
        assert server.execute(sql) is not None
        found = scene.compared()
        assert not found.has_equal_rows
        number = int(sql.partition("id = ")[2] or ("1" if "'Mail é 1'" in sql else "99"))
        listed = {(one.what, one.key) for one in found.differences if one.table == shown}
        assert (what, str(number)) in listed, sql
        if "amount = 5" not in sql:  # it was different before
            assert len(found.differences) == done, sql
        assert not any(one.rows.repair for one in found.differences)
        assert not any("secret" in one.rows.source for one in found.differences)
    # rows that another shard has, and the target's own values, are none of the view
    before = scene.compared().difference_count
    target.execute(f"INSERT INTO {sales} VALUES ('x', 7, 100, 'shop 2', -3, 1)")
    target.execute(f"UPDATE {sales} SET own = 8")
    assert scene.compared().difference_count == before


@pytest.mark.parametrize("keys", [KEYED, OTHERWISE], ids=["by key", "by digest"])
def test_repair_writes_the_rows_of_the_view(scene: Scene, keys: str) -> None:
    """Values under other names, rows on the wrong side; the target's own column and rows of others stay."""
    scene.fill(keys)
    sales = f"{scene.house}.sales_1"
    read = f"SELECT email, own, id, shard, part, amount FROM {sales} ORDER BY id"
    wanted = scene.target.execute(read)
    is_keyed = keys == KEYED
    for sql in (
        f"UPDATE {sales} SET email = 'other' WHERE id = 0",
        f"DELETE FROM {sales} WHERE id = 18",
        f"INSERT INTO {sales} VALUES ('x', 7, 99, 'shop 1', -3, 1)",
        f"INSERT INTO {sales} VALUES ('x', 7, 100, 'shop 2', -3, 1)",
    ):
        scene.target.execute(sql)
    found = scene.repaired()
    others = ("x", 7, 100, "shop 2", -3, 1)
    if (
        not is_keyed
    ):  # two rows that are equal in the compared columns may have other values of `own`
        assert found.repaired == 0
        return
    assert scene.target.execute(read) == [*wanted, others]
    assert scene.compared().has_equal_rows
    scene.target.execute(f"UPDATE {sales} SET own = 8, amount = 4 WHERE id = 12")
    # a row with another constant may be one of others: it is not deleted for the row of its key
    scene.target.execute(f"UPDATE {sales} SET part = 9 WHERE id = 30")
    assert scene.repaired().repaired == 1
    assert scene.target.execute(f"SELECT part FROM {sales} WHERE id = 30") == [(9,)]
    assert scene.target.execute(f"SELECT own, amount FROM {sales} WHERE id = 12") == [(8, 12)]


def test_repair_leaves_masked_values_and_tables_of_others(scene: Scene) -> None:
    """A row is never written without a masked value. Rows that another task may have written are not deleted."""
    for server, database in ((scene.source, scene.name), (scene.target, scene.house)):
        server.execute(BUYERS.format(database))
        server.execute(
            f"INSERT INTO {database}.buyers VALUES (1, '{database}', 1), (2, NULL, 2), (3, 'x', 3)"
        )
    buyers = f"{scene.house}.buyers"
    scene.target.execute(f"UPDATE {buyers} SET state = 3 WHERE id = 1")
    scene.target.execute(f"DELETE FROM {buyers} WHERE id = 2")
    scene.target.execute(f"INSERT INTO {buyers} VALUES (9, 'y', 9)")
    left = [(1, scene.house, 1), (3, "x", 3)]
    with closing(connect(endpoint_of(scene.target))) as session:
        create_tables(session)
        insert_view(
            session, "another", View((TableRule("*.*", f"{scene.house}.{{table}}"),)), begin_seq=1
        )
        session.commit()
    assert scene.repaired().repaired == 0
    scene.target.execute("DELETE FROM millrace.view WHERE task = 'another'")
    assert scene.repaired().repaired == 2
    assert scene.target.execute(f"SELECT * FROM {buyers} ORDER BY id") == left
    recorded = scene.target.execute(
        f"SELECT row_before, row_after FROM millrace.repair WHERE task = '{scene.name}'"
    )
    assert not any(scene.name in str(after) and "house" not in str(after) for _, after in recorded)


def test_masked_columns_are_named_and_not_compared(scene: Scene) -> None:
    """All others are. No server gets the secret, which does not exist."""
    for server, database in ((scene.source, scene.name), (scene.target, scene.house)):
        server.execute(BUYERS.format(database))
        server.execute(f"INSERT INTO {database}.buyers VALUES (1, '{database}', 1), (2, NULL, 2)")
    shown = f"{scene.name}.buyers ({scene.house}.buyers)"
    found = scene.compared()
    assert found.unread == {shown: ("mail (masked)",)}
    assert (found.rows, found.has_equal_rows, found.is_equal) == (2, True, False)
    scene.target.execute(f"UPDATE {scene.house}.buyers SET state = 3 WHERE id = 2")
    scene.target.execute(f"DELETE FROM {scene.house}.buyers WHERE id = 1")
    found = scene.compared()
    assert [(one.what, one.key) for one in found.differences] == [
        ("different", "2"),
        ("missing", "1"),
    ]


def test_tables_are_those_that_the_view_names(scene: Scene) -> None:
    """A table of the source's name on the target is not looked at; one with rows of the task must be on the source."""
    scene.fill(KEYED)
    for server in (scene.source, scene.target):
        server.execute(PLAIN.format(scene.name))
    scene.target.execute(ORDERS.format(scene.name))
    scene.target.execute(f"CREATE TABLE {scene.house}.sales_7 (id INT)")
    found = scene.compared()
    assert (found.tables, found.is_equal) == (2, True)
    scene.target.execute(f"INSERT INTO {scene.name}.plain VALUES (1, 1)")
    scene.source.execute(f"CREATE TABLE {scene.name}.orders_2 LIKE {scene.name}.orders_1")
    stream = RecordStream()
    rule = replace(scene.orders, where="", drop=(), rename=(), add=())
    stream.insert(table(scene.name, "orders_7", integer("id")), {"id": 4})
    stream.commit()
    task = replace(apply_task(scene.name), view=View((rule,)))
    run_once(scene.target, task, stream)
    wanted = [
        (f"{scene.name}.orders_2 ({scene.house}.sales_2)", "missing", WHOLE_VIEW),
        (f"{scene.name}.orders_7 ({scene.house}.sales_7)", "extra", WHOLE_VIEW),
        (f"{scene.name}.plain", "extra", "1"),
    ]
    found = scene.compared()
    assert [(one.table, one.what, one.key) for one in found.differences] == wanted


def test_rule_in_other_case_is_followed_on_folding_targets(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The task applies such a table, so its rows are compared."""
    scene.fill(KEYED)
    scene.target.execute(f"DELETE FROM {scene.house}.sales_1 WHERE id = 6")
    view = View((replace(scene.orders, source=f"{scene.name.upper()}.ORDERS_*"),))
    assert scene.compared(view).tables == 0

    def folding(*given: Any, **more: Any) -> Inventory:
        return replace(read_inventory(*given, **more), folds_names=True)

    monkeypatch.setattr(tables, "read_inventory", folding)
    found = scene.compared(view)
    assert [(one.what, one.key) for one in found.differences] == [("missing", "6")]


def test_two_tables_of_one_name_are_refused(scene: Scene) -> None:
    """Also if one has the name without a rule's change."""
    scene.fill(KEYED)
    scene.source.execute(f"CREATE TABLE {scene.name}.orders_2 LIKE {scene.name}.orders_1")
    rule = replace(scene.orders, target=f"{scene.house}.sales_1", add=())
    with pytest.raises(Fatal, match="MR-5207"):
        scene.compared(View((rule,)))


def test_view_that_does_not_fit_is_never_equal(scene: Scene) -> None:
    """A column that is not on the target, one that is not on the source, and texts without weights."""
    scene.fill(KEYED)
    shown = f"{scene.name}.orders_1 ({scene.house}.sales_1)"
    scene.target.execute(f"ALTER TABLE {scene.house}.sales_1 DROP email")
    found = scene.compared()
    assert [(one.table, one.place) for one in found.structure] == [(shown, "column email")]
    assert found.has_equal_rows
    assert not found.is_equal
    assert found.unread == {shown: ("email (not on the target)",)}
    assert not scene.compared(with_structure=False).is_equal
    for rule in (
        replace(scene.orders, rename=(("post", "email"),)),
        replace(scene.orders, where="mail = 'a'"),
    ):
        found = scene.compared(View((rule,)))
        assert "the view does not fit" in found.left_out[shown]
        assert not found.is_done
        assert not found.has_equal_rows


def test_source_decides_which_texts_a_condition_admits(scene: Scene) -> None:
    """With the weights that the task has stored. Without them, the table is not compared."""
    rule = TableRule(f"{scene.name}.people", f"{scene.house}.people", where="v = 'straße'")
    view, shown = View((rule,)), f"{scene.name}.people ({scene.house}.people)"
    for server, database in ((scene.source, scene.name), (scene.target, scene.house)):
        server.execute(PEOPLE.format(database))
        server.execute(f"INSERT INTO {database}.people VALUES (1, 'Straße'), (2, 'STRASE')")
    scene.source.execute(f"INSERT INTO {scene.name}.people VALUES (3, 'strasse'), (4, NULL)")
    started(scene.target, apply_task(scene.name)).close()
    assert "the view does not fit" in scene.compared(view).left_out[shown]
    with closing(connect(endpoint_of(scene.source))) as session:
        weights = read_weights(session, {45: {"straße"}})
    with closing(connect(endpoint_of(scene.target))) as session:
        insert_view(session, scene.name, replace(view, collations=weights), begin_seq=0)
        session.commit()
    found = scene.compared(view)
    assert (found.rows, found.is_equal) == (2, True)
    scene.target.execute(f"DELETE FROM {scene.house}.people WHERE id = 2")
    scene.target.execute(f"INSERT INTO {scene.house}.people VALUES (3, 'strasse')")
    listed = [(one.what, one.key) for one in scene.compared(view).differences]
    assert listed == [("missing", "2"), ("extra", "3")]


def test_chunks_are_read_by_the_key(scene: Scene) -> None:
    """The servers merge the derived table: a chunk is a range of the primary key."""
    scene.fill(KEYED)
    with closing(connect(endpoint_of(scene.source))) as session:
        source = read_inventory(session, with_folds=False).tables[scene.name, "orders_1"]
        schema = table_schema(source, session.flavour, read_collations(session))
        with closing(connect(endpoint_of(scene.target))) as other:
            target = read_inventory(other, with_folds=False).tables[scene.house, "sales_1"]
        pair = viewed_pair(viewed_rows(source, schema, target, scene.view, folds=False), target)
        chunk = Chunk(1, Border(("10",)), Border(("15",)))
        for sql in (
            pair.source.sums(chunk),
            pair.source.all_rows(chunk),
            pair.source.states([("12",)]),
        ):
            plan = [tuple(map(str, row)) for row in session.query(f"EXPLAIN {sql}")]
            assert len(plan) == 1
            assert "PRIMARY" in plan[0][2:]
