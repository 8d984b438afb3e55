"""A topic whose statements and rows need every privilege of an apply task on a database."""

from millrace.schemas.gtid import Flavour
from tests.kit.apply.tables import integer, table, text
from tests.kit.apply.topic import RecordStream


def privileged_stream(flavour: Flavour, database: str) -> RecordStream:
    """Create and alter databases and tables under a source session's settings; write rows, linked and without a key."""
    session = {"time_zone": "+05:00", "foreign_key_checks": "1", "unique_checks": "1"}
    session |= {"explicit_defaults_for_timestamp": "1", "sql_mode": "NO_ZERO_DATE"}
    session |= dict.fromkeys(("collation_server", "collation_connection"), "utf8mb4_general_ci")
    if flavour is Flavour.MYSQL:
        session["default_collation_for_utf8mb4"] = "utf8mb4_0900_ai_ci"
    stream = RecordStream(flavour=flavour)
    for statement in (
        f"CREATE DATABASE {database}",
        "CREATE TABLE parent (id INT PRIMARY KEY, body VARCHAR(20))",
        "CREATE TABLE child (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES parent (id) ON DELETE CASCADE)",
        "CREATE TABLE bag (n INT)",
        "ALTER TABLE bag ADD COLUMN v INT",
        "CREATE INDEX by_v ON bag (v)",
        "TRUNCATE TABLE bag",
        "RENAME TABLE bag TO sack",
    ):
        stream.ddl(statement, database=database, session=session)
    parent = table(database, "parent", integer("id"), text("body"))
    child = table(database, "child", integer("id"), integer("p"))
    sack = table(database, "sack", integer("n"), integer("v"), key=())
    for number in range(20):
        stream.insert(parent, {"id": number, "body": "x"})
        stream.insert(child, {"id": number, "p": number})
        stream.insert(sack, {"n": number, "v": 0})
        stream.update(sack, {"n": number, "v": 0}, {"n": number, "v": 1})
    stream.delete(parent, {"id": 0, "body": "x"})
    stream.commit()
    stream.ddl("DROP TABLE sack", database=database, session=session)
    return stream
