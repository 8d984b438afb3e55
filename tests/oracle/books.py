"""The ledger replayed from its records into dicts.

    dense    entries of a writer come as n = 1, 2, 3, …; every acknowledged n is there
    ghosts   no change that was rolled back, to a savepoint or whole, is there
    count    a source transaction with an entry has as many rows as the entry states
    images   a row's before image equals its last after image (columns that both have)
    sum      the balances add up to the same after every source transaction

``tables`` is the content that the source must have: compare it with a SELECT. DDL is supported as far as the workload
uses it. Not done here: values of columns that no record contains (defaults of ADD COLUMN).
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.kit.workload.ledger import KEYS, SUM
from tests.oracle.record import Change, Ddl, Image, Message, harm

Key = tuple[Any, ...]
_RENAMED = re.compile(r"(\w+) TO (\w+)")


@dataclass(slots=True)
class Table:
    """Rows by key; a table without a key counts equal rows (columns of its creation)."""

    key: tuple[str, ...]
    rows: dict[Key, Mapping[str, Any]] = field(default_factory=dict)
    loose: Counter[Key] = field(default_factory=Counter)


@dataclass(slots=True)
class _Entry:
    writer: int
    n: int
    row_count: int


class BooksOracle:
    """Feed it every message in order, from before the ledger was created, then ``finish``."""

    def __init__(self, database: str) -> None:
        self.tables: dict[str, Table] = {}
        self.last_n: dict[int, int] = {}
        self.sums_checked = 0
        self.row_count = 0
        self._database = database
        self._rows_of_transaction = 0
        self._entry: _Entry | None = None
        self._is_open_for_business = False

    def feed(self, message: Message) -> None:
        """Check the next message; those of other databases are skipped."""
        change = message.change
        if isinstance(change, Ddl) and is_about(change, self._database):
            self._execute(message, change)
        elif isinstance(change, Change) and change.database == self._database:
            self.row_count += 1
            self._rows_of_transaction += 1
            self._check_ghost(message, change)
            if change.table == "entries":
                self._enter(message, change)
            self._replay(message, change)
        else:
            return
        if message.step is not None and message.step.is_last:
            self._end(message)

    def finish(self, acknowledged: Mapping[int, int]) -> None:
        """Check the end, after the last message of a topic at rest; ``acknowledged`` is the last n of each writer."""
        assert self.last_n == dict(acknowledged), f"{self.last_n}, acknowledged {acknowledged}"
        assert self.sums_checked, "no ledger in this topic"

    # ---- checks ----------------------------------------------------------------------------------------

    def _check_ghost(self, message: Message, change: Change) -> None:
        for image in (change.before, change.after):
            if change.table == "never" or (image is not None and image.get("ghost")):
                raise harm(message, f"a row of {change.table} that was rolled back: {image}")

    def _enter(self, message: Message, change: Change) -> None:
        after = change.after
        if after is None:
            raise harm(message, "an entry is deleted")
        entry = _Entry(after["writer"], after["n"], after["row_count"])
        before = self.last_n.get(entry.writer, 0)
        if entry.n != before + (change.op == "c"):
            raise harm(message, f"entry {entry.n} of writer {entry.writer} after entry {before}")
        self.last_n[entry.writer] = entry.n
        self._entry = entry

    def _end(self, message: Message) -> None:
        """Check a source transaction that has ended."""
        entry, row_count = self._entry, self._rows_of_transaction
        self._entry, self._rows_of_transaction = None, 0
        if entry is not None and entry.row_count != row_count:
            raise harm(message, f"{row_count} rows, and the entry says {entry.row_count}")
        accounts = self.tables.get("accounts")
        if accounts is None or not (accounts.rows or self._is_open_for_business):
            return
        self._is_open_for_business = True
        self.sums_checked += 1
        if (total := sum(row["balance"] for row in accounts.rows.values())) != SUM:
            raise harm(message, f"the balances add up to {total}, not to {SUM}")

    # ---- replay ----------------------------------------------------------------------------------------

    def _replay(self, message: Message, change: Change) -> None:
        if change.table not in self.tables:
            raise harm(message, f"a row of {change.table}, which does not exist")
        table = self.tables[change.table]
        if (change.before is None, change.after is None) != {
            "c": (True, False),
            "u": (False, False),
            "d": (False, True),
        }[change.op]:
            raise harm(message, f"images of an {change.op}: {change.before}, {change.after}")
        if not table.key:
            self._replay_loose(message, change, table.loose)
            return
        if change.before is not None:
            left = table.rows.pop(_key(table, change.before), None)
            if left is None:
                raise harm(message, f"{change.table}: a row that is not there: {change.before}")
            if wrong := differing(left, change.before):
                raise harm(
                    message,
                    f"{change.table}: the before image differs from the last after image: {wrong}",
                )
        if change.after is not None:
            key = _key(table, change.after)
            if key in table.rows:
                raise harm(message, f"{change.table}: a second row {key}")
            table.rows[key] = change.after

    def _replay_loose(self, message: Message, change: Change, rows: Counter[Key]) -> None:
        if change.before is not None:
            row = _loose(change.before)
            if not rows[row]:
                raise harm(message, f"{change.table}: a row that is not there: {row}")
            rows[row] -= 1
        if change.after is not None:
            rows[_loose(change.after)] += 1

    def _execute(self, message: Message, ddl: Ddl) -> None:
        words = [word.replace("`", "") for word in ddl.words]
        match [word.upper() for word in words[:2]]:
            case ["CREATE", "TABLE"]:
                name = words[2].partition("(")[0]
                if name in self.tables:
                    raise harm(message, f"{name} is there already")
                self.tables[name] = Table(KEYS.get(name, ("id",)))
            case ["DROP", "TABLE"] if (
                words[2] == "IF"
            ):  # logged by a killed MariaDB when it restarts
                self.tables.pop(words[-1], None)
            case ["DROP", "TABLE"]:
                del self.tables[words[2]]
            case ["TRUNCATE", _]:
                name = words[-1]
                self.tables[name] = Table(self.tables[name].key)
            case ["RENAME", "TABLE"]:
                for old, new in _RENAMED.findall(" ".join(words)):
                    self.tables[new] = self.tables.pop(old)
            case ["DROP", "DATABASE"]:
                raise harm(message, "the ledger is dropped")
            case _:
                pass  # columns and indexes move no row


def is_about(ddl: Ddl, database: str) -> bool:
    """Whether a statement is the ledger's: in its database, or naming it."""
    return ddl.database == database or f"`{database}`" in ddl.sql


def differing(left: Mapping[str, Any], right: Mapping[str, Any]) -> list[str]:
    """Columns that both images have, with different values."""
    return [
        f"{name}: {left[name]!r}, {right[name]!r}"
        for name in left.keys() & right.keys()
        if left[name] != right[name]
    ]


def check_rows(table: str, replayed: Table, selected: Iterable[Mapping[str, Any]]) -> None:
    """Compare the replayed rows with a SELECT of the key columns (and more)."""
    if not replayed.key:
        found = Counter(_loose(row) for row in selected)
        assert found == +replayed.loose, (
            f"{table}: {found - replayed.loose} {replayed.loose - found}"
        )
        return
    rows = {_key(replayed, row): row for row in selected}
    odd = sorted(rows.keys() ^ replayed.rows.keys())[:5]
    assert not odd, f"{table}: only in the records or only in the table: {odd}"
    for key, row in rows.items():
        wrong = differing(replayed.rows[key], row)
        assert not wrong, f"{table} {key}: record and table: {wrong}"


def _key(table: Table, image: Mapping[str, Any]) -> Key:
    return tuple(image[name] for name in table.key)


def _loose(image: Image) -> Key:
    assert image is not None
    return (image["writer"], image["body"])
