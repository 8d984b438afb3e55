"""A source server: binlog files written event by event, their meaning, and the state after each source transaction.

    accounts  id, code (unique on source and target), amount, version    the sum of all amounts never changes
    ledger    writer, n, version           dense n per writer
    notes     n, version                   no key; rows may be equal
    hidden    id, version                  filtered out by the capture task

``version`` increases with every change of the source, so an older row is detected. No product code is used to interpret
the binlog.
"""

import re
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random

from millrace.schemas.gtid import Flavour
from tests.kit.binlog.builder import BinlogBuilder, format_body
from tests.kit.binlog.plain_files import artificial, packet
from tests.simulation.binlog import BINLOGS, DATABASE, Answer

ACCOUNTS = 6
CODES = 5
TOTAL = 1000 * ACCOUNTS
EVENT_ROWS_MAX = 10
LARGE_ROWS = 60

_SHOW_EVENTS = re.compile(r"SHOW BINLOG EVENTS IN '(?P<file>[^']*)'(?: FROM (?P<pos>\d+))? LIMIT")

Row = dict[str, int | None]


@dataclass
class Table:
    """All columns are INT; ``key`` is the primary key."""

    name: str
    columns: list[str]
    key: tuple[str, ...]
    unique: tuple[tuple[str, ...], ...] = ()
    id: int = 0


def make_tables() -> dict[str, Table]:
    """The initial tables, on source and target."""
    return {
        table.name: table
        for table in (
            Table("accounts", ["id", "code", "amount", "version"], ("id",), (("code",),), 1),
            Table("ledger", ["writer", "n", "version"], ("writer", "n"), (), 2),
            Table("notes", ["n", "version"], (), (), 3),
            Table("hidden", ["id", "version"], ("id",), (), 4),
        )
    }


@dataclass(frozen=True)
class Change:
    """A row change, or a statement (``sql``); ``row`` counts in its source transaction before any filter."""

    number: int
    row: int
    table: str
    before: Row | None = None
    after: Row | None = None
    sql: str = ""


@dataclass
class Rows:
    """Rows of all tables, with a key or as a multiset."""

    tables: dict[str, Table] = field(default_factory=make_tables)
    keyed: dict[tuple[str, tuple[int | None, ...]], Row] = field(default_factory=dict)
    unkeyed: list[Row] = field(default_factory=list)

    def apply(self, change: Change) -> None:
        """Apply exactly this change; the caller ensures that it fits."""
        if change.sql:
            self._execute(change.sql)
            return
        table = self.tables[change.table]
        if not table.key:
            if change.before is not None:
                self.unkeyed.remove(change.before)
            if change.after is not None:
                self.unkeyed.append(dict(change.after))
            return
        if change.before is not None:
            del self.keyed[change.table, self.key_of(table, change.before)]
        if change.after is not None:
            self.keyed[change.table, self.key_of(table, change.after)] = dict(change.after)

    def _execute(self, sql: str) -> None:
        if sql.startswith("TRUNCATE"):
            self.unkeyed.clear()
            return
        _, _, name, _, _, column, _ = sql.split()
        self.tables[name].columns.append(column)
        for (table, _key), row in self.keyed.items():
            if table == name:
                row[column] = None

    @staticmethod
    def key_of(table: Table, row: Row) -> tuple[int | None, ...]:
        """The primary key of a row."""
        return tuple(row[name] for name in table.key)

    def of(self, table: str) -> list[Row]:
        """Rows of one table."""
        return [row for (name, _), row in self.keyed.items() if name == table]

    def plain(self, *, hidden: bool) -> dict[str, list[tuple[int | None, ...]]]:
        """The rows of all tables, sorted, to compare."""
        found = {
            table.name: [tuple(row[name] for name in table.columns) for row in self.of(table.name)]
            for table in self.tables.values()
            if table.key and (hidden or table.name != "hidden")
        }
        notes = self.tables["notes"]
        found["notes"] = [tuple(row[name] for name in notes.columns) for row in self.unkeyed]
        for rows in found.values():
            rows.sort(key=repr)
        return found


