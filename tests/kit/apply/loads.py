"""The state that a load leaves on the target, for tests of streams without one."""

from collections.abc import Collection, Mapping

from millrace.consumer.backfill.join import Owners, begin, follow
from millrace.consumer.target.fence import raise_fence
from millrace.consumer.target.load_range import side_of
from millrace.consumer.target.loads import (
    COPIED,
    FIRST,
    FOLLOWS,
    WAITS,
    LoadStream,
    LoadTable,
    set_waiting,
    stream_tables,
)
from millrace.consumer.target.progress import create_tables
from millrace.consumer.turn.driver import BatchApplier
from millrace.deploy.servers import DatabaseServer
from millrace.drivers.mysql.catalog import TableKey
from millrace.drivers.mysql.connection import connect
from millrace.schemas.gtid import Flavour
from tests.kit.apply.local import endpoint_of


def follows(
    server: DatabaseServer,
    task: str,
    tables: Mapping[TableKey, str | None],
    *,
    batch: int = FIRST,
    begin: str = "",
) -> None:
    """Store copied tables that their stream applies. ``tables``: the GTID set of a snapshot; None for chunks."""
    session = connect(endpoint_of(server))
    create_tables(session)
    set_waiting(session, task, tables, detail="")
    for (database, name), exact in tables.items():
        session.query(
            "UPDATE millrace.load_table SET batch = %s, state = %s, begin_gtid = %s, exact_gtid = %s,"
            " chunk_key = %s WHERE task = %s AND database_name = %s AND table_name = %s",
            (
                *(batch, FOLLOWS, begin, exact or ""),
                "PRIMARY" if exact is None else "",
                *(task, database, name),
            ),
        )
    session.commit()
    session.close()


def ranged(server: DatabaseServer, stream: str, begin: str, end: str, flavour: Flavour) -> None:
    """Store the range of a stream."""
    server.execute(
        "REPLACE INTO millrace.load_stream VALUES (%s, %s, %s, %s)", (stream, begin, end, flavour)
    )


def side_follows(
    server: DatabaseServer, applier: BatchApplier, tables: Collection[TableKey], load: LoadStream
) -> str:
    """Begin a batch at main's mark; its tables are copied already, and follow. Returns the side stream's name."""
    session, task = connect(endpoint_of(server)), applier.owner.task
    create_tables(session)
    set_waiting(session, task, tables, detail="")
    session.commit()
    side = raise_fence(session, task=side_of(task), epoch=applier.owner.epoch)
    owners = Owners(applier.owner, side)
    assert begin(session, owners, applier.mark)
    session.query(
        "UPDATE millrace.load_table SET state = %s, chunk_key = 'PRIMARY' WHERE task = %s",
        (COPIED, task),
    )
    session.commit()
    assert follow(session, side, load)
    session.close()
    return side.task


def states(server: DatabaseServer, task: str) -> dict[str, LoadTable]:
    """The tables of a task that are loaded or wait, by their name without the database."""
    session = connect(endpoint_of(server))
    found = stream_tables(session, task)
    session.close()
    return {table.key[1]: table for table in found}


def waiting(server: DatabaseServer, task: str) -> set[str]:
    """The names of the tables that wait."""
    found = states(server, task)
    return {name for name, table in found.items() if table.state == WAITS}
