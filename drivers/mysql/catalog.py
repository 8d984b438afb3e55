"""The structure of a server's tables: columns, unique keys, engines, foreign keys. The only reader of a catalogue.

It is read at the start. After a DDL statement only the tables that it changed are read again, so the cost of a
statement does not grow with the number of tables. An inventory holds only values, so that Spark can send it to
executors. A table that is not in it is not on the server. Names are as the server reports them (``Inventory.key``). Not
done here: decisions about records (``consumer.tables.table_plan``).
"""

import re
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field, replace

from millrace.drivers.mysql.actions import NO_ACTIONS, Actions
from millrace.drivers.mysql.collation import Fold
from millrace.drivers.mysql.connection import MySqlSession
from millrace.drivers.mysql.folds import read_folds
from millrace.drivers.mysql.layered import LayeredMap, layered
from millrace.errors import Fatal, Retryable
from millrace.schemas.gtid import Flavour
from millrace.schemas.sql.expressions import Operand, depends_on_session
from millrace.schemas.sql.overlaps import has_period
from millrace.schemas.sql.quoting import quoted, table_name
from millrace.schemas.table.table_filter import SYSTEM_DATABASES

TableKey = tuple[str, str]
_DOCUMENT_ID = "FTS_DOC_ID"
_FLOAT_DIGITS_MAX = 38  # before the point; with more, each FLOAT is below the limit
_FLOAT_SIZES = re.compile(r"float\((\d+),(\d+)\)")
READS_MAX = 5
_LABELLED = frozenset({"enum", "set"})
_LABEL = re.compile(r"'((?:[^']|'')*)'")
# no two ASCII letters are equal but for their case
_NO_LANGUAGE = re.compile(
    r"_(?:general|unicode|unicode_520|0900_a[is]|uca1400_a[is]|swedish)_(?:nopad_)?c[is]"
)


@dataclass(frozen=True, slots=True)
class CatalogColumn:
    """``full_type`` is COLUMN_TYPE; ``collation`` is "" for a column without one; ``octets``: the longest text's.

    ``has_equal_labels``: its collation calls two labels of the ENUM or SET equal. A text then means the first of them.
    ``by_session``: its generated value may depend on the session (``schemas.sql.expressions``). ``is_stored``: the
    server stores its generated value. ``has_default``: other than NULL.
    """

    name: str
    full_type: str
    base_type: str
    charset: str
    collation: str
    nullable: bool
    generated: bool
    is_auto_increment: bool = False
    has_equal_labels: bool = False
    by_session: bool = False
    is_stored: bool = False
    octets: int = 0
    is_invisible: bool = False
    has_default: bool = False

    @property
    def type_text(self) -> str:
        """COLUMN_TYPE in lower case."""
        return self.full_type.lower()

    @property
    def is_labelled(self) -> bool:
        return self.base_type in _LABELLED

    @property
    def labels(self) -> list[str]:
        """Those of an ENUM or a SET, in lower case as ``type_text``."""
        return _labels(self.type_text)

    @property
    def float_max(self) -> float:
        """The largest number that a FLOAT(M,D) takes in a strict mode; 0 for other columns.

        The server stores the nearest FLOAT, which may be larger: FLOAT(10,2) takes 99999999.99 and has 100000000.
        """
        sizes = _FLOAT_SIZES.match(self.type_text)
        digits, decimals = map(int, sizes.groups()) if sizes else (0, 0)
        if not 0 < digits - decimals <= _FLOAT_DIGITS_MAX:
            return 0.0
        return 10.0 ** (digits - decimals) - 1.0 / 10.0**decimals


@dataclass(frozen=True, slots=True)
class UniqueKey:
    """``columns`` in key order, "" for an expression; ``is_whole``: it has no expression and no prefix.

    ``has_period``: MariaDB's WITHOUT OVERLAPS. The last two columns are the ends of a period; rows that are equal in
    the other columns may not overlap in it. ``lengths``: how many characters (of binary columns: bytes) of each column
    are in a key that is not whole, 0 for all. ``finds_rows``: False if an administrator has hidden it, or if it is a
    hash. ``is_hash``: MariaDB's, of long columns, which only refuses duplicates. ``descending``: the columns in
    descending order. ``by_session``: an expression or a generated column of it may have another value in another
    session.
    """

    name: str
    columns: tuple[str, ...]
    is_whole: bool
    has_period: bool = False
    lengths: tuple[int, ...] = ()
    finds_rows: bool = True
    descending: tuple[str, ...] = ()
    by_session: bool = False
    is_hash: bool = False


