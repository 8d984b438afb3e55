"""The rows of a task that are kept aside: changes that the target refused, and all later ones of their keys.

    conflict     the change itself, with decision `aside` (``consumer.target.conflicts``)
    aside        task, seq: the table by its name in states and on the target, flags and is_safe of the record, bytes
    aside_key    task, hash, seq: is_shared     the causality keys of the change (``consumer.kernel.hashes``)
    aside_part   task, seq, part: content       the record, if it is too large for one statement; that of `conflict` is
                                                empty then

All are written in the target transaction that claims the seq, so a change is either kept or applied. A key is
free when no kept change holds it. Two kept changes of which one follows the other share a key that not both of them
hold shared; changes that are connected so are one *chain*.

Not done here: finding the keys, and what follows (``consumer.write.aside``).
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from millrace.consumer.target.progress import DATABASE
from millrace.drivers.mysql.catalog import TableKey
from millrace.drivers.mysql.connection import MySqlSession
from millrace.errors import Fatal

ROWS_MAX = 10_000  # of a task: a replay of all takes seconds, and their keys some MB
BYTES_MAX = 256 << 20  # of their records, on the target
_KEYS_READ_MAX = 500  # by their hashes; more are read all at once
_PART = 1_000  # rows in one statement
_RECORDS = 100  # read at once


@dataclass(frozen=True, slots=True)
class HeldKey:
    """A causality key of a kept change."""

    hash: int
    seq: int
    is_shared: bool


@dataclass(frozen=True, slots=True)
class KeptRow:
    """A kept record, beside its change. ``table``: its name in states. ``flags``, ``is_safe``: of ``kernel.walk``."""

    seq: int
    table: TableKey
    target: TableKey
    flags: int
    is_safe: bool
    bytes: int


@dataclass(frozen=True, slots=True)
class KeptSize:
    """How much a task keeps."""

    rows: int
    bytes: int


def keeps_rows(connection: MySqlSession, task: str) -> bool:
    """Whether the task keeps a row aside."""
    return bool(
        connection.query(f"SELECT seq FROM {DATABASE}.aside WHERE task = %s LIMIT 1", (task,))
    )


def kept_size(connection: MySqlSession, task: str) -> KeptSize:
    """How much the task keeps aside."""
    ((rows, size),) = connection.query(
        f"SELECT COUNT(*), CAST(COALESCE(SUM(bytes), 0) AS SIGNED) FROM {DATABASE}.aside WHERE task = %s",
        (task,),
    )
    return KeptSize(_int(rows), _int(size))


def kept_tables(connection: MySqlSession, task: str) -> dict[TableKey, int]:
    """The target's tables with kept rows, each with the number of rows."""
    try:
        rows = connection.query(
            f"SELECT target_database, target_table, COUNT(*) FROM {DATABASE}.aside WHERE task = %s"
            " GROUP BY target_database, target_table",
            (task,),
        )
    except Fatal as exc:
        if exc.code != "MR-5012":
            raise
        return {}  # the task has not run with this version
    return {(str(database), str(table)): _int(count) for database, table, count in rows}


def held_keys(
    connection: MySqlSession, task: str, hashes: Collection[int] | None = None
) -> list[HeldKey]:
    """The keys of kept changes; of these hashes, if there are few."""
    sql, arguments = (
        f"SELECT hash, seq, is_shared FROM {DATABASE}.aside_key WHERE task = %s",
        [task],
    )
    if hashes is not None and len(hashes) <= _KEYS_READ_MAX:
        if not hashes:
            return []
        sql, arguments = f"{sql} AND hash IN %s", [task, sorted(hashes)]  # type: ignore[list-item]
    return [
        HeldKey(_int(value), _int(seq), is_shared == 1)
        for value, seq, is_shared in connection.query(sql, tuple(arguments))
    ]


def keep_row(connection: MySqlSession, task: str, row: KeptRow, keys: Iterable[HeldKey]) -> None:
    """Insert the row of a change that ``store_conflict`` stores. Does not commit."""
    connection.query(
        f"REPLACE INTO {DATABASE}.aside VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)",
        (task, row.seq, *row.table, *row.target, row.flags, int(row.is_safe), row.bytes),
    )
    put_keys(connection, task, keys)


def put_keys(connection: MySqlSession, task: str, keys: Iterable[HeldKey]) -> None:
    """Insert keys of kept changes. One that a change holds in both modes is not shared. Does not commit."""
    modes: dict[tuple[int, int], bool] = {}
    for key in keys:
        at = key.hash, key.seq
        modes[at] = modes.get(at, True) and key.is_shared
    values = [(task, *at, int(is_shared)) for at, is_shared in modes.items()]
    for first in range(0, len(values), _PART):
        part = values[first : first + _PART]
        places = ", ".join(["%s"] * len(part))
        connection.query(f"INSERT INTO {DATABASE}.aside_key VALUES {places}", part)


