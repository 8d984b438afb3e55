"""Source and target by the servers' own sums: ``CHECKSUM TABLE``, which knows nothing of us."""

from collections.abc import Mapping

from deploy.servers import DatabaseServer

Sums = Mapping[str, object]


def sums_of(server: DatabaseServer, database: str) -> Sums:
    """By table name; None for what can't be read."""
    names = [str(name) for (name,) in server.execute(f"SHOW TABLES IN `{database}`")]
    return {name: server.execute(f"CHECKSUM TABLE `{database}`.`{name}`")[0][1] for name in names}


def check_sums(source: Sums, target: Sums) -> None:
    """Same tables, same sums."""
    assert source, "no table"
    assert None not in source.values(), f"no sum: {source}"
    wrong = {
        name: (source.get(name), target.get(name))
        for name in sorted(source.keys() | target.keys())
        if (name in source, source.get(name)) != (name in target, target.get(name))
    }
    assert not wrong, f"CHECKSUM TABLE differs, (source, target): {wrong}"