@dataclass(frozen=True, slots=True)
class CatalogTable:
    """One base table; ``rolls_back``: its engine is transactional.

    ``is_versioned``: the server keeps old rows. ``period``: the names of the columns with the start and the end of each
    row; the end is left out of ``unique_keys``. They may be hidden, and then are not in ``columns``.
    MariaDB's sequences are tables with one row (``is_sequence``).
    """

    database: str
    table: str
    columns: Mapping[str, CatalogColumn]
    unique_keys: tuple[UniqueKey, ...]
    engine: str = "InnoDB"
    rolls_back: bool = True
    is_versioned: bool = False
    is_sequence: bool = False
    period: tuple[str, ...] = ()

    @property
    def key(self) -> TableKey:
        """Database and table."""
        return self.database, self.table

    @property
    def name(self) -> str:
        """As ``database.table``."""
        return f"{self.database}.{self.table}"

    @property
    def primary(self) -> UniqueKey | None:
        return next((key for key in self.unique_keys if key.name == "PRIMARY"), None)

    @property
    def takes_rows(self) -> bool:
        """Whether rows are applied to it: its engine has transactions, or it is a sequence, which needs none."""
        return self.rolls_back or self.is_sequence

    @property
    def has_document_ids(self) -> bool:
        """Whether its rows name their own documents of full-text indexes. InnoDB refuses one below the largest."""
        return _DOCUMENT_ID in self.columns

    @property
    def auto_increment(self) -> str:
        """The name of the AUTO_INCREMENT column, "" without one."""
        columns = self.columns.values()
        return next((column.name for column in columns if column.is_auto_increment), "")


@dataclass(frozen=True, slots=True)
class ForeignKey:
    """``name``: the constraint's."""

    child: TableKey
    columns: tuple[str, ...]
    parent: TableKey
    parent_columns: tuple[str, ...]
    actions: Actions = NO_ACTIONS
    name: str = ""

    @property
    def cascades(self) -> bool:
        """Whether deleting a parent row or changing its key changes rows of the child."""
        return self.actions != NO_ACTIONS


@dataclass(frozen=True, slots=True)
class Inventory:
    """All tables of the target, except system tables and those of ``millrace``.

    ``alter_count`` is the server's, read before the tables. ``folds_names``: the server stores names in lower case
    (``lower_case_table_names`` is 1). ``folds``: of the collations of keys. ``allows_load_data``: ``local_infile`` is
    on.
    """

    flavour: Flavour = Flavour.MYSQL
    packet_bytes_max: int = 1 << 22
    tables: Mapping[TableKey, CatalogTable] = field(default_factory=dict)
    foreign_keys: tuple[ForeignKey, ...] = ()
    alter_count: int = 0
    folds_names: bool = False
    folds: Mapping[str, Fold] = field(default_factory=dict)
    triggers: Mapping[TableKey, tuple[str, ...]] = field(default_factory=dict)
    allows_load_data: bool = False

    def key(self, database: str, table: str) -> TableKey:
        return (database.lower(), table.lower()) if self.folds_names else (database, table)


@dataclass(frozen=True, slots=True)
class Changed:
    """The tables and databases that one statement of Millrace has changed.

    ``alterations``: by how much the statement raised ``alter_count``.
    """

    tables: frozenset[TableKey] = frozenset()
    databases: frozenset[str] = frozenset()
    alterations: int = 0


def read_inventory(connection: MySqlSession, *, with_folds: bool = True) -> Inventory:
    """Read all databases, and the folds of their keys' collations.

    Tables that are altered meanwhile are read again, because columns and keys are read one after the other. Retryable
    MR-5023 if they still do not fit after ``READS_MAX`` times.
    """
    for _ in range(READS_MAX - 1):
        try:
            inventory = _read_once(connection, with_folds=with_folds)
        except Retryable as exc:
            if exc.code != "MR-5023":
                raise
        else:
            if alter_count(connection) == inventory.alter_count:
                return inventory
    return _read_once(connection, with_folds=with_folds)


