"""A table on both sides, and how its rows are named and compared. Pure.

by key       both sides have the same chunk key in the same order. A row is named by it, and the table is compared
             chunk by chunk
by digest    otherwise: without a chunk key, or if the sides order, compare or print it differently. A row is named
             by its digest, its state is how many of it there are, and the table is one chunk

Rows are compared in the columns that both sides have. The others are differences of structure
(``consumer.compare.structure``).
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import partial

from millrace.consumer.compare.viewed import PRIMARY as VIEW_PRIMARY
from millrace.consumer.compare.viewed import ViewedRows
from millrace.consumer.tables.digest import TableDigest, table_digest
from millrace.drivers.mysql.catalog import CatalogTable, TableKey, UniqueKey
from millrace.drivers.mysql.chunks.chunk import EVERYTHING, Chunk
from millrace.drivers.mysql.chunks.key import FORCED, ChunkKey, chunk_key
from millrace.schemas.gtid import Flavour
from millrace.schemas.sql.quoting import hex_bytes
from millrace.schemas.view.view import shown_name

Name = tuple[str, ...]  # the texts of a chunk key, or a digest as hex digits


@dataclass(frozen=True, slots=True)
class Side:
    """A table as one server has it. ``key`` None: rows are named by digest.

    ``limits``: a condition, if other rows are not compared.
    """

    table: CatalogTable
    digest: TableDigest
    key: ChunkKey | None
    limits: str = ""

    def where(self, chunk: Chunk) -> str:
        """The condition of a chunk's rows."""
        return self._limited(EVERYTHING if self.key is None else chunk.where(self.key))

    @property
    def index(self) -> str:
        """The hint for reads of chunks. By their statistics, the servers may prefer a scan to many ranges of labels."""
        names = None if self.key is None else self.key.names
        is_primary = any(
            each.name == "PRIMARY" and each.columns == names for each in self.table.unique_keys
        )
        return FORCED if is_primary else ""

    def sums(self, chunk: Chunk) -> str:
        """The query for (rows, sum of their digests) of a chunk."""
        return self.digest.sums(self.where(chunk), self.index)

    def all_rows(self, chunk: Chunk) -> str:
        """The query for (digest, name …) of a chunk's rows in the order of the digests."""
        names = [] if self.key is None else [column.read for column in self.key.columns]
        read = ", ".join([f"{self.digest.short} AS digest", *names])
        rows = f"{self.digest.table}{self.index} WHERE {self.where(chunk)}"
        return f"SELECT {read} FROM {rows} ORDER BY digest"

    def states(self, names: list[Name]) -> str:
        """The query for (state, name …) of these rows: the digest, or the number of rows with this digest."""
        if self.key is None:
            return (
                f"SELECT COUNT(*), HEX({self.digest.short}) FROM {self.digest.table}"
                f" WHERE {self.named(names)} GROUP BY 2"
            )
        read = ", ".join(column.read for column in self.key.columns)
        return (
            f"SELECT HEX({self.digest.short}), {read} FROM {self.digest.table}"
            f" WHERE {self.named(names)}"
        )

    def named(self, names: list[Name]) -> str:
        """The condition of these rows."""
        return self._limited(self._named(names))

    def _limited(self, condition: str) -> str:
        return f"{self.limits} AND ({condition})" if self.limits else condition

    def _named(self, names: list[Name]) -> str:
        if self.key is None:
            digests = ", ".join(hex_bytes(digest) for (digest,) in names)
            return f"{self.digest.short} IN ({digests})"
        columns = self.key.columns
        if len(columns) == 1:
            return columns[0].is_one_of([text for (text,) in names])
        return " OR ".join(
            "("
            + " AND ".join(column.equals(text) for column, text in zip(columns, name, strict=True))
            + ")"
            for name in names
        )


