"""Checks a request for a snapshot on the source before it waits for the task: so a mistake is reported at once."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from millrace.drivers.mysql.catalog import CatalogTable, read_collations, read_table
from millrace.drivers.mysql.connection import MySqlSession
from millrace.drivers.mysql.errors import NO_COLUMN
from millrace.drivers.mysql.table_schema import table_schema
from millrace.errors import Fatal, MillraceError
from millrace.producer.convert.table_filter import FoldedFilter, NameFilter
from millrace.producer.snapshot.chunk_read import chunk_select, published_names
from millrace.producer.snapshot.select_list import SESSION, Selection
from millrace.producer.snapshot.structure import refusal
from millrace.producer.source.connection import connect_member
from millrace.producer.source.set_stream import resolve_login
from millrace.schemas.documents import CaptureTask, SetDocument
from millrace.schemas.requests.snapshot_request import SnapshotRequest
from millrace.schemas.snapshot import Name, in_order
from millrace.schemas.sql.quoting import table_name
from millrace.wording import near_names


@dataclass(frozen=True, slots=True)
class CheckedRequest:
    """``tables``: those that are read, in order. ``left_out``: matching tables that can't be, with the reason."""

    tables: tuple[Name, ...]
    left_out: tuple[tuple[Name, str], ...]


def check_request(
    task: CaptureTask, document: SetDocument, request: SnapshotRequest
) -> CheckedRequest:
    """The tables of the request. Fatal MR-4240 if one can't be read, or the condition is wrong; else as ``connection``.

    A table that only a pattern with * or ? matches is left out instead.
    """
    with _some_member(document) as connection:
        folds = connection.named("SELECT @@lower_case_table_names AS folds")[0]["folds"]
        filter_: NameFilter = task.tables if folds == 0 else FoldedFilter.of(task.tables)
        collations = read_collations(connection)
        for statement in SESSION:  # the mode and the character set decide what a condition means
            connection.named(statement)
        names = published_names(connection, filter_, request.tables)
        _check_patterns(request, names, task.name)
        kept: list[Name] = []
        left_out: list[tuple[Name, str]] = []
        for name in in_order(names, request.tables):
            table = read_table(connection, name)
            why = "it does not exist" if table is None else refusal(table)
            if why and ".".join(name) in request.tables:
                raise unreadable(name, table)
            if why:
                left_out.append((name, why))
                continue
            kept.append(name)
            if request.where and table is not None:
                selection = Selection.of(table, table_schema(table, connection.flavour, collations))
                _check_condition(connection, selection, table, request.where)
        if not kept:
            raise none_readable(request.tables)
        return CheckedRequest(tuple(kept), tuple(left_out))


def _check_patterns(request: SnapshotRequest, names: list[Name], task: str) -> None:
    for pattern in request.tables:
        if not in_order(names, (pattern,)):
            raise unpublished(pattern, names, task)


def _check_condition(
    connection: MySqlSession, selection: Selection, table: CatalogTable, where: str
) -> None:
    """Explain the task's SELECT, and evaluate the condition for one row.

    There it has no parentheses around it: a condition like ``a) OR (b`` would be SQL only inside of them.
    """
    name = table_name(table.database, table.table).decode()
    try:
        connection.named(f"EXPLAIN {chunk_select(selection, table, (), where, 1)}")
        connection.named(
            f"SELECT CASE WHEN {where} THEN 1 END FROM {name} FORCE INDEX (PRIMARY) LIMIT 1"
        )
    except Fatal as error:
        raise wrong_condition(table, error) from error


@contextmanager
def _some_member(document: SetDocument) -> Iterator[MySqlSession]:
    """The first member that answers; the last one's error if none does."""
    login, failure = resolve_login(document), None
    for member in document.members:
        try:
            connection = connect_member(member, login, reads_tables=True)
        except MillraceError as error:
            failure = error
            continue
        with connection:
            yield connection
        return
    raise failure or Fatal("MR-1020", "the set has no members")


def unpublished(pattern: str, names: Collection[Name], task: str) -> Fatal:
    """For a table, or a pattern, that matches none of ``names``, the tables that the task publishes."""
    near = "" if "*" in pattern or "?" in pattern else near_names(pattern, map(".".join, names))
    return Fatal(
        "MR-4240",
        f"{pattern} matches no table that the task {task} publishes{near}",
        fix="Name tables that exist on the source, are no views, and are admitted by `include` and `exclude`:"
        f" `millrace task show {task}`.",
    )


def unreadable(name: Name, table: CatalogTable | None) -> Fatal:
    """For a table of which no snapshot can be taken. None if it was dropped meanwhile."""
    full = ".".join(name)
    if table is None:
        return Fatal("MR-4240", f"{full}: it does not exist", fix="Leave it out of --tables.")
    fix = "Leave it out of --tables."
    if table.primary is None:
        key = "id BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY"
        fix = f"Add a primary key: `ALTER TABLE {full} ADD {key}`. Or leave it out of --tables."
    elif not table.is_versioned:
        fix = (
            "Give it a primary key of whole columns without a period, or leave it out of --tables."
        )
    return Fatal("MR-4240", f"{full}: {refusal(table)}", fix=fix)


def none_readable(patterns: Collection[str]) -> Fatal:
    """For patterns all of whose tables are left out."""
    return Fatal(
        "MR-4240",
        f"no table that {', '.join(patterns)} matches can be read",
        fix="Name one of the tables without a pattern: the command then shows why it can't be read.",
    )


def wrong_condition(table: CatalogTable, error: Fatal) -> Fatal:
    """For a condition that the server refuses with ``error``."""
    full = f"{table.database}.{table.table}"
    fix = (
        "Correct --where: one SQL condition for a row of the table, such as `--where 'id > 1000'`."
    )
    if error.code == "MR-1005":
        fix = error.fix
    elif error.errno == NO_COLUMN:
        fix = f"Correct --where: the columns of {full} are {', '.join(table.columns)}."
    return Fatal("MR-4240", f"the condition can't be used with {full}: {error.message}", fix=fix)