def _read_once(connection: MySqlSession, *, with_folds: bool) -> Inventory:
    # Queries name one database each. A query over all databases makes MariaDB open every one of its own views each
    # time, and has crashed 11.4.5.
    altered = alter_count(connection)
    tables: dict[TableKey, CatalogTable] = {}
    foreign: list[ForeignKey] = []
    rolling_back = _rolling_back(connection)
    for database in sorted(read_databases(connection) - SYSTEM_DATABASES):
        tables |= _read_tables(connection, database, rolling_back)
        foreign += _read_foreign_keys(connection, database)
    ((packet, folds, local_infile),) = connection.query(LIMITS_SQL)
    assert isinstance(packet, int)
    return Inventory(
        connection.flavour,
        packet,
        LayeredMap(tables),
        tuple(foreign),
        altered,
        folds_names=folds == 1,
        folds=_read_folds(connection, tables, foreign) if with_folds else {},
        triggers=read_triggers(connection),
        allows_load_data=local_infile == 1,
    )


def read_again(connection: MySqlSession, known: Inventory, changed: Changed) -> Inventory:
    """``known`` after a statement: the changed tables and the children of changed parents are read again.

    Everything is read again if the server executed more statements than this one.
    """
    altered = alter_count(connection)
    if altered != known.alter_count + changed.alterations:
        return read_inventory(connection)
    asked = set(changed.tables)
    for key in known.foreign_keys:  # renaming a parent changes the foreign keys of its children
        if key.parent in changed.tables or key.parent[0] in changed.databases:
            asked.add(key.child)
    asked = {table for table in asked if table[0] not in {*SYSTEM_DATABASES, *changed.databases}}
    tables: dict[TableKey, CatalogTable | None] = dict.fromkeys(asked)
    if changed.databases:
        tables |= {table: None for table in known.tables if table[0] in changed.databases}
    foreign: list[ForeignKey] = []
    rolling_back = _rolling_back(connection)
    for database, table in sorted(asked):
        again = read_table(connection, (database, table), rolling_back)
        tables[database, table] = again
        if again and _has_foreign_keys(connection, database, table):
            foreign += _read_foreign_keys(connection, database, table)
    if changed.databases:
        for database in sorted((changed.databases & read_databases(connection)) - SYSTEM_DATABASES):
            tables |= _read_tables(connection, database, rolling_back)
            foreign += _read_foreign_keys(connection, database)
    foreign_keys = known.foreign_keys
    # the same object, unless a foreign key or a table with one was read again
    if foreign or any(key.child in tables or key.parent in tables for key in foreign_keys):
        kept = (key for key in foreign_keys if key.child not in tables)
        foreign_keys = (*kept, *foreign)
    triggers = known.triggers
    if any(key in tables or key[0] in changed.databases for key in triggers):
        triggers = read_triggers(connection)
    return replace(
        known,
        tables=layered(known.tables).changed(tables),
        foreign_keys=foreign_keys,
        alter_count=altered,
        folds=_read_folds(connection, tables, foreign, known.folds),
        triggers=triggers,
    )


def _read_folds(
    connection: MySqlSession,
    tables: Mapping[TableKey, CatalogTable | None],
    foreign: Iterable[ForeignKey],
    known: Mapping[str, Fold] | None = None,
) -> Mapping[str, Fold]:
    """``known`` and the folds of the collations of each text column of a unique or foreign key of these tables."""
    found = known or {}
    names = {
        place: {name for key in table.unique_keys for name in key.columns}
        for place, table in tables.items()
        if table is not None
    }
    for key in foreign:
        names.get(key.child, set()).update(key.columns)
        names.get(key.parent, set()).update(key.parent_columns)
    used = (
        table.columns.get(name)
        for place, table in tables.items()
        if table is not None
        for name in names[place]
    )
    wanted = {(at.charset, at.collation) for at in used if at and at.collation not in found}
    new = read_folds(connection, wanted)
    return {**found, **new} if new else found


