"""Compares every row of every table of source and target. The servers convert all values; this code decodes none.

Each server converts each value to text without loss (``consumer.exact``). A value of a long type becomes a digest,
because a server returns NULL for a text longer than its ``max_allowed_packet``. A row becomes a digest of its texts.
First, each side returns the row count and the sum of the digests of a table (120 bits, independent of order; duplicate
rows count twice). If the sums differ, all rows of both sides are read and equal rows are removed from both. The
remaining rows are different, missing or extra.

A database is compared if the source has it or if the task has applied rows there. So databases of others on the target
are ignored, and a database that remains after a lost DROP DATABASE is found.

A server hides tables that the account may not read. If only one side shows a table, the other side is asked for it. Its
refusal is raised, before the table counts as a difference.

Compare while nothing is being written: each side is read in one snapshot, but not at the same time.
Not done here: structure other than column names, indexes, views; repairs.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from consumer.exact import Exact, exact_columns, literals
from consumer.row_schemas import layout_of
from consumer.sql.table_plan import quoted
from consumer.target.connection import Endpoint, Row, TargetConnection, connect
from consumer.target.inventory import TableKey, TargetTable, read_inventory
from consumer.target.progress import read_schemas
from millrace.errors import Fatal
from schemas.grant_fix import grantee
from schemas.grants import Role, needed_grants

FETCH_ROWS = 5_000
SHOWN_MAX = 20  # rows listed per table
KEY_TEXT_MAX = 200  # characters


@dataclass(frozen=True, slots=True)
class Difference:
    """One row. ``what``: different, missing (on the target) or extra.

    ``key``: its primary key, else all values, as literals (``9,'日本'``) and at most ``KEY_TEXT_MAX`` characters. For
    more than a row, the place in parentheses.
    """

    table: str
    what: str
    key: str


@dataclass(slots=True)
class Comparison:
    """The result. ``differences`` lists at most ``SHOWN_MAX`` per table; ``difference_count`` counts all."""

    tables: int = 0
    rows: int = 0
    difference_count: int = 0
    differences: list[Difference] = field(default_factory=list)

    @property
    def is_equal(self) -> bool:
        """True without any difference."""
        return self.difference_count == 0

    def note(self, table: str, what: str, keys: Sequence[str], *, count: int | None = None) -> None:
        """List differences of a table and count them. ``count``: if more than ``keys`` were found."""
        self.difference_count += len(keys) if count is None else count
        self.differences += [Difference(table, what, key) for key in keys[: self.room(table)]]

    def room(self, table: str) -> int:
        """How many more differences of the table are listed."""
        return SHOWN_MAX - sum(1 for known in self.differences if known.table == table)


def compare_sets(
    source: Endpoint, target: Endpoint, admits: Callable[[str, str], bool], *, task: str = ""
) -> Comparison:
    """Compare all admitted tables of the source, and tables of the same databases that only the target has.

    A database that the source no longer has is compared if the apply task ``task`` has applied rows there. Fatal
    MR-5007 if an account may not read a table that the other side has.
    """
    left, right = connect(source), connect(target)
    try:
        for session in (left, right):
            session.query("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            session.query("START TRANSACTION WITH CONSISTENT SNAPSHOT")
        source_tables, target_tables = (
            read_inventory(side, with_folds=False) for side in (left, right)
        )
        at_target = target_tables.key
        found = Comparison()
        here: dict[TableKey, TargetTable] = {}
        for key, table in source_tables.tables.items():
            if admits(*key) and here.setdefault(at_target(*key), table) is not table:
                found.note(".".join(key), "missing", ["(the target has one table for two)"])
        there = {k: t for k, t in target_tables.tables.items() if k in here or admits(*k)}
        databases = _databases(left) | (_written(right, task) if task else set())
        databases = {at_target(name, "")[0] for name in databases}
        for key in sorted(here.keys() | {key for key in there if key[0] in databases}):
            name = ".".join(key)
            if key not in here or key not in there:
                _refuse_hidden(right if key in here else left, key)
                found.note(name, "extra" if key in there else "missing", ["(the whole table)"])
                continue
            found.tables += 1
            _compare_table(found, (left, here[key]), (right, there[key]))
        return found
    finally:
        left.close()
        right.close()


def _refuse_hidden(session: TargetConnection, key: TableKey) -> None:
    """Fatal MR-5007 with the GRANT if the account may not read the table. Returns if the table does not exist."""
    database, table = (_quoted(name) for name in key)
    try:
        session.query(f"SELECT 1 FROM {database}.{table} LIMIT 0")
    except Fatal as exc:
        if exc.code == "MR-5012":
            return
        if exc.code != "MR-5007":
            raise
        at = session.endpoint
        (needed,) = needed_grants(Role.COMPARE, session.flavour, (key[0],))
        statement = needed.sql(grantee(session.account(), at.user))
        raise Fatal(
            exc.code,
            f"{at.host}:{at.port}: {exc.message}",
            fix=f"{statement} (`millrace compare` reads every row of both sides.)",
            **exc.context,
        ) from exc


def _databases(session: TargetConnection) -> set[str]:
    names = session.query("SELECT SCHEMA_NAME FROM information_schema.SCHEMATA")
    return {name.decode() if isinstance(name, bytes) else str(name) for (name,) in names}


def _written(session: TargetConnection, task: str) -> set[str]:
    """The databases of all row schemas that the task has stored; empty before its first start."""
    try:
        texts = read_schemas(session, task).texts.values()
    except Fatal as exc:
        if exc.code != "MR-5012":
            raise
        return set()
    return {layout_of(text).table.database for text in texts}


Side = tuple[TargetConnection, TargetTable]


def _compare_table(found: Comparison, source: Side, target: Side) -> None:
    name = f"{source[1].database}.{source[1].table}"
    columns = list(source[1].columns)
    unequal = sorted(set(columns) ^ set(target[1].columns))
    if unequal:
        found.note(name, "different", [f"(column {column})" for column in unequal])
        return
    sums = [_sums(side, columns, other) for side, other in ((source, target), (target, source))]
    found.rows += _count(sums[0])
    if sums[0] == sums[1]:
        return
    missing, extra = _unmatched_rows(source, target, columns)
    key = _key_columns(source[1]) or columns
    source_keys, target_keys = _keys(missing, columns, key), _keys(extra, columns, key)
    both = source_keys & target_keys
    shown = _KeyTexts(source, target[1], key), _KeyTexts(target, source[1], key)
    for what, side, keys in (
        ("different", shown[0], both),
        ("missing", shown[0], source_keys - both),
        ("extra", shown[1], target_keys - both),
    ):
        found.note(name, what, side.first(keys, found.room(name)), count=keys.total())


@dataclass(frozen=True, slots=True)
class _KeyTexts:
    """Keys of rows of ``side`` as text. ``other``: the other side's table."""

    side: Side
    other: TargetTable
    key: Sequence[str]

    def first(self, keys: Counter[Row], count: int) -> list[str]:
        """The first keys."""
        session, table = self.side
        columns = exact_columns(table, self.key, self.other, key=_key_columns(table))
        found = sorted(keys.elements(), key=_order)[:count]
        return [",".join(literals(session, columns, row))[:KEY_TEXT_MAX] for row in found]


