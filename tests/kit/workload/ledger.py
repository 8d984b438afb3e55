"""A ledger in which every wrong copy is detectable: the workload of the fault campaigns.

A few writers, each on its own connection, run source transactions over several tables:

    entries     one row (writer, n) per transaction: n counts the writer's committed transactions, 1, 2, 3, …;
                ``row_count`` is the number of rows that the transaction changed, including the entry
    accounts    transfers: after every source transaction the balances add up to SUM; keys change, rows are reinserted
    seats       two unique secondary keys whose values are swapped between rows
    specimens   every type at its extremes, NULL, bytes that are not text in their character set
    loose       no key at all: duplicate rows
    passing     renamed away and back, and truncated, while it is written
    never       filled only by rolled-back transactions

Some transactions are rolled back, some roll back to a savepoint in their middle. Rows that must never be visible are
marked: ``ghost`` is 1 (in accounts, money vanishes). ``LedgerDdl`` alters and renames tables at the same time.

The sequence of decisions depends on ``seed`` alone. The server's results also depend on timing. Writers provoke
deadlocks and recover from them. Works on MySQL and MariaDB. ``LedgerCounts.acknowledged`` holds, for each writer, the
last n whose COMMIT was acknowledged. Not done here: recovering from a lost source.
"""

import random
import threading
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from millrace.deploy.servers.sql import Overtaken, raising_overtaken
from millrace.deploy.workload.shop import Connect, Connection
from tests.kit.workload.ledger_ddl import LedgerDdl
from tests.kit.workload.ledger_parts import LedgerCounts, paced
from tests.kit.workload.specimens import COLUMNS, WORDS, specimen

ACCOUNT_COUNT = 12
OPENING = 1000
SUM = ACCOUNT_COUNT * OPENING
MOVED = 1000  # an account has one of two ids: its number, or its number plus this
SEAT_COUNT = 40
WRITERS = 3
DDL_INTERVAL_S = 0.7
RATE = 60.0  # source transactions a second of all writers
LIVE_MAX = 60  # specimens and loose rows of a writer; above it, the writer deletes
LOCK_WAIT_S = 2  # no server detects a deadlock of a metadata lock and a row lock

KEYS = {
    "entries": ("writer", "n"),
    "accounts": ("id",),
    "seats": ("id",),
    "specimens": ("id",),
    "loose": (),
    "passing": ("id",),
    "never": ("id",),
}  # primary keys; tables created by DDL have ("id",)
CREATE = (
    "CREATE TABLE entries (writer INT NOT NULL, n INT NOT NULL, ghost TINYINT NOT NULL, row_count INT NOT NULL,"
    " PRIMARY KEY (writer, n))",
    "CREATE TABLE accounts (id INT NOT NULL PRIMARY KEY, balance BIGINT NOT NULL)",
    "CREATE TABLE seats (id INT NOT NULL PRIMARY KEY, place INT UNIQUE, code VARBINARY(8) UNIQUE,"
    " ghost TINYINT NOT NULL)",
    f"CREATE TABLE specimens (id BIGINT NOT NULL PRIMARY KEY, ghost TINYINT NOT NULL, {COLUMNS})"
    " DEFAULT CHARSET=utf8mb4",
    "CREATE TABLE loose (writer INT, body VARCHAR(40), ghost TINYINT) DEFAULT CHARSET=utf8mb4",
    "CREATE TABLE passing (id BIGINT NOT NULL PRIMARY KEY, body VARCHAR(40), ghost TINYINT NOT NULL)"
    " DEFAULT CHARSET=utf8mb4",
    "CREATE TABLE never (id BIGINT NOT NULL PRIMARY KEY)",
)


def create_ledger(connect: Connect, *, database: str = "ledger") -> None:
    """Create the database, its tables, the accounts (in one source transaction) and the seats."""
    with closing(connect()) as connection:
        cursor = connection.cursor()
        cursor.execute(f"CREATE DATABASE `{database}` DEFAULT CHARSET utf8mb4")
        cursor.execute(f"USE `{database}`")
        for statement in CREATE:
            cursor.execute(statement)
        numbers = range(1, ACCOUNT_COUNT + 1)
        cursor.executemany(
            "INSERT INTO accounts VALUES (%s,%s)", [(number, OPENING) for number in numbers]
        )
        cursor.executemany(
            "INSERT INTO seats VALUES (%s,%s,%s,0)",
            [(seat, seat, seat.to_bytes(2, "big")) for seat in range(SEAT_COUNT)],
        )
        connection.commit()


