"""A shop at work: the mixed workload of ``millrace demo``.

A few connections write customers, orders, order lines and stock at the same time:

    place       insert an order and its lines, take the goods from stock       (one transaction, 3 to 9 rows)
    ship        update the order's state                                       (1 row)
    cancel      delete the lines and the order                                 (one transaction)
    restock     update stock                                                   (1 row)
    register    insert a customer                                              (1 row)
    rename      update a customer, sometimes its primary key
    regret      everything that ``place`` does, then ROLLBACK: must never be visible
    note        insert into a table without a primary key

Meanwhile a few DDL statements run, once each.

The sequence of decisions depends on ``seed`` alone. The server's results also depend on timing, so two runs are
similar, not equal. Works on MySQL and MariaDB.
"""

import random
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Protocol

from millrace.deploy.servers.sql import Deadlock, raising_deadlock

BEATS = "beats"  # the table of ``deploy.workload.beats``
CREATE = (
    "CREATE TABLE customers (id INT UNSIGNED NOT NULL PRIMARY KEY, name VARCHAR(60) NOT NULL,"
    " email VARCHAR(120) COLLATE utf8mb4_bin, tags SET('new','gold','press') NOT NULL DEFAULT '',"
    " born DATE, profile JSON, UNIQUE KEY (email)) DEFAULT CHARSET=utf8mb4",
    "CREATE TABLE stock (sku BIGINT UNSIGNED NOT NULL PRIMARY KEY, title VARCHAR(80) NOT NULL,"
    " price DECIMAL(10,2) NOT NULL, on_hand INT NOT NULL, moved TIMESTAMP(3) NULL) DEFAULT CHARSET=utf8mb4",
    "CREATE TABLE orders (id BIGINT NOT NULL PRIMARY KEY, customer INT UNSIGNED NOT NULL,"
    " state ENUM('open','paid','shipped') NOT NULL, placed DATETIME(6) NOT NULL,"
    " total DECIMAL(14,2) NOT NULL, gift BIT(1) NOT NULL, KEY (customer)) DEFAULT CHARSET=utf8mb4",
    "CREATE TABLE order_lines (order_id BIGINT NOT NULL, line SMALLINT NOT NULL,"
    " sku BIGINT UNSIGNED NOT NULL, quantity INT NOT NULL, weight DOUBLE,"
    " PRIMARY KEY (order_id, line), FOREIGN KEY (order_id) REFERENCES orders (id)) DEFAULT CHARSET=utf8mb4",
    "CREATE TABLE notes (written TIME(2), body TEXT, seal VARBINARY(16)) DEFAULT CHARSET=utf8mb4",
    f"CREATE TABLE {BEATS} (beat BIGINT NOT NULL PRIMARY KEY)",
)
DDL = (
    "ALTER TABLE customers ADD COLUMN points INT NOT NULL DEFAULT 0 AFTER name",
    "CREATE INDEX by_state ON orders (state)",
    "CREATE TABLE reviews (id INT NOT NULL PRIMARY KEY, sku BIGINT UNSIGNED, stars TINYINT, body TEXT)",
    "ALTER TABLE stock MODIFY COLUMN title VARCHAR(120) NOT NULL",
    "RENAME TABLE reviews TO opinions",
)
RATE = 150.0  # transactions a second, all writers together
WRITERS = 3
MOVED = 500_000  # added to the key of a customer whose key changes
SKU_COUNT = 200
CUSTOMER_COUNT = 300
NAMES = ("Ada", "Bjørn", "Chloé", "Dāvis", "Эмма", "Fatıma", "顾客", "O'Hara", "Zoë 🛒")


class Connection(Protocol):
    """The part of a PEP 249 connection that the workload uses. Autocommit is off."""

    def cursor(self) -> Any:
        """A PEP 249 cursor."""

    def commit(self) -> None: ...

    def rollback(self) -> None: ...

    def close(self) -> None: ...


Connect = Callable[[], Connection]


@dataclass(slots=True)
class Counts:
    committed: int = 0
    rolled_back: int = 0
    rows: int = 0
    ddl: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def add(self, *, rows: int, committed: bool) -> None:
        """Count one transaction. Its rows count only if it was committed."""
        with self.lock:
            self.committed += committed
            self.rolled_back += not committed
            self.rows += rows if committed else 0