def read_table(
    connection: MySqlSession, key: TableKey, rolling_back: Set[str] = frozenset()
) -> CatalogTable | None:
    """One table; None if there is no such table. Without the engines of ``rolling_back`` none is transactional."""
    return _read_tables(connection, key[0], rolling_back, key[1]).get(key)


def read_names(connection: MySqlSession, databases: Iterable[str]) -> list[TableKey]:
    """The tables of these databases, without views and sequences."""
    return [
        (database, _text(name))
        for database in databases
        for name, kind, _ in connection.query(TABLE_KINDS_SQL, (database,))
        if _text(kind) in ("BASE TABLE", "SYSTEM VERSIONED")
    ]


def read_sizes(
    connection: MySqlSession, databases: Iterable[str]
) -> dict[TableKey, tuple[int, int]]:
    """Rows and mean bytes of a row of each table of these databases, as the server estimates them."""
    return {
        (database, _text(name)): (int(_text(rows) or 0), int(_text(size) or 0))
        for database in databases
        for name, rows, size in connection.query(SIZES_SQL, (database,))
    }


def read_collations(connection: MySqlSession) -> dict[str, int]:
    rows = connection.query(COLLATIONS_SQL[connection.flavour])
    return {_text(name): int(_text(number) or 0) for name, number in rows}


def read_databases(connection: MySqlSession) -> set[str]:
    return {
        _text(name)
        for (name,) in connection.query("SELECT SCHEMA_NAME FROM information_schema.SCHEMATA")
    }


def _rolling_back(connection: MySqlSession) -> set[str]:
    """The engines that are transactional."""
    return {_text(engine) for (engine,) in connection.query(ENGINES_SQL)}


def _has_foreign_keys(connection: MySqlSession, database: str, table: str) -> bool:
    """Whether the table may be a child. Asking ``information_schema`` costs several times as much."""
    try:
        rows = connection.query(f"SHOW CREATE TABLE {table_name(database, table).decode()}")
    except Fatal as exc:
        if exc.code == "MR-5012":  # another session dropped it meanwhile
            return False
        raise
    return "FOREIGN KEY" in _text(rows[0][1]).upper()


def read_triggers(connection: MySqlSession) -> dict[TableKey, tuple[str, ...]]:
    """The names of each table's triggers that the account can see, for which it needs TRIGGER."""
    triggers: dict[TableKey, tuple[str, ...]] = {}
    for row in connection.query(TRIGGERS_SQL):
        database, table, name = map(_text, row)
        if database not in SYSTEM_DATABASES:
            triggers[database, table] = (*triggers.get((database, table), ()), name)
    return triggers


def hold_triggers(connection: MySqlSession, table: TableKey) -> tuple[str, ...]:
    """The names of a table's triggers. None is created or dropped until the end of the target transaction.

    The lock is the metadata lock that a write takes, too; no row is locked.
    """
    connection.query(f"SELECT 1 FROM {table_name(*table).decode()} LIMIT 0 FOR UPDATE")
    return tuple(_text(name) for (name,) in connection.query(TRIGGERS_OF_TABLE_SQL, table))


def alter_count(connection: MySqlSession) -> int:
    """The number of statements that change keys of tables the server has begun. Takes 2 ms for any number of tables."""
    return sum(int(_text(count)) for _, count in connection.query(DDL_COUNTS_SQL))


def has_changed(
    connection: MySqlSession, known: Inventory, table: CatalogTable, *, with_foreign: bool
) -> bool:
    """Whether this table of ``known``, or if ``with_foreign`` a foreign key of its database, has changed since.

    In a target transaction that has used the table the answer holds until its end, because nothing can alter the table.
    """
    key = (table.database, table.table)
    if read_table(connection, key, _rolling_back(connection)) != table:
        return True
    if not with_foreign:
        return False
    before = {key for key in known.foreign_keys if key.child[0] == table.database}
    return set(_read_foreign_keys(connection, table.database)) != before


