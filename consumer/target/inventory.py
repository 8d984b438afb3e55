"""What the target's tables look like, asked once and again after every DDL: columns, unique keys, engines,
foreign keys.

Values only, so that it travels to executors. A table that is not in the inventory is not on the target. Names are
compared as the server gives them. Not done here: deciding anything about records (``consumer.binding``).
"""

from collections.abc import Iterable, Mapping, Set
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
    """One base table. ``rolls_back``: its engine takes part in target transactions."""

    database: str
    table: str
    columns: Mapping[str, TargetColumn]
    unique_keys: tuple[UniqueKey, ...]
    engine: str = "InnoDB"
    rolls_back: bool = True


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


def read_inventory(
    connection: TargetConnection,
    *,
    databases: Set[str] | None = None,
    known: Inventory | None = None,
) -> Inventory:
    """Ask for these databases (None: all) and those with foreign keys into them, and keep the rest of ``known``.

    One database at a time: a condition over all of them makes MariaDB open every view of its own, each time (and
    11.4.5 has crashed at it).
    """
    present = {
        _text(name)
        for (name,) in connection.query("SELECT SCHEMA_NAME FROM information_schema.SCHEMATA")
    }
    asked = present if databases is None else set(databases)
    if known is not None:  # a parent that is renamed takes what its children refer to along
        asked |= {key.child[0] for key in known.foreign_keys if key.parent[0] in asked}
    tables = {} if known is None else {k: t for k, t in known.tables.items() if k[0] not in asked}
    foreign = [] if known is None else [f for f in known.foreign_keys if f.child[0] not in asked]
    rolling_back = {_text(engine) for (engine,) in connection.query(_ENGINES)}
    for database in sorted((asked & present) - set(_SYSTEM)):
        tables |= _read_tables(connection, database, rolling_back)
        foreign += _read_foreign_keys(connection, database)
    ((packet,),) = connection.query("SELECT @@max_allowed_packet")
    assert isinstance(packet, int)
    return Inventory(connection.flavour, packet, tables, tuple(foreign))


def _read_tables(
    connection: TargetConnection, database: str, rolling_back: Set[str]
) -> dict[TableKey, TargetTable]:
    columns: dict[str, dict[str, TargetColumn]] = {}
    for row in connection.query(_COLUMNS, (database,)):
        table, name, type_text, base, charset, collation, nullable, generated = map(_text, row)
        columns.setdefault(table, {})[name] = TargetColumn(
            name,
            type_text.lower(),
            base.lower(),
            charset.lower(),
            collation.lower(),
            nullable == "YES",
            generated != "",
        )
    kinds = {
        _text(table): (_text(kind), _text(engine))
        for table, kind, engine in connection.query(_KINDS, (database,))
    }
    keys: dict[str, dict[str, list[tuple[str, str]]]] = {}
    for row in connection.query(_UNIQUE_KEYS, (database,)):
        table, index, column, prefix = map(_text, row)
        keys.setdefault(table, {}).setdefault(index, []).append((column, prefix))
    tables = {}
    for table, found in columns.items():
        kind, engine = kinds.get(table, ("", ""))
        if kind in ("BASE TABLE", "SYSTEM VERSIONED"):
            unique = tuple(_unique_keys(keys.get(table, {})))
            tables[database, table] = TargetTable(
                database, table, found, unique, engine, engine in rolling_back
            )
    return tables


def _read_foreign_keys(connection: TargetConnection, database: str) -> Iterable[ForeignKey]:
    cascades = {
        (_text(table), _text(name)): not {_text(delete), _text(update)} <= {"RESTRICT", "NO ACTION"}
        for table, name, delete, update in connection.query(_RULES, (database,))
    }
    found: dict[tuple[str, str], list[tuple[str, ...]]] = {}
    for row in connection.query(_FOREIGN_COLUMNS, (database,)):
        table, name, *rest = map(_text, row)
        found.setdefault((table, name), []).append(tuple(rest))
    for (table, name), parts in found.items():
        yield ForeignKey(
            (database, table),
            tuple(part[0] for part in parts),
            (parts[0][1], parts[0][2]),
            tuple(part[3] for part in parts),
            cascades.get((table, name), True),
        )


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else "" if value is None else str(value)


def _unique_keys(indexes: Mapping[str, list[tuple[str, str]]]) -> Iterable[UniqueKey]:
    for name in sorted(indexes, key=lambda name: (name != "PRIMARY", name)):
        parts = indexes[name]
        whole = all(column and not prefix for column, prefix in parts)
        yield UniqueKey(name, tuple(column for column, _ in parts), whole)


_COLUMNS = """
SELECT TABLE_NAME, COLUMN_NAME, COLUMN_TYPE, DATA_TYPE, CHARACTER_SET_NAME, COLLATION_NAME, IS_NULLABLE,
       COALESCE(GENERATION_EXPRESSION, '')
FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = %s ORDER BY TABLE_NAME, ORDINAL_POSITION
"""
_ENGINES = "SELECT ENGINE FROM information_schema.ENGINES WHERE TRANSACTIONS = 'YES'"
_KINDS = (
    "SELECT TABLE_NAME, TABLE_TYPE, ENGINE FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s"
)
_UNIQUE_KEYS = """
SELECT TABLE_NAME, INDEX_NAME, COLUMN_NAME, SUB_PART FROM information_schema.STATISTICS
WHERE TABLE_SCHEMA = %s AND NON_UNIQUE = 0 ORDER BY TABLE_NAME, INDEX_NAME, SEQ_IN_INDEX
"""
_RULES = """
SELECT TABLE_NAME, CONSTRAINT_NAME, DELETE_RULE, UPDATE_RULE
FROM information_schema.REFERENTIAL_CONSTRAINTS WHERE CONSTRAINT_SCHEMA = %s
"""
_FOREIGN_COLUMNS = """
SELECT TABLE_NAME, CONSTRAINT_NAME, COLUMN_NAME, REFERENCED_TABLE_SCHEMA, REFERENCED_TABLE_NAME,
REFERENCED_COLUMN_NAME FROM information_schema.KEY_COLUMN_USAGE
WHERE TABLE_SCHEMA = %s AND REFERENCED_TABLE_NAME IS NOT NULL ORDER BY TABLE_NAME, CONSTRAINT_NAME, ORDINAL_POSITION
"""
