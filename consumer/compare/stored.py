"""The state of a comparison, in the target's database ``millrace``, so that a later one can resume it.

    compare_run      task: began, ended               the last comparison that has begun; ended is NULL until its end
                     last_began, last_ended, tables, row_count, differences, unsettled, repaired, by_table, structure
                                                      the last comparison that has ended; by_table is JSON
    compare_chunk    task, database_name, table_name, number: chunk_key, after_key, through_key, row_count, digests,
                     differences, unsettled, repaired, shown, seconds, at            its chunks, each when it has ended

A resumed comparison continues each table after its first chunks without a gap; chunks after a gap are compared again. A
table whose chunk key has other columns now, or which was compared in other columns, begins again. What was compared
earlier is not compared again, so a resumed comparison describes the time since the first one began.

A session that compares holds the server's lock of the task (GET_LOCK), which ends with the session. So only one
comparison of a task runs at a time.

    killed before a commit      begin, chunk or end has not happened: the last comparison is as it was
    killed after it             `--resume` continues after the chunk; a comparison that has ended is not resumed
"""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from millrace.consumer.compare.chunk import ChunkResult, Job
from millrace.consumer.compare.result import Comparison, Difference, Part, RowTexts
from millrace.consumer.compare.schedule import Last
from millrace.consumer.compare.table import Pair
from millrace.consumer.target.progress import DATABASE, add_column, has_column
from millrace.consumer.target.streams import tables_in_loads
from millrace.drivers.mysql.chunks.chunk import Chunk, border_of_json, border_to_json
from millrace.drivers.mysql.connection import Endpoint, MySqlSession, Row, connect, text_of
from millrace.errors import Fatal, Retryable
from millrace.faults import fault_point, register
from millrace.schemas.stages import ComparedCounts, ComparedResult

LOCK_S = 2  # a server notices within milliseconds that the holder was killed
TABLES_MAX = 20  # with the most differences, in ``by_table``

BEFORE_BEGIN = register("compare.before_begin_commit")
AFTER_BEGIN = register("compare.after_begin_commit")
BEFORE_CHUNK = register("compare.before_chunk_commit")
AFTER_CHUNK = register("compare.after_chunk_commit")
BEFORE_END = register("compare.before_end_commit")
AFTER_END = register("compare.after_end_commit")

TABLES = (
    "compare_run (task VARCHAR(190) NOT NULL PRIMARY KEY, began DATETIME(3) NOT NULL, ended DATETIME(3) NULL,"
    " last_began DATETIME(3) NULL, last_ended DATETIME(3) NULL, by_table LONGTEXT NULL, tables INT NOT NULL DEFAULT 0,"
    " row_count BIGINT NOT NULL DEFAULT 0, differences BIGINT NOT NULL DEFAULT 0,"
    " unsettled BIGINT NOT NULL DEFAULT 0, repaired BIGINT NOT NULL DEFAULT 0, structure BIGINT NOT NULL DEFAULT 0)",
    "compare_chunk (task VARCHAR(190) NOT NULL, database_name VARCHAR(64) NOT NULL, table_name VARCHAR(64) NOT NULL,"
    " number BIGINT NOT NULL, chunk_key LONGTEXT NOT NULL, after_key LONGTEXT NULL, through_key LONGTEXT NULL,"
    " row_count BIGINT NOT NULL, digests VARCHAR(64) NOT NULL, differences BIGINT NOT NULL, unsettled BIGINT NOT NULL,"
    " repaired BIGINT NOT NULL, shown LONGTEXT NOT NULL, seconds DOUBLE NOT NULL, at DATETIME(3) NOT NULL,"
    " PRIMARY KEY (task, database_name, table_name, number))",
)
_CHUNK_COLUMNS = (
    "number, chunk_key, after_key, through_key, row_count, digests,"
    " differences, unsettled, repaired, shown, seconds"
)


