"""Two tables with rows that exist already, and a load that changes them in every way a snapshot can meet."""

import random
import threading
from dataclasses import dataclass, field

from millrace.deploy.servers import DatabaseServer, sql
from tests.kit.capture.topic_copy import Key, Row

PAUSE_S = (
    0.004  # between two source transactions: a topic must stay small enough to be read in Python
)
TABLES = {
    "items": (
        "(id INT NOT NULL PRIMARY KEY, name VARCHAR(40), price DECIMAL(10,2), at DATETIME(3))",
        ("id",),
    ),
    "words": (
        "(lang VARCHAR(5) NOT NULL, word VARCHAR(30) COLLATE utf8mb4_general_ci NOT NULL, n INT,"
        " PRIMARY KEY (lang, word))",
        ("lang", "word"),
    ),
}


@dataclass
class Restless:
    """``write`` changes rows until ``stop``, with the same seed in the same order."""

    server: DatabaseServer
    database: str
    rows: int = 3000
    seed: int = 1
    changes: int = 0
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def fill(self) -> None:
        """Create the tables with their first rows."""
        with sql.root_connection(self.server.socket, database=self.database) as connection:
            cursor = connection.cursor()
            for name, (columns, _) in TABLES.items():
                cursor.execute(f"CREATE TABLE {name} {columns}")
            for start in range(0, self.rows, 500):
                numbers = range(start, min(start + 500, self.rows))
                items = ", ".join(
                    f"({2 * n}, 'name {n}', {n}.25, '2026-01-01 00:00:00.{n % 1000:03}')"
                    for n in numbers
                )
                cursor.execute(f"INSERT INTO items VALUES {items}")
                words = ", ".join(f"('l{n % 3}', 'Word {n}', {n})" for n in numbers)
                cursor.execute(f"INSERT INTO words VALUES {words}")
            connection.commit()

    def start(self) -> None:
        """Run the load in a thread."""
        self._thread = threading.Thread(target=self.write, name="restless")
        self._thread.start()

    def stop(self) -> None:
        """End the load."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def write(self) -> None:
        """Source transactions of one to three changes."""
        chance = random.Random(self.seed)
        with sql.root_connection(self.server.socket, database=self.database) as connection:
            cursor = connection.cursor()
            while not self._stop.wait(PAUSE_S):
                cursor.execute("BEGIN")
                for _ in range(chance.randint(1, 3)):
                    cursor.execute(self._change(chance))
                cursor.execute("COMMIT")
                self.changes += 1

    def _change(self, chance: random.Random) -> str:
        number, other = (chance.randrange(2 * self.rows) for _ in range(2))
        word = f"lang = 'l{number % 3}' AND word = 'word {number}'"
        return chance.choice(
            (
                f"REPLACE INTO items VALUES ({number}, 'new {other}', {other}.50, NULL)",
                f"UPDATE items SET price = price + 1 WHERE id = {number}",
                f"DELETE FROM items WHERE id = {number}",
                f"UPDATE IGNORE items SET id = {other} WHERE id = {number}",  # its key moves
                f"UPDATE words SET n = n + 1 WHERE {word}",
                f"UPDATE IGNORE words SET word = 'WORD {number}' WHERE {word}",  # equal in its collation
                f"UPDATE IGNORE words SET lang = 'l{other % 3}', word = 'word {other}' WHERE {word}",
                f"DELETE FROM words WHERE {word}",
                f"INSERT IGNORE INTO words VALUES ('l{other % 3}', 'Word {other}', -1)",
            )
        )

    def tables(self) -> dict[str, dict[Key, Row]]:
        """The rows that the server has now."""
        found: dict[str, dict[Key, Row]] = {}
        with sql.root_connection(self.server.socket, database=self.database) as connection:
            cursor = connection.cursor()
            for name, (_, key) in TABLES.items():
                cursor.execute(f"SELECT * FROM {name} LIMIT 0")
                columns = [column[0] for column in cursor.description]
                shown = ", ".join(f"CAST({column} AS CHAR)" for column in columns)
                cursor.execute(f"SELECT {shown} FROM {name}")
                rows: list[Row] = [
                    dict(zip(columns, row, strict=True)) for row in cursor.fetchall()
                ]
                found[name] = {tuple(str(row[part]) for part in key): row for row in rows}
        return found
