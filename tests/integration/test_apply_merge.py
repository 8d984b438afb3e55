"""Merged changes on real targets: the same rows as the changes one by one, and the same conflicts."""

import numpy as np
import pytest

from millrace.consumer.records.numbers import RecordNumbers
from millrace.consumer.records.row_schemas import RowSchemas
from millrace.consumer.records.rows import walk_values
from millrace.consumer.tables.table_plans import Catalogue, TablePlans
from millrace.consumer.write.row_writer import ConflictRule, RowWriter
from millrace.deploy.servers import DatabaseServer
from millrace.drivers.mysql.catalog import read_inventory
from millrace.drivers.mysql.connection import connect
from millrace.errors import Fatal
from millrace.schemas.documents import ConflictPolicy
from millrace.schemas.record.avro_schema import envelope_schema
from millrace.schemas.table.structure import TableSchema
from tests.kit.apply.history import SQL, make_history, schemas
from tests.kit.apply.local import apply_task, endpoint_of, run_once
from tests.kit.apply.tables import integer, table
from tests.kit.apply.topic import SET, RecordStream
from tests.kit.apply.values import values_of


def _write(
    server: DatabaseServer, stream: RecordStream, *tables: TableSchema, careful: bool = False
) -> int:
    """Write all rows in one target transaction; returns the number of statements."""
    session = connect(endpoint_of(server))
    try:
        texts = {100 + at: envelope_schema(SET, made).text for at, made in enumerate(tables)}
        plans = TablePlans(Catalogue("merge", RowSchemas(texts), read_inventory(session)))
        values = [value for value in stream.values if value[5] in (0, 2)]
        rows = walk_values(values_of(values), plans.programs)
        assert len(rows) == len(values)
        writer = RowWriter(session, plans, ConflictRule("merge", ConflictPolicy.STOP))
        write = writer.write_carefully if careful else writer.write
        write(rows, RecordNumbers(np.arange(len(rows))))
        session.commit()
        return writer.statement_count
    finally:
        session.close()


@pytest.mark.parametrize("about", ["", "p", "accounts"])
def test_merged_changes_leave_the_rows_of_single_ones(
    name: str, target_server: DatabaseServer, about: str
) -> None:
    """Random histories of a few rows; the unmerged ones are written one by one into a database with the same tables."""
    sql = [line for line in SQL if about in ("", "accounts") or "KEY (p)" not in line]
    wanted = f"{name}_single"
    target_server.execute(f"CREATE DATABASE {wanted}")
    for database in (name, wanted):
        for line in sql:
            target_server.execute(line, db=database)
    for seed in range(6):
        for database in (name, wanted):
            history = make_history(
                database, seed=seed, steps=150, about=about, flavour=target_server.flavour
            )
            tables = schemas(database)
            order = dict.fromkeys(change[0] for change in history.changes.values())
            given = [tables[one] for one in order]
            _write(target_server, history.stream, *given, careful=database == wanted)
            for which in order:
                found = target_server.execute(f"SELECT * FROM {database}.{which}")
                assert sorted(found, key=repr) == history.tables.sorted(which), (seed, which)
        for database in (name, wanted):
            for line in reversed(sql):
                target_server.execute(f"DELETE FROM {line.split()[2]}", db=database)
    target_server.execute(f"DROP DATABASE {wanted}")


