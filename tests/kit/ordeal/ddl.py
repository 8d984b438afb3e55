"""Random DDL about generated tables, and a thread that executes it while rows are written.

The tables are changed here after the server has executed a statement, so writers meet refusals for a moment.
"""

import random
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

import pymysql

from millrace.deploy.servers import DatabaseServer
from tests.kit.ordeal.columns import Column, number_or_null, quoted
from tests.kit.ordeal.tables import CASCADES, Maker, Table
from tests.kit.ordeal.writes import GONE, Cursor, root, rows

LOCK_S = 5
NEW_ROWS = 40
TABLES_MIN = 4
# that take the same values in another type
WIDER = {
    "TINYINT": "INT",
    "SMALLINT": "BIGINT",
    "INT": "BIGINT",
    "VARCHAR(60)": "VARCHAR(300)",
    "CHAR(60)": "VARCHAR(80)",
    "TINYTEXT": "TEXT",
    "TEXT": "MEDIUMTEXT",
    "TINYBLOB": "BLOB",
    "BLOB": "LONGBLOB",
    "BINARY(5)": "VARBINARY(9)",
    "FLOAT": "DOUBLE",
    "DATE": "DATETIME(2)",
    "DECIMAL(5,2)": "DECIMAL(20,4)",
    "YEAR": "SMALLINT",
}


@dataclass(frozen=True, slots=True)
class Change:
    """Statements, and what they make of the tables."""

    statements: tuple[str, ...]
    then: Callable[[], object] = lambda: None


