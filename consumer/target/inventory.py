"""What the target's tables look like, asked once and again after every DDL: columns, unique keys, foreign keys.

Values only, so that it travels to executors. A table that is not in the inventory is not on the target. Names are
compared as the server gives them. Not done here: deciding anything about records (``consumer.binding``).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from consumer.target.connection import TargetConnection
from schemas.gtid import Flavour

TableKey = tuple[str, str]
_SYSTEM = ("mysql", "sys", "information_schema", "performance_schema", "millrace")


@dataclass(frozen=True, slots=True)
class TargetColumn:
    """``type_text`` as in COLUMN_TYPE; ``collation`` is "" for columns that have none."""

    name: str
    type_text: str
    base_type: str
    charset: str
    collation: str
    nullable: bool
    generated: bool


@dataclass(frozen=True, slots=True)
class UniqueKey:
    """``columns`` in key order, "" for an expression; ``is_whole``: no expression and no prefix in it."""

    name: str
    columns: tuple[str, ...]
    is_whole: bool


@dataclass(frozen=True, slots=True)
class TargetTable:
    """One base table."""

    database: str
    table: str
    columns: Mapping[str, TargetColumn]
    unique_keys: tuple[UniqueKey, ...]


@dataclass(frozen=True, slots=True)
class ForeignKey:
    """``cascades``: a delete or a key change of the parent writes rows of the child."""

    child: TableKey
    columns: tuple[str, ...]
    parent: TableKey
    parent_columns: tuple[str, ...]
    cascades: bool


@dataclass(frozen=True, slots=True)
class Inventory:
    """All tables of the target but the servers' own."""

    flavour: Flavour = Flavour.MYSQL
    packet_bytes_max: int = 1 << 22
    tables: Mapping[TableKey, TargetTable] = field(default_factory=dict)
    foreign_keys: tuple[ForeignKey, ...] = ()


def read_inventory(connection: TargetConnection) -> Inventory:
    """Ask the target for everything, four statements."""
    columns: dict[TableKey, dict[str, TargetColumn]] = {}
    for row in connection.query(_COLUMNS):
        database, table, name, type_text, base, charset, collation, nullable, generated = map(
            _text, row
        )
        columns.setdefault((database, table), {})[name] = TargetColumn(
            name,
            type_text.lower(),
            base.lower(),
            charset.lower(),
            collation.lower(),
            nullable == "YES",
            generated != "",
        )
    keys: dict[TableKey, dict[str, list[tuple[str, str]]]] = {}
    for row in connection.query(_UNIQUE_KEYS):
        database, table, index, column, prefix = map(_text, row)
        keys.setdefault((database, table), {}).setdefault(index, []).append((column, prefix))
    tables = {
        place: TargetTable(*place, found, tuple(_unique_keys(keys.get(place, {}))))
        for place, found in columns.items()
    }
    ((packet,),) = connection.query("SELECT @@max_allowed_packet")
    assert isinstance(packet, int)
    return Inventory(
        connection.flavour, packet, tables, tuple(_foreign_keys(connection.query(_FOREIGN_KEYS)))
    )


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else "" if value is None else str(value)


def _unique_keys(indexes: Mapping[str, list[tuple[str, str]]]) -> Iterable[UniqueKey]:
    for name in sorted(indexes, key=lambda name: (name != "PRIMARY", name)):
        parts = indexes[name]
        whole = all(column and not prefix for column, prefix in parts)
        yield UniqueKey(name, tuple(column for column, _ in parts), whole)


def _foreign_keys(rows: Iterable[tuple[object, ...]]) -> Iterable[ForeignKey]:
    found: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
    for row in rows:
        texts = tuple(map(_text, row))
        found.setdefault(texts[:3], []).append(texts)
    for parts in found.values():
        database, table, _, _, parent_database, parent_table, _, on_delete, on_update = parts[0]
        yield ForeignKey(
            (database, table),
            tuple(part[3] for part in parts),
            (parent_database, parent_table),
            tuple(part[6] for part in parts),
            not {on_delete, on_update} <= {"RESTRICT", "NO ACTION"},
        )


_OURS = ", ".join(f"'{name}'" for name in _SYSTEM)
_COLUMNS = f"""
SELECT c.TABLE_SCHEMA, c.TABLE_NAME, c.COLUMN_NAME, c.COLUMN_TYPE, c.DATA_TYPE, c.CHARACTER_SET_NAME,
       c.COLLATION_NAME, c.IS_NULLABLE, COALESCE(c.GENERATION_EXPRESSION, '')
FROM information_schema.COLUMNS c JOIN information_schema.TABLES t USING (TABLE_SCHEMA, TABLE_NAME)
WHERE t.TABLE_TYPE IN ('BASE TABLE', 'SYSTEM VERSIONED') AND c.TABLE_SCHEMA NOT IN ({_OURS})
ORDER BY c.TABLE_SCHEMA, c.TABLE_NAME, c.ORDINAL_POSITION
"""
_UNIQUE_KEYS = f"""
SELECT TABLE_SCHEMA, TABLE_NAME, INDEX_NAME, COLUMN_NAME, SUB_PART FROM information_schema.STATISTICS
WHERE NON_UNIQUE = 0 AND TABLE_SCHEMA NOT IN ({_OURS})
ORDER BY TABLE_SCHEMA, TABLE_NAME, INDEX_NAME, SEQ_IN_INDEX
"""
_FOREIGN_KEYS = f"""
SELECT k.TABLE_SCHEMA, k.TABLE_NAME, k.CONSTRAINT_NAME, k.COLUMN_NAME, k.REFERENCED_TABLE_SCHEMA,
       k.REFERENCED_TABLE_NAME, k.REFERENCED_COLUMN_NAME, r.DELETE_RULE, r.UPDATE_RULE
FROM information_schema.KEY_COLUMN_USAGE k JOIN information_schema.REFERENTIAL_CONSTRAINTS r
  ON r.CONSTRAINT_SCHEMA = k.CONSTRAINT_SCHEMA AND r.CONSTRAINT_NAME = k.CONSTRAINT_NAME AND r.TABLE_NAME = k.TABLE_NAME
WHERE k.REFERENCED_TABLE_NAME IS NOT NULL AND k.TABLE_SCHEMA NOT IN ({_OURS})
ORDER BY k.TABLE_SCHEMA, k.TABLE_NAME, k.CONSTRAINT_NAME, k.ORDINAL_POSITION
"""
