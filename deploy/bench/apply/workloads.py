"""The workloads of the apply figures. Their statements depend only on numbers, never on chance or the clock.

    bulk    ``deploy.bench.load``: transactions of 500 rows, two thirds inserts, one third updates of them
    merge   a shop at work: an order is inserted, then changed 1 to 5 times, each change 0.1 to 1 s after the one before
            at 5,000 changes a second: 500 to 5,000 changes of other orders lie between. Transactions of 100 changes
    small   one-row transactions: two inserts, then an update of the first of them
    hot     one-row updates of a table of 100,000 rows, 90 % of them on 1,000 rows
    text    transactions of 100 rows, two thirds inserts, one third updates; the primary key is non-ASCII text under the
            server's default collation of utf8mb4 (which ignores case)
    ddl     CREATE TABLE, again and again in one database, then a row in each table

All but ``bulk`` and ``ddl`` have ``WRITERS`` connections, each with separate rows, so that a replica can run their
transactions in parallel. One-row transactions are autocommitted statements, sent by the hundred.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial

from millrace.deploy.bench import load
from millrace.deploy.workload.shop import Connect, Connection

WRITERS = 4
STEP = 6_000  # whole transactions and whole patterns of every writer of every workload
ROWS = 100  # a transaction of merge and text
SENT = 100  # one-row transactions sent at once
HOT_TABLE_ROWS = 100_000
HOT_ROWS = 1_000
MERGE_GAP_MIN, MERGE_GAP_MAX = 500, 5_000  # changes of all writers: 0.1 and 1 s at 5,000 a second
UPDATES_MAX = 5
_SPREAD = 2_654_435_761  # Knuth's multiplier: consecutive numbers become scattered ones
_TABLE = "DEFAULT CHARSET=utf8mb4"
_STATES = ("open", "paid", "packed", "shipped", "arrived", "closed")
_WORDS = ("Straße", "Ærø", "Łódź", "Ωmega", "Київ", "東京", "Ñandú", "Žižkov")


@dataclass(frozen=True, slots=True)
class Workload:
    """``create`` makes the database, its tables and first rows; ``write`` makes the changes and returns their number.

    ``changes`` is the number to ask ``write`` for. ``warm_up`` is the share of them with which a driver is warmed up.
    """

    database: str
    tables: tuple[str, ...]
    changes: int
    create: Callable[[Connect], None]
    write: Callable[[Connect, int], int]
    warm_up: float = 0.25

    def sized(self, scale: float) -> int:
        """The number of changes at this scale: a multiple of ``STEP``, and not none."""
        return max(round(self.changes * scale / STEP), 1) * STEP


def bulk(database: str = load.DATABASE) -> Workload:
    """600,000 changes. The warm-up is as long as what is measured."""
    return Workload(
        database,
        ("plain", "orders"),
        load.CHANGES,
        partial(load.create_load, database=database),
        lambda connect, changes: load.run_load(connect, changes=changes, database=database),
        warm_up=1.0,
    )


def merge() -> Workload:
    """600,000 changes; on average an order has four."""
    columns = (
        "id BIGINT NOT NULL PRIMARY KEY, customer INT NOT NULL, state VARCHAR(10) NOT NULL,"
        " total DECIMAL(14,2) NOT NULL, note VARCHAR(100), placed DATETIME(6) NOT NULL,"
        " KEY (customer), KEY (state)"
    )
    return _workload("bench_merge", 600_000, columns, _merge_batches)


def small() -> Workload:
    """102,000 one-row transactions (a multiple of ``STEP``)."""
    columns = "id BIGINT NOT NULL PRIMARY KEY, n INT NOT NULL, note VARCHAR(100) NOT NULL"
    return _workload("bench_small", 100_000, columns, _small_batches)


def hot() -> Workload:
    """198,000 one-row updates (a multiple of ``STEP``)."""
    columns = "id BIGINT NOT NULL PRIMARY KEY, n INT NOT NULL, note VARCHAR(100) NOT NULL"
    rows = [f"({key},0,'a row of the hot table')" for key in range(HOT_TABLE_ROWS)]
    return _workload("bench_hot", 200_000, columns, _hot_batches, rows)


def text() -> Workload:
    """198,000 changes (a multiple of ``STEP``)."""
    columns = "name VARCHAR(60) NOT NULL PRIMARY KEY, n INT NOT NULL, note VARCHAR(100) NOT NULL"
    return _workload("bench_text", 200_000, columns, _text_batches)


def create_tables(connect: Connect, first: int, last: int, *, database: str) -> None:
    """Tables t``first`` to t``last - 1``."""
    with closing(connect()) as connection:
        cursor = connection.cursor()
        cursor.execute(f"USE {database}")
        for number in range(first, last):
            cursor.execute(f"CREATE TABLE t{number} (id INT NOT NULL PRIMARY KEY, a VARCHAR(40))")


def fill_tables(connect: Connect, first: int, last: int, *, database: str) -> None:
    """A row in each of these tables, each its own transaction."""
    with closing(connect()) as connection:
        cursor = connection.cursor()
        cursor.execute(f"USE {database}")
        for number in range(first, last):
            cursor.execute(f"INSERT INTO t{number} VALUES (1, 'row of {number}')")
            connection.commit()


Batches = Callable[[int, int], Iterator[Sequence[str]]]


def _workload(
    database: str, changes: int, columns: str, batches: Batches, rows: Sequence[str] = ()
) -> Workload:
    """One table, ``items``; ``batches(writer, changes)`` are the lists of statements that this writer sends."""
    return Workload(
        database,
        ("items",),
        changes,
        partial(_create, database, columns, rows),
        partial(_write, database, batches),
    )


def _create(database: str, columns: str, rows: Sequence[str], connect: Connect) -> None:
    with closing(connect()) as connection:
        cursor = connection.cursor()
        cursor.execute(f"CREATE DATABASE {database} {_TABLE}")
        cursor.execute(f"USE {database}")
        cursor.execute(f"CREATE TABLE items ({columns}) {_TABLE}")
        for first in range(0, len(rows), 1_000):
            cursor.execute("INSERT INTO items VALUES " + ",".join(rows[first : first + 1_000]))
            connection.commit()


def _write(database: str, batches: Batches, connect: Connect, changes: int) -> int:
    """All writers at once, each ``changes / WRITERS``. Raises the first error of a writer. Returns ``changes``."""
    failures: list[BaseException] = []

    def work(writer: int) -> None:
        try:
            with closing(connect()) as connection:
                _send(connection, database, batches(writer, changes // WRITERS))
        except BaseException as failure:  # noqa: BLE001 - raised in the thread that called
            failures.append(failure)

    threads = [threading.Thread(target=work, args=(writer,)) for writer in range(WRITERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return changes // WRITERS * WRITERS


def _send(connection: Connection, database: str, batches: Iterator[Sequence[str]]) -> None:
    """Each list of statements in one message."""
    cursor = connection.cursor()
    cursor.execute(f"USE {database}")
    # writers write different keys, but the gaps between text keys are shared: their locks would make deadlocks
    cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
    cursor.execute("SET autocommit = 1")
    for statements in batches:
        cursor.execute(";".join(statements))
        while cursor.nextset():
            pass


def _merge_batches(writer: int, changes: int) -> Iterator[Sequence[str]]:
    """Transactions of ``ROWS`` changes. What is due is updated first; inserts fill up."""
    due: dict[int, dict[int, list[int]]] = {}  # transaction number → update number → orders
    ending = max(changes // ROWS, 1)
    order = 0
    for transaction in range(ending):
        statements, left = ["BEGIN"], min(ROWS, changes)
        for update, orders in sorted(due.pop(transaction, {}).items()):
            now, later = orders[:left], orders[left:]
            if later:
                due.setdefault(transaction + 1, {}).setdefault(update, []).extend(later)
            if now:
                statements.append(_change(writer, update, now))
                left -= len(now)
            for key in now:
                _plan(due, transaction, key, update + 1)
        if left:
            placed = range(order, order + left)
            order += left
            rows = ",".join(_order(writer, key) for key in placed)
            statements.append(f"INSERT INTO items VALUES {rows}")
            for key in placed:
                _plan(due, transaction, key, 1)
        yield [*statements, "COMMIT"]


def _plan(due: dict[int, dict[int, list[int]]], transaction: int, key: int, update: int) -> None:
    """Note when an order is changed for the ``update``-th time; an order has 1 to ``UPDATES_MAX`` updates."""
    spread = (key * 5 + update) * _SPREAD % 2**32
    if update > key * _SPREAD % 2**32 % UPDATES_MAX + 1:
        return
    gap = MERGE_GAP_MIN + spread % (MERGE_GAP_MAX - MERGE_GAP_MIN)
    at = transaction + max(gap // (ROWS * WRITERS), 1)
    due.setdefault(at, {}).setdefault(update, []).append(key)


def _order(writer: int, key: int) -> str:
    spread = key * _SPREAD % 2**32
    number = key * WRITERS + writer
    return (
        f"({number},{spread % 50_000},'open',{spread % 10**6}.{key % 100:02},NULL,"
        f"'2026-01-{key % 28 + 1:02} 12:00:00.{spread % 10**6:06}')"
    )


def _change(writer: int, update: int, orders: Sequence[int]) -> str:
    keys = ",".join(str(key * WRITERS + writer) for key in orders)
    return (
        f"UPDATE items SET state = '{_STATES[update]}', total = total + 1.25,"
        f" note = 'changed for the {update}. time' WHERE id IN ({keys})"
    )


def _small_batches(writer: int, changes: int) -> Iterator[Sequence[str]]:
    statements = []
    for number in range(changes):
        key = writer * 10**9 + number // 3 * 2
        if number % 3 < 2:
            note = f"{number * _SPREAD % 2**32:08x}" * 8
            statements.append(f"INSERT INTO items VALUES ({key + number % 3},{number},'{note}')")
        else:
            statements.append(f"UPDATE items SET n = n + 1 WHERE id = {key}")
    yield from _parts(statements, SENT)


def _hot_batches(writer: int, changes: int) -> Iterator[Sequence[str]]:
    statements = []
    for number in range(changes):
        spread = (number * WRITERS + writer) * _SPREAD % 2**32
        rows = HOT_TABLE_ROWS if spread % 10 == 0 else HOT_ROWS
        key = spread // 10 % (rows // WRITERS) * WRITERS + writer
        statements.append(
            f"UPDATE items SET n = n + 1, note = 'change {number} of it' WHERE id = {key}"
        )
    yield from _parts(statements, SENT)


def _text_batches(writer: int, changes: int) -> Iterator[Sequence[str]]:
    """Two transactions of inserts, then one that updates the rows of the first."""
    for number in range(max(changes // ROWS, 1)):
        first = number // 3 * 2 * ROWS
        if number % 3 < 2:
            start = first + number % 3 * ROWS
            names = [_name(writer, key) for key in range(start, start + ROWS)]
            rows = ",".join(f"('{name}',{number},'a note of {name}')" for name in names)
            yield [f"INSERT INTO items VALUES {rows}"]
        else:
            keys = ",".join(f"'{_name(writer, key)}'" for key in range(first, first + ROWS))
            yield [f"UPDATE items SET n = n + 1, note = 'changed' WHERE name IN ({keys})"]


def _name(writer: int, key: int) -> str:
    return f"{_WORDS[key % len(_WORDS)]} {writer}-{key * _SPREAD % 2**32:08x}-{key}"


def _parts(statements: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    for first in range(0, len(statements), size):
        yield statements[first : first + size]
