"""Tables with keys of each kind, filled, for loads."""

from collections.abc import Collection

from millrace.deploy.servers import DatabaseSet
from millrace.schemas.gtid import Flavour

COUNT = 500


def definitions(database: str) -> dict[str, str]:
    """By table, its columns and keys."""
    parent = f"REFERENCES {database}.parent (id)"
    return {
        "composite": "a INT, b VARCHAR(20), v TEXT, PRIMARY KEY (b, a), KEY (a)",
        "texts": "k VARCHAR(30) COLLATE utf8mb4_general_ci PRIMARY KEY, v INT, KEY (v)",
        "computed": "id INT PRIMARY KEY, v INT, g INT AS (v * 2) STORED, h INT AS (v + 1) VIRTUAL",
        "defaults": "id INT PRIMARY KEY, b VARBINARY(4) DEFAULT x'00ff'",
        "keyless": "a INT, b VARCHAR(20)",
        "uniques": "id INT PRIMARY KEY, u INT, UNIQUE KEY (u)",
        "vacant": "id INT PRIMARY KEY",
        "parent": "id INT PRIMARY KEY, v INT",
        "child": f"id INT PRIMARY KEY, p INT, FOREIGN KEY (p) {parent} ON DELETE CASCADE",
        "heir": f"id INT PRIMARY KEY, p INT, FOREIGN KEY (p) {parent} ON DELETE SET NULL",
        "parted": "id INT PRIMARY KEY, v INT",
    }


ROWS = {
    "composite": "n, CONCAT('k', n % 7), REPEAT('x', n % 50)",
    "texts": "CONCAT(IF(n % 2, 'É', 'e'), n), n",
    "computed (id, v)": "n, n",
    "defaults (id)": "n",
    "keyless": "n % 20, 'twice'",
    "uniques": "n, n + 1",
    "parent": "n, 0",
    "child": "n, n",
    "heir": "n, n",
    "parted": "n, n",
}


def create_filled(source: DatabaseSet, database: str, *, leaves: Collection[str] = ()) -> None:
    """Create the tables in the database, with ``COUNT`` rows in most of them, and a sequence on MariaDB.

    Without those that ``leaves`` names.
    """
    wanted = {table: each for table, each in definitions(database).items() if table not in leaves}
    for table, definition in wanted.items():
        suffix = " PARTITION BY HASH (id) PARTITIONS 3" if table == "parted" else ""
        source.execute(f"CREATE TABLE {database}.{table} ({definition}){suffix}")
    digits = " UNION ALL ".join(f"SELECT {n} AS n" for n in range(10))
    numbers = (
        "(SELECT a.n + 10 * b.n + 100 * c.n AS n FROM"
        f" ({digits}) a, ({digits}) b, ({digits}) c) numbers WHERE n < {COUNT}"
    )
    for table, values in ROWS.items():
        if table.split()[0] not in wanted:
            continue
        source.execute(f"INSERT INTO {database}.{table} SELECT {values} FROM {numbers}")
    if source.flavour is Flavour.MARIADB:
        source.execute(f"CREATE SEQUENCE {database}.numbers START WITH 5 INCREMENT BY 3")
        source.execute(f"SELECT NEXTVAL({database}.numbers)")
