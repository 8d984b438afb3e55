"""The sources of each merged table of the target, in ``millrace.merged_table``: all tasks that merge into it share it.

    target_database, target_table                 the table
    task, source_database, source_table           a table of the source whose rows are in it
    constants    {column: value}                  its added columns
    missing        [column]                         columns of the target that it does not have, in lower case
    added        {column: definition}             columns that its statements have added, by their definitions; ""
                                                  if one has dropped the column, and the target's table still has it
    altering     {seq, sql}                       its statement that is being executed on the target; {}: none

A row is there before the first row of its source (``consumer.write.merging``). Each table has one more row, without a
task. ``lock_sources`` locks it first, until the end of the target transaction, so two tasks never decide about one
table at a time, nor does a new source come. While a task executes a statement, ``altering`` says so, because no lock
outlives a commit: the others are refused with Retryable MR-5023 until it has ended.

Nothing here commits.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from millrace.consumer.target.progress import DATABASE
from millrace.drivers.mysql.catalog import TableKey
from millrace.drivers.mysql.connection import MySqlSession, Row
from millrace.errors import Retryable
from millrace.schemas.json_input import load_json

NOTHING = -1  # no statement is being executed

_COLUMNS = "task, source_database, source_table, constants, missing, added, altering"
_OF_TARGET = "target_database = %s AND target_table = %s"
_OF_SOURCE = f"{_OF_TARGET} AND task = %s AND source_database = %s AND source_table = %s"


@dataclass(frozen=True, slots=True)
class MergedSource:
    """One row; see the module. ``is_stored``: false for one that is not there yet."""

    task: str
    name: TableKey
    constants: Mapping[str, str | int]
    missing: frozenset[str] = frozenset()
    added: Mapping[str, str] = field(default_factory=dict)
    altering: int = NOTHING
    altering_sql: str = ""
    is_stored: bool = True

    def is_same(self, other: "MergedSource") -> bool:
        """Whether both are one table of one task."""
        return (self.task, self.name) == (other.task, other.name)

    @property
    def shown(self) -> str:
        """For an operator."""
        missing = f" without {', '.join(sorted(self.missing))}" if self.missing else ""
        return f"{'.'.join(self.name)} of {self.task}{missing}"


def merged_among(session: MySqlSession, targets: Collection[TableKey]) -> frozenset[TableKey]:
    """Those of these tables that sources share. The current transaction stays open."""
    if not targets:
        return frozenset()
    databases, tables = (sorted(set(names)) for names in zip(*targets, strict=True))
    # MySQL reads the whole index of a table that has few rows, unless a column is not in it
    rows = session.query(
        f"SELECT target_database, target_table, altering FROM {DATABASE}.merged_table FORCE INDEX (PRIMARY)"
        " WHERE target_database IN %s AND target_table IN %s AND task > ''",
        (databases, tables),
    )
    return frozenset((str(database), str(table)) for database, table, _ in rows) & set(targets)


def merged_in(session: MySqlSession, database: str) -> frozenset[TableKey]:
    """The tables of a database of the target that sources share. The current transaction stays open."""
    rows = session.query(
        f"SELECT target_table FROM {DATABASE}.merged_table WHERE target_database = %s AND task > ''",
        (database,),
    )
    return frozenset((database, str(table)) for (table,) in rows)


def read_sources(session: MySqlSession, target: TableKey) -> list[MergedSource]:
    """The sources of a table as they were committed. The current transaction stays open."""
    return _sources(session, target, "")


def lock_sources(session: MySqlSession, target: TableKey) -> list[MergedSource]:
    """The sources of a table, locked until the end of the target transaction."""
    if not _rows(session, target, " FOR UPDATE"):
        session.query(
            f"INSERT IGNORE INTO {DATABASE}.merged_table (target_database, target_table, {_COLUMNS})"
            f" VALUES (%s, %s, '', '', '', '{{}}', '[]', '{{}}', '{{}}')",
            target,
        )
    return _sources(session, target, " FOR UPDATE")


def _sources(session: MySqlSession, target: TableKey, lock: str) -> list[MergedSource]:
    return [_source(row) for row in _rows(session, target, lock) if row[0]]


def _rows(session: MySqlSession, target: TableKey, lock: str) -> list[Row]:
    return session.query(
        f"SELECT {_COLUMNS} FROM {DATABASE}.merged_table WHERE {_OF_TARGET}"
        f" ORDER BY task, source_database, source_table{lock}",
        target,
    )


def _source(row: Row) -> MergedSource:
    task, database, table, *texts = row
    parts: list[Any] = [load_json(str(text)) for text in texts]
    constants, missing, added, altering = parts
    return MergedSource(
        str(task),
        (str(database), str(table)),
        constants,
        frozenset(missing),
        added,
        altering.get("seq", NOTHING),
        altering.get("sql", ""),
    )


def put_source(session: MySqlSession, target: TableKey, source: MergedSource) -> None:
    """Store a source of a table whose sources are locked."""
    altering = (
        {} if source.altering == NOTHING else {"seq": source.altering, "sql": source.altering_sql}
    )
    texts = (
        json.dumps(dict(source.constants), sort_keys=True),
        json.dumps(sorted(source.missing)),
        json.dumps(dict(source.added), sort_keys=True),
        json.dumps(altering),
    )
    session.query(
        f"REPLACE INTO {DATABASE}.merged_table (target_database, target_table, {_COLUMNS})"
        " VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)",
        (*target, source.task, *source.name, *texts),
    )


def forget_source(session: MySqlSession, target: TableKey, source: MergedSource) -> None:
    """The source has no rows in the table any more."""
    session.query(
        f"DELETE FROM {DATABASE}.merged_table WHERE {_OF_SOURCE}",
        (*target, source.task, *source.name),
    )


def clear_altering(session: MySqlSession, target: TableKey, source: MergedSource) -> None:
    """The statement of this source is not executed any more."""
    session.query(
        f"UPDATE {DATABASE}.merged_table SET altering = '{{}}' WHERE {_OF_SOURCE}",
        (*target, source.task, *source.name),
    )


def forget_task(session: MySqlSession, task: str) -> None:
    """A task of this name begins: what an earlier one of the name has stored is not its own."""
    session.query(f"DELETE FROM {DATABASE}.merged_table WHERE task = %s", (task,))


def check_not_altered(
    sources: Iterable[MergedSource], target: TableKey, *, task: str, seq: int = NOTHING
) -> None:
    """Retryable MR-5023 while a statement of another task, or another one of this task, alters the table."""
    for source in sources:
        if source.altering not in (NOTHING, seq) or (
            source.altering != NOTHING and source.task != task
        ):
            name = ".".join(target)
            what = f"{name} is being altered by the statement {source.altering} of {source.task}"
            raise Retryable("MR-5023", what, table=name)
