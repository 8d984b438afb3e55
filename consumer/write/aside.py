"""Keeps a refused row aside, and all later changes of its keys, while the other rows of a task are applied.

    a row is kept       the target refuses its value (MR-5011) or its size (MR-5014), and the document says
                        `refused: aside`; or it shares a causality key with a kept row, and not both hold it shared
    where               in the target transaction that would have applied it, before its other rows are written
    order               rows that share a key are in one lane, and a window waits for the lanes of earlier ones. So the
                        transaction that keeps a row is committed before any later row of its keys is looked at

Each part asks for the keys that are held, so it does not matter which process, run or share of a turn applies it, or
whether an operator has replayed rows meanwhile: a replay locks the fence that the part has read.

Keys depend on the target's structure, and on this version's hashes. ``hash_again`` computes those of all kept rows at
the begin of a turn with new plans, and after a change of the inventory. A row whose table has no plan keeps its keys.

Not done here: a table that can't be planned at all (MR-5012, MR-5013), and streams of a load: they stop the task.
Statements (``check_statement``): one about a table with kept rows waits, because a replay needs the structure that they
had.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from uuid import uuid4

import numpy as np
import numpy.typing as npt

from millrace.consumer.kernel import hashes, walk
from millrace.consumer.records.numbers import RecordNumbers
from millrace.consumer.records.row_schemas import RowSchemas
from millrace.consumer.records.rows import Rows, Values, walk_values
from millrace.consumer.tables.causality_keys import KeyEntries, find_keys
from millrace.consumer.tables.table_plans import Catalogue, TablePlans, slots_of
from millrace.consumer.target.aside import (
    BYTES_MAX,
    ROWS_MAX,
    HeldKey,
    KeptRow,
    KeptSize,
    forget_keys,
    held_keys,
    keep_row,
    keeps_rows,
    kept_size,
    kept_tables,
    put_keys,
    put_parts,
    read_kept,
    read_records,
)
from millrace.consumer.target.conflicts import (
    ASIDE,
    Conflict,
    read_conflict,
    schema_of,
    store_conflict,
)
from millrace.consumer.target.progress import Owner, check_fence
from millrace.consumer.write.conflict import make_conflict
from millrace.consumer.write.ddl_outcome import is_understood
from millrace.drivers.mysql.catalog import Inventory, TableKey
from millrace.drivers.mysql.connection import MySqlSession
from millrace.errors import Fatal
from millrace.schemas.sql.statement import Statement

KEPT_CODES = ("MR-5011", "MR-5014")


@dataclass(frozen=True, slots=True)
class AsideRule:
    """``keeps_refused``: a refused row is kept. ``follows``: the task may have kept rows, also if it keeps no more."""

    keeps_refused: bool = False
    follows: bool = False


NOTHING_ASIDE = AsideRule()


@dataclass(slots=True)
class PartAside:
    """The kept rows of one part, in its open target transaction. ``left``: the numbers of the other rows."""

    connection: MySqlSession
    task: str
    plans: TablePlans
    rows: Rows
    numbers: RecordNumbers
    rule: AsideRule
    left: RecordNumbers = field(init=False)
    _entries: KeyEntries | None = field(init=False, default=None)
    _held: dict[int, HeldKey] = field(init=False, default_factory=dict)  # by hash
    _size: KeptSize | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.left = self.numbers
        if not len(self.numbers) or not keeps_rows(self.connection, self.task):
            return
        entries = self._found()
        distinct = np.unique(entries.hashes)
        wanted = [int(value) for value in distinct]
        for key in held_keys(self.connection, self.task, wanted):
            self._hold(key)
        if not np.isin(distinct, np.array(list(self._held), np.uint64)).any():
            return
        kept = [self._follow(place) for place in range(len(self.numbers))]
        self.left = RecordNumbers(self.numbers[~np.array(kept, np.bool_)])

    def follows(self, number: int) -> bool:
        """Whether the row comes after one of its keys that is kept; then it is kept, too."""
        return bool(self._held) and self._follow(int(np.searchsorted(self.numbers, number)))

    def takes(self, refused: Fatal) -> bool:
        """Whether a row with this error is kept."""
        return self.rule.keeps_refused and refused.code in KEPT_CODES

    def keep(self, number: int, why: str) -> None:
        """Keep a refused row. Fatal MR-5045."""
        conflict = make_conflict(self.connection, self.plans, self.rows, number, why)
        self._keep(int(np.searchsorted(self.numbers, number)), conflict)

    def _follow(self, place: int) -> bool:
        keys = self._keys(place)
        before = [
            held.seq
            for key in keys
            if (held := self._held.get(key.hash)) and not (held.is_shared and key.is_shared)
        ]
        if not before:
            return False
        number = int(self.numbers[place])
        why = f"a change of its keys, seq {min(before)}, is kept aside"
        conflict = make_conflict(self.connection, self.plans, self.rows, number, why, looks=False)
        self._keep(place, conflict)
        return True

    def _keep(self, place: int, conflict: Conflict) -> None:
        number, size = int(self.numbers[place]), len(conflict.record)
        before = self._size or kept_size(self.connection, self.task)
        self._size = KeptSize(before.rows + 1, before.bytes + size)
        if self._size.rows > ROWS_MAX or self._size.bytes > BYTES_MAX:
            what = f"{before.rows} rows of {self.task}, {before.bytes} bytes, are kept aside"
            limits = f"{ROWS_MAX} rows or {BYTES_MAX} bytes"
            raise Fatal(
                "MR-5045",
                f"{what}; seq {conflict.seq} of {conflict.shown_table} exceeds {limits}: {conflict.why}",
                table=conflict.table,
                seq=conflict.seq,
            )
        packet = self.plans.inventory.packet_bytes_max
        try:
            store_conflict(self.connection, self.task, conflict, decision=ASIDE, bytes_max=packet)
        except Fatal as exc:
            if exc.code != "MR-5014":
                raise
            whole = replace(conflict, record=b"", target_rows="")
            store_conflict(self.connection, self.task, whole, decision=ASIDE, bytes_max=packet)
            put_parts(self.connection, self.task, conflict.seq, conflict.record, bytes_max=packet)
        record = self.rows.records[number]
        slot = int(record[walk.SLOT])
        table, target = self.plans.state_name(slot), self.plans.table_plan(slot).target.key
        is_safe = bool(record[walk.IS_SAFE])
        row = KeptRow(conflict.seq, table, target, int(record[walk.FLAGS]), is_safe, size)
        keys = self._keys(place)
        keep_row(self.connection, self.task, row, keys)
        for key in keys:
            self._hold(key)

    def _hold(self, key: HeldKey) -> None:
        """``_held`` has the strongest mode of each hash, with the first change that holds it so."""
        known = self._held.get(key.hash)
        if known is None or (known.is_shared, known.seq) > (key.is_shared, key.seq):
            self._held[key.hash] = key

    def _found(self) -> KeyEntries:
        if self._entries is None:
            programs = self.plans.key_programs(slots_of(self.rows.slots(self.numbers)))
            self._entries = find_keys(self.rows, programs, self.numbers)
        return self._entries

    def _keys(self, place: int) -> list[HeldKey]:
        seq = int(self.rows.records[self.numbers[place], walk.SEQ])
        return _keys_of(self._found(), place, seq)


def _keys_of(entries: KeyEntries, owner: int, seq: int) -> list[HeldKey]:
    """The keys of one record; owners are in order."""
    first, end = np.searchsorted(entries.owners, [owner, owner + 1])
    return [
        HeldKey(int(value), seq, int(mode) == hashes.SHARED)
        for value, mode in zip(entries.hashes[first:end], entries.modes[first:end], strict=True)
    ]


@dataclass(frozen=True, slots=True)
class StoredRecords:
    """Stored changes as rows, with the plans of their tables under one inventory."""

    plans: TablePlans
    rows: Rows
    numbers: RecordNumbers


def stored_record(
    connection: MySqlSession, task: str, seq: int, inventory: Inventory, kept: KeptRow | None = None
) -> StoredRecords:
    """The change of a conflict; one that is kept has its operation, flags and safe mode again. Fatal MR-5032."""
    conflict = read_conflict(connection, task, seq).conflict
    text = schema_of(connection, task, conflict)
    return _walked([(conflict.record, text)], inventory, [(conflict.op, kept)])


def _walked(
    records: Sequence[tuple[bytes, str]],
    inventory: Inventory,
    about: Sequence[tuple[str, KeptRow | None]],
) -> StoredRecords:
    """Walk as many of these records, each with its schema, as a window takes. They have no view: they are its rows."""
    texts = {text: number for number, text in enumerate(dict.fromkeys(text for _, text in records))}
    schemas = RowSchemas({number: text for text, number in texts.items()})
    # plans are kept by version, so it must be unique
    plans = TablePlans(Catalogue(f"replay/{uuid4().hex}", schemas, inventory))
    framed = [value[:1] + texts[text].to_bytes(4, "big") + value[5:] for value, text in records]
    bounds: npt.NDArray[np.integer[npt.NBitBase]] = np.cumsum([0, *map(len, framed)])
    values = Values(np.frombuffer(b"".join(framed), np.uint8), bounds)
    rows = walk_values(values, plans.programs)
    if not len(rows):
        raise Fatal("MR-5032", f"a stored record can't be read: {walk.REASONS[rows.status]}")
    for number, (op, kept) in enumerate(about[: len(rows)]):
        if kept is not None:
            rows.records[number, walk.OP] = ord(op)
            rows.records[number, walk.FLAGS] = kept.flags
            rows.records[number, walk.IS_SAFE] = int(kept.is_safe)
    return StoredRecords(plans, rows, RecordNumbers(np.arange(len(rows))))


def hash_again(connection: MySqlSession, owner: Owner, inventory: Inventory) -> None:
    """Compute the keys of all kept rows for this inventory, in a target transaction that it commits."""
    if not keeps_rows(connection, owner.task):
        connection.rollback()
        return
    check_fence(connection, owner)
    kept, seqs = read_kept(connection, owner.task), list[int]()
    while part := read_records(connection, owner.task, after=seqs[-1] if seqs else -1):
        records = [(record.value, record.schema_text) for record in part]
        about = [(record.op, kept[record.seq]) for record in part]
        found = _walked(records, inventory, about)
        part = part[: len(found.rows)]
        seqs += [record.seq for record in part]
        for slot in slots_of(found.rows.slots(found.numbers)):
            try:
                programs = found.plans.key_programs([slot])
            except Fatal:
                continue  # the table has no plan; before it has one, the structure changes again
            of_slot = RecordNumbers(np.flatnonzero(found.rows.slots(found.numbers) == slot))
            entries = find_keys(found.rows, programs, of_slot)
            hashed = [part[number].seq for number in of_slot]
            forget_keys(connection, owner.task, hashed)
            put_keys(
                connection,
                owner.task,
                [key for at, seq in enumerate(hashed) for key in _keys_of(entries, at, seq)],
            )
    connection.commit()


def check_statement(
    connection: MySqlSession,
    task: str,
    statement: Statement,
    seq: int,
    *,
    emptied: frozenset[TableKey],
) -> None:
    """Fatal MR-5046 before a statement about a table with kept rows, or about one that is not known.

    The statement has the target's names. ``emptied``: tables whose rows it deletes, so that those that are kept are
    void.
    """
    kept = kept_tables(connection, task)
    if not kept:
        return
    named = {(name.database, name.table) for name in statement.tables}
    found = {
        table: count
        for table, count in kept.items()
        if not is_understood(statement)
        or (table in named and table not in emptied)
        or table[0] in statement.databases
    }
    if found:
        tables = ", ".join(
            f"{count} of {'.'.join(table)}" for table, count in sorted(found.items())
        )
        what = f"{statement.verb} waits for rows that are kept aside: {tables}"
        raise Fatal("MR-5046", what, seq=seq)
