"""A table for each case of ``type_values`` on a server, and the comparison of its records with what SELECT returns."""

from collections.abc import Sequence

from millrace.deploy.servers import DatabaseServer
from tests.kit.binlog.session import Cursor, logged
from tests.kit.type_values import TypeCase


def check_records(server: DatabaseServer, database: str, cases: Sequence[TypeCase]) -> None:
    """Insert, both images of an update, delete, and NULL: each record holds what SELECT returns."""
    with logged(server, database) as source:
        selected = {
            f"t{n}": fill_types(source.cursor, case, f"t{n}") for n, case in enumerate(cases)
        }
        conversion = source.conversion()
    found: dict[str, dict[int, set[object]]] = {}
    for row in conversion.rows():
        for image in (row.change.before, row.change.after):
            if image is not None:
                place = found.setdefault(row.source.table, {}).setdefault(
                    int(str(image["id"])) % 1000, set()
                )
                place.add(image["v"])
    for number, case in enumerate(cases):
        images = found[f"t{number}"]
        null = len(case.values) + 1
        assert images.pop(null) == {None}, case.ddl
        read = {row: {case.reads(value) for value in values} for row, values in images.items()}
        wanted = {row: {value} for row, value in selected[f"t{number}"].items()}
        assert read == wanted, case.ddl


def fill_types(cursor: Cursor, case: TypeCase, table: str) -> dict[int, object]:
    """The table of one case, and the result of SELECT for each row."""
    cursor.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY, v {case.ddl})")
    for number, value in enumerate((*case.values, "NULL"), 1):
        cursor.execute(f"INSERT INTO {table} VALUES ({number}, {value})")
    cursor.execute(f"SELECT id, {case.tells} FROM {table} WHERE v IS NOT NULL")
    selected = dict(cursor.fetchall())
    cursor.execute(f"UPDATE {table} SET id = id + 1000")
    cursor.execute(f"DELETE FROM {table} WHERE id > 1000")
    return selected