def _read_tables(
    connection: MySqlSession, database: str, rolling_back: Set[str], table_name: str = ""
) -> dict[TableKey, CatalogTable]:
    """The tables of the database, or only the table ``table_name``. Retryable MR-5023 if keys do not fit columns."""
    asked = of_one_table if table_name else str
    wanted = (database, table_name) if table_name else (database,)
    columns: dict[str, dict[str, CatalogColumn]] = {}
    ends: dict[str, dict[str, str]] = {}
    expressions: dict[str, dict[str, str]] = {}
    for row in connection.query(asked(COLUMNS_SQL), wanted):
        table, name, type_text, base, charset, collation, nullable, generated, *others = map(
            _text, row
        )
        extra, octets = others[0].upper(), others[1]
        columns.setdefault(table, {})[name] = CatalogColumn(
            name,
            type_text,
            base.lower(),
            charset.lower(),
            collation.lower(),
            nullable == "YES",
            generated != "",
            "AUTO_INCREMENT" in extra,
            base.lower() in _LABELLED
            and _has_equal_labels(connection, type_text, charset, collation),
            is_stored=generated != "" and any(word in extra for word in _STORED),
            octets=int(octets or 0),
            is_invisible="INVISIBLE" in extra,
            has_default=others[2] == "1",
        )
        ends.setdefault(table, {})[generated.upper()] = name
        if generated and generated.upper() not in _ENDS:
            expressions.setdefault(table, {})[name] = generated
    for table, expression_of in expressions.items():
        columns[table] |= _by_session(columns[table], expression_of)
    kinds = {
        _text(table): (_text(kind), _text(engine))
        for table, kind, engine in connection.query(asked(TABLE_KINDS_SQL), wanted)
    }
    keys: dict[str, dict[str, list[_KeyPart]]] = {}
    for row in connection.query(asked(UNIQUE_KEYS_SQL), wanted):
        table, index, *part = map(_text, row)
        keys.setdefault(table, {}).setdefault(index, []).append(_KeyPart(*part))
    tables = {}
    for table, columns_of in columns.items():
        kind, engine = kinds.get(table, ("", ""))
        if kind in _TABLE_KINDS:
            period: tuple[str, ...] = ()
            if kind == "SYSTEM VERSIONED":
                named, hidden = ends[table], HIDDEN_PERIOD
                period = named.get("ROW START", hidden[0]), named.get("ROW END", hidden[1])
            parts = _without(keys.get(table, {}), period)
            unique = tuple(_unique_keys(parts, columns_of, engine))
            if not columns_of.keys() >= {name for key in unique for name in key.columns if name}:
                raise Retryable("MR-5023", f"{database}.{table} was altered while it was read")
            if connection.flavour is Flavour.MARIADB:
                unique = _with_periods(connection, (database, table), columns_of, unique)
            tables[database, table] = CatalogTable(
                database,
                table,
                columns_of,
                unique,
                engine,
                engine in rolling_back,
                kind == "SYSTEM VERSIONED",
                kind == "SEQUENCE",
                period,
            )
    return tables


def _labels(type_text: str) -> list[str]:
    return [label.replace("''", "'") for label in _LABEL.findall(type_text)]


def _has_equal_labels(
    connection: MySqlSession, type_text: str, charset: str, collation: str
) -> bool:
    """Whether the column's collation calls two of its labels equal. Without strict mode servers take such labels.

    Asks the server only if labels could be equal: they are not ASCII, differ in case, or the language has rules.
    """
    labels = _labels(type_text)
    if not collation or collation.endswith("_bin") or collation == "binary":
        return False
    is_plain = all(label.isascii() and label.isprintable() for label in labels)
    are_apart = len({label.rstrip().lower() for label in labels}) == len(labels)
    if is_plain and are_apart and _NO_LANGUAGE.search(collation):
        return False
    each = " UNION ALL ".join([f"SELECT CONVERT(%s USING {charset}) AS label"] * len(labels))
    sql = f"SELECT COUNT(DISTINCT label COLLATE {collation}) FROM ({each}) labels"
    ((count,),) = connection.query(sql, labels)
    return int(str(count)) < len(labels)


def _operands(columns: Mapping[str, CatalogColumn]) -> list[Operand]:
    return [
        Operand(column.name, column.type_text, column.base_type, column.generated)
        for column in columns.values()
    ]


def _by_session(
    columns: Mapping[str, CatalogColumn], expressions: Mapping[str, str]
) -> dict[str, CatalogColumn]:
    """The generated columns with ``by_session``."""
    operands = _operands(columns)
    return {
        name: replace(
            columns[name],
            by_session=depends_on_session(expression, columns[name].base_type, operands),
        )
        for name, expression in expressions.items()
    }


