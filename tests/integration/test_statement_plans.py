"""The servers explain every statement that Millrace sends: each finds its rows by a key and scans no table.

The tables have keys of every type, alone and in pairs, and all are filled and analyzed. ``make test`` takes one type of
a kind and few rows; ``make chaos`` all types and 100,000 rows a table. Nothing is copied from the product: the
statements are explained when it sends them.
"""

import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from itertools import count, islice

import pytest

from millrace.consumer.compare import chunk as work
from millrace.consumer.compare.chunk import Job, compare_chunk
from millrace.consumer.compare.repair import repair
from millrace.consumer.compare.sides import Ends, Sides
from millrace.consumer.compare.table import pair_of
from millrace.consumer.copy import TablePair, copy_chunk
from millrace.consumer.target.progress import Mark, create_tables, insert_mark
from millrace.deploy.servers import DatabaseServer
from millrace.drivers.mysql.catalog import CatalogTable, Inventory, read_inventory
from millrace.drivers.mysql.chunks.borders import chunks, next_border
from millrace.drivers.mysql.chunks.chunk import Chunk
from millrace.drivers.mysql.chunks.key import ChunkKey, chunk_key
from millrace.drivers.mysql.connection import connect
from millrace.producer.snapshot.chunk_read import ReadChunk
from millrace.schemas.documents import ConflictPolicy
from millrace.schemas.gtid import Flavour
from millrace.schemas.sql.quoting import table_name
from tests.fixtures.servers import FLAVOURS, Pool
from tests.kit.apply.keyed_tables import KeyedTable, keyed_tables
from tests.kit.apply.local import apply_task, endpoint_of, run_once
from tests.kit.apply.plans import Access, Plans, explained
from tests.kit.apply.topic import RecordStream
from tests.kit.binlog.session import LoggedSession, logged
from tests.kit.capture.converter import raw_records
from tests.kit.capture.snapshot_rows import request_for, session_on

pytestmark = pytest.mark.both_flavours

DATABASE, COPY, OURS = "planned", "planned_copy", "millrace"
COMPARED = "planned-compare"  # a task that has applied all that any server has
FEW_ROWS = 200  # on the source
BRIEF, EVERY = 2_000, 100_000  # rows of a table
LOOKED_UP_MAX = 100  # rows that a statement of apply reads at most in these tests
CHUNKS = 40  # of a table
_runs = count(1)


@dataclass
class Scene:
    """Tables on one server, which is source and target in turn. ``histories``: changes of each table."""

    source: LoggedSession
    tables: list[KeyedTable]
    rows: int
    histories: list[RecordStream] = field(default_factory=list)

    @property
    def server(self) -> DatabaseServer:
        """Source and target."""
        return self.source.server

    @property
    def chunk_rows(self) -> int:
        """The rows of a chunk."""
        return self.rows // CHUNKS

    def create(self, rows: int) -> None:
        """Create all tables with the rows 1 to ``rows``."""
        names = "abcde"
        digits = ", ".join(f"digit {name}" for name in names)
        place = " + ".join(f"{10**power} * {name}.d" for power, name in enumerate(names))
        self.source.run(
            "CREATE TABLE digit (d INT PRIMARY KEY)",
            f"INSERT INTO digit VALUES {', '.join(f'({digit})' for digit in range(10))}",
            "CREATE TABLE number (n INT PRIMARY KEY)",
            f"INSERT INTO number SELECT 1 + {place} FROM {digits} ORDER BY 1 LIMIT {rows}",
        )
        for table in self.tables:
            self.source.run(table.create, table.fill("SELECT n FROM number"))
        self.source.run(f"ANALYZE TABLE {', '.join(table.name for table in self.tables)}")

    def drop(self) -> None:
        """Drop all tables."""
        names = ", ".join(table.name for table in self.tables)
        self.source.run(f"DROP TABLE digit, number, {names}")

    def stream(self, *changes: str) -> RecordStream:
        """The records of changes of each table, whose name is ``{t}``."""
        self.source.run("FLUSH BINARY LOGS")
        self.source.file = str(self.source.rows("SHOW BINARY LOGS")[-1][0])
        for table in self.tables:
            self.source.run(*(change.format(t=table.name) for change in changes))
        batches = self.source.conversion().batches()
        values = [value for batch in batches for _, value in raw_records(batch)]
        return RecordStream(flavour=self.source.server.flavour, values=values)

    def inventory(self) -> Inventory:
        """The tables as the product sees them."""
        with closing(connect(endpoint_of(self.server))) as session:
            return read_inventory(session, with_folds=False)

    def everything(self) -> str:
        """A GTID set that contains all that the server will ever log."""
        if self.server.flavour is Flavour.MARIADB:
            return f"0-{self.server.server_id}-1000000000"
        ((uuid, executed),) = self.source.rows("SELECT @@server_uuid, @@GLOBAL.gtid_executed")
        tags = sorted(set(re.findall(r":([a-z_]\w*)", str(executed))))  # of tests before this one
        return "".join([f"{uuid}:1-1000000000", *(f":{tag}:1-1000000000" for tag in tags)])

    def columns(self, table: CatalogTable) -> list[str]:
        """The names of the columns that are no expressions."""
        return [column.name for column in table.columns.values() if not column.generated]

    def target_tables(self) -> Iterator[CatalogTable]:
        """Those of ``DATABASE``."""
        inventory = self.inventory()
        for table in self.tables:
            yield inventory.tables[DATABASE, table.name]