@pytest.mark.parametrize("is_unique", [False, True], ids=["a key", "two keys"])
def test_loader_example_arrives_in_few_statements(
    name: str, target_server: DatabaseServer, *, is_unique: bool
) -> None:
    """DML1-5 of TiDB's loader: the last INSERT takes a key of each of two rows, which were moved and deleted."""
    unique = ", UNIQUE KEY (uk)" if is_unique else ""
    target_server.execute(f"CREATE TABLE t (pk INT PRIMARY KEY, uk INT{unique})", db=name)
    made, stream = table(name, "t", integer("pk"), integer("uk")), RecordStream()
    stream.insert(made, {"pk": 1, "uk": 2})
    stream.insert(made, {"pk": 2, "uk": 3})
    stream.update(made, {"pk": 2, "uk": 3}, {"pk": 4, "uk": 5 if is_unique else 3})
    stream.delete(made, {"pk": 1, "uk": 2})
    stream.insert(made, {"pk": 1, "uk": 3})
    statements = _write(target_server, stream, made)
    rows = target_server.execute(f"SELECT pk, uk FROM {name}.t ORDER BY pk")
    assert rows == [(1, 3), (4, 5 if is_unique else 3)]
    # one INSERT (of rows 1 and 2) and the moving UPDATE; with the second key also the DELETE and the last INSERT
    assert statements == (4 if is_unique else 2)


@pytest.mark.parametrize("policy", list(ConflictPolicy), ids=str)
def test_row_in_the_way_of_a_vanished_row_conflicts(
    name: str, target_server: DatabaseServer, policy: ConflictPolicy
) -> None:
    """An INSERT and a DELETE of one row leave nothing, but the target had that row: the policy decides, as for each."""
    target_server.execute("CREATE TABLE t (id INT PRIMARY KEY, n INT)", db=name)
    target_server.execute(f"INSERT INTO {name}.t VALUES (1, 7)")
    made, stream = table(name, "t", integer("id"), integer("n")), RecordStream()
    stream.insert(made, {"id": 1, "n": 0})
    stream.update(made, {"id": 1, "n": 0}, {"id": 1, "n": 1})
    stream.delete(made, {"id": 1, "n": 1})
    stream.insert(made, {"id": 2, "n": 0})
    stream.commit()
    task = apply_task(name, conflict=policy)
    if policy is ConflictPolicy.STOP:
        with pytest.raises(Fatal) as caught:
            run_once(target_server, task, stream)
        assert (caught.value.code, caught.value.context["seq"]) == ("MR-5010", "1")
        assert target_server.execute(f"SELECT id, n FROM {name}.t") == [(1, 7)]
        return
    run_once(target_server, task, stream)
    assert target_server.execute(f"SELECT id, n FROM {name}.t") == [(2, 0)]
    (first, *_) = target_server.execute(
        "SELECT seq, op, decision FROM millrace.conflict WHERE task = %s ORDER BY seq", (name,)
    )
    assert first == (1, "c", str(policy))


@pytest.mark.parametrize("what", ["a trigger", "a missing row", "a missing row before a deletion"])
def test_merging_hides_no_conflict_and_no_trigger(
    name: str, target_server: DatabaseServer, what: str
) -> None:
    """A trigger runs once per change. A merged change of a missing row is refused as the first one would be."""
    target_server.execute("CREATE TABLE t (id INT PRIMARY KEY, n INT)", db=name)
    target_server.execute("CREATE TABLE log (n INT)", db=name)
    made, stream = table(name, "t", integer("id"), integer("n")), RecordStream()
    if what == "a trigger":
        target_server.execute(
            "CREATE TRIGGER seen AFTER UPDATE ON t FOR EACH ROW INSERT INTO log VALUES (NEW.n)",
            db=name,
        )
        stream.insert(made, {"id": 1, "n": 0})
    for number in range(3):
        stream.update(made, {"id": 1, "n": number}, {"id": 1, "n": number + 1})
    if "deletion" in what:
        stream.delete(made, {"id": 1, "n": 3})
    stream.commit()
    if what == "a trigger":
        run_once(target_server, apply_task(name), stream)
        assert target_server.execute(f"SELECT n FROM {name}.log ORDER BY n") == [(1,), (2,), (3,)]
        return
    with pytest.raises(Fatal) as caught:
        run_once(target_server, apply_task(name), stream)
    assert (caught.value.code, caught.value.context["seq"]) == ("MR-5010", "1")
