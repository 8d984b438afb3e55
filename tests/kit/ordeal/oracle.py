"""Whether two servers have the same tables, by plain SQL only; and random damage on one of them."""

import random
import re
from collections import Counter

import pymysql

from millrace.deploy.servers import DatabaseServer
from tests.kit.ordeal.columns import quoted
from tests.kit.ordeal.writes import root

_AUTO_INCREMENT = re.compile(r" AUTO_INCREMENT=\d+")
_IMPLIED = re.compile(r" CHARACTER SET \w+(?= COLLATE)")  # MySQL shows it or not, as it was created
_PLAIN = ("int", "decimal", "double", "year")
_TIMES = ("date", "time")
SHOWN = 3  # rows of a difference
CHECKSUM_ROWS = "checksum of equal rows"


def names(server: DatabaseServer, database: str) -> list[str]:
    """The tables."""
    found = server.execute(f"SHOW FULL TABLES IN {quoted(database)} WHERE Table_type <> 'VIEW'")
    return sorted(str(name) for name, _ in found)


def definition(server: DatabaseServer, database: str, table: str) -> str:
    """SHOW CREATE TABLE without the next number, and without character sets that a collation names."""
    ((_, text),) = server.execute(f"SHOW CREATE TABLE {quoted(database)}.{quoted(table)}")
    return _IMPLIED.sub("", _AUTO_INCREMENT.sub("", str(text)))


def rows(server: DatabaseServer, database: str, table: str) -> Counter[tuple[object, ...]]:
    """All rows with all values exactly."""
    types = server.execute(
        "SELECT COLUMN_NAME, DATA_TYPE FROM information_schema.COLUMNS"
        " WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s ORDER BY ORDINAL_POSITION",
        (database, table),
    )
    chosen = ", ".join(_exact(quoted(str(name)), str(kind).lower()) for name, kind in types)
    return Counter(server.execute(f"SELECT {chosen} FROM {quoted(database)}.{quoted(table)}"))


def _exact(name: str, kind: str) -> str:
    if kind == "float":
        return f"CAST({name} AS DOUBLE)"
    if kind in ("bit", "enum", "set"):
        return f"{name} + 0"
    if kind.startswith(_TIMES):
        return f"CAST({name} AS CHAR)"
    if kind.endswith(_PLAIN):
        return name
    return f"HEX(CAST({name} AS CHAR))" if kind == "json" else f"HEX({name})"


def differences(source: DatabaseServer, target: DatabaseServer, database: str) -> list[str]:
    """The differences as text. Rows are compared whatever the structure says."""
    here, there = names(source, database), names(target, database)
    found = [f"{name}: only one server has it" for name in sorted({*here} ^ {*there})]
    for name in sorted({*here} & {*there}):
        texts = [definition(server, database, name) for server in (source, target)]
        if texts[0] != texts[1]:
            found.append(f"{name}: {texts[0]}\n on the target: {texts[1]}")
            continue
        left, right = (rows(server, database, name) for server in (source, target))
        if left != right:
            missing, extra = left - right, right - left
            found.append(
                f"{name}: {left.total()} rows, {missing.total()} missing, {extra.total()} extra;"
                f" {_shown(missing)} / {_shown(extra)}"
            )
        elif not _same_checksum(source, target, f"{quoted(database)}.{quoted(name)}"):
            found.append(f"{name}: {CHECKSUM_ROWS} differs")
    return found


def _shown(found: Counter[tuple[object, ...]]) -> str:
    return "; ".join(str(row)[:300] for row in list(found)[:SHOWN])


def _same_checksum(source: DatabaseServer, target: DatabaseServer, table: str) -> bool:
    """CHECKSUM TABLE differs for equal rows with columns that are computed when they are read."""
    text = str(source.execute(f"SHOW CREATE TABLE {table}"))
    if "VIRTUAL" in text or " array)" in text:
        return True
    sums = [server.execute(f"CHECKSUM TABLE {table}") for server in (source, target)]
    return sums[0] == sums[1]


def damage(target: DatabaseServer, database: str, *, seed: int, count: int) -> set[str]:
    """Change, delete and insert rows of random tables; their names. A change of one row may undo no other."""
    chance = random.Random(seed)
    there = list(names(target, database))
    before = {name: rows(target, database, name) for name in there}
    with root(target, database) as cursor:
        cursor.execute("SET foreign_key_checks = 0")
        for _ in range(count):
            name = chance.choice(there)
            table = quoted(name)
            kind = chance.choice(("delete", "update", "copy"))
            try:
                if kind == "delete":
                    cursor.execute(f"DELETE FROM {table} LIMIT 1")
                elif kind == "update":
                    cursor.execute(f"SHOW COLUMNS FROM {table} WHERE Extra NOT LIKE '%GENERATED%'")
                    columns = [quoted(str(column[0])) for column in cursor.fetchall()]
                    cursor.execute(
                        f"UPDATE IGNORE {table} SET {chance.choice(columns)} = 3 LIMIT 2"
                    )
                else:
                    cursor.execute(f"INSERT IGNORE INTO {table} () VALUES ()")
            except pymysql.Error:
                continue
    return {name for name in there if rows(target, database, name) != before[name]}