def create_shop(connect: Connect, *, database: str = "shop") -> None:
    """Create the database, its tables, the first customers and the stock."""
    connection = connect()
    cursor = connection.cursor()
    cursor.execute(f"CREATE DATABASE `{database}` DEFAULT CHARSET utf8mb4")
    cursor.execute(f"USE `{database}`")
    for statement in CREATE:
        cursor.execute(statement)
    chance = random.Random(0)
    cursor.executemany(
        "INSERT INTO customers (id, name, email, tags, born, profile) VALUES (%s,%s,%s,%s,%s,%s)",
        [_customer(chance, number) for number in range(1, CUSTOMER_COUNT + 1)],
    )
    cursor.executemany(
        "INSERT INTO stock VALUES (%s,%s,%s,%s,NULL)",
        [
            (2**63 + sku, f"thing {sku}", f"{chance.randint(1, 99999) / 100:.2f}", 100_000)
            for sku in range(SKU_COUNT)
        ],
    )
    connection.commit()
    connection.close()


def run_shop(
    connect: Connect,
    *,
    duration_s: float,
    seed: int,
    counts: Counts,
    rate: float = RATE,
    stop: threading.Event | None = None,
) -> None:
    """Run the shop for ``duration_s`` or until ``stop``, at about ``rate`` transactions a second in total. Blocks.

    Time counts from each connection's login. A slow machine is offered the same load.
    The connections must have the shop's database selected. Raises the error of a writer.
    """
    failures: list[BaseException] = []
    deadline = time.monotonic() + duration_s
    ending = stop or threading.Event()

    def work(number: int) -> None:
        try:
            with closing(connect()) as connection:
                writer = _Writer(connection, number=number, seed=seed, counts=counts)
                writer.run(time.monotonic() + duration_s, WRITERS / rate, ending)
        except BaseException as exc:  # noqa: BLE001 - the caller raises it
            failures.append(exc)

    threads = [threading.Thread(target=work, args=(n,), name=f"shop-{n}") for n in range(WRITERS)]
    for thread in threads:
        thread.start()
    parts = len(DDL) + 1
    dues = [deadline - duration_s * (1 - number / parts) for number in range(1, parts)]
    _run_ddl(connect, counts, dues, ending)
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def _run_ddl(
    connect: Connect, counts: Counts, dues: Sequence[float], ending: threading.Event
) -> None:
    connection = connect()
    cursor = connection.cursor()
    for due, statement in zip(dues, DDL, strict=True):
        if ending.wait(max(due - time.monotonic(), 0.0)):
            break
        cursor.execute(statement)
        counts.ddl += 1
    connection.close()


