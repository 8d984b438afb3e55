"""A table on the source and on the target: what is read, and how it is written.

Columns are matched by name. A column that the target generates is computed by the target. Invisible columns are copied
as others are, and so are generated invisible primary keys. A further column of the target gets its default. A
system-versioned table is copied with its history. Pure.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from millrace.consumer.copy.columns import CopyColumn, copy_column
from millrace.consumer.tables.load_data import load_sql
from millrace.consumer.tables.table_plan import target_column
from millrace.drivers.mysql.catalog import CatalogColumn, CatalogTable, Inventory
from millrace.drivers.mysql.chunks.key import FORCED, chunk_key
from millrace.errors import Fatal
from millrace.schemas.sql.quoting import quoted, table_name


@dataclass(frozen=True, slots=True)
class TablePair:
    """``load``: the LOAD DATA statement; None if rows are written by INSERT.

    ``packet_bytes_max``: the target's ``max_allowed_packet``. ``replaces``: a row takes the place of
    those that have one of its unique keys. Otherwise such a row is an error.
    """

    source: CatalogTable
    target: CatalogTable
    columns: tuple[CopyColumn, ...]
    load: bytes | None
    packet_bytes_max: int
    replaces: bool = False

    @classmethod
    def of(cls, source: CatalogTable, target: CatalogTable, inventory: Inventory) -> "TablePair":
        """``inventory``: the target's.

        Fatal MR-5013 if the target misses a column, or only one table is a sequence or system-versioned; MR-5015 if
        its engine has no rollback; MR-5082 if a column's values can't be copied without loss.
        """
        _check_kind(source, target)
        columns = tuple(_columns(source, target))
        place = (target.database, target.table)
        can_load = inventory.allows_load_data and place not in inventory.triggers
        forms = ((column.name, column.load) for column in columns)
        return cls(
            source,
            target,
            columns,
            load_sql(target, forms, charset="binary")
            if can_load and not target.is_sequence
            else None,
            inventory.packet_bytes_max,
        )

    @property
    def name(self) -> str:
        """The target's table, for people."""
        return f"{self.target.database}.{self.target.table}"

    def replacing(self) -> "TablePair":
        """The same with ``replaces``."""
        load = self.load and self.load.replace(b"' INTO", b"' REPLACE INTO", 1)
        return replace(self, load=load, replaces=True)

    @property
    def select(self) -> str:
        """The SELECT of all rows up to its condition."""
        name = table_name(self.source.database, self.source.table).decode()
        read = ", ".join(column.expression for column in self.columns)
        if self.source.is_versioned:
            return f"SELECT {read} FROM {name} FOR SYSTEM_TIME ALL"
        # a chunk of an ENUM or SET key lists many ranges, for which the servers' statistics prefer a scan
        key = chunk_key(self.source.columns, self.source.unique_keys)
        return f"SELECT {read} FROM {name}{FORCED if key and key.name == 'PRIMARY' else ''}"

    @property
    def insert(self) -> bytes:
        """The beginning of an INSERT or REPLACE."""
        names = b",".join(quoted(column.name) for column in self.columns)
        table = table_name(self.target.database, self.target.table)
        verb = b"REPLACE" if self.replaces else b"INSERT"
        return verb + b" INTO " + table + b" (" + names + b") VALUES "


def _check_kind(source: CatalogTable, target: CatalogTable) -> None:
    name = f"{target.database}.{target.table}"
    for what, ours, theirs in (
        ("a sequence", source.is_sequence, target.is_sequence),
        ("system-versioned", source.is_versioned, target.is_versioned),
    ):
        if ours != theirs:
            where = "source" if ours else "target"
            raise Fatal(
                "MR-5013",
                f"{name} is {what} only on the {where}",
                fix=f"Drop {name} on the target and create it with the source's statement (SHOW CREATE TABLE), or"
                " leave the table out.",
                table=name,
            )
    if not target.takes_rows:
        fix = f"ALTER TABLE {table_name(target.database, target.table).decode()} ENGINE=InnoDB on the target."
        what = f"{name} has the engine {target.engine}"
        raise Fatal("MR-5015", what, fix=fix, table=name, engine=target.engine)


def _columns(source: CatalogTable, target: CatalogTable) -> Iterator[CopyColumn]:
    name = f"{target.database}.{target.table}"
    for column in source.columns.values():
        if column.name in source.period:
            continue
        found = target_column(target, column.name)
        if found is None:
            what = f"{name} has no column {column.name}"
            raise Fatal("MR-5013", what, table=name, column=column.name)
        if not found.generated:
            yield _fitting(name, column, found)
    for ours, theirs in zip(source.period, target.period, strict=True):
        yield _fitting(name, _period_column(source, ours), _period_column(target, theirs))


def _fitting(table: str, source: CatalogColumn, target: CatalogColumn) -> CopyColumn:
    if (made := copy_column(source, target)) is None:
        kinds = " and ".join(
            f"{column.type_text}{f' ({column.charset})' if column.charset else ''}"
            for column in (source, target)
        )
        what = f"{table}: column {source.name} is {kinds}"
        raise Fatal("MR-5082", what, table=table, column=source.name)
    return made


def _period_column(table: CatalogTable, name: str) -> CatalogColumn:
    """A column of the period, which may be hidden."""
    hidden = CatalogColumn(name, "timestamp(6)", "timestamp", "", "", False, True)
    return table.columns.get(name, hidden)