_SIZES = [
    pytest.param((flavour, rows), id=f"{flavour}-{name}", marks=marks)
    for rows, name, marks in ((BRIEF, "brief", ()), (EVERY, "every", (pytest.mark.chaos,)))
    for flavour in FLAVOURS
]


@pytest.fixture(scope="module", params=_SIZES)
def planned(request: pytest.FixtureRequest, pool: Pool) -> Iterator[Scene]:
    """Filled tables, which every test here uses. The log has only the changes of few rows."""
    flavour, rows = request.param
    server = pool.server(flavour, 201 + FLAVOURS.index(flavour))
    with logged(server, DATABASE) as source:
        made = Scene(source, list(keyed_tables(flavour, is_brief=rows == BRIEF)), rows)
        made.create(FEW_ROWS)
        made.histories = [
            made.stream("UPDATE {t} SET w = 1 LIMIT 5"),
            made.stream("UPDATE {t} SET w = 2 WHERE w = 0 LIMIT 1"),
            made.stream("DELETE FROM {t} WHERE w = 1 LIMIT 5"),
            made.stream("DELETE FROM {t} WHERE w = 2 LIMIT 1"),
        ]
        made.drop()
        source.run("SET SESSION sql_log_bin = 0")
        made.create(rows)
        source.run("SET SESSION sql_log_bin = 1")
        yield made


def test_apply_finds_rows_by_any_key(planned: Scene) -> None:
    """Updates and deletes of many rows and of one, and the look-ups and repetitions after a conflict."""
    # the repeated records don't fit: their rows are gone
    with explained(planned.server, DATABASE, OURS) as plans:
        for stream in [*planned.histories, *planned.histories]:
            task = apply_task(f"planned{next(_runs)}", conflict=ConflictPolicy.OVERWRITE)
            run_once(planned.server, task, stream)
    verbs = {access.statement.split()[0] for access in plans.accesses}
    assert verbs == {"SELECT", "UPDATE", "DELETE"}
    seen = {access.table for access in plans.accesses}
    assert seen >= {table.name for table in planned.tables}
    plans.accesses = [each for each in plans.accesses if not _is_by_unsearched_key(each)]
    assert not plans.scans(rows_max=LOOKED_UP_MAX), plans.shown(rows_max=LOOKED_UP_MAX)


def _is_by_unsearched_key(access: Access) -> bool:
    """Whether it looks for the rows in the way of a conflict, by a key that finds none (docs/limits.md)."""
    return access.table in ("hidden", "hashed") and access.statement.startswith("SELECT")


def test_chunks_are_found_and_copied_by_any_key(planned: Scene) -> None:
    """The looks for the ends of chunks, and the reads of a load and of a snapshot, in the middle of a table."""
    _copy_tables(planned)
    source = connect(endpoint_of(planned.server))
    target = connect(endpoint_of(planned.server))
    snapshot = session_on(planned.server)
    inventory, scans = planned.inventory(), list[str]()
    with closing(source), closing(target), closing(snapshot.connection):
        for table in planned.target_tables():
            key, begin = _middle(planned, table)
            copied = inventory.tables[COPY, table.table]
            pair = TablePair.of(table, copied, inventory)
            name = table_name(table.database, table.table).decode()
            with explained(planned.server, DATABASE) as plans:
                found = list(
                    islice(
                        chunks(
                            source.query, name, key, rows=lambda: planned.chunk_rows, begin=begin
                        ),
                        2,
                    )
                )
                copy_chunk(source, target, pair, found[0].where(key))
                if key.name == "PRIMARY":
                    assert begin.through is not None
                    request = request_for(
                        planned.server, (DATABASE, table.table), begin.through.texts
                    )
                    assert isinstance(snapshot.read(request), ReadChunk)
            target.rollback()
            scans += _scans(planned, plans, table, key)
    assert not scans, "\n".join(scans)


