"""Tables as servers report them: SELECT against the replayed records, ``CHECKSUM TABLE`` of source against target."""

from collections.abc import Mapping

from millrace.deploy.servers import DatabaseServer
from tests.oracle.books import Table, check_rows

Sums = Mapping[str, object]
SELECTED = {
    "entries": ("writer", "n", "ghost", "row_count"),
    "accounts": ("id", "balance"),
    "seats": ("id", "place", "code", "ghost"),
    "specimens": ("id", "ghost", "tiny", "big", "exact", "name", "body", "lump"),
    "loose": ("writer", "body"),
    "passing": ("id", "body"),
    "never": ("id",),
}  # all others: id, body; only columns that every row's records contain


def sums_of(server: DatabaseServer, database: str) -> Sums:
    """``CHECKSUM TABLE`` by table name; None for a table that can't be read."""
    return {
        name: server.execute(f"CHECKSUM TABLE `{database}`.`{name}`")[0][1]
        for name in _names(server, database)
    }


def check_sums(source: Sums, target: Sums) -> None:
    """Check that both have the same tables with the same checksums."""
    assert source, "no table"
    assert None not in source.values(), f"no sum: {source}"
    wrong = {
        name: (source.get(name), target.get(name))
        for name in sorted(source.keys() | target.keys())
        if (name in source, source.get(name)) != (name in target, target.get(name))
    }
    assert not wrong, f"CHECKSUM TABLE differs, (source, target): {wrong}"


def check_replayed(server: DatabaseServer, database: str, replayed: Mapping[str, Table]) -> None:
    """Check that the server's tables and rows equal the replayed ones."""
    names = _names(server, database)
    assert sorted(names) == sorted(replayed), f"{names}, in the records {sorted(replayed)}"
    for name, table in replayed.items():
        columns = SELECTED.get(name.replace("passed_by", "passing"), ("id", "body"))
        rows = server.execute(f"SELECT {', '.join(columns)} FROM `{database}`.`{name}`")
        check_rows(name, table, (dict(zip(columns, row, strict=True)) for row in rows))


def _names(server: DatabaseServer, database: str) -> list[str]:
    return [str(name) for (name,) in server.execute(f"SHOW TABLES IN `{database}`")]
