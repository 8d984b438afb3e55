"""The life of a side stream, as three target transactions of the driver. Each checks the fences of what it changes.

    begin      between two turns of main: waiting tables → ``copies``. The side stream gets main's mark and schemas
    follow     after the copies: tables that are copied → ``follows``. The side stream starts after the load's begin
    join       between two turns of main, both streams at one mark, and the range over: nothing of the side stream is
               left, so main's next turn applies its tables

If the driver is killed:

    before the commit of begin      the tables wait
    before the commit of follow     they are copied, and main's mark of then is kept: the next run lets them follow
    before the commit of join       the side stream continues
    after a commit                  the next run finds the new state
    outcome unknown                 as one of these

A table that a statement or an operator made wait meanwhile is in none of the steps: each changes only tables in the
state that it expects. The fence of a side stream stays for ever, so that no run of an earlier load can write again.
"""

from dataclasses import dataclass, replace

from millrace.consumer.target.aside import void_rows
from millrace.consumer.target.load_range import LoadRange, is_side
from millrace.consumer.target.loads import (
    COPIED,
    COPIES,
    FIRST,
    FOLLOWS,
    WAITS,
    LoadStream,
    LoadTable,
    put_stream,
    read_stream,
    stream_tables,
    task_of,
)
from millrace.consumer.target.progress import (
    DATABASE,
    Mark,
    Owner,
    check_fence,
    insert_mark,
    read_mark,
)
from millrace.drivers.mysql.connection import MySqlSession
from millrace.errors import Fatal, Retryable
from millrace.faults import fault_point, register
from millrace.schemas.gtid import parse_gtid_set, shortened

BEFORE_BEGIN = register("streams.before_begin")
AFTER_BEGIN = register("streams.after_begin")
BEFORE_FOLLOW = register("streams.before_follow")
AFTER_FOLLOW = register("streams.after_follow")
BEFORE_JOIN = register("streams.before_join")
AFTER_JOIN = register("streams.after_join")

# what the target keeps of a stream, beside its fence and the sessions that hold it
_OF_A_STREAM = ("progress", "applied", "record_schema", "ddl_intent", "load_stream", "spread")


@dataclass(frozen=True, slots=True)
class Owners:
    """The owners of the fences of both streams."""

    main: Owner
    side: Owner

    def check(self, connection: MySqlSession) -> None:
        """In a target transaction: Fenced MR-5020 if one of them is not the owner any more."""
        check_fence(connection, self.main)
        check_fence(connection, self.side)


def begin(connection: MySqlSession, owners: Owners, mark: Mark) -> int:
    """Begin a batch with all tables that wait, at main's mark; its number, 0 if none waits."""
    task, stream = owners.main.task, owners.side.task
    owners.check(connection)
    tables = stream_tables(connection, task)
    if not any(table.state == WAITS for table in tables):
        connection.rollback()
        return 0
    batch = 1 + max(table.batch for table in tables)
    # main leaves these tables from now on, and the copies have what the kept rows would change
    void_rows(connection, task, [table.key for table in tables if table.state == WAITS])
    connection.query(
        f"UPDATE {DATABASE}.load_table SET state = %s, batch = %s WHERE task = %s AND state = %s",
        (COPIES, batch, task, WAITS),
    )
    _forget(connection, stream)
    insert_mark(connection, stream, mark)
    connection.query(
        f"INSERT INTO {DATABASE}.record_schema (task, id, schema_text)"
        f" SELECT %s, id, schema_text FROM {DATABASE}.record_schema WHERE task = %s",
        (stream, task),
    )
    fault_point(BEFORE_BEGIN)
    connection.commit()
    fault_point(AFTER_BEGIN)
    return batch


def follow(connection: MySqlSession, side: Owner, load: LoadStream) -> bool:
    """Let the side stream follow with the copied tables; False if there are none. ``load``: the range of the copies.

    Main may be in a turn. Retryable MR-5110 if the load began before main's mark: changes in between would be missing.
    """
    task, stream = task_of(side.task), side.task
    check_fence(connection, side)
    copied = [t for t in stream_tables(connection, task) if t.state == COPIED]
    if not copied:
        _forget(connection, stream)
        connection.commit()
        return False
    found = read_mark(connection, stream)
    if found is None:
        raise Fatal("MR-5022", f"the progress of {stream} is gone", task=task)
    _move_to_begin(connection, stream, found[0], load)
    put_stream(connection, stream, load)
    connection.query(
        f"UPDATE {DATABASE}.load_table SET state = %s WHERE task = %s AND state = %s",
        (FOLLOWS, task, COPIED),
    )
    fault_point(BEFORE_FOLLOW)
    connection.commit()
    fault_point(AFTER_FOLLOW)
    return True


def _move_to_begin(connection: MySqlSession, stream: str, mark: Mark, load: LoadStream) -> None:
    """The side stream skips what the load's begin covers. Main's mark of then is kept in seq and offset."""
    begun = parse_gtid_set(load.flavour, load.begin)
    if mark.gtid_set and not begun.includes(parse_gtid_set(load.flavour, mark.gtid_set)):
        what = f"begins at {shortened(load.begin)}, and the task was at {shortened(mark.gtid_set)}"
        raise Retryable("MR-5110", f"the load {what}")
    after = replace(mark, gtid_set=load.begin, flavour=str(load.flavour), past_start=False)
    connection.query(f"DELETE FROM {DATABASE}.progress WHERE task = %s", (stream,))
    insert_mark(connection, stream, after)


def can_join(main: Mark, side: Mark, load: LoadStream | None) -> bool:
    """Whether both streams have applied the same records, and the side stream needs none of its rules any more."""
    at_one_place = (main.seq, main.next_offset) == (side.seq, side.next_offset)
    return at_one_place and side.past_start and (load is None or _is_over(load, side))


def _is_over(load: LoadStream, mark: Mark) -> bool:
    return LoadRange(parse_gtid_set(load.flavour, load.end), {}).is_over(mark)


def following(connection: MySqlSession, task: str) -> tuple[LoadTable, ...]:
    """The tables of the side stream."""
    return tuple(
        table
        for table in stream_tables(connection, task)
        if table.state == FOLLOWS and table.batch != FIRST
    )


def join(connection: MySqlSession, owners: Owners) -> tuple[LoadTable, ...]:
    """Give the tables of the side stream to main; none, and nothing is changed, if ``can_join`` is not true.

    Main's turn must have ended. Conflicts that the side stream has stored become those of the task.
    """
    task, stream = owners.main.task, owners.side.task
    owners.check(connection)
    main, side = read_mark(connection, task), read_mark(connection, stream)
    load = read_stream(connection, stream)
    joined = following(connection, task)
    if not joined or main is None or side is None or not can_join(main[0], side[0], load):
        connection.rollback()
        return ()
    connection.query(
        f"DELETE FROM {DATABASE}.load_table WHERE task = %s AND state = %s AND batch <> %s",
        (task, FOLLOWS, FIRST),
    )
    connection.query(
        f"UPDATE IGNORE {DATABASE}.conflict SET task = %s WHERE task = %s", (task, stream)
    )
    _forget(connection, stream)
    fault_point(BEFORE_JOIN)
    connection.commit()
    fault_point(AFTER_JOIN)
    return joined


def _forget(connection: MySqlSession, stream: str) -> None:
    assert is_side(stream)
    for table in _OF_A_STREAM:
        connection.query(f"DELETE FROM {DATABASE}.{table} WHERE task = %s", (stream,))