@dataclass
class Schema:
    """The tables of the source, by a seed."""

    maker: Maker
    tables: list[Table]
    added: int = 0

    @property
    def chance(self) -> random.Random:
        """The seed's."""
        return self.maker.chance

    def names(self) -> list[Table]:
        """The tables now."""
        return list(self.tables)

    def change(self) -> Change:
        """The next DDL."""
        kinds = [
            *[self._add_column, self._drop_column, self._modify] * 3,
            *[self._rename, self._truncate, self._create, self._drop, self._index] * 2,
            self._rename_column,
            self._swap,
            self._create_like,
            self._create_select,
            self._key,
            self._check,
            self._foreign_key,
            self._parts,
            self._rebuild,
            self._convert,
        ]
        return self.chance.choice(kinds)(self._free())

    def _free(self) -> Table:
        return self.chance.choice([table for table in self.tables if not table.fixed])

    def _put(self, table: Table, columns: list[Column]) -> None:
        table.columns = columns

    def _add_column(self, table: Table) -> Change:
        column = self.maker.column()
        place = self.chance.choice(("", " FIRST", f" AFTER {table.columns[0].sql}"))
        default = " DEFAULT 5" if column.ddl in ("INT", "BIGINT", "TINYINT") else ""
        sql = f"ALTER TABLE {table.sql} ADD COLUMN {column.definition}{default}{place}"
        sql += self.maker.copies
        return Change((sql,), lambda: self._put(table, [*table.columns, column]))

    def _drop_column(self, table: Table) -> Change:
        if len(table.extras) < 2:
            return self._add_column(table)
        column = self.chance.choice(table.extras)
        left = [other for other in table.columns if other is not column]
        sql = f"ALTER TABLE {table.sql} DROP COLUMN {column.sql}{self.maker.copies}"
        return Change((sql,), lambda: self._put(table, left))

    def _modify(self, table: Table) -> Change:
        fitting = [column for column in table.extras if column.ddl in WIDER]
        if not fitting:
            return self._add_column(table)
        column = self.chance.choice(fitting)
        new = replace(column, ddl=WIDER[column.ddl])
        columns = [new if other is column else other for other in table.columns]
        sql = f"ALTER TABLE {table.sql} MODIFY COLUMN {new.definition}"
        return Change((sql,), lambda: self._put(table, columns))

    def _rename_column(self, table: Table) -> Change:
        if not table.extras:
            return self._add_column(table)
        column = self.chance.choice(table.extras)
        new = replace(column, name=f"r{self._number()}")
        columns = [new if other is column else other for other in table.columns]
        sql = f"ALTER TABLE {table.sql} RENAME COLUMN {column.sql} TO {new.sql}"
        return Change((sql,), lambda: self._put(table, columns))

    def _rename(self, table: Table) -> Change:
        name = f"n{self._number()}"
        return Change(
            (f"RENAME TABLE {table.sql} TO {quoted(name)}",), lambda: setattr(table, "name", name)
        )

    def _swap(self, table: Table) -> Change:
        other = self._free()
        if other is table:
            return self._rename(table)

        def swap() -> None:
            table.name, other.name = other.name, table.name

        away = quoted(f"away{self._number()}")
        sql = (
            f"RENAME TABLE {table.sql} TO {away}, {other.sql} TO {table.sql}, {away} TO {other.sql}"
        )
        return Change((sql,), swap)

    def _truncate(self, table: Table) -> Change:
        return Change(
            (
                f"TRUNCATE TABLE {table.sql}",
                f"INSERT IGNORE INTO {table.sql} {rows(self.chance, table, NEW_ROWS)}",
            )
        )

    def _create(self, _: Table) -> Change:
        made = self.maker.table(prefix="new")
        fill = f"INSERT IGNORE INTO {made.sql} {rows(self.chance, made, NEW_ROWS)}"
        return Change((made.create, fill), lambda: self.tables.append(made))

    def _create_like(self, table: Table) -> Change:
        made = replace(table, name=f"like{self._number()}")
        sql = f"CREATE TABLE {made.sql} LIKE {table.sql}"
        fill = f"INSERT IGNORE INTO {made.sql} {rows(self.chance, made, NEW_ROWS)}"
        return Change((sql, fill), lambda: self.tables.append(made))

    def _create_select(self, table: Table) -> Change:
        columns = [replace(column, is_key=False) for column in table.written]
        made = Table(f"select{self._number()}", columns)
        names = ", ".join(column.sql for column in columns)
        sql = f"CREATE TABLE {made.sql} SELECT {names} FROM {table.sql} LIMIT 50"
        return Change((sql,), lambda: self.tables.append(made))

    def _drop(self, table: Table) -> Change:
        if len([one for one in self.tables if not one.fixed]) <= TABLES_MIN:
            return self._create(table)
        return Change((f"DROP TABLE {table.sql}",), lambda: self.tables.remove(table))

    def _index(self, table: Table) -> Change:
        column = self.chance.choice(table.columns)
        name = f"i{self._number()}"
        unique = self.chance.choice(("", "", "UNIQUE "))
        add = f"ALTER TABLE {table.sql} ADD {unique}INDEX {name} ({column.sql})"
        drop = f"ALTER TABLE {table.sql} DROP INDEX {name}"
        return Change((add, drop) if self.chance.random() < 0.5 else (add,))

    def _key(self, table: Table) -> Change:
        """Without a key for a moment, or for ever."""
        if not any(part.startswith("PRIMARY KEY (") for part in table.tail):
            return self._index(table)
        key = next(part for part in table.tail if part.startswith("PRIMARY KEY ("))
        drop = f"ALTER TABLE {table.sql} DROP PRIMARY KEY"
        fill = f"INSERT INTO {table.sql} {rows(self.chance, table, 2)}"
        drawn = self.chance.random()
        if drawn < 0.3:
            return Change((drop, fill))
        if drawn < 0.6:
            return Change((f"{drop}, ADD {key}", fill))
        return Change((drop, fill, f"ALTER IGNORE TABLE {table.sql} ADD {key}")[:3])

    def _check(self, table: Table) -> Change:
        column = self.chance.choice(table.columns)
        name = f"k{self._number()}"
        add = f"ALTER TABLE {table.sql} ADD CONSTRAINT {name} CHECK ({column.sql} IS NOT NULL OR 1)"
        return Change((add, f"ALTER TABLE {table.sql} DROP CONSTRAINT {name}"))

    def _foreign_key(self, table: Table) -> Change:
        """A new child of a table with a number as key; without it again after some rows."""
        parents = [table for table in self.tables if _is_parent(table)]
        if not parents:
            return self._create(table)
        parent = self.chance.choice(parents)
        made = self.maker.table("int", prefix="kin")
        made.columns.append(Column("p", "INT", number_or_null, is_key=True))
        made.fixed = True
        name = f"f{self._number()}"
        action = self.chance.choice(CASCADES)
        refer = f"FOREIGN KEY (p) REFERENCES {parent.sql} (id) {action}"
        add = f"ALTER TABLE {made.sql} ADD CONSTRAINT {name} {refer}"
        fill = f"INSERT IGNORE INTO {made.sql} {rows(self.chance, made, NEW_ROWS)}"
        drop = f"ALTER TABLE {made.sql} DROP FOREIGN KEY {name}"
        steps = (made.create, add, fill, drop)

        def note() -> None:
            parent.is_followed = True
            self.tables.append(made)

        return Change(steps[: self.chance.choice((3, 4))], note)

    def _parts(self, table: Table) -> Change:
        parted = [one for one in self.tables if "PARTITION" in one.options and not one.fixed]
        if not parted:
            return self._rebuild(table)
        table = self.chance.choice(parted)
        if "RANGE" not in table.options:
            return Change((f"ALTER TABLE {table.sql} ADD PARTITION PARTITIONS 1",))
        name = f"p{self._number() + 100}"
        fill = f"INSERT IGNORE INTO {table.sql} {rows(self.chance, table, NEW_ROWS)}"
        return self.chance.choice(
            (
                Change((f"ALTER TABLE {table.sql} TRUNCATE PARTITION p1", fill)),
                Change(
                    (
                        f"ALTER TABLE {table.sql} REORGANIZE PARTITION p9 INTO"
                        f" (PARTITION {name} VALUES LESS THAN ({300 + 20 * self._number()}),"
                        " PARTITION p9 VALUES LESS THAN MAXVALUE)",
                        fill,
                    )
                ),
                Change((f"ALTER TABLE {table.sql} DROP PARTITION p2", fill)),
                Change((f"ALTER TABLE {table.sql} REMOVE PARTITIONING", fill)),
            )
        )

    def _rebuild(self, table: Table) -> Change:
        what = self.chance.choice(("ENGINE=InnoDB", "FORCE", "COMMENT='x'", "AUTO_INCREMENT=900"))
        return Change((f"ALTER TABLE {table.sql} {what}",))

    def _convert(self, table: Table) -> Change:
        if any(
            column.ddl.startswith(("ENUM", "SET")) or "ucs2" in column.ddl
            for column in table.columns
        ):
            # MySQL 9.7 leaves labels in their former character set, and makes no text of a lone surrogate
            return self._rebuild(table)
        charset = "utf8mb4 COLLATE utf8mb4_unicode_ci"
        return Change((f"ALTER TABLE {table.sql} CONVERT TO CHARACTER SET {charset}",))

    def _number(self) -> int:
        self.added += 1
        return self.added


