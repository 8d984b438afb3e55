"""`include` and `exclude` of an apply task: rows are skipped exactly, and a blocked task can be rescued."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import count

import pytest

from millrace.consumer.task.report import filter_warning, running_report
from millrace.deploy.servers import DatabaseServer
from millrace.errors import Fatal
from millrace.schemas.documents import TableFilter
from millrace.schemas.stages import Applied
from millrace.schemas.view.view import view_of_filter
from tests.kit.apply.local import apply_task, run_once
from tests.kit.apply.tables import integer, table
from tests.kit.apply.topic import RecordStream

_names = count(1)


@pytest.fixture
def name(mariadb_server: DatabaseServer) -> Iterator[str]:
    """Name of a database and task; the database is dropped after the test."""
    made = f"filter{next(_names)}"
    yield made
    mariadb_server.execute(f"DROP DATABASE IF EXISTS {made}")


def _stream(name: str) -> RecordStream:
    stream = RecordStream()
    stream.ddl(f"CREATE DATABASE {name}")
    for made in ("kept", "log", "kept2"):
        stream.ddl(f"CREATE TABLE {made} (id INT PRIMARY KEY)", database=name)
    for number in range(50):
        for made in ("kept", "log", "kept2"):
            stream.insert(table(name, made, integer("id")), {"id": number})
    stream.commit()
    return stream


@pytest.mark.parametrize("is_large", [True, False])
def test_rows_of_left_out_tables_are_skipped(
    name: str, mariadb_server: DatabaseServer, is_large: bool
) -> None:
    """In lanes and in one lane: other rows are applied, and the mark reaches the end."""
    stream = _stream(name)
    task = apply_task(f"{name}-{is_large}", exclude=(f"{name}.log",))
    applier = run_once(mariadb_server, task, stream, is_large=is_large)
    assert applier.mark.seq == stream.seq
    assert applier.figures.counts.rows == 100
    assert mariadb_server.execute(f"SHOW TABLES IN {name}") == [("kept",), ("kept2",)]
    assert mariadb_server.execute(f"SELECT COUNT(*) FROM {name}.kept2") == [(50,)]
    left_out = "SELECT sql_text FROM millrace.left_out WHERE task = %s"
    assert mariadb_server.execute(left_out, (task.name,)) == [
        ("CREATE TABLE log (id INT PRIMARY KEY)",)
    ]


def test_status_warns_while_every_table_is_left_out(
    name: str, mariadb_server: DatabaseServer
) -> None:
    """Such as by a mistyped `include`; the next start knows it from the stored schemas once a turn has ended."""
    stream = _stream(name)
    task = replace(apply_task(name), view=view_of_filter(TableFilter(("typo.*",))))
    applier = run_once(mariadb_server, task, stream)
    assert applier.figures.counts.rows == 0
    assert f"such as {name}.kept" in filter_warning(applier.figures)
    report = running_report(applier.mark, applier.figures, Applied())
    assert report.warnings == (filter_warning(applier.figures),)
    stream.insert(table(name, "log", integer("id")), {"id": 100})
    stream.commit()
    again = run_once(mariadb_server, task, stream)
    assert filter_warning(again.figures)
    applier = run_once(mariadb_server, apply_task(f"{name}-all", exclude=(f"{name}.log",)), stream)
    report = running_report(applier.mark, applier.figures, Applied())
    assert report.warnings == ()


def test_task_blocked_by_one_table_is_rescued(name: str, mariadb_server: DatabaseServer) -> None:
    """The refused statement and all later rows of its table are skipped once the table is excluded."""
    stream = _stream(name)
    stream.ddl("ALTER TABLE log ADD COLUMN id INT", database=name)  # a duplicate name
    stream.insert(table(name, "log", integer("id")), {"id": 100})
    stream.insert(table(name, "kept", integer("id")), {"id": 100})
    stream.commit()
    with pytest.raises(Fatal, match="MR-5041"):
        run_once(mariadb_server, apply_task(name), stream)
    applier = run_once(mariadb_server, apply_task(name, exclude=(f"{name}.log",)), stream)
    assert applier.mark.seq == stream.seq
    assert mariadb_server.execute(f"SELECT MAX(id) FROM {name}.kept") == [(100,)]
    assert mariadb_server.execute(f"SELECT MAX(id) FROM {name}.log") == [(49,)]
    waiting = "SELECT COUNT(*) FROM millrace.ddl_intent WHERE task = %s"
    assert mariadb_server.execute(waiting, (name,)) == [(0,)]


def test_ddl_about_both_kinds_of_tables_blocks(name: str, mariadb_server: DatabaseServer) -> None:
    """MR-5042 names the excluded table, and nothing is dropped."""
    stream = _stream(name)
    stream.ddl("DROP TABLE kept, log", database=name)
    task = apply_task(name, exclude=(f"{name}.log",))
    with pytest.raises(Fatal, match=f"names {name}.log, which the apply task") as caught:
        run_once(mariadb_server, task, stream)
    assert caught.value.code == "MR-5042"
    assert mariadb_server.execute(f"SELECT COUNT(*) FROM {name}.kept") == [(50,)]