@dataclass(frozen=True, slots=True)
class State:
    """The state of the comparison of one task."""

    session: MySqlSession
    task: str

    @classmethod
    def begin(cls, target: Endpoint, task: str, *, resumes: bool) -> "State":
        """Create the tables if they are missing. Forget the last comparison, unless it ``resumes``.

        Fatal MR-5126 if the task has not run on this target, MR-5124 if no unfinished comparison can resume.
        Retryable MR-5136 while another comparison of the task runs.
        """
        session = connect(target)
        try:
            _lock(session, task)
            _create(session, task)
            state = cls(session, task)
            state._begin(resumes=resumes)
        except BaseException:
            session.close()
            raise
        return state

    def _begin(self, *, resumes: bool) -> None:
        if resumes:
            found = self._query("SELECT ended FROM {}.compare_run WHERE task = %s")
            if found != [(None,)]:
                why = "no comparison of it has begun" if not found else "the last one has ended"
                raise Fatal("MR-5124", f"{self.task}: {why}", task=self.task)
            return
        self._query("DELETE FROM {}.compare_chunk WHERE task = %s")
        self._query(
            "INSERT INTO {}.compare_run (task, began) VALUES (%s, UTC_TIMESTAMP(3))"
            " ON DUPLICATE KEY UPDATE began = UTC_TIMESTAMP(3), ended = NULL"
        )
        fault_point(BEFORE_BEGIN)
        self.session.commit()
        fault_point(AFTER_BEGIN)

    def save(self, result: ChunkResult) -> None:
        """Store a chunk that has ended."""
        pair, chunk = result.job.pair, result.job.chunk
        self._query(
            f"REPLACE INTO {{}}.compare_chunk (task, database_name, table_name, {_CHUNK_COLUMNS}, at)"
            " VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, UTC_TIMESTAMP(3))",
            *pair.place,
            chunk.number,
            _key_text(pair),
            border_to_json(chunk.after),
            border_to_json(chunk.through),
            result.part.rows,
            result.digests,
            result.part.differing,
            result.part.unsettled,
            result.part.repaired,
            json.dumps([asdict(one) for one in result.part.shown]),
            result.seconds,
        )
        fault_point(BEFORE_CHUNK)
        self.session.commit()
        fault_point(AFTER_CHUNK)

    def compared(self, pair: Pair) -> list[ChunkResult]:
        """The chunks of a table that need not be compared again; forgets its others."""
        rows = self._query(
            f"SELECT {_CHUNK_COLUMNS} FROM {{}}.compare_chunk"
            " WHERE task = %s AND database_name = %s AND table_name = %s ORDER BY number",
            *pair.place,
        )
        found = list(_without_gap(rows, _key_text(pair)))
        self._query(
            "DELETE FROM {}.compare_chunk"
            " WHERE task = %s AND database_name = %s AND table_name = %s AND number >= %s",
            *pair.place,
            len(found),
        )
        self.session.commit()
        return [_result(pair, row) for row in found]

    def end(self, found: Comparison) -> None:
        """Store that the comparison has ended, with its counts."""
        self.session.query(
            f"UPDATE {DATABASE}.compare_run SET ended = UTC_TIMESTAMP(3), last_began = began,"
            " last_ended = UTC_TIMESTAMP(3), tables = %s, row_count = %s, differences = %s, unsettled = %s,"
            " repaired = %s, structure = %s, by_table = %s WHERE task = %s",
            (
                found.tables,
                found.rows,
                found.difference_count,
                found.unsettled,
                found.repaired,
                found.structure_count
                or int(bool(found.unread or found.kept)),  # so it is not "equal"
                json.dumps(found.counts.most_common(TABLES_MAX)),
                self.task,
            ),
        )
        fault_point(BEFORE_END)
        self.session.commit()
        fault_point(AFTER_END)

    def close(self) -> None:
        """End the session."""
        self.session.close()

    def _query(self, sql: str, *values: object) -> list[Row]:
        return self.session.query(sql.format(DATABASE), (self.task, *values))


def _create(session: MySqlSession, task: str) -> None:
    try:
        known = session.query(f"SELECT 1 FROM {DATABASE}.fence WHERE task = %s", (task,))
    except Fatal as exc:
        if exc.code != "MR-5012":
            raise
        known = []
    if not known:
        raise Fatal("MR-5126", f"{task} has not run on this target", task=task)
    for table in TABLES:
        session.query(f"CREATE TABLE IF NOT EXISTS {DATABASE}.{table} ENGINE=InnoDB")
    add_column(session, "compare_run", "structure", "BIGINT NOT NULL DEFAULT 0")


