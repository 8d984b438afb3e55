"""The bulk load of the benchmarks: 600,000 row changes in transactions of 500 rows.

Two tables share them evenly: ``plain`` (4 columns, rows of 200 bytes) and ``orders`` (12 columns with
DECIMAL, ENUM, JSON, DATETIME(6), BIT and NULLs). Two thirds are inserts, one third updates of inserted rows.
The values depend only on the row number.
"""

from collections.abc import Iterator

from millrace.deploy.workload.shop import Connect

DATABASE = "bench"
ROWS_PER_TRANSACTION = 500
CHANGES = 600_000

CREATE = (
    "CREATE TABLE plain (id BIGINT NOT NULL PRIMARY KEY, a INT NOT NULL, b VARCHAR(40) NOT NULL,"
    " c VARCHAR(200) NOT NULL) DEFAULT CHARSET=utf8mb4",
    "CREATE TABLE orders (id BIGINT UNSIGNED NOT NULL PRIMARY KEY, customer INT UNSIGNED NOT NULL,"
    " state ENUM('open','paid','shipped') NOT NULL, total DECIMAL(14,2) NOT NULL, tax DECIMAL(10,4),"
    " placed DATETIME(6) NOT NULL, shipped DATETIME NULL, gift BIT(1) NOT NULL, weight DOUBLE,"
    " note VARCHAR(100), extra JSON, region CHAR(2) NOT NULL) DEFAULT CHARSET=utf8mb4",
)


def create_load(connect: Connect, *, database: str = DATABASE) -> None:
    connection = connect()
    cursor = connection.cursor()
    cursor.execute(f"CREATE DATABASE {database}")
    cursor.execute(f"USE {database}")
    for statement in CREATE:
        cursor.execute(statement)
    connection.close()


def run_load(connect: Connect, *, changes: int = CHANGES, database: str = DATABASE) -> int:
    """Make ``changes`` row changes (a multiple of 3,000), one transaction at a time. Returns their number."""
    connection = connect()
    cursor = connection.cursor()
    cursor.execute(f"USE {database}")
    done = 0
    for statement in _statements(changes // (6 * ROWS_PER_TRANSACTION)):
        done += cursor.execute(statement)
        connection.commit()
    connection.close()
    return done


def _statements(rounds: int) -> Iterator[str]:
    """Each round has two inserts and one update of 500 rows in each table."""
    for number in range(rounds):
        first = number * 2 * ROWS_PER_TRANSACTION
        for start in (first, first + ROWS_PER_TRANSACTION):
            keys = range(start, start + ROWS_PER_TRANSACTION)
            yield "INSERT INTO plain VALUES " + ",".join(map(_plain_row, keys))
            yield "INSERT INTO orders VALUES " + ",".join(map(_orders_row, keys))
        last = first + ROWS_PER_TRANSACTION - 1
        yield f"UPDATE plain SET a = a + 1 WHERE id BETWEEN {first} AND {last}"
        yield (
            "UPDATE orders SET state = 'paid', total = total + 1.25, note = 'paid in full'"
            f" WHERE id BETWEEN {first} AND {last}"
        )


def _plain_row(key: int) -> str:
    text = f"{key * 2654435761 % 2**32:08x}"
    return f"({key},{key % 1000},'{text * 4}','{text * 18}')"


def _orders_row(key: int) -> str:
    spread = key * 2654435761 % 2**32
    shipped = "NULL" if key % 3 else f"'2026-02-{key % 28 + 1:02} 08:30:00'"
    note = "NULL" if key % 4 == 0 else f"'left at {spread:x}'"
    tax = "NULL" if key % 5 == 0 else f"{spread % 10**6}.{key % 10000:04}"
    return (
        f"({key},{spread % 100000},{key % 3 + 1},{spread}.{key % 100:02},{tax},"
        f"'2026-01-{key % 28 + 1:02} 12:{key % 60:02}:59.{spread % 10**6:06}',{shipped},{key % 2},"
        f'{spread / 7.0!r},{note},\'{{"a": {key}, "b": [true, null, "x{spread}"]}}\',\'D{key % 10}\')'
    )