class ModelSource:
    """The primary: ``files`` by name, ``changes`` in commit order."""

    def __init__(self, flavour: Flavour) -> None:
        self.binlog = BINLOGS[flavour]
        self.rows = Rows()
        self.changes: list[Change] = []
        self.number = 0  # of the last GTID
        self.files: dict[str, BinlogBuilder] = {}
        self._befores: dict[str, int] = {}
        self._begins: dict[str, list[Answer]] = {}  # of source transactions, as SHOW BINLOG EVENTS
        self._version = 0
        self._lines = 0
        self._columns = 0
        self._table_ids = 4
        self._pending: list[Change] = []
        self.ends: set[tuple[str, int]] = set()  # (file, position) after whole source transactions
        self.rotate()
        for number in range(ACCOUNTS):
            self._insert("accounts", {"id": number, "code": None, "amount": 1000})
        self._commit()

    # ---- what happens at the source ----------------------------------------------------------------

    def emit(self, kind: str, chance: Random) -> None:
        """Commit one source transaction of this kind (see ``KINDS``)."""
        KINDS[kind](self, chance)

    def rotate(self) -> None:
        """FLUSH BINARY LOGS."""
        name = f"mysql-bin.{len(self.files) + 1:06d}"
        if self.files:
            self._file.event(4, struct.pack("<Q", 4) + name.encode())
            self._note_end()
        self.files[name] = BinlogBuilder(self.binlog.version)
        self.ends.add((name, 4))
        self._note_end()  # the head of a file is sent event by event
        self._befores[name], self._begins[name] = self.number, []
        for kind, body in self.binlog.head(self.number):
            self._file.event(kind, body)
            self._note_end()

    def transfer(self, chance: Random) -> None:
        accounts = self.rows.of("accounts")
        giver, taker = chance.sample(accounts, 2)
        amount = chance.randint(1, 50)
        self._update("accounts", giver, {"amount": (giver["amount"] or 0) - amount})
        self._update("accounts", taker, {"amount": (taker["amount"] or 0) + amount})
        self._log(1)
        self._commit()

    def open_account(self, chance: Random) -> None:
        taken = {row["id"] for row in self.rows.of("accounts")}
        free = [number for number in range(2 * ACCOUNTS) if number not in taken]
        if free:
            code = chance.choice([None, *self._free_codes()])
            self._insert("accounts", {"id": chance.choice(free), "code": code, "amount": 0})
        self._log(1)
        self._commit()

    def close_account(self, chance: Random) -> None:
        """Move the money to another account; its code may be reused in the same source transaction."""
        accounts = self.rows.of("accounts")
        if len(accounts) > 3:
            closed, heir = chance.sample(accounts, 2)
            self._delete("accounts", closed)
            changes: Row = {"amount": (heir["amount"] or 0) + (closed["amount"] or 0)}
            if closed["code"] is not None:
                changes["code"] = closed["code"]
            self._update("accounts", heir, changes)
        self._commit()

    def swap_codes(self, chance: Random) -> None:
        """Move a code from one row to another through NULL."""
        accounts = self.rows.of("accounts")
        left, right = chance.sample(accounts, 2)
        codes = left["code"], right["code"]
        left = self._update("accounts", left, {"code": None})
        right = self._update("accounts", right, {"code": codes[0]})
        self._update("accounts", left, {"code": codes[1]})
        self._commit()

    def give_code(self, chance: Random) -> None:
        account = chance.choice(self.rows.of("accounts"))
        self._update("accounts", account, {"code": chance.choice([None, *self._free_codes()])})
        self._commit()

    def move_account(self, chance: Random) -> None:
        """A key change, one update."""
        taken = {row["id"] for row in self.rows.of("accounts")}
        free = [number for number in range(2 * ACCOUNTS) if number not in taken]
        account = chance.choice(self.rows.of("accounts"))
        if free:
            self._update("accounts", account, {"id": chance.choice(free)})
        self._commit()

    def note(self, chance: Random) -> None:
        for _ in range(chance.randint(1, 3)):
            notes = self.rows.unkeyed
            if notes and chance.random() < 0.5:
                old = dict(chance.choice(notes))
                after = {**old, "n": chance.randint(0, 2)}
                self._change("notes", old, None if chance.random() < 0.5 else after)
            else:
                self._change("notes", None, {"n": chance.randint(0, 2), "version": 0})
        self._commit()

    def hide(self, chance: Random) -> None:
        """Rows that produce no record, alone or before others."""
        row: Row = {"id": chance.randint(0, 9)}
        known = [old for old in self.rows.of("hidden") if old["id"] == row["id"]]
        if known:
            self._update("hidden", known[0], {})
        else:
            self._insert("hidden", row)
        if chance.random() < 0.5:
            self._log(1)
        self._commit()

    def grow(self, chance: Random) -> None:
        self._log(LARGE_ROWS)
        self._commit()

    def roll_back(self, chance: Random) -> None:
        """Do nothing: nothing is logged."""

    def truncate(self, chance: Random) -> None:
        self._state("TRUNCATE TABLE notes")

    def alter(self, chance: Random) -> None:
        if self._columns < 3:
            self._columns += 1
            self._state(f"ALTER TABLE accounts ADD COLUMN extra{self._columns} INT")
            self._table_ids += 1
            self.rows.tables["accounts"].id = self._table_ids

    # ---- rows --------------------------------------------------------------------------------------

    def _free_codes(self) -> list[int]:
        taken = {row["code"] for row in self.rows.of("accounts")}
        return [code for code in range(CODES) if code not in taken]

    def _log(self, count: int) -> None:
        for _ in range(count):
            self._lines += 1
            self._insert("ledger", {"writer": 1, "n": self._lines})

    def _insert(self, table: str, row: Row) -> None:
        columns = self.rows.tables[table].columns
        self._version += 1
        whole = {name: row.get(name) for name in columns} | {"version": self._version}
        self._change(table, None, whole)

    def _update(self, table: str, before: Row, changes: Row) -> Row:
        self._version += 1
        after = before | changes | {"version": self._version}
        self._change(table, dict(before), after)
        return after

    def _delete(self, table: str, before: Row) -> None:
        self._change(table, dict(before), None)

    def _change(self, table: str, before: Row | None, after: Row | None) -> None:
        change = Change(self.number + 1, len(self._pending) + 1, table, before, after)
        self.rows.apply(change)
        self._pending.append(change)

    # ---- the binlog --------------------------------------------------------------------------------

    @property
    def _file(self) -> BinlogBuilder:
        return self.files[f"mysql-bin.{len(self.files):06d}"]

    def _note_end(self) -> None:
        name = f"mysql-bin.{len(self.files):06d}"
        self.ends.add((name, len(self.files[name].content)))

    def _begin(self) -> BinlogBuilder:
        """The next GTID is written to this file."""
        self.number += 1
        event: Answer = {
            "Event_type": "Gtid",
            "Info": f"BEGIN GTID {self.binlog.gtid(self.number)}",
        }
        self._begins[next(reversed(self.files))].append(event | {"Pos": len(self._file.content)})
        return self._file

    def _state(self, sql: str) -> None:
        self.binlog.state(self._begin(), self.number, sql)
        self._note_end()
        change = Change(self.number, 1, "", sql=sql)
        self.rows.apply(change)
        self.changes.append(change)

    def _commit(self) -> None:
        if not self._pending:
            return
        file = self._begin()
        self.binlog.begin(file, self.number)
        for run in _runs(self._pending):
            table = self.rows.tables[run[0].table]
            file.event(19, _table_map(table))
            file.event(*self._rows_event(table, run))
        self.binlog.commit(file)
        self._note_end()
        self.changes += self._pending
        self._pending = []

    def _rows_event(self, table: Table, run: list[Change]) -> tuple[int, bytes]:
        """(type, body) of a WRITE, UPDATE or DELETE event."""
        count = len(table.columns)
        present = b"\xff" * ((count + 7) // 8)
        is_update = run[0].before is not None and run[0].after is not None
        write, update, delete = self.binlog.row_types
        kind = update if is_update else write if run[0].before is None else delete
        body = table.id.to_bytes(6, "little") + struct.pack("<H", 1) + self.binlog.row_extra
        body += bytes([count]) + present * (2 if is_update else 1)
        for change in run:
            for image in (change.before, change.after):
                if image is not None:
                    body += _image(table, image)
        return kind, body

    # ---- queries of a dump connection --------------------------------------------------------------

    def answer(self, sql: str) -> list[Answer]:
        """The queries of ``producer.source`` and of the receiver."""
        if sql.startswith("SELECT VERSION()"):
            return [{"version": self.binlog.version}]
        if sql == "SHOW BINARY LOGS":
            return [
                {"Log_name": name, "File_size": len(file.content)}
                for name, file in self.files.items()
            ]
        if found := _SHOW_EVENTS.match(sql):
            head = self.binlog.shown_head(self._befores[found["file"]])
            return self._begins[found["file"]] if found["pos"] else [head]
        answers = self.binlog.answers(self.number)
        return [answer for word, answer in answers.items() if word in sql]

    def dump(self, file: str, pos: int) -> bytes:
        """All events from this position, as packets."""
        payloads = []
        names = list(self.files)
        for name in names[names.index(file) :]:
            content = bytes(self.files[name].content)
            payloads.append(artificial(4, struct.pack("<Q", pos) + name.encode()))
            if pos > 4:
                payloads.append(artificial(15, format_body(self.binlog.version)))
            while pos < len(content):
                size = int.from_bytes(content[pos + 9 : pos + 13], "little")
                payloads.append(content[pos : pos + size])
                pos += size
            pos = 4
        return b"".join(packet(b"\0" + made, at) for at, made in enumerate(payloads, 1))


KINDS: dict[str, Callable[[ModelSource, Random], None]] = {
    "transfer": ModelSource.transfer,
    "open account": ModelSource.open_account,
    "close account": ModelSource.close_account,
    "swap codes": ModelSource.swap_codes,
    "give code": ModelSource.give_code,
    "move account": ModelSource.move_account,
    "note": ModelSource.note,
    "hide": ModelSource.hide,
    "grow": ModelSource.grow,
    "roll back": ModelSource.roll_back,
    "truncate": ModelSource.truncate,
    "alter": ModelSource.alter,
}


def _runs(changes: list[Change]) -> Iterator[list[Change]]:
    """Adjacent rows of one table and operation share an event."""
    run: list[Change] = []
    for change in changes:
        if run and (_shape(change) != _shape(run[0]) or len(run) == EVENT_ROWS_MAX):
            yield run
            run = []
        run.append(change)
    yield run


def _shape(change: Change) -> tuple[str, bool, bool]:
    return change.table, change.before is None, change.after is None


def _table_map(table: Table) -> bytes:
    names = b"".join(bytes([len(n)]) + n.encode() + b"\0" for n in (DATABASE, table.name))
    count = len(table.columns)
    columns = b"".join(bytes([len(n)]) + n.encode() for n in table.columns)
    key = bytes(table.columns.index(name) for name in table.key)
    optional = bytes([1, (count + 7) // 8]) + bytes((count + 7) // 8)  # all are signed
    optional += bytes([4, len(columns)]) + columns
    if key:
        optional += bytes([8, len(key)]) + key
    nullable = sum(1 << at for at, name in enumerate(table.columns) if name not in table.key)
    return (
        table.id.to_bytes(6, "little")
        + b"\1\0"
        + names
        + bytes([count])
        + bytes([3]) * count  # LONG
        + b"\0"  # no metadata
        + nullable.to_bytes((count + 7) // 8, "little")
        + optional
    )


def _image(table: Table, row: Row) -> bytes:
    values = [row[name] for name in table.columns]
    nulls = sum(1 << at for at, value in enumerate(values) if value is None)
    packed = b"".join(struct.pack("<i", value) for value in values if value is not None)
    return nulls.to_bytes((len(values) + 7) // 8, "little") + packed
