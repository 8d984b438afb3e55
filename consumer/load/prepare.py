"""Creates the tables of a load on the target as the source has them, and empties a table whose read starts over.

The statements run under the lock of the task's statements (``consumer.target.running_statement``), so none of an
earlier run comes late. Creating is repeatable: what exists is left as it is. Foreign keys are not checked, so the order
of the tables does not matter. Triggers, views and routines are not created.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from millrace.consumer.load.tables import SourceTable
from millrace.consumer.target.merged_tables import merged_among
from millrace.consumer.target.progress import DATABASE, Owner, check_fence
from millrace.consumer.target.running_statement import lock
from millrace.consumer.target.stored_view import read_view, tasks_that_write
from millrace.consumer.write.ddl_session import run_statement
from millrace.drivers.mysql.catalog import CatalogTable, TableKey
from millrace.drivers.mysql.connection import MySqlSession, connect, stored_text, text_of
from millrace.errors import Fatal
from millrace.faults import fault_point, register
from millrace.schemas.gtid import Flavour
from millrace.schemas.sql.quoting import charset_name, quoted, table_name

AFTER_CREATE = register("load.after_create")


@contextmanager
def _statements(target: MySqlSession, owner: Owner) -> Iterator[MySqlSession]:
    """A session that holds the lock of the task's statements, for the owner of the fence."""
    with connect(target.endpoint) as session:
        lock(session, owner.task)
        check_fence(target, owner)
        target.rollback()
        session.query("SET SESSION foreign_key_checks = 0")
        if session.query("SELECT @@SESSION.explicit_defaults_for_timestamp") == [(0,)]:
            # SHOW CREATE TABLE does not print that a TIMESTAMP NOT NULL has no default
            session.query("SET SESSION explicit_defaults_for_timestamp = 1")
        yield session


def create_tables(
    source: MySqlSession,
    target: MySqlSession,
    owner: Owner,
    tables: Sequence[tuple[SourceTable, str]],
) -> None:
    """Create these tables by their definitions; the target does not have them. Fatal MR-5094 if it refuses one."""
    if not tables:
        return
    with _statements(target, owner) as session:
        # a new database is like that of one of its tables
        databases = {table.place[0]: table.table.database for table, _ in reversed(tables)}
        for name, database in sorted(databases.items()):
            _create_database(source, session, database, name)
        for table, text in tables:
            _create_table(session, table, text)
            fault_point(AFTER_CREATE)


def _create_database(source: MySqlSession, session: MySqlSession, database: str, name: str) -> None:
    ((charset, collation),) = source.query(
        "SELECT DEFAULT_CHARACTER_SET_NAME, DEFAULT_COLLATION_NAME FROM information_schema.SCHEMATA"
        " WHERE SCHEMA_NAME = %s",
        (database,),
    )
    sql = (
        f"CREATE DATABASE IF NOT EXISTS {quoted(name).decode()}"
        f" DEFAULT CHARACTER SET {charset_name(text_of(charset))} COLLATE {charset_name(text_of(collation))}"
    )
    _execute(session, sql, name)


def _create_table(session: MySqlSession, table: SourceTable, text: str) -> None:
    if table.table.is_sequence and session.flavour is Flavour.MYSQL:
        raise Fatal("MR-5028", f"{table.name} is a sequence, and the target is MySQL")
    session.query(b"USE " + quoted(table.place[0]))
    _execute(session, text, table.shown)


def _execute(session: MySqlSession, sql: str, name: str) -> None:
    try:
        run_statement(session, sql)
    except Fatal as exc:
        if exc.code == "MR-5007":
            raise
        what, fix = f"{name}: {exc.message}", exc.own_fix
        shown = stored_text(sql[:400])
        raise Fatal("MR-5094", what, fix=fix, sql=shown, **dict(exc.context)) from exc


def has_rows(target: MySqlSession, key: TableKey) -> bool:
    """Whether the target's table has a row."""
    found = target.query(f"SELECT 1 FROM {table_name(*key).decode()} LIMIT 1")
    target.rollback()
    return bool(found)


def empty_table(
    target: MySqlSession, owner: Owner, key: TableKey, *, is_versioned: bool, is_viewed: bool
) -> None:
    """Delete all rows of a table, and its history. Retryable MR-5005 if another session holds it.

    The only function that empties a table for a load. Fatal MR-5207 if another task writes the table.
    """
    check_sole(target, owner.task, key, is_viewed=is_viewed)
    name = table_name(*key).decode()
    with _statements(target, owner) as session:
        if not is_versioned:
            session.query(f"TRUNCATE TABLE {name}")
            return
        ((_, text),) = session.query(f"SHOW CREATE TABLE {name}")
        session.query(b"USE " + quoted(key[0]))
        created = str(text).replace("CREATE TABLE", "CREATE OR REPLACE TABLE", 1)
        session.query(created)


def check_sole(target: MySqlSession, stream: str, key: TableKey, *, is_viewed: bool) -> None:
    """Fatal MR-5207 if another task may have rows in this table: a load would delete them.

    ``is_viewed``: a view changes the source's table. Otherwise other tasks without a view that changes tables may
    write the table, too: each names it, so an operator has decided so.
    """
    others = tasks_that_write(target, stream, [key])
    if not is_viewed:
        others = [task for task in others if read_view(target, task) is not None]
    if not others and merged_among(target, [key]):
        others = ["a task that merges tables"]
    target.rollback()
    if others:
        name = ".".join(key)
        named = ", ".join(others)
        what = f"{named} may write {name}, too, and a load would delete those rows"
        fix = (
            "Give each task its own table, in a task of another name. If the task that the message names was deleted,"
            f" delete its rows in {DATABASE}.progress and {DATABASE}.view on the target."
        )
        raise Fatal("MR-5207", what, fix=fix, table=name)


def drop_table(target: MySqlSession, owner: Owner, table: CatalogTable) -> None:
    """Drop a table, or a sequence. Fatal MR-5207 if another task writes it."""
    check_sole(target, owner.task, table.key, is_viewed=False)
    name = table_name(*table.key).decode()
    kind = "SEQUENCE" if table.is_sequence else "TABLE"
    with _statements(target, owner) as session:
        session.query(f"DROP {kind} {name}")
