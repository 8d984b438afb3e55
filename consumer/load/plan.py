"""Plans a load.

``plan_first`` refuses a table of the target that has rows (MR-5091) or another structure (MR-5092), and stores range
and tables. It changes nothing else, so it may be repeated. ``consumer.load.remaining`` then creates those that are
missing: whatever the source does with a table after its creation is in the stored range, so its stream follows.

``consumer.load.prepare_again`` prepares later loads, and ``consumer.load.remaining`` finds what is left to copy.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from millrace.consumer.load.prepare import has_rows
from millrace.consumer.load.structure import definition, without_rows
from millrace.consumer.load.tables import (
    Admission,
    SourceTable,
    check_same,
    on_target,
    tables_to_load,
)
from millrace.consumer.tables.filter import Route
from millrace.consumer.target import loads
from millrace.consumer.target.loads import COPIES, LoadStream, LoadTable, Reach
from millrace.consumer.target.progress import Owner
from millrace.drivers.mysql.catalog import (
    ForeignKey,
    Inventory,
    TableKey,
    read_databases,
    read_inventory,
    read_sizes,
)
from millrace.drivers.mysql.connection import MySqlSession, text_of
from millrace.drivers.mysql.grants import (
    Missing,
    Role,
    as_grant_pattern,
    held_grants,
    needed_grants,
)
from millrace.errors import Fatal
from millrace.schemas.gtid import Flavour
from millrace.schemas.table.table_filter import SYSTEM_DATABASES

_LOGGING_SINCE = (9, 6, 0)  # MySQL: cascades run in SQL, and the rows they change are logged


@dataclass(frozen=True, slots=True)
class Ends:
    """Sessions on the member that is read and on the target, and who writes there.

    ``alive`` is called between two steps of a long plan.
    """

    source: MySqlSession
    target: MySqlSession
    owner: Owner
    alive: Callable[[], None] = lambda: None

    def stored(self) -> dict[TableKey, LoadTable]:
        """The tables of the task's loads, as the target has them now. Ends the transaction there."""
        found = loads.read_tables(self.target, self.owner.task)
        self.target.rollback()
        return found


@dataclass(frozen=True, slots=True)
class Sides:
    """The tables of both servers, and those of the source that the admission admits."""

    source: Inventory
    target: Inventory
    tables: list[SourceTable]
    admission: Admission

    @property
    def foreign_keys(self) -> tuple[ForeignKey, ...]:
        """Those of both servers, by the names on the target."""
        return (*on_target(self.source.foreign_keys, self.target), *self.target.foreign_keys)

    @property
    def known(self) -> frozenset[TableKey]:
        """The tables of the task, on either side, by their names on the target."""
        route = Route(self.admission.applied, self.target.folds_names)
        there = (key for key in self.target.tables if route.chooses(*key))
        return frozenset((*(table.key for table in self.tables), *there))


def missing_rights(source: MySqlSession, admission: Admission, role: Role = Role.LOAD) -> Missing:
    """The rights to read the tables on the source that the account is without. A server hides tables without them."""
    databases = admission.databases or _databases(source, admission)
    return held_grants(source).missing(needed_grants(role, source.flavour, databases))


def _databases(source: MySqlSession, admission: Admission) -> tuple[str, ...]:
    """The databases of the tables that both filters admit, as patterns of GRANT, if the filters name none."""
    filters = (admission.captured, admission.applied)
    rows = source.query("SELECT table_schema, table_name FROM information_schema.tables")
    keys = ((text_of(database), text_of(name)) for database, name in rows)
    admitted = (key for key in keys if all(one.admits(*key) for one in filters))
    return tuple(dict.fromkeys(as_grant_pattern(database) for database, _ in admitted))


def check_rights(source: MySqlSession, admission: Admission) -> None:
    """Fatal MR-5007 with the GRANT if a right to read the tables is missing."""
    if missing := missing_rights(source, admission):
        what = f"source {source.endpoint.name}: the account is {missing}"
        raise Fatal("MR-5007", what, fix=f"{missing.fix} (A load reads every row.)")


def read_sides(ends: Ends, admission: Admission) -> Sides:
    """Read the structure of both servers."""
    source = read_inventory(ends.source, with_folds=False)
    target = read_inventory(ends.target, with_folds=False)
    ends.source.rollback()
    ends.target.rollback()
    logs = logs_cascades(ends.source)
    tables = tables_to_load(source, target, admission, logs_cascades=logs)
    return Sides(source, target, tables, admission)


def logs_cascades(source: MySqlSession) -> bool:
    """Whether the server logs the rows that a foreign key's cascade changes."""
    if source.flavour is Flavour.MARIADB or source.version.numbers < _LOGGING_SINCE:
        return False
    native = source.query("SHOW GLOBAL VARIABLES LIKE 'innodb_native_foreign_keys'")
    return not native or str(native[0][1]).upper() in ("OFF", "0")


def plan_first(ends: Ends, admission: Admission, stream: LoadStream) -> None:
    """Plan the first load of a task and store it. Fatal MR-5007, MR-5091, MR-5092, MR-5095."""
    check_rights(ends.source, admission)
    sides = read_sides(ends, admission)
    is_same = sides.source.flavour is sides.target.flavour
    for table in sides.tables:
        if (there := sides.target.tables.get(table.key)) is None:
            continue
        check_same(table, there, is_same_flavour=is_same)
        if not table.table.is_sequence and has_rows(ends.target, table.key):
            name = ".".join(table.key)
            raise Fatal("MR-5091", f"{name} has rows on the target", table=name)
    sizes = table_sizes(ends.source)
    loads.plan_load(
        ends.target,
        ends.owner,
        stream,
        [planned(table, definition_of(ends, table), stream, sizes) for table in sides.tables],
    )


def definition_of(ends: Ends, table: SourceTable) -> str:
    """SHOW CREATE of the source."""
    ends.alive()
    return definition(ends.source, table.table)


def planned(
    table: SourceTable, text: str, stream: LoadStream, sizes: Mapping[TableKey, tuple[int, int]]
) -> LoadTable:
    """The table as it is stored before its first row. ``text``: its definition."""
    return LoadTable(
        table.key,
        COPIES,
        Reach(stream.begin),
        table.chunk_key.order_name if table.chunk_key else "",
        without_rows(text),
        expected=sizes.get(table.table.key, (0, 0))[0],
        detail=table.why_snapshot,
    )


def table_sizes(session: MySqlSession) -> Mapping[TableKey, tuple[int, int]]:
    """Those of all tables (``read_sizes``). Ends the transaction."""
    sizes = read_sizes(session, read_databases(session) - SYSTEM_DATABASES)
    session.rollback()
    return sizes
