"""The servers explain every statement that Millrace sends: each finds its rows by a key and scans no table.

The tables have keys of every type, alone and in pairs, and all are filled and analyzed. ``make test`` takes one type of
a kind and few rows; ``make chaos`` all types and 100,000 rows a table.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count

import pytest

from deploy.servers import DatabaseServer
from schemas.documents import ConflictPolicy
from tests.kit.apply.keyed_tables import KeyedTable, keyed_tables
from tests.kit.apply.local import apply_task, run_once
from tests.kit.apply.plans import Access, explained
from tests.kit.apply.topic import RecordStream
from tests.kit.binlog.session import LoggedSession, logged
from tests.kit.capture.converter import raw_records

pytestmark = pytest.mark.both_flavours

DATABASE, OURS = "planned", "millrace"
FEW_ROWS = 200  # on the source
LOOKED_UP_MAX = 100  # rows that a statement of these tests reads at most
SIZES = [
    pytest.param(2_000, id="brief"),
    pytest.param(100_000, id="every", marks=pytest.mark.chaos),
]
OTHERS = "planned-other"  # tasks that fill Millrace's own tables
_runs = count(1)


@dataclass(frozen=True)
class Scene:
    """Tables on one server, which is source and target in turn."""

    source: LoggedSession
    tables: list[KeyedTable]

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


@contextmanager
def scene(server: DatabaseServer, *, is_brief: bool) -> Iterator[Scene]:
    """The tables of a size, and rows of many other tasks in Millrace's own."""
    with logged(server, DATABASE) as source:
        yield Scene(source, list(keyed_tables(server.flavour, is_brief=is_brief)))


def _shown(scans: list[Access]) -> str:
    lines = {f"{each.table}: {each.kind} {each.rows} {each.statement}" for each in scans}
    return "\n".join(sorted(lines))


@pytest.mark.parametrize("rows", SIZES)
def test_apply_finds_rows_by_any_key(server: DatabaseServer, rows: int) -> None:
    """Updates and deletes of many rows and of one, and the look-ups and repetitions after a conflict."""
    with scene(server, is_brief=rows < 100_000) as planned:
        planned.create(FEW_ROWS)
        histories = [
            planned.stream("UPDATE {t} SET w = 1 LIMIT 5"),
            planned.stream("UPDATE {t} SET w = 2 WHERE w = 0 LIMIT 1"),
            planned.stream("DELETE FROM {t} WHERE w = 1 LIMIT 5"),
            planned.stream("DELETE FROM {t} WHERE w = 2 LIMIT 1"),
        ]
        planned.drop()
        planned.create(rows)
        # the repeated records don't fit: their rows are gone
        with explained(server, DATABASE, OURS) as plans:
            for stream in [*histories, *histories]:
                task = apply_task(f"planned{next(_runs)}", conflict=ConflictPolicy.OVERWRITE)
                run_once(server, task, stream)
        verbs = {access.statement.split()[0] for access in plans.accesses}
        assert verbs == {"SELECT", "UPDATE", "DELETE"}
        seen = {access.table for access in plans.accesses}
        assert seen >= {table.name for table in planned.tables}
        assert not (scans := plans.scans(rows_max=LOOKED_UP_MAX)), _shown(scans)