def _is_parent(table: Table) -> bool:
    has_number = any(column.name == "id" and column.ddl.startswith("INT") for column in table.keys)
    return has_number and not table.is_late


class Alterer:
    """Executes DDL, one change after the other, until it is closed."""

    def __init__(
        self, server: DatabaseServer, database: str, schema: Schema, *, every_s: float
    ) -> None:
        self._server, self._database, self._schema = server, database, schema
        self._every_s = every_s
        self._stop = threading.Event()
        self.done: Counter[str] = Counter()
        self.refused: list[str] = []
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="alterer")
        self._thread.start()

    def _run(self) -> None:
        try:
            with root(self._server, self._database) as cursor:
                cursor.execute(f"SET lock_wait_timeout = {LOCK_S}")
                while not self._stop.wait(self._every_s):
                    self._apply(cursor, self._schema.change())
        except BaseException as failure:  # noqa: BLE001 - raised by close
            self.failure = failure

    def _apply(self, cursor: Cursor, change: Change) -> None:
        first, *others = change.statements
        if self._execute(cursor, first):
            change.then()
            for sql in others:
                self._execute(cursor, sql)

    def _execute(self, cursor: Cursor, sql: str) -> bool:
        try:
            cursor.execute(sql)
        except pymysql.Error as error:
            if error.args[0] in GONE:
                raise
            self.refused.append(f"{error.args[0]} {sql[:200]}")
            return False
        self.done[" ".join(sql.split()[:1] if sql.startswith("INSERT") else sql.split()[:2])] += 1
        return True

    def close(self) -> None:
        """Stop; raises the error that ended it."""
        self._stop.set()
        self._thread.join()
        if self.failure is not None:
            raise self.failure
