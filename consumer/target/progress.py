"""The progress of apply, in the target's database ``millrace``. The target transactions of the rows also write it.

    fence           task: epoch, run          raised at every start; every target transaction of Millrace reads it FOR
                                              SHARE
    progress        task: seq, next_offset, gtid_set, flavour, topic, topic_id, topic_epoch, past_start, commit_ms,
                    whole_seq, lag_ms         the low-water mark, and the lag when it passed its last row
    applied         task, run, batch, lane, part: first_seq, bitmap     seqs of one lane transaction; deleted
                                              after the mark has passed them
    record_schema   task, id: schema_text     schemas that the topic introduced before the mark
    ddl_intent      task, seq: …              statements that are being executed, or wait for an operator
                                              (``consumer.target.intents``)
    conflict        task, seq: …              changes that did not fit the target's row (``consumer.target.conflicts``)
    aside           task, seq: the tables, …          rows that are kept aside, whose changes are in ``conflict``
    aside_key       task, hash, seq: is_shared        their causality keys (``consumer.target.aside``)
    aside_part      task, seq, part: content          a record that is too large for one statement
    session         task, id: run, server     sessions that may hold the fence, for a later run on this server to end
    left_out        task, seq: kind, sql_text     statements that were recorded but not applied
    spread          task, run, place: plan_key    shares of a turn of several Spark tasks (``consumer.target.claims``)
    load_…          tables, chunks and range of a load (``consumer.target.loads``)
    load_filter     task: filter_text         ``include`` and ``exclude`` of the last start (``backfill.new_tables``)
    view            task, begin_seq: content  the view of rows above this seq, if it changes more than the choice of
                                              tables (``task.start``)
    merged_table    target, task, source: …   the sources of merged tables (``consumer.target.merged_tables``)

Crash table: a target transaction commits entirely, with its row in ``applied`` or its move of ``progress``, or not at
all. If the answer to a commit is lost, the next run finds the outcome: raising the fence waits for the transaction or
ends it, and only then reads the progress.

Guarantees: after ``fence.raise_fence`` no target transaction of an earlier run commits; each turn of a task is a run.
The mark moves only forward, from the value that the writer read. Not done here: deciding what to apply.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from millrace.consumer.records.numbers import Seqs
from millrace.consumer.records.row_schemas import RowSchemas
from millrace.consumer.target.bitmap import from_bitmaps
from millrace.drivers.mysql.connection import MySqlSession, Row
from millrace.errors import Fatal, Fenced, MillraceError, Retryable

DATABASE = "millrace"

# An earlier version inserts by position. MySQL has invisible columns since 8.0.23.
_SERVER = "VARCHAR(190) NOT NULL DEFAULT '' /*!80023 INVISIBLE */ /*M!100303 INVISIBLE */"
_TEXT = "LONGTEXT NULL /*!80023 INVISIBLE */ /*M!100303 INVISIBLE */"
_TABLES = (
    "fence (task VARCHAR(190) NOT NULL PRIMARY KEY, epoch BIGINT UNSIGNED NOT NULL, run BIGINT UNSIGNED NOT NULL)",
    "progress (task VARCHAR(190) NOT NULL PRIMARY KEY, seq BIGINT NOT NULL, next_offset BIGINT NOT NULL,"
    " gtid_set LONGTEXT NOT NULL, flavour VARCHAR(16) NOT NULL, topic VARCHAR(249) NOT NULL,"
    " topic_epoch BIGINT NOT NULL, past_start TINYINT NOT NULL, topic_id VARCHAR(36) NOT NULL DEFAULT '',"
    " commit_ms BIGINT NOT NULL DEFAULT 0, lag_ms BIGINT NOT NULL DEFAULT 0, whole_seq BIGINT NOT NULL DEFAULT -1)",
    "applied (task VARCHAR(190) NOT NULL, run BIGINT UNSIGNED NOT NULL, batch BIGINT NOT NULL, lane INT NOT NULL,"
    " part INT NOT NULL, first_seq BIGINT NOT NULL, bitmap LONGBLOB NOT NULL,"
    " PRIMARY KEY (task, run, batch, lane, part))",
    "record_schema (task VARCHAR(190) NOT NULL, id BIGINT NOT NULL, schema_text LONGTEXT NOT NULL,"
    " PRIMARY KEY (task, id))",
    "ddl_intent (task VARCHAR(190) NOT NULL, seq BIGINT NOT NULL, sql_text LONGTEXT NOT NULL,"
    f" state_text LONGTEXT NOT NULL, decision VARCHAR(16) NOT NULL, server {_SERVER}, own_sql {_TEXT},"
    f" reason {_TEXT}, PRIMARY KEY (task, seq))",
    "conflict (task VARCHAR(190) NOT NULL, seq BIGINT NOT NULL, gtid VARCHAR(190) NOT NULL, table_name VARCHAR(190)"
    " NOT NULL, op CHAR(1) NOT NULL, decision VARCHAR(16) NOT NULL, detail LONGTEXT NOT NULL, record LONGBLOB NOT NULL,"
    " target_rows LONGTEXT NULL, schema_text LONGTEXT NULL, at DATETIME(3) NULL, target_table VARCHAR(190) NULL,"
    " PRIMARY KEY (task, seq))",
    "aside (task VARCHAR(190) NOT NULL, seq BIGINT NOT NULL, database_name VARCHAR(64) NOT NULL,"
    " table_name VARCHAR(64) NOT NULL, target_database VARCHAR(64) NOT NULL, target_table VARCHAR(64) NOT NULL,"
    " flags INT NOT NULL, is_safe TINYINT NOT NULL, bytes BIGINT NOT NULL,"
    " PRIMARY KEY (task, seq))",
    "aside_key (task VARCHAR(190) NOT NULL, hash BIGINT UNSIGNED NOT NULL, seq BIGINT NOT NULL,"
    " is_shared TINYINT NOT NULL, PRIMARY KEY (task, hash, seq))",
    "aside_part (task VARCHAR(190) NOT NULL, seq BIGINT NOT NULL, part INT NOT NULL, content LONGBLOB NOT NULL,"
    " PRIMARY KEY (task, seq, part))",
    "session (task VARCHAR(190) NOT NULL, id BIGINT UNSIGNED NOT NULL, run BIGINT UNSIGNED NOT NULL,"
    f" server {_SERVER}, PRIMARY KEY (task, id))",
    "left_out (task VARCHAR(190) NOT NULL, seq BIGINT NOT NULL, kind VARCHAR(32) NOT NULL, sql_text LONGTEXT NOT NULL,"
    " PRIMARY KEY (task, seq))",
    "spread (task VARCHAR(190) NOT NULL, run BIGINT UNSIGNED NOT NULL, place INT NOT NULL,"
    " plan_key VARBINARY(64) NOT NULL, PRIMARY KEY (task, run, place))",
    "load_table (task VARCHAR(190) NOT NULL, database_name VARCHAR(64) NOT NULL, table_name VARCHAR(64) NOT NULL,"
    " batch INT NOT NULL, state VARCHAR(16) NOT NULL, begin_gtid LONGTEXT NOT NULL, end_gtid LONGTEXT NOT NULL,"
    " exact_gtid LONGTEXT NOT NULL, chunk_key VARCHAR(64) NOT NULL, structure LONGTEXT NOT NULL,"
    " rows_expected BIGINT NOT NULL, rows_done BIGINT NOT NULL, bytes_done BIGINT NOT NULL, detail LONGTEXT NOT NULL,"
    " PRIMARY KEY (task, database_name, table_name))",
    "load_chunk (task VARCHAR(190) NOT NULL, database_name VARCHAR(64) NOT NULL, table_name VARCHAR(64) NOT NULL,"
    " number BIGINT NOT NULL, after_key LONGTEXT NULL, through_key LONGTEXT NULL, state VARCHAR(16) NOT NULL,"
    " rows_done BIGINT NOT NULL, bytes_done BIGINT NOT NULL, PRIMARY KEY (task, database_name, table_name, number))",
    "load_stream (task VARCHAR(190) NOT NULL PRIMARY KEY, begin_gtid LONGTEXT NOT NULL, end_gtid LONGTEXT NOT NULL,"
    " flavour VARCHAR(16) NOT NULL)",
    "load_filter (task VARCHAR(190) NOT NULL PRIMARY KEY, filter_text LONGTEXT NOT NULL)",
    "view (task VARCHAR(190) NOT NULL, begin_seq BIGINT NOT NULL, content LONGTEXT NOT NULL,"
    " PRIMARY KEY (task, begin_seq))",
    "merged_table (target_database VARCHAR(64) NOT NULL, target_table VARCHAR(64) NOT NULL, task VARCHAR(190) NOT NULL,"
    " source_database VARCHAR(64) NOT NULL, source_table VARCHAR(64) NOT NULL, constants LONGTEXT NOT NULL,"
    " missing LONGTEXT NOT NULL, added LONGTEXT NOT NULL, altering LONGTEXT NOT NULL,"
    " PRIMARY KEY (target_database, target_table, task, source_database, source_table), KEY (task))",
)


@dataclass(frozen=True, slots=True)
class Owner:
    """The writer: a task, its epoch and the run that raised the fence."""

    task: str
    epoch: int
    run: int


@dataclass(frozen=True, slots=True)
class MarkTopic:
    """A mark's topic: its name, its Kafka id ("": unknown), the epoch of the last control record before the mark.

    ``whole_seq``: the seq of the last one that ended a source transaction; -1: unknown.
    """

    name: str = ""
    id: str = ""
    epoch: int = 0
    whole_seq: int = -1


@dataclass(frozen=True, slots=True)
class Mark:
    """The low-water mark: every seq up to ``seq`` is applied, the next record to read is at ``next_offset``.

    ``gtid_set`` is from the last ``resolved`` record before the mark. ``past_start``: the task's start covers none of
    the following rows. ``seq`` is -1 while it is not proven that the topic reaches back to a start at a GTID set.
    ``commit_ms``: the source's commit of the last row or statement before the mark; 0 if there was none.
    """

    seq: int
    next_offset: int
    gtid_set: str = ""
    flavour: str = ""
    topic: MarkTopic = MarkTopic()
    past_start: bool = True
    commit_ms: int = 0

    @property
    def is_unproven(self) -> bool:
        """Whether the mark may pass only records that the start covers."""
        return self.seq < 0

    @property
    def is_whole(self) -> bool:
        """Whether exactly the source transactions of ``gtid_set`` are before it."""
        return 0 <= self.seq == self.topic.whole_seq


def create_tables(connection: MySqlSession) -> None:
    """Create the database and its tables if they are missing."""
    connection.query(
        f"CREATE DATABASE IF NOT EXISTS {DATABASE} DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
    )
    for table in _TABLES:
        connection.query(f"CREATE TABLE IF NOT EXISTS {DATABASE}.{table} ENGINE=InnoDB")
    _add_missing(connection, _ADDED_BEFORE_THE_FENCE)


# (table, column, definition): added to the tables of an earlier version
_ADDED = (
    ("progress", "topic_id", "VARCHAR(36) NOT NULL DEFAULT ''"),
    ("progress", "commit_ms", "BIGINT NOT NULL DEFAULT 0"),
    ("progress", "lag_ms", "BIGINT NOT NULL DEFAULT 0"),
    ("progress", "whole_seq", "BIGINT NOT NULL DEFAULT -1"),
    ("ddl_intent", "server", _SERVER),
    ("ddl_intent", "own_sql", _TEXT),
    ("ddl_intent", "reason", _TEXT),
    ("conflict", "target_rows", "LONGTEXT NULL"),
    ("conflict", "schema_text", "LONGTEXT NULL"),
    ("conflict", "at", "DATETIME(3) NULL"),
    ("conflict", "target_table", "VARCHAR(190) NULL"),
)

# Raising the fence writes it. No session keeps a lock on this table.
_ADDED_BEFORE_THE_FENCE = (("session", "server", _SERVER),)


def add_missing_columns(connection: MySqlSession) -> None:
    """Upgrade tables of an earlier version. ``topic_id`` is set when the mark moves next.

    Call it after the fence is raised: ALTER TABLE waits for open target transactions of earlier runs.
    """
    _add_missing(connection, _ADDED)


def _add_missing(connection: MySqlSession, columns: Sequence[tuple[str, str, str]]) -> None:
    for table, column, definition in columns:
        add_column(connection, table, column, definition)
    connection.commit()


def add_column(connection: MySqlSession, table: str, column: str, definition: str) -> None:
    """Add a column to a table of an earlier version, if it is missing."""
    if has_column(connection, table, column):
        return
    try:
        connection.query(f"ALTER TABLE {DATABASE}.{table} ADD COLUMN {column} {definition}")
    except Fatal:  # another starting task added it at the same time
        if not has_column(connection, table, column):
            raise


def has_column(connection: MySqlSession, table: str, column: str) -> bool:
    """Whether a table of this database has the column. Fatal MR-5012 if the table is missing."""
    return bool(connection.query(f"SHOW COLUMNS FROM {DATABASE}.{table} LIKE '{column}'"))


def register_session(connection: MySqlSession, task: str, run: int, server: str) -> None:
    """Insert this session for a later run that ends it. ``server``: see ``table_state``. Does not commit."""
    connection.query(
        f"REPLACE INTO {DATABASE}.session (task, id, run, server) VALUES (%s, %s, %s, %s)",
        (task, connection.id, run, server),
    )


def check_fence(connection: MySqlSession, owner: Owner) -> None:
    """The first statement of every target transaction: a shared lock on the fence; Fenced MR-5020."""
    rows = connection.query(
        f"SELECT epoch, run FROM {DATABASE}.fence WHERE task = %s {_share(connection)}",
        (owner.task,),
    )
    if rows != [(owner.epoch, owner.run)]:
        connection.rollback()
        raise _fenced(owner, rows)


def _share(connection: MySqlSession) -> str:
    return "LOCK IN SHARE MODE" if connection.flavour == "mariadb" else "FOR SHARE"


def _moved(task: str, mark: Mark) -> MillraceError:
    return Retryable("MR-5021", f"the mark of {task} is no longer at seq {mark.seq}", task=task)


def _fenced(owner: Owner, rows: list[Row]) -> MillraceError:
    found = f"epoch {rows[0][0]}, run {rows[0][1]}" if rows else "no row"
    return Fenced(
        "MR-5020",
        f"the fence of {owner.task} has {found}, ours is epoch {owner.epoch}, run {owner.run}",
        task=owner.task,
    )


def read_position(
    connection: MySqlSession, task: str, *, before_run: int | None = None
) -> tuple[Mark | None, Seqs]:
    """The mark of a task and the applied seqs of bitmaps. The current transaction stays open.

    ``before_run``: without the seqs of this run and later ones.
    """
    found = read_mark(connection, task)
    earlier = "" if before_run is None else " AND run < %s"
    bitmaps = connection.query(
        f"SELECT first_seq, bitmap FROM {DATABASE}.applied WHERE task = %s{earlier}",
        (task,) if before_run is None else (task, before_run),
    )
    applied = from_bitmaps((_int(first), _bytes(bits)) for first, bits in bitmaps)
    return (found[0] if found else None), applied


def read_mark(connection: MySqlSession, task: str) -> tuple[Mark, int] | None:
    """The mark of a task, and the lag in ms when it passed its last row. The current transaction stays open."""
    marks = connection.query(
        f"SELECT {_MARK_COLUMNS}, lag_ms FROM {DATABASE}.progress WHERE task = %s", (task,)
    )
    return (_mark(marks[0][:-1]), _int(marks[0][-1])) if marks else None


def read_schemas(connection: MySqlSession, task: str) -> RowSchemas:
    """The schemas that the topic has introduced to the task. The current transaction stays open."""
    schemas = connection.query(
        f"SELECT id, schema_text FROM {DATABASE}.record_schema WHERE task = %s", (task,)
    )
    return RowSchemas({_int(number): str(text) for number, text in schemas})


_MARK_COLUMNS = "seq, next_offset, gtid_set, flavour, topic, topic_id, topic_epoch, past_start, commit_ms, whole_seq"


def _mark(row: Row) -> Mark:
    seq, next_offset, gtid_set, flavour, *of_topic, past_start, commit_ms, whole_seq = row
    topic, topic_id, topic_epoch = of_topic
    return Mark(
        _int(seq),
        _int(next_offset),
        str(gtid_set),
        str(flavour),
        MarkTopic(str(topic), str(topic_id), _int(topic_epoch), _int(whole_seq)),
        past_start == 1,
        _int(commit_ms),
    )


def _int(value: object) -> int:
    if not isinstance(value, int):
        raise Fatal("MR-5022", f"{value!r} is not a number")
    return value


def _bytes(value: object) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


def insert_mark(connection: MySqlSession, task: str, mark: Mark) -> None:
    """Insert the first mark of a task."""
    connection.query(
        f"INSERT INTO {DATABASE}.progress (task, {_MARK_COLUMNS}, lag_ms)"
        " VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
        (task, *_mark_values(mark), 0),
    )


def _mark_values(mark: Mark) -> tuple[object, ...]:
    return (
        mark.seq,
        mark.next_offset,
        mark.gtid_set,
        mark.flavour,
        mark.topic.name,
        mark.topic.id,
        mark.topic.epoch,
        int(mark.past_start),
        mark.commit_ms,
        mark.topic.whole_seq,
    )


def move_mark(connection: MySqlSession, task: str, *, before: Mark, after: Mark) -> None:
    """Move the mark from the position that was read; Retryable MR-5021 if it is elsewhere. Does not commit.

    If it passes a row, the lag is stored by the clock of this machine. No decision depends on it.
    """
    moved = connection.run(_move_sql(connection, task, before, after))
    if moved != 1:
        connection.rollback()
        raise _moved(task, before)


def _move_sql(connection: MySqlSession, task: str, before: Mark, after: Mark) -> bytes:
    values = _mark_values(after)
    names = _MARK_COLUMNS.split(", ")
    if after.seq > before.seq and after.commit_ms:
        names.append("lag_ms")
        values = (*values, max(time.time_ns() // 1_000_000 - after.commit_ms, 0))
    return connection.with_arguments(
        f"UPDATE {DATABASE}.progress SET {' = %s, '.join(names)} = %s"
        " WHERE task = %s AND seq = %s AND next_offset = %s",
        (*values, task, before.seq, before.next_offset),
    )


def delete_applied(connection: MySqlSession, owner: Owner, *, through: int) -> None:
    """Delete this run's bitmaps up to flight ``through``, once the mark is above them. Does not commit."""
    connection.query(
        f"DELETE FROM {DATABASE}.applied WHERE task = %s AND run = %s AND batch <= %s",
        (owner.task, owner.run, through),
    )


def delete_earlier(connection: MySqlSession, owner: Owner) -> None:
    """Delete the bitmaps of earlier runs, once the mark is above all of them. Does not commit."""
    connection.query(
        f"DELETE FROM {DATABASE}.applied WHERE task = %s AND run < %s", (owner.task, owner.run)
    )


def save_schemas(connection: MySqlSession, task: str, texts: dict[int, str]) -> None:
    """Save schemas that the topic introduced, for a start after them. Does not commit.

    If an ID gets another meaning, stored conflicts keep the schema of their records.
    """
    for number, text in texts.items():
        connection.query(KEEP_SCHEMA_SQL, (number, text, task, number.to_bytes(4, "big")))
        connection.query(
            f"REPLACE INTO {DATABASE}.record_schema (task, id, schema_text) VALUES (%s, %s, %s)",
            (task, number, text),
        )


KEEP_SCHEMA_SQL = (
    f"UPDATE {DATABASE}.conflict c JOIN {DATABASE}.record_schema s"
    " ON s.task = c.task AND s.id = %s AND s.schema_text <> %s SET c.schema_text = s.schema_text"
    " WHERE c.task = %s AND c.schema_text IS NULL AND SUBSTRING(c.record, 2, 4) = _binary %s"
)
