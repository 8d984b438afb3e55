"""Fatal MR-4240 for a request that can't be executed, each reason with its own fix. Pure."""

from collections.abc import Collection

from drivers.mysql.errors import NO_COLUMN
from millrace.errors import Fatal
from millrace.wording import near_names
from producer.snapshot.structure import CatalogTable
from schemas.snapshot import Name


def unpublished(pattern: str, names: Collection[Name], task: str) -> Fatal:
    """For a table, or a pattern, that matches none of ``names``, the tables that the task publishes."""
    near = "" if "*" in pattern or "?" in pattern else near_names(pattern, map(".".join, names))
    return Fatal(
        "MR-4240",
        f"{pattern} matches no table that the task {task} publishes{near}",
        fix="Name tables that exist on the source, are no views, and are admitted by `include` and `exclude`:"
        f" `millrace task show {task}`.",
    )


def unreadable(name: Name, table: CatalogTable | None) -> Fatal:
    """For a table of which no snapshot can be taken. None if it was dropped meanwhile."""
    full = ".".join(name)
    if table is None:
        return Fatal("MR-4240", f"{full}: it does not exist", fix="Leave it out of --tables.")
    fix = "Leave it out of --tables."
    if table.primary is None:
        key = "id BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY"
        fix = f"Add a primary key: `ALTER TABLE {full} ADD {key}`. Or leave it out of --tables."
    elif not table.is_versioned:
        fix = (
            "Give it a primary key of whole columns without a period, or leave it out of --tables."
        )
    return Fatal("MR-4240", f"{full}: {table.refusal()}", fix=fix)


def none_readable(patterns: Collection[str]) -> Fatal:
    """For patterns all of whose tables are left out."""
    return Fatal(
        "MR-4240",
        f"no table that {', '.join(patterns)} matches can be read",
        fix="Name one of the tables without a pattern: the command then shows why it can't be read.",
    )


def wrong_condition(table: CatalogTable, error: Fatal) -> Fatal:
    """For a condition that the server refuses with ``error``."""
    full = f"{table.database}.{table.table}"
    fix = (
        "Correct --where: one SQL condition for a row of the table, such as `--where 'id > 1000'`."
    )
    if error.code == "MR-1005":
        fix = error.fix
    elif error.errno == NO_COLUMN:
        fix = f"Correct --where: the columns of {full} are {', '.join(one.name for one in table.columns)}."
    return Fatal("MR-4240", f"the condition can't be used with {full}: {error.message}", fix=fix)