@dataclass(frozen=True, slots=True)
class Pair:
    """A table of the source and the table of the target that shall have its rows.

    ``names``: the columns that both have, as the source writes them, or as the view does. ``view``: its hash, if it
    changes the table. ``unread``: columns of the view that are not compared. ``is_limited``: see ``ViewedRows``.
    ``state``: its name in the states of loads; ("", "") for that of the target.
    """

    source: Side
    target: Side
    names: tuple[str, ...]
    view: str = ""
    unread: tuple[str, ...] = ()
    is_limited: bool = True
    state: TableKey = ("", "")

    @property
    def name(self) -> str:
        """The source's name, as ``database.table``, with the target's if a view changes the table."""
        name = self.source.table.name
        return shown_name(name, self.target.table.name) if self.view else name

    @property
    def place(self) -> TableKey:
        """The table on the target."""
        return self.target.table.key

    @property
    def loaded_as(self) -> TableKey:
        """Its name in the states of loads."""
        return self.place if self.state == ("", "") else self.state

    @property
    def is_keyed(self) -> bool:
        """Whether rows are named by key."""
        return self.source.key is not None

    @property
    def has_same_unique_keys(self) -> bool:
        """Whether rows that the target can't have together are none of the source: each unique key is there, too."""
        known = [_parts(key) for key in self.source.table.unique_keys if _is_comparable(key)]
        return all(
            _is_comparable(key)
            and _parts(key) in known
            and all(
                _sorting(self.source.table, name) == _sorting(self.target.table, name)
                for name in key.columns
            )
            for key in self.target.table.unique_keys
        )

    @property
    def columns(self) -> list[str]:
        """The names of the compared columns: those that both sides have."""
        return list(self.names)

    def only_on(self, side: Side) -> list[str]:
        """The columns that the other side does not have."""
        return [name for name in side.table.columns if name not in self.names]

    @property
    def only_on_target(self) -> list[str]:
        """The columns that the source does not have."""
        return self.only_on(self.target)

    @property
    def has_all_columns(self) -> bool:
        """Whether both sides have the same columns."""
        return len(self.names) == len(self.source.table.columns) == len(self.target.table.columns)

    @property
    def shown_key(self) -> tuple[str, ...]:
        """The columns by which people find a row: the chunk key, else the primary key, else all."""
        if self.source.key is not None:
            return self.source.key.names
        keys = self.source.table.unique_keys
        primary = (
            key.columns for key in keys if key.name in ("PRIMARY", VIEW_PRIMARY) and key.is_whole
        )
        shared = (names for names in primary if set(names) <= set(self.names))
        return next(shared, ()) or self.names


def viewed_pair(
    viewed: ViewedRows,
    target: CatalogTable,
    *,
    state: TableKey = ("", ""),
    flavours: Collection[Flavour] = (),
) -> Pair:
    """Both sides, of which the source's has the rows of a view. ``state`` as in ``Pair``."""
    pair = pair_of(viewed.table, target, flavours=flavours)
    source, other = pair.source, pair.target
    return replace(
        pair,
        source=replace(source, digest=replace(source.digest, table=viewed.rows)),
        target=replace(other, limits=viewed.limits),
        view=viewed.view,
        unread=(*viewed.unread, *pair.only_on(pair.source)),
        is_limited=viewed.is_limited,
        state=state,
    )


def pair_of(
    source: CatalogTable, target: CatalogTable, *, flavours: Collection[Flavour] = ()
) -> Pair:
    """Both sides, which have at least one column in common. ``flavours``: of the two servers."""
    target = _spelled(target, source)
    names = tuple(name for name in source.columns if name in target.columns)
    there = {key.columns: key.finds_rows for key in target.unique_keys if key.is_whole}
    shared = [
        key
        for key in source.unique_keys
        if set(key.columns) <= set(names) and there.get(key.columns, True)
    ]
    key = chunk_key(source.columns, shared)
    if key is not None and not _has_same_order(key, source, target):
        key = None
    if key is not None and len(flavours) > 1 and _has_fraction(key, source):
        key = None
    digest = partial(table_digest, flavours=flavours, is_unique=key is not None)
    return Pair(
        Side(source, digest(source, names, target), key),
        Side(target, digest(target, names, source), key),
        names,
    )


def shared_columns(source: CatalogTable, target: CatalogTable) -> list[str]:
    """The columns that both sides have, as the source writes them. Servers ignore the case of their names."""
    there = {name.lower() for name in target.columns}
    return [name for name in source.columns if name.lower() in there]


def _spelled(target: CatalogTable, source: CatalogTable) -> CatalogTable:
    """The target's table with the source's spelling of the names that both have."""
    spelled = {name.lower(): name for name in source.columns}
    names = {name: spelled.get(name.lower(), name) for name in target.columns}
    if all(name == other for name, other in names.items()):
        return target
    return replace(
        target,
        columns={names[name]: column for name, column in target.columns.items()},
        unique_keys=tuple(
            replace(key, columns=tuple(names.get(name, name) for name in key.columns))
            for key in target.unique_keys
        ),
    )


def _has_same_order(key: ChunkKey, source: CatalogTable, target: CatalogTable) -> bool:
    """Whether the target has the key, too, and orders and distinguishes its values in the same way."""
    if not any(
        each.is_whole and not each.has_period and each.columns == key.names
        for each in target.unique_keys
    ):
        return False
    return all(
        _sorting(source, name) == _sorting(target, name) and not target.columns[name].nullable
        for name in key.names
    )


def _has_fraction(key: ChunkKey, table: CatalogTable) -> bool:
    """Whether the two flavours print a value of the key differently."""
    return any(table.columns[name].base_type in ("double", "float") for name in key.names)


def _is_comparable(key: UniqueKey) -> bool:
    """Whether its columns and prefixes say which rows the server can't have together."""
    return "" not in key.columns and not key.has_period


def _parts(key: UniqueKey) -> tuple[tuple[str, ...], tuple[int, ...]]:
    return key.columns, key.lengths


def _sorting(table: CatalogTable, name: str) -> tuple[str, str, str]:
    column = table.columns[name]
    labels = column.type_text if column.is_labelled else ""
    return column.base_type, column.collation, labels