def run_ledger(
    connect: Connect,
    *,
    duration_s: float,
    seed: int,
    counts: LedgerCounts,
    rate: float = RATE,
    ddl_interval_s: float = DDL_INTERVAL_S,
    stop: threading.Event | None = None,
) -> None:
    """Run the ledger for ``duration_s`` or until ``stop``, at about ``rate`` transactions a second in total. Blocks.

    Time counts from each connection's login. A slow machine is offered the same load.
    The connections must have the ledger's database selected. Raises the error of a writer or of the DDL.
    """
    failures: list[BaseException] = []
    ending = stop or threading.Event()

    def work(run: Callable[[Connection], None]) -> None:
        try:
            with closing(connect()) as connection:
                _prepare(connection)
                run(connection)
        except BaseException as exc:  # noqa: BLE001 - the caller raises it
            failures.append(exc)
            ending.set()

    def write(connection: Connection, number: int) -> None:
        _Writer(connection, number=number, seed=seed, counts=counts).run(
            time.monotonic() + duration_s, WRITERS / rate, ending
        )

    def change(connection: Connection) -> None:
        end_s = time.monotonic() + duration_s
        LedgerDdl(connection, seed=seed, counts=counts).run(end_s, ddl_interval_s, ending)

    jobs: list[Callable[[Connection], None]] = [
        lambda connection, number=number: write(connection, number)  # type: ignore[misc]
        for number in range(WRITERS)
    ]
    threads = [
        threading.Thread(target=work, args=(job,), name=f"ledger-{n}")
        for n, job in enumerate([*jobs, change])
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def _prepare(connection: Connection) -> None:
    cursor = connection.cursor()
    cursor.execute(
        f"SET SESSION innodb_lock_wait_timeout = {LOCK_WAIT_S}, lock_wait_timeout = {LOCK_WAIT_S},"
        " sql_mode = 'STRICT_TRANS_TABLES'"  # specimens include zero dates
    )
    # under REPEATABLE READ, a search in a table without a key locks the whole table
    cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")


@dataclass(slots=True)
class _Own:
    """A writer's own rows. A rollback restores an earlier copy."""

    specimens: list[int] = field(default_factory=list)
    passing: list[int] = field(default_factory=list)
    loose: int = 0

    def copy(self) -> "_Own":
        return _Own(list(self.specimens), list(self.passing), self.loose)


class _Writer:
    """One connection's share. It owns its entries, specimens and loose rows. Accounts and seats are shared."""

    def __init__(
        self, connection: Connection, *, number: int, seed: int, counts: LedgerCounts
    ) -> None:
        self.connection = connection
        self.cursor: Any = connection.cursor()
        self.chance = random.Random(f"{seed}/{number}")
        self.number = number
        self.counts = counts
        self.n = 0
        self.next_id = (number + 1) * 10_000_000
        self.own = _Own()
        self.is_ghost = 0
        self.row_count = 0
        self.steps = (
            self.transfer,
            self.move_account,
            self.reopen_account,
            self.swap_seats,
            self.add_specimen,
            self.change_specimens,
            self.drop_specimen,
            self.write_loose,
            self.write_passing,
        )
        self.weights = (30, 6, 4, 14, 20, 10, 6, 14, 10)

    def run(self, deadline: float, pause_s: float, ending: threading.Event) -> None:
        for _ in paced(deadline, pause_s, ending):
            before = self.own.copy()
            self.row_count = 0
            self.is_ghost = int(self.chance.random() < 0.12)
            try:
                with raising_overtaken():
                    self.transaction()
                    if not self.is_ghost:
                        self.connection.commit()
            except Overtaken:
                self.counts.overtaken += 1
                self.is_ghost = 1
            if self.is_ghost:
                self.connection.rollback()
                self.own = before
            else:
                self.n += 1
                self.counts.acknowledged[self.number] = self.n
            self.counts.add(rows=self.row_count, committed=not self.is_ghost)

    def transaction(self) -> None:
        """Run some steps and write the entry among them, perhaps with a part that is rolled back."""
        steps = self.chance.choices(self.steps, self.weights, k=self.chance.randint(1, 5))
        entry_at = self.chance.randint(0, len(steps))
        regret_at = self.chance.randint(0, len(steps)) if self.chance.random() < 0.15 else -1
        for place in range(len(steps) + 1):
            if place == entry_at:
                self.enter()
            if place == regret_at:
                self.regret()
            if place < len(steps):
                steps[place]()
        if entry_at < len(steps):
            self.count(
                "UPDATE entries SET row_count=%s WHERE writer=%s AND n=%s",
                (self.row_count + 1, self.number, self.n + 1),
            )

    def enter(self) -> None:
        """Insert the entry. If it is not the last statement, ``row_count`` is updated at the end."""
        self.count(
            "INSERT INTO entries (writer, n, ghost, row_count) VALUES (%s,%s,%s,%s)",
            (self.number, self.n + 1, self.is_ghost, self.row_count + 1),
        )

    def regret(self) -> None:
        own, row_count, was_ghost = self.own.copy(), self.row_count, self.is_ghost
        self.cursor.execute("SAVEPOINT here")
        self.is_ghost = 1
        for step in self.chance.choices(self.steps, self.weights, k=self.chance.randint(1, 3)):
            step()
        self.cursor.execute("INSERT INTO never VALUES (%s)", (self.take_id(),))
        self.cursor.execute("ROLLBACK TO SAVEPOINT here")
        self.own, self.row_count, self.is_ghost = own, row_count, was_ghost
        self.counts.in_savepoints += 1

    # ---- steps: each keeps the sum, unless it is a ghost ------------------------------------

    def transfer(self) -> None:
        """Move money between two accounts, sometimes in an order that causes deadlocks."""
        giver, taker = self.chance.sample(range(1, ACCOUNT_COUNT + 1), 2)
        if giver > taker and self.chance.random() < 0.7:
            giver, taker = taker, giver
        amount = self.chance.randint(1, 500)
        self.add_to(giver, -amount)
        if not self.is_ghost:
            self.add_to(taker, amount)

    def add_to(self, account: int, amount: int) -> None:
        self.one(
            "UPDATE accounts SET balance=balance+%s WHERE id IN (%s,%s)",
            (amount, account, account + MOVED),
        )

    def move_account(self) -> None:
        account = self.chance.randint(1, ACCOUNT_COUNT)
        self.one(
            f"UPDATE accounts SET id=IF(id>{MOVED},id-{MOVED},id+{MOVED}) WHERE id IN (%s,%s)",
            (account, account + MOVED),
        )

    def reopen_account(self) -> None:
        """Delete an account, give its money to another, and insert it again with some of it."""
        account, other = sorted(self.chance.sample(range(1, ACCOUNT_COUNT + 1), 2))
        self.cursor.execute(
            "SELECT id, balance FROM accounts WHERE id IN (%s,%s) FOR UPDATE",
            (account, account + MOVED),
        )
        found = self.cursor.fetchall()
        if len(found) != 1 or found[0][1] == 0:
            return
        ((number, balance),) = found
        back = self.chance.randint(1, 300)
        self.one("DELETE FROM accounts WHERE id=%s", (number,))
        self.add_to(other, balance)
        self.one("INSERT INTO accounts (id, balance) VALUES (%s,%s)", (number, back))
        if not self.is_ghost:
            self.add_to(other, -back)

    def swap_seats(self) -> None:
        """Swap the values of a unique key between two rows, with NULL in between."""
        column = self.chance.choice(("place", "code"))
        first, second = self.chance.sample(range(SEAT_COUNT), 2)
        self.cursor.execute(
            f"SELECT id, {column} FROM seats WHERE id IN (%s,%s) FOR UPDATE", (first, second)
        )
        values = dict(self.cursor.fetchall())
        for seat, value in (
            (first, None),
            (second, values.get(first)),
            (first, values.get(second)),
        ):
            self.count(
                f"UPDATE seats SET {column}=%s, ghost=%s WHERE id=%s", (value, self.is_ghost, seat)
            )

    def add_specimen(self) -> None:
        made = specimen(self.chance)
        number = self.take_id()
        names = ", ".join(f"`{name}`" for name in made)
        marks = ",".join(["%s"] * (len(made) + 2))
        self.count(
            f"INSERT INTO specimens (id, ghost, {names}) VALUES ({marks})",
            (number, self.is_ghost, *made.values()),
        )
        self.own.specimens.append(number)
        if len(self.own.specimens) > LIVE_MAX:
            self.drop_specimen()

    def change_specimens(self) -> None:
        """Update some columns of one or more rows in one statement, or change a primary key."""
        if not self.own.specimens:
            return self.add_specimen()
        if self.chance.random() < 0.2:
            place = self.chance.randrange(len(self.own.specimens))
            number = self.take_id()
            self.count(
                "UPDATE specimens SET id=%s, ghost=%s WHERE id=%s",
                (number, self.is_ghost, self.own.specimens[place]),
            )
            self.own.specimens[place] = number
            return None
        made = specimen(self.chance)
        names = self.chance.sample(list(made), self.chance.randint(1, 6))
        rows = self.chance.sample(self.own.specimens, min(len(self.own.specimens), 3))
        sets = ", ".join(f"`{name}`=%s" for name in names)
        marks = ",".join(["%s"] * len(rows))
        return self.count(
            f"UPDATE specimens SET {sets}, ghost=%s WHERE id IN ({marks})",
            (*(made[name] for name in names), self.is_ghost, *rows),
        )

    def drop_specimen(self) -> None:
        if self.own.specimens:
            place = self.chance.randrange(len(self.own.specimens))
            self.count("DELETE FROM specimens WHERE id=%s", (self.own.specimens.pop(place),))

    def write_loose(self) -> None:
        """Insert duplicate rows, or update or delete one of them."""
        body = self.chance.choice(WORDS)
        if self.own.loose < LIVE_MAX and self.chance.random() < 0.6:
            for _ in range(self.chance.randint(1, 2)):
                row = (self.number, body, self.is_ghost)
                self.count("INSERT INTO loose (writer, body, ghost) VALUES (%s,%s,%s)", row)
                self.own.loose += 1
        elif self.chance.random() < 0.5:
            self.count(
                "UPDATE loose SET body=%s, ghost=%s WHERE writer=%s LIMIT 1",
                (body, self.is_ghost, self.number),
            )
        else:
            self.own.loose = max(self.own.loose - 1, 0)
            self.count("DELETE FROM loose WHERE writer=%s LIMIT 1", (self.number,))

    def write_passing(self) -> None:
        """Write to a table that DDL renames and truncates. Rows that are gone are not counted."""
        body = self.chance.choice(WORDS)
        insert = "INSERT INTO passing (id, body, ghost) VALUES (%s,%s,%s)"
        if self.own.passing and self.chance.random() < 0.4:
            number = self.own.passing.pop(self.chance.randrange(len(self.own.passing)))
            self.count("DELETE FROM passing WHERE id=%s", (number,))
            return
        if self.own.passing and self.chance.random() < 0.3:
            update = "ON DUPLICATE KEY UPDATE body=LEFT(CONCAT(id,body),40), ghost=%s"
            row = (self.own.passing[-1], body, self.is_ghost, self.is_ghost)
            # 2 means updated
            self.row_count += bool(self.cursor.execute(f"{insert} {update}", row))
            return
        number = self.take_id()
        self.count(insert, (number, body, self.is_ghost))
        self.own.passing = [*self.own.passing[-LIVE_MAX:], number]

    # ---- statements ------------------------------------------------------------------------------------

    def count(self, sql: str, arguments: tuple[object, ...]) -> None:
        """Execute a statement and count the rows that it changes."""
        self.row_count += int(self.cursor.execute(sql, arguments))

    def one(self, sql: str, arguments: tuple[object, ...]) -> None:
        """Execute a statement that must change exactly one row, or abandon the transaction."""
        changed = int(self.cursor.execute(sql, arguments))
        if changed != 1:
            raise Overtaken(f"{changed} rows: {sql}")
        self.row_count += 1

    def take_id(self) -> int:
        self.next_id += 1
        return self.next_id