def test_compare_and_repair_find_rows_by_any_key(
    planned: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sums of a chunk and of its parts, the rows of a part, looks at rows, and repairs; on both sides."""
    monkeypatch.setattr(work, "PART_ROWS", planned.chunk_rows // 2)
    monkeypatch.setattr(work, "PAUSE_S", 0.0)
    _copy_tables(planned)
    endpoint = endpoint_of(planned.server)
    with closing(connect(endpoint)) as session:
        create_tables(session)
        session.query(f"REPLACE INTO {OURS}.fence VALUES ('{COMPARED}', 1, 1)")
        insert_mark(session, COMPARED, Mark(0, 0, planned.everything(), str(session.flavour)))
        session.commit()
    ends = Ends(endpoint, endpoint, COMPARED)
    inventory, scans = planned.inventory(), list[str]()
    with closing(Sides(ends)) as sides:
        for table in planned.target_tables():
            key, begin = _middle(planned, table)
            name = table_name(table.database, table.table).decode()
            found = chunks(
                sides.source.query, name, key, rows=lambda: planned.chunk_rows, begin=begin
            )
            chunk = next(found)
            copied = table_name(COPY, table.table).decode()
            columns = ", ".join(planned.columns(table))
            planned.source.run(
                f"INSERT INTO {copied} ({columns}) SELECT {columns} FROM {name} WHERE {chunk.where(key)}",
                f"DELETE FROM {copied} LIMIT 1",
                f"UPDATE {copied} SET w = 7 LIMIT 1",
            )
            there = inventory.tables[COPY, table.table]
            with explained(planned.server, DATABASE) as plans:
                one = compare_chunk(sides, Job(pair_of(table, there), chunk))
                other = compare_chunk(sides, Job(pair_of(there, table), chunk), repair)
            assert (one.part.differing, other.part.repaired) == (2, 2)
            verbs = {access.statement.split()[0] for access in plans.accesses}
            assert verbs == {"SELECT", "UPDATE", "DELETE"}
            scans += _scans(planned, plans, table, key)
    assert not scans, "\n".join(scans)


def _scans(planned: Scene, plans: Plans, table: CatalogTable, key: ChunkKey) -> list[str]:
    """The scans of the statements about a table in chunks."""
    assert {access.table for access in plans.accesses} == {table.table}
    if _has_labels(planned, table, key):
        return []
    # of more than 200 ranges the servers estimate the rows by their statistics
    is_listed = any(column.numbers for column in key.columns)
    if (
        is_listed and planned.server.flavour is Flavour.MYSQL
    ):  # it scans for the ends (docs/limits.md)
        plans.accesses = [each for each in plans.accesses if not each.has_limit]
    rows_max = 10 * planned.rows if is_listed else 3 * planned.chunk_rows
    return [plans.shown(rows_max=rows_max)] if plans.scans(rows_max=rows_max) else []


def _has_labels(planned: Scene, table: CatalogTable, key: ChunkKey) -> bool:
    """Whether the key has a SET whose ranges the servers don't find by an index (docs/limits.md).

    Or an ENUM, in small tables: a list of 200 numbers is no shorter than those. See ``test_chunks``.
    """
    kinds = {table.columns[name].base_type for name in key.names}
    return "set" in kinds or ("enum" in kinds and planned.rows == BRIEF)


def _copy_tables(planned: Scene) -> None:
    planned.source.run(f"DROP DATABASE IF EXISTS {COPY}", f"CREATE DATABASE {COPY}")
    for table in planned.tables:
        planned.source.run(f"CREATE TABLE {COPY}.{table.name} LIKE {DATABASE}.{table.name}")


def _middle(planned: Scene, table: CatalogTable) -> tuple[ChunkKey, Chunk]:
    """The chunk key, and the first half of the table as a chunk."""
    key = chunk_key(table.columns, table.unique_keys)
    assert key is not None
    name = table_name(table.database, table.table).decode()
    ((count_,),) = planned.source.rows(f"SELECT COUNT(*) FROM {name}")
    with closing(connect(endpoint_of(planned.server))) as session:
        border = next_border(session.query, name, key, Chunk(0), rows=int(str(count_)) // 2)
    return key, Chunk(0, through=border)
