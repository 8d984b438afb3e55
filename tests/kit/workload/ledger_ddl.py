"""The ledger's DDL: adds, renames and drops columns; creates, swaps, truncates and drops tables."""

import random
import threading
from typing import Any

from millrace.deploy.servers.sql import Overtaken, raising_overtaken
from millrace.deploy.workload.shop import Connection
from tests.kit.workload.ledger_parts import LedgerCounts, paced
from tests.kit.workload.specimens import WORDS


class LedgerDdl:
    """The DDL of one connection. Names of columns and tables are never reused."""

    def __init__(self, connection: Connection, *, seed: int, counts: LedgerCounts) -> None:
        self.connection = connection
        self.cursor: Any = connection.cursor()
        self.chance = random.Random(f"{seed}/ddl")
        self.counts = counts
        self.number = 0
        self.columns: list[tuple[str, str]] = []
        self.tables: list[str] = []
        self.indexes: list[str] = []
        self.is_away = False

    def run(self, deadline: float, interval_s: float, ending: threading.Event) -> None:
        """Run statements until the deadline or the end. A statement that loses a race is skipped."""
        acts = (
            self._add_column,
            self._rename_column,
            self._drop_column,
            self._create_table,
            self._create_table_as,
            self._rename_table,
            self._swap_tables,
            self._drop_table,
            self._truncate,
            self._send_away,
            self._index,
        )
        weights = (20, 10, 10, 10, 8, 8, 8, 8, 8, 14, 6)
        for _ in paced(deadline, interval_s, ending):
            (act,) = self.chance.choices(acts, weights)
            try:
                with raising_overtaken():
                    act()
            except Overtaken:
                self.connection.rollback()
                self.counts.overtaken += 1

    def _add_column(self) -> None:
        table = self.chance.choice(("entries", "accounts", "seats", "specimens", "loose"))
        kind = self.chance.choice(
            ("INT", "INT NOT NULL DEFAULT 7", "VARCHAR(20) DEFAULT 'dø'", "DECIMAL(9,2)")
        )
        where = self.chance.choice(("", " FIRST", " AFTER ghost" if table != "accounts" else ""))
        name = self._take_name("x")
        self._execute(f"ALTER TABLE {table} ADD COLUMN {name} {kind}{where}")
        self.columns.append((table, name))

    def _rename_column(self) -> None:
        if self.columns:
            place = self.chance.randrange(len(self.columns))
            (table, old), new = self.columns[place], self._take_name("y")
            self._execute(f"ALTER TABLE {table} RENAME COLUMN {old} TO {new}")
            self.columns[place] = (table, new)

    def _drop_column(self) -> None:
        if self.columns:
            place = self.chance.randrange(len(self.columns))
            table, name = self.columns[place]
            self._execute(f"ALTER TABLE {table} DROP COLUMN {name}")
            del self.columns[place]

    def _create_table(self) -> None:
        name = self._take_name("page")
        self._execute(f"CREATE TABLE {name} (id INT NOT NULL PRIMARY KEY, body VARCHAR(40))")
        self.tables.append(name)
        rows = [(number, self.chance.choice(WORDS)) for number in range(self.chance.randint(1, 5))]
        self.cursor.executemany(f"INSERT INTO {name} VALUES (%s,%s)", rows)
        self.connection.commit()

    def _create_table_as(self) -> None:
        """Create a table and its rows in one source transaction."""
        name = self._take_name("page")
        columns = "id, CONCAT('seat ', place) AS body"
        self._execute(f"CREATE TABLE {name} (PRIMARY KEY (id)) SELECT {columns} FROM seats LIMIT 9")
        self.tables.append(name)

    def _rename_table(self) -> None:
        if self.tables:
            place = self.chance.randrange(len(self.tables))
            new = self._take_name("book")
            self._execute(f"RENAME TABLE {self.tables[place]} TO {new}")
            self.tables[place] = new

    def _swap_tables(self) -> None:
        if len(self.tables) > 1:
            one, two = self.chance.sample(self.tables, 2)
            self._execute(f"RENAME TABLE {one} TO aside, {two} TO {one}, aside TO {two}")
            self.cursor.execute(f"INSERT INTO {one} VALUES (%s,'swapped')", (self.number + 100,))
            self.connection.commit()
            self.number += 1

    def _drop_table(self) -> None:
        if self.tables:
            place = self.chance.randrange(len(self.tables))
            self._execute(f"DROP TABLE {self.tables[place]}")
            del self.tables[place]

    def _truncate(self) -> None:
        if not self.is_away:
            self._execute(f"TRUNCATE TABLE {self.chance.choice(('loose', 'passing'))}")

    def _send_away(self) -> None:
        """Rename a table away or back, so that writers find it missing."""
        old, new = ("passed_by", "passing") if self.is_away else ("passing", "passed_by")
        self._execute(f"RENAME TABLE {old} TO {new}")
        self.is_away = not self.is_away

    def _index(self) -> None:
        if self.indexes and self.chance.random() < 0.5:
            self._execute(f"DROP INDEX {self.indexes[-1]} ON specimens")
            self.indexes.pop()
        else:
            name = self._take_name("by")
            self._execute(f"CREATE INDEX {name} ON specimens (tiny)")
            self.indexes.append(name)

    def _execute(self, sql: str) -> None:
        self.cursor.execute(sql)
        self.counts.ddl += 1

    def _take_name(self, kind: str) -> str:
        self.number += 1
        return f"{kind}_{self.number}"
