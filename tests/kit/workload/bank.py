"""A bank: nothing but transfers, whose sum is constant after every source transaction.

    accounts    ACCOUNT_COUNT rows with OPENING each
    entries     one row (writer, n) per transfer: n counts the transfers of a teller, 1, 2, 3, …

A transfer changes two accounts and writes an entry. The tables are named and keyed as in the ledger, so the same oracle
reads both. A lost, repeated, torn or reordered transfer changes the sum, a balance or the numbers of the entries.
The sequence of transfers depends on ``seed`` alone, as far as no two tellers meet. Works on MySQL and MariaDB.
"""

import random
import threading
from collections.abc import Callable
from contextlib import ExitStack, closing
from functools import partial

from millrace.background import Background
from millrace.deploy.servers.sql import Overtaken, raising_overtaken
from millrace.deploy.workload.shop import Connect, Connection
from tests.kit.workload.ledger import ACCOUNT_COUNT, OPENING

TELLERS = 2
RATE = 40.0  # transfers a second of all tellers
CREATE = (
    "CREATE TABLE entries (writer INT NOT NULL, n INT NOT NULL, ghost TINYINT NOT NULL, row_count INT NOT NULL,"
    " PRIMARY KEY (writer, n))",
    "CREATE TABLE accounts (id INT NOT NULL PRIMARY KEY, balance BIGINT NOT NULL)",
)
ROWS = 3  # of a transfer


def create_bank(connect: Connect, *, database: str) -> None:
    """Create the database, its tables, and the accounts in one source transaction."""
    with closing(connect()) as connection:
        cursor = connection.cursor()
        cursor.execute(f"CREATE DATABASE `{database}` DEFAULT CHARSET utf8mb4")
        cursor.execute(f"USE `{database}`")
        for statement in CREATE:
            cursor.execute(statement)
        cursor.executemany(
            "INSERT INTO accounts VALUES (%s,%s)",
            [(number, OPENING) for number in range(1, ACCOUNT_COUNT + 1)],
        )
        connection.commit()


def open_bank(connect: Connect, *, seed: int, acknowledged: dict[int, int]) -> ExitStack:
    """Tellers that work for the length of the ``with`` block; it raises the error of one.

    ``acknowledged``: for each teller, the last n whose COMMIT was acknowledged. The connections must have the bank's
    database selected.
    """
    with ExitStack() as undo:
        for number in range(TELLERS):
            chance = random.Random(f"{seed}/{number}")
            work: Callable[[threading.Event], None] = partial(
                _serve, connect, number, chance, acknowledged
            )
            undo.enter_context(Background(f"teller-{number}", work))
        return undo.pop_all()


def _serve(
    connect: Connect,
    number: int,
    chance: random.Random,
    acknowledged: dict[int, int],
    stop: threading.Event,
) -> None:
    acknowledged[number] = 0
    with closing(connect()) as connection:
        while not stop.wait(TELLERS / RATE):
            giver, taker = sorted(chance.sample(range(1, ACCOUNT_COUNT + 1), 2))
            amount = chance.choice((-1, 1)) * chance.randint(1, 500)
            try:
                with raising_overtaken():
                    _transfer(connection, giver, taker, amount)
                    connection.cursor().execute(
                        "INSERT INTO entries (writer, n, ghost, row_count) VALUES (%s,%s,0,%s)",
                        (number, acknowledged[number] + 1, ROWS),
                    )
                    connection.commit()
            except Overtaken:
                connection.rollback()
            else:
                acknowledged[number] += 1


def _transfer(connection: Connection, giver: int, taker: int, amount: int) -> None:
    cursor = connection.cursor()
    for account, change in ((giver, -amount), (taker, amount)):
        cursor.execute("UPDATE accounts SET balance=balance+%s WHERE id=%s", (change, account))
