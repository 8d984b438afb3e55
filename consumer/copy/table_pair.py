"""A table on the source and on the target: what is read, and how it is written.

Columns are matched by name. A column that the target generates is computed by the target. Invisible columns are copied
as others are, and so are generated invisible primary keys. A further column of the target gets its default. A
system-versioned table is copied with its history.

Under a view, the columns are those of the view (``TablePair.under``), and only its rows are read. Pure.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from millrace.consumer.copy.columns import CopyColumn, copy_column
from millrace.consumer.copy.masked import masked_column
from millrace.consumer.tables.load_data import load_sql
from millrace.consumer.tables.table_plan import target_column
from millrace.drivers.mysql.catalog import CatalogColumn, CatalogTable, Inventory
from millrace.drivers.mysql.chunks.key import FORCED, chunk_key
from millrace.errors import Fatal
from millrace.schemas.sql.quoting import hex_bytes, quoted, table_name
from millrace.schemas.table.structure import TableSchema
from millrace.schemas.view.table_view import TableView, ViewColumn


@dataclass(frozen=True, slots=True)
class TablePair:
    """``load``: the LOAD DATA statement; None if rows are written by INSERT.

    ``packet_bytes_max``: the target's ``max_allowed_packet``. ``replaces``: a row takes the place of
    those that have one of its unique keys. Otherwise such a row is an error. ``condition``: the view's; "" without one.
    ``texts``: the places of the columns whose HMACs are those of texts. ``is_viewed``: a view changes the table.
    """

    source: CatalogTable
    target: CatalogTable
    columns: tuple[CopyColumn, ...]
    load: bytes | None
    packet_bytes_max: int
    replaces: bool = False
    condition: str = ""
    texts: frozenset[int] = frozenset()
    is_viewed: bool = False

    @classmethod
    def of(cls, source: CatalogTable, target: CatalogTable, inventory: Inventory) -> "TablePair":
        """``inventory``: the target's.

        Fatal MR-5013 if the target misses a column, or only one table is a sequence or system-versioned; MR-5015 if
        its engine has no rollback; MR-5082 if a column's values can't be copied without loss.
        """
        _check_kind(source, target)
        columns = tuple(_columns(source, target))
        load = _load_sql(target, columns, inventory)
        return cls(source, target, columns, load, inventory.packet_bytes_max)

    @classmethod
    def under(
        cls,
        source: CatalogTable,
        schema: TableSchema,
        view: TableView,
        target: CatalogTable,
        inventory: Inventory,
    ) -> "TablePair":
        """The same for the rows and columns of a view. ``schema``: of the source's table. Errors as ``of``."""
        _check_kind(source, target)
        found = list(_viewed_columns(source, schema, view, target))
        columns = tuple(column for column, _ in found)
        texts = frozenset(
            place for place, (column, is_text) in enumerate(found) if column.mask and is_text
        )
        load = _load_sql(target, columns, inventory)
        condition = view.condition.sql if view.condition is not None else ""
        return cls(
            source,
            target,
            columns,
            load,
            inventory.packet_bytes_max,
            condition=condition,
            texts=texts,
            is_viewed=True,
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

    def rows(self, where: str) -> str:
        """The SELECT of the rows that match a condition."""
        limits = f"({where}) AND ({self.condition})" if self.condition else where
        return f"{self.select} WHERE {limits}"

    @property
    def insert(self) -> bytes:
        """The beginning of an INSERT or REPLACE."""
        names = b",".join(quoted(column.name) for column in self.columns)
        table = table_name(self.target.database, self.target.table)
        verb = b"REPLACE" if self.replaces else b"INSERT"
        return verb + b" INTO " + table + b" (" + names + b") VALUES "


def _load_sql(
    target: CatalogTable, columns: tuple[CopyColumn, ...], inventory: Inventory
) -> bytes | None:
    can_load = inventory.allows_load_data and target.key not in inventory.triggers
    if not can_load or target.is_sequence:
        return None
    forms = ((column.name, column.load) for column in columns)
    return load_sql(target, forms, charset="binary")


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


def _viewed_columns(
    source: CatalogTable, schema: TableSchema, view: TableView, target: CatalogTable
) -> Iterator[tuple[CopyColumn, bool]]:
    """The columns of a view that the target does not generate, and whether each is a text of the source."""
    for column in view.columns:
        old = schema.columns[column.source].name if column.source >= 0 else ""
        if old and old not in source.columns:  # a hash that MariaDB keeps for a key
            continue
        found = target_column(target, column.name)
        if found is None:
            what = f"{target.name} has no column {column.name}"
            raise Fatal("MR-5013", what, table=target.name, column=column.name)
        if found.generated:
            continue
        if not old:
            yield _constant(target.name, column, found), False
            continue
        here = source.columns[old]
        made = (
            copy_column(here, found)
            if column.mask is None
            else masked_column(here, found, column.mask)
        )
        if made is None:
            raise _unfit(target.name, column.name, here, found)
        yield made, bool(here.charset)


def _constant(table: str, column: ViewColumn, target: CatalogColumn) -> CopyColumn:
    """An added column: its value as SQL."""
    name, text = column.name, str(column.value)
    is_number = isinstance(column.value, int) or (
        target.base_type in _NUMBERS and text.removeprefix("-").isdecimal() and text.isascii()
    )
    if is_number:
        here = CatalogColumn(name, "bigint", "bigint", "", "", False, False)
        made = copy_column(here, target, text)
    else:
        here = CatalogColumn(name, "varchar", "varchar", "utf8mb4", "utf8mb4_bin", False, False)
        octets = hex_bytes(text.encode().hex())
        made = copy_column(here, target, f"CONVERT({octets} USING utf8mb4)")
    if made is None:
        raise _unfit(table, name, here, target)
    return made


_NUMBERS = {"tinyint", "smallint", "mediumint", "int", "bigint", "decimal"}


def _fitting(table: str, source: CatalogColumn, target: CatalogColumn) -> CopyColumn:
    if (made := copy_column(source, target)) is None:
        raise _unfit(table, source.name, source, target)
    return made


def _unfit(table: str, name: str, source: CatalogColumn, target: CatalogColumn) -> Fatal:
    kinds = " and ".join(
        f"{column.type_text}{f' ({column.charset})' if column.charset else ''}"
        for column in (source, target)
    )
    return Fatal("MR-5082", f"{table}: column {name} is {kinds}", table=table, column=name)


def _period_column(table: CatalogTable, name: str) -> CatalogColumn:
    """A column of the period, which may be hidden."""
    hidden = CatalogColumn(name, "timestamp(6)", "timestamp", "", "", False, True)
    return table.columns.get(name, hidden)
