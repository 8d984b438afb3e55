"""A real source whose tables are linked by foreign keys: random changes, the records of those that it logs, its rows.

The source is a database of a server, so the server decides which changes are valid and which rows a cascade changes.
Every table has the columns ``id``, ``up``, ``side`` and ``v``. The records name a second database, the target's, which
has the same tables.

    logs    what the topic has of a cascade
    False   nothing, as on MariaDB and MySQL before 9.6
    True    a record for each child row, before that of the parent, with the flags of MySQL 9.7
"""

import random
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from millrace.drivers.mysql.connection import MySqlSession
from millrace.errors import Fatal
from millrace.schemas.table.structure import TableSchema
from tests.kit.apply.tables import integer, table
from tests.kit.apply.topic import RecordStream

COLUMNS = ("id", "up", "side", "v")
IDS = 5
LOGGED, BY_CASCADE = (
    16,
    18,
)  # flags of MySQL 9.7: a row of a statement, a row that a cascade changed
Row = tuple[object, ...]
State = Mapping[tuple[str, object], Row]  # by table and id


def create_tables(session: MySqlSession, database: str, keys: Mapping[str, str]) -> None:
    """``keys``: by table, its foreign keys in SQL, parents first."""
    for name, foreign in keys.items():
        session.query(
            f"CREATE TABLE {database}.{name} (id INT PRIMARY KEY, up INT, side INT, v INT"
            f"{', ' if foreign else ''}{foreign.format(database=database)})"
        )


def read_rows(session: MySqlSession, database: str, names: Sequence[str]) -> State:
    """All rows of these tables."""
    found = {
        (name, row[0]): tuple(row)
        for name in names
        for row in session.query(f"SELECT id, up, side, v FROM {database}.{name}")
    }
    session.rollback()
    return found


@dataclass
class Family:
    """``source``: the source's database. ``states[n]``: its rows after source transaction n."""

    session: MySqlSession
    source: str
    target: str
    names: Sequence[str]
    stream: RecordStream
    logs: bool = False
    states: list[State] = field(default_factory=lambda: [{}])
    rows: State = field(default_factory=dict)

    def transaction(self, chance: random.Random) -> None:
        """One to three random changes."""
        for _ in range(chance.randint(1, 3)):
            self._change(chance)
        self.commit()

    def commit(self) -> None:
        """End the source transaction."""
        self.session.commit()
        self.stream.commit()
        self.states.append(self.rows)

    def schema(self, name: str) -> TableSchema:
        """The structure of a table."""
        columns = [integer(column, nullable=column != "id") for column in COLUMNS]
        return table(self.target, name, *columns)

    def prepare(self, sql: str) -> None:
        """A statement of before the topic begins; ``{s}`` is the source's database."""
        self.session.query(sql.format(s=self.source))
        self.rows = self._read()

    def execute(self, sql: str, name: str, row_id: int) -> None:
        """A statement that changes one row of a table; ``{t}`` is the table."""
        before = self.rows
        self.session.query(sql.format(t=f"{self.source}.{name}"))
        self.rows = self._read()
        changed = sorted(
            key
            for key in before.keys() | self.rows.keys()
            if before.get(key) != self.rows.get(key) and key != (name, row_id)
        )
        own = 0
        if self.logs:
            own = LOGGED
            for key in changed:
                self._record(key[0], before.get(key), self.rows.get(key), BY_CASCADE)
        self._record(name, before.get((name, row_id)), self.rows.get((name, row_id)), own)

    def _read(self) -> State:
        return {
            (name, row[0]): tuple(row)
            for name in self.names
            for row in self.session.query(f"SELECT id, up, side, v FROM {self.source}.{name}")
        }

    def _record(self, name: str, before: Row | None, after: Row | None, flags: int) -> None:
        made = self.schema(name)
        left, right = (
            dict(zip(COLUMNS, row, strict=True)) if row else {} for row in (before, after)
        )
        if before is None and after is not None:
            self.stream.insert(made, right, flags=flags)
        elif after is None:
            self.stream.delete(made, left, flags=flags)
        elif before != after:
            self.stream.update(made, left, right, flags=flags)

    def _change(self, chance: random.Random) -> None:
        name, row_id = chance.choice(self.names), chance.randint(1, IDS)
        up, side = (chance.choice((*range(1, IDS + 1), "NULL")) for _ in range(2))
        value = chance.randint(0, 99)
        if (name, row_id) not in self.rows:
            sql = f"INSERT INTO {{t}} VALUES ({row_id}, {up}, {side}, {value})"
        elif chance.random() < 0.5:
            sql = f"DELETE FROM {{t}} WHERE id = {row_id}"
        else:
            sql = f"UPDATE {{t}} SET up = {up}, side = {side}, v = {value} WHERE id = {row_id}"
        with suppress(Fatal):  # such as a parent that does not exist
            self.execute(sql, name, row_id)