def _order(row: Row) -> list[tuple[bool, str]]:
    return [(value is not None, str(value)) for value in row]


def _count(row: Row) -> int:
    return int(str(row[0]))


def _sums(side: Side, columns: list[str], other: Side) -> Row:
    """(rows, sum of the first 60 bits of each row's digest, sum of the next 60)."""
    session, table = side
    texts = ", '|', ".join(
        f"COALESCE(CONCAT(LENGTH({e.sql}), ':', {e.sql}), 'N')"
        for e in _exacts(table, columns, other[1])
    )
    digest = f"SHA2(CONCAT({texts}), 224)"  # MySQL 9 has no MD5
    halves = ", ".join(
        f"SUM(CAST(CONV(SUBSTR(digest, {start}, 15), 16, 10) AS DECIMAL(20)))" for start in (1, 16)
    )
    (row,) = session.query(
        f"SELECT COUNT(*), {halves} FROM (SELECT {digest} AS digest FROM {_name(table)}) d"
    )
    return row


def _unmatched_rows(
    source: Side, target: Side, columns: list[str]
) -> tuple[Counter[Row], Counter[Row]]:
    """The rows that only one side has, with counts. Memory holds the rows not yet found on the other side."""
    left: Counter[Row] = Counter()
    right: Counter[Row] = Counter()
    streams = [_rows(side, columns, other) for side, other in ((source, target), (target, source))]
    while True:
        parts = [next(stream, []) for stream in streams]
        if not parts[0] and not parts[1]:
            return left, right
        left.update(parts[0])
        right.update(parts[1])
        met = left & right
        left -= met
        right -= met


def _rows(side: Side, columns: list[str], other: Side) -> Iterator[list[Row]]:
    session, table = side
    order = ", ".join(_quoted(name) for name in _key_columns(table))
    exacts = ", ".join(exact.sql for exact in _exacts(table, columns, other[1]))
    sql = f"SELECT {exacts} FROM {_name(table)}"
    stream = session.stream(sql + (f" ORDER BY {order}" if order else ""))
    try:
        while rows := stream.take(FETCH_ROWS):
            yield rows
    finally:
        stream.close()


def _key_columns(table: TargetTable) -> tuple[str, ...]:
    return next(
        (key.columns for key in table.unique_keys if key.name == "PRIMARY" and key.is_whole), ()
    )


def _keys(rows: Counter[Row], columns: list[str], key: Sequence[str]) -> Counter[Row]:
    places = [columns.index(name) for name in key]
    found: Counter[Row] = Counter()
    for row, times in rows.items():
        found[tuple(row[place] for place in places)] += times
    return found


def _name(table: TargetTable) -> str:
    return f"{_quoted(table.database)}.{_quoted(table.table)}"


def _quoted(name: str) -> str:
    return quoted(name).decode()


def _exacts(table: TargetTable, columns: list[str], other: TargetTable) -> list[Exact]:
    return exact_columns(table, columns, other, key=_key_columns(table))