class _Writer:
    """One connection's share of the shop. It owns its order ids and skus, so that writers do not deadlock."""

    def __init__(self, connection: Connection, *, number: int, seed: int, counts: Counts) -> None:
        self.connection = connection
        self.cursor = connection.cursor()
        self.chance = random.Random(f"{seed}/{number}")
        self.number = number
        self.counts = counts
        self.next_order = (number + 1) * 10_000_000
        self.orders: list[int] = []
        self.next_customer = (number + 1) * 1_000_000
        self.customers: list[int] = []

    def run(self, deadline: float, pause_s: float, ending: threading.Event) -> None:
        actions = (
            self.place,
            self.ship,
            self.cancel,
            self.restock,
            self.register,
            self.rename,
            self.regret,
            self.note,
        )
        weights = (36, 20, 6, 12, 10, 8, 4, 4)
        due = time.monotonic()
        while due < deadline and not ending.is_set():
            (action,) = self.chance.choices(actions, weights)
            try:
                with raising_deadlock():
                    rows = action()
            except Deadlock:
                rows = -1
            due += pause_s
            if rows < 0:
                self.connection.rollback()
                self.counts.add(rows=0, committed=False)
            else:
                self.connection.commit()
                self.counts.add(rows=rows, committed=True)
            _sleep_until(due)

    def place(self) -> int:
        order = self.next_order
        self.next_order += 1
        lines = [
            (n, self._sku(), self.chance.randint(1, 9)) for n in range(self.chance.randint(1, 4))
        ]
        self.cursor.execute(
            "INSERT INTO orders VALUES (%s,%s,'open',NOW(6),%s,%s)",
            (
                order,
                self.chance.randint(1, CUSTOMER_COUNT),
                f"{self.chance.randint(100, 10**8) / 100:.2f}",
                self.chance.randint(0, 1),
            ),
        )
        self.cursor.executemany(
            "INSERT INTO order_lines VALUES (%s,%s,%s,%s,%s)",
            [(order, n, sku, quantity, self.chance.random() * 10) for n, sku, quantity in lines],
        )
        for sku, quantity in sorted({sku: quantity for _, sku, quantity in lines}.items()):
            self._take(sku, quantity)
        self.orders.append(order)
        return 1 + 2 * len(lines)

    def ship(self) -> int:
        if not self.orders:
            return self.restock()
        order = self.chance.choice(self.orders)
        state = self.chance.choice(("paid", "shipped"))
        return int(self.cursor.execute("UPDATE orders SET state=%s WHERE id=%s", (state, order)))

    def cancel(self) -> int:
        if len(self.orders) < 5:
            return self.place()
        order = self.orders.pop(self.chance.randrange(len(self.orders)))
        # The parent first, as in `place`: MariaDB's DDL on the parent holds its metadata lock while it waits for a
        # session with rows of the child. No server detects that deadlock.
        self.cursor.execute("SELECT id FROM orders WHERE id=%s FOR UPDATE", (order,))
        rows = int(self.cursor.execute("DELETE FROM order_lines WHERE order_id=%s", (order,)))
        return rows + int(self.cursor.execute("DELETE FROM orders WHERE id=%s", (order,)))

    def restock(self) -> int:
        return self._take(self._sku(), -self.chance.randint(1, 50))

    def register(self) -> int:
        customer = self.next_customer
        self.next_customer += 1
        self.cursor.execute(
            "INSERT INTO customers (id, name, email, tags, born, profile) VALUES (%s,%s,%s,%s,%s,%s)",
            _customer(self.chance, customer),
        )
        self.customers.append(customer)
        return 1

    def rename(self) -> int:
        if not self.customers:
            return self.register()
        place = self.chance.randrange(len(self.customers))
        customer = self.customers[place]
        if self.chance.random() < 0.3 and customer % 1_000_000 < MOVED:  # each customer moves once
            self.customers[place] = customer + MOVED
            return int(
                self.cursor.execute(
                    "UPDATE customers SET id=%s WHERE id=%s", (customer + MOVED, customer)
                )
            )
        name = self.chance.choice(NAMES) + str(self.chance.randint(0, 999))
        return int(
            self.cursor.execute(
                "UPDATE customers SET name=%s, tags='gold' WHERE id=%s", (name, customer)
            )
        )

    def regret(self) -> int:
        self.place()
        self.orders.pop()
        return -1

    def note(self) -> int:
        self.cursor.execute(
            "INSERT INTO notes VALUES (%s,%s,%s)",
            (
                f"{self.chance.randint(-800, 800)}:30:00.25",
                self.chance.choice(NAMES) * 3,
                self.chance.randbytes(9),
            ),
        )
        return 1

    def _sku(self) -> int:
        return int(2**63 + self.number + 3 * self.chance.randrange(SKU_COUNT // 3 - 1))

    def _take(self, sku: int, quantity: int) -> int:
        return int(
            self.cursor.execute(
                "UPDATE stock SET on_hand=on_hand-%s, moved=NOW(3) WHERE sku=%s", (quantity, sku)
            )
        )


def _customer(chance: random.Random, number: int) -> tuple[object, ...]:
    born = (
        None
        if chance.random() < 0.2
        else f"{chance.randint(1930, 2010)}-{chance.randint(1, 12):02}-{chance.randint(1, 28):02}"
    )
    profile = f'{{"visits": {chance.randint(0, 99)}, "likes": ["{chance.choice(NAMES)}", null, {chance.random()}]}}'
    return (
        number,
        chance.choice(NAMES),
        f"c{number}@example.org",
        chance.choice(("", "new", "new,press")),
        born,
        profile,
    )


def _sleep_until(due: float) -> None:
    if (rest := due - time.monotonic()) > 0:
        time.sleep(rest)