def _read_foreign_keys(
    connection: MySqlSession, database: str, table_name: str = ""
) -> Iterable[ForeignKey]:
    """The foreign keys of the database's tables, or only those of the child ``table_name``."""
    asked = of_one_table if table_name else str
    wanted = (database, table_name) if table_name else (database,)
    actions = {
        (_text(table), _text(name)): Actions.of(_text(delete), _text(update))
        for table, name, delete, update in connection.query(asked(FOREIGN_RULES_SQL), wanted)
    }
    columns: dict[tuple[str, str], list[tuple[str, ...]]] = {}
    for row in connection.query(asked(FOREIGN_COLUMNS_SQL), wanted):
        table, name, *rest = map(_text, row)
        columns.setdefault((table, name), []).append(tuple(rest))
    for (table, name), parts in columns.items():
        yield ForeignKey(
            (database, table),
            tuple(part[0] for part in parts),
            (parts[0][1], parts[0][2]),
            tuple(part[3] for part in parts),
            actions.get((table, name)) or _shown_actions(connection, (database, table, name)),
            name,
        )


def _shown_actions(connection: MySqlSession, place: tuple[str, str, str]) -> Actions:
    """MariaDB hides the rules from an account that may only read; SHOW CREATE TABLE does not."""
    database, table, name = place
    ((_, text),) = connection.query(f"SHOW CREATE TABLE {table_name(database, table).decode()}")
    return Actions.shown(_text(text), f"CONSTRAINT {quoted(name).decode()} FOREIGN KEY")


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else "" if value is None else str(value)


@dataclass(frozen=True, slots=True)
class _KeyPart:
    """A row of information_schema.STATISTICS. ``prefix``: SUB_PART. ``order``: COLLATION."""

    column: str
    prefix: str
    order: str
    kind: str
    is_hidden: str
    expression: str = ""


def _without(
    indexes: Mapping[str, list[_KeyPart]], period: tuple[str, ...]
) -> Mapping[str, list[_KeyPart]]:
    remaining = {
        name: [part for part in parts if part.column not in period]
        for name, parts in indexes.items()
    }
    return {name: parts for name, parts in remaining.items() if parts}


def _unique_keys(
    indexes: Mapping[str, list[_KeyPart]], columns: Mapping[str, CatalogColumn], engine: str
) -> Iterable[UniqueKey]:
    operands = _operands(columns)
    for name in sorted(indexes, key=lambda name: (name != "PRIMARY", name)):
        parts = indexes[name]
        whole = all(part.column and not part.prefix for part in parts)
        lengths = () if whole else tuple(int(part.prefix or 0) for part in parts)
        yield UniqueKey(
            name,
            tuple(part.column for part in parts),
            whole,
            lengths=lengths,
            finds_rows=not any(part.kind == "HASH" or part.is_hidden == "1" for part in parts),
            is_hash=engine.upper() != "MEMORY" and any(part.kind == "HASH" for part in parts),
            descending=tuple(part.column for part in parts if part.order == "D"),
            by_session=any(
                columns[part.column].by_session
                if part.column in columns
                else depends_on_session(part.expression, "", operands)
                for part in parts
            ),
        )


def of_one_table(sql: str) -> str:
    """The query about a database, restricted to one of its tables: an index look-up on both servers."""
    return sql.replace("_SCHEMA = %s", "_SCHEMA = %s AND TABLE_NAME = %s")


def _with_periods(
    connection: MySqlSession,
    table: TableKey,
    columns: Mapping[str, CatalogColumn],
    keys: tuple[UniqueKey, ...],
) -> tuple[UniqueKey, ...]:
    """Sets ``has_period`` from SHOW CREATE TABLE, which shows it in every version.

    It is only queried if a key ends in two columns of a type that a period can have.
    """
    ends = [[columns[name].base_type for name in key.columns[1:][-2:] if name] for key in keys]
    if not any(len(types) == 2 and set(types) <= _PERIOD_TYPES for types in ends):
        return keys
    ((_, text),) = connection.query(f"SHOW CREATE TABLE {table_name(*table).decode()}")
    return tuple(replace(key, has_period=has_period(_text(text), key.name)) for key in keys)