def put_parts(
    connection: MySqlSession, task: str, seq: int, record: bytes, *, bytes_max: int
) -> None:
    """Insert a record in parts, each in a statement below ``bytes_max``. Does not commit."""
    size = bytes_max // 4  # a byte may become two in a literal
    for part, first in enumerate(range(0, len(record), size)):
        connection.query(
            f"REPLACE INTO {DATABASE}.aside_part VALUES (%s, %s, %s, _binary %s)",
            (task, seq, part, record[first : first + size]),
        )


def read_parts(connection: MySqlSession, task: str, seq: int) -> bytes:
    """A record that was inserted in parts."""
    rows = connection.query(
        f"SELECT content FROM {DATABASE}.aside_part WHERE task = %s AND seq = %s ORDER BY part",
        (task, seq),
    )
    return b"".join(content for (content,) in rows if isinstance(content, bytes))


def forget_keys(connection: MySqlSession, task: str, seqs: Sequence[int]) -> None:
    """Delete the keys of these kept changes. Does not commit."""
    for first in range(0, len(seqs), _PART):
        connection.query(
            f"DELETE FROM {DATABASE}.aside_key WHERE task = %s AND seq IN %s",
            (task, seqs[first : first + _PART]),
        )


def free_rows(connection: MySqlSession, task: str, seqs: Sequence[int]) -> None:
    """Forget that these changes are kept, and free their keys. Does not delete the conflicts. Does not commit."""
    forget_keys(connection, task, seqs)
    for first in range(0, len(seqs), _PART):
        of_part = (task, seqs[first : first + _PART])
        connection.query(f"DELETE FROM {DATABASE}.aside WHERE task = %s AND seq IN %s", of_part)
        connection.query(
            f"DELETE FROM {DATABASE}.aside_part WHERE task = %s AND seq IN %s", of_part
        )


def read_kept(connection: MySqlSession, task: str) -> Mapping[int, KeptRow]:
    """The kept rows by seq, in order."""
    rows = connection.query(
        f"SELECT seq, database_name, table_name, target_database, target_table, flags, is_safe, bytes"
        f" FROM {DATABASE}.aside WHERE task = %s ORDER BY seq",
        (task,),
    )
    return {
        _int(seq): KeptRow(
            _int(seq),
            (str(names[0]), str(names[1])),
            (str(names[2]), str(names[3])),
            _int(flags),
            is_safe == 1,
            _int(size),
        )
        for seq, *names, flags, is_safe, size in rows
    }


@dataclass(frozen=True, slots=True)
class StoredValue:
    """The Kafka value of a kept change, with its schema."""

    seq: int
    op: str
    value: bytes
    schema_text: str


def read_records(connection: MySqlSession, task: str, *, after: int) -> list[StoredValue]:
    """The next kept changes after a seq, in order."""
    rows = connection.query(
        f"SELECT c.seq, c.op, c.record, c.schema_text FROM {DATABASE}.aside a"
        f" JOIN {DATABASE}.conflict c ON c.task = a.task AND c.seq = a.seq"
        " WHERE a.task = %s AND a.seq > %s ORDER BY a.seq LIMIT %s",
        (task, after, _RECORDS),
    )
    found = []
    for seq, op, value, text in rows:
        assert isinstance(value, bytes)
        record = value or read_parts(connection, task, _int(seq))
        found.append(StoredValue(_int(seq), str(op), record, str(text)))
    return found


def void_rows(connection: MySqlSession, task: str, tables: Collection[TableKey]) -> int:
    """Forget the kept rows of these tables, whose rows are copied or deleted as a whole. Does not commit."""
    if not tables:
        return 0
    seqs = [seq for seq, row in read_kept(connection, task).items() if row.table in tables]
    free_rows(connection, task, seqs)
    for first in range(0, len(seqs), _PART):
        connection.query(
            f"DELETE FROM {DATABASE}.conflict WHERE task = %s AND seq IN %s AND decision = 'aside'",
            (task, seqs[first : first + _PART]),
        )
    return len(seqs)


def chain_of(connection: MySqlSession, task: str, seq: int) -> list[int]:
    """The kept changes that are connected with this one, in order."""
    by_hash: dict[int, list[HeldKey]] = {}
    by_seq: dict[int, list[HeldKey]] = {}
    for key in held_keys(connection, task):
        by_hash.setdefault(key.hash, []).append(key)
        by_seq.setdefault(key.seq, []).append(key)
    found, waiting = {seq}, [seq]
    while waiting:
        for key in by_seq.get(waiting.pop(), ()):
            for other in by_hash[key.hash]:
                if other.seq not in found and not (key.is_shared and other.is_shared):
                    found.add(other.seq)
                    waiting.append(other.seq)
    return sorted(found)


def _int(value: object) -> int:
    assert isinstance(value, int)
    return value