def _lock(session: MySqlSession, task: str) -> None:
    """Take the task's lock for the life of the session. A name may have 64 characters, a task's has up to 63."""
    name = f"millrace.compare.{hashlib.sha224(task.encode()).hexdigest()[:40]}"
    if session.query("SELECT GET_LOCK(%s, %s)", (name, LOCK_S)) != [(1,)]:
        raise Retryable("MR-5136", f"another comparison of {task} runs", task=task)


def _without_gap(rows: Iterable[Row], key: str) -> Iterable[Row]:
    for place, row in enumerate(rows):
        if row[0] != place or text_of(row[1]) != key:
            return
        yield row


def _result(pair: Pair, row: Row) -> ChunkResult:
    number, _, after, through, rows, digests, differing, unsettled, repaired, shown, seconds = row
    chunk = Chunk(int(text_of(number)), border_of_json(after), border_of_json(through))
    part = Part(
        int(text_of(rows)),
        int(text_of(differing)),
        int(text_of(unsettled)),
        int(text_of(repaired)),
        tuple(_difference(one) for one in json.loads(text_of(shown))),
    )
    return ChunkResult(Job(pair, chunk), part, text_of(digests), float(text_of(seconds)))


def _difference(plain: dict[str, object]) -> Difference:
    rows = plain["rows"]
    assert isinstance(rows, dict)
    names = str(plain["table"]), str(plain["what"]), str(plain["key"])
    return Difference(*names, RowTexts(**rows), is_left=plain.get("is_left") is True)


def _key_text(pair: Pair) -> str:
    """The columns of the chunk key with their order, and the compared ones if there are others, or a view."""
    columns = () if pair.source.key is None else pair.source.key.columns
    key = [f"{column.name} DESC" if column.descends else column.name for column in columns]
    if pair.view:
        return json.dumps([key, pair.columns, pair.view[:16]])
    return json.dumps(key if pair.has_all_columns else [key, pair.columns])


_SINCE = "TIMESTAMPDIFF(MICROSECOND, {}, UTC_TIMESTAMP(3)) / 1e6"
_UNIX_MS = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', {}) DIV 1000"
_BUSY = f"COALESCE((SELECT MAX(at) FROM {DATABASE}.compare_chunk WHERE task = %s), began)"
_SQL = (
    f"SELECT IF(ended IS NULL, {_SINCE.format(_BUSY)}, NULL), {_SINCE.format('last_ended')},"
    f" {_UNIX_MS.format('last_began')}, {_UNIX_MS.format('last_ended')},"
    " tables, row_count, differences, unsettled, repaired, {structure}, by_table"
    f" FROM {DATABASE}.compare_run WHERE task = %s"
)


def read_last(session: MySqlSession, task: str) -> Last:
    """The last comparisons of a task that has run on this target."""
    is_loading = bool(tables_in_loads(session, task))
    try:
        structure = "structure" if has_column(session, "compare_run", "structure") else "0"
        rows = session.query(_SQL.format(structure=structure), (task, task))
    except Fatal as exc:
        if exc.code != "MR-5012":  # no comparison of any task has begun here
            raise
        rows = []
    session.rollback()
    if not rows:
        return Last(is_loading=is_loading)
    ((idle_s, ended_ago_s, began_ms, ended_ms, *counts, by_table),) = rows
    if ended_ms is None:
        return Last(idle_s=_seconds(idle_s), is_loading=is_loading)
    tables, found, differences, unsettled, repaired, changes = (
        int(text_of(count)) for count in counts
    )
    result = ComparedResult(
        began_ms=int(text_of(began_ms)),
        ended_ms=int(text_of(ended_ms)),
        counts=ComparedCounts(
            tables=tables,
            rows=found,
            differences=differences,
            unsettled=unsettled,
            repaired=repaired,
            structure=changes,
        ),
        by_table=tuple((str(name), int(count)) for name, count in json.loads(text_of(by_table))),
    )
    return Last(result, _seconds(ended_ago_s), _seconds(idle_s), is_loading)


def _seconds(value: object) -> float | None:
    return None if value is None else float(text_of(value))