_STORED = ("STORED", "PERSISTENT")
_ENDS = ("ROW START", "ROW END")
HIDDEN_PERIOD = ("row_start", "row_end")
_TABLE_KINDS = ("BASE TABLE", "SYSTEM VERSIONED", "SEQUENCE")
_PERIOD_TYPES = {"date", "datetime", "timestamp"}
COLUMNS_SQL = """
SELECT TABLE_NAME, COLUMN_NAME, COLUMN_TYPE, DATA_TYPE, CHARACTER_SET_NAME, COLLATION_NAME, IS_NULLABLE,
       COALESCE(GENERATION_EXPRESSION, ''), EXTRA, CHARACTER_OCTET_LENGTH, COLUMN_DEFAULT IS NOT NULL
FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = %s ORDER BY TABLE_NAME, ORDINAL_POSITION
"""
# without CREATE and DROP TABLE, because applications create temporary tables
DDL_COUNTS_SQL = (
    "SHOW GLOBAL STATUS WHERE Variable_name IN"
    " ('Com_alter_table', 'Com_create_index', 'Com_drop_index', 'Com_rename_table')"
)
TRIGGERS_SQL = """
SELECT EVENT_OBJECT_SCHEMA, EVENT_OBJECT_TABLE, TRIGGER_NAME FROM information_schema.TRIGGERS
ORDER BY EVENT_OBJECT_SCHEMA, EVENT_OBJECT_TABLE, TRIGGER_NAME
"""
TRIGGERS_OF_TABLE_SQL = """
SELECT TRIGGER_NAME FROM information_schema.TRIGGERS
WHERE EVENT_OBJECT_SCHEMA = %s AND EVENT_OBJECT_TABLE = %s ORDER BY TRIGGER_NAME
"""
LIMITS_SQL = "SELECT @@max_allowed_packet, @@lower_case_table_names, @@local_infile"
ENGINES_SQL = "SELECT ENGINE FROM information_schema.ENGINES WHERE TRANSACTIONS = 'YES'"
TABLE_KINDS_SQL = (
    "SELECT TABLE_NAME, TABLE_TYPE, ENGINE FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s"
)
SIZES_SQL = "SELECT TABLE_NAME, TABLE_ROWS, AVG_ROW_LENGTH FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s"
COLLATIONS_SQL = {
    Flavour.MYSQL: "SELECT COLLATION_NAME, ID FROM information_schema.COLLATIONS",
    # COLLATIONS has one row for all character sets of a collation like uca1400_ai_ci
    Flavour.MARIADB: "SELECT FULL_COLLATION_NAME, ID FROM information_schema.COLLATION_CHARACTER_SET_APPLICABILITY",
}
UNIQUE_KEYS_SQL = """
SELECT TABLE_NAME, INDEX_NAME, COLUMN_NAME, SUB_PART, COLLATION, INDEX_TYPE,
       0 /*!80000 + (IS_VISIBLE = 'NO') */ /*M!100600 + (IGNORED = 'YES') */,
       CONCAT('' /*!80013 , COALESCE(EXPRESSION, '') */)
FROM information_schema.STATISTICS
WHERE TABLE_SCHEMA = %s AND NON_UNIQUE = 0 ORDER BY TABLE_NAME, INDEX_NAME, SEQ_IN_INDEX
"""
FOREIGN_RULES_SQL = """
SELECT TABLE_NAME, CONSTRAINT_NAME, DELETE_RULE, UPDATE_RULE
FROM information_schema.REFERENTIAL_CONSTRAINTS WHERE CONSTRAINT_SCHEMA = %s
"""
FOREIGN_COLUMNS_SQL = """
SELECT TABLE_NAME, CONSTRAINT_NAME, COLUMN_NAME, REFERENCED_TABLE_SCHEMA, REFERENCED_TABLE_NAME,
REFERENCED_COLUMN_NAME FROM information_schema.KEY_COLUMN_USAGE
WHERE TABLE_SCHEMA = %s AND REFERENCED_TABLE_NAME IS NOT NULL ORDER BY TABLE_NAME, CONSTRAINT_NAME, ORDINAL_POSITION
"""
