"""Plans a load.

``plan_first`` refuses a table of the target that has rows (MR-5091) or another structure (MR-5092), and stores range
and tables. It changes nothing else, so it may be repeated. ``consumer.load.remaining`` then creates those that are
missing: whatever the source does with a table after its creation is in the stored range, so its stream follows.

``consumer.load.prepare_again`` prepares later loads, and ``consumer.load.remaining`` finds what is left to copy.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from millrace.consumer.load.prepare import check_sole, has_rows
from millrace.consumer.load.structure import definition, hash_of, without_rows
from millrace.consumer.load.tables import (
    NO_COLLATIONS,
    Admission,
    SourceTable,
    check_same,
    check_viewed,
    on_target,
    tables_to_load,
)
from millrace.consumer.tables.filter import Route
from millrace.consumer.tables.related import by_sources
from millrace.consumer.target import loads
from millrace.consumer.target.loads import COPIES, LoadStream, LoadTable, Reach
from millrace.consumer.target.progress import Owner
from millrace.consumer.target.stored_view import insert_view
from millrace.drivers.mysql.catalog import (
    ForeignKey,
    Inventory,
    TableKey,
    read_collations,
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
from millrace.log import get_logger
from millrace.schemas.gtid import Flavour
from millrace.schemas.table.table_filter import SYSTEM_DATABASES
from millrace.schemas.view.definition import FindParent, Parent, viewed_definition

UNSEEN = -1  # the seq of no record: the view holds from the first one on
_CASCADES = re.compile(r"ON (?:DELETE|UPDATE) (?:CASCADE|SET (?:NULL|DEFAULT))")
_LOGGING_SINCE = (9, 6, 0)  # MySQL: cascades run in SQL, and the rows they change are logged

_log = get_logger("apply.load")


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
    logs_cascades: bool = True

    @property
    def route(self) -> Route:
        """The choice and the names of tables."""
        return Route(self.admission.applied, self.target.folds_names)

    @property
    def foreign_keys(self) -> tuple[ForeignKey, ...]:
        """Those of both servers, by the names of states."""
        return (*on_target(self.source.foreign_keys, self.target), *self.target_keys)

    @property
    def target_keys(self) -> tuple[ForeignKey, ...]:
        """Those of the target, by the names of states."""
        places = {table.key: table.place for table in self.tables}
        return by_sources(self.target.foreign_keys, places, self.route)

    @property
    def known(self) -> frozenset[TableKey]:
        """The tables of the task, on either side, by the names of states."""
        there = (key for key in self.target.tables if self.route.keeps(*key))
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
    collations = NO_COLLATIONS
    if admission.applied.as_filter is None:
        collations = read_collations(ends.source)
        ends.source.rollback()
    tables = tables_to_load(source, target, admission, logs_cascades=logs, collations=collations)
    return Sides(source, target, tables, admission, logs)


def logs_cascades(source: MySqlSession) -> bool:
    """Whether the server logs the rows that a foreign key's cascade changes."""
    if source.flavour is Flavour.MARIADB or source.version.numbers < _LOGGING_SINCE:
        return False
    native = source.query("SHOW GLOBAL VARIABLES LIKE 'innodb_native_foreign_keys'")
    return not native or str(native[0][1]).upper() in ("OFF", "0")


def plan_first(ends: Ends, admission: Admission, stream: LoadStream) -> None:
    """Plan the first load of a task and store it, with its view. Fatal MR-5007, MR-5091, MR-5092, MR-5095.

    Those of ``check_viewed``, too, and MR-5207 if another task writes the table.
    """
    check_rights(ends.source, admission)
    sides = read_sides(ends, admission)
    for table in sides.tables:
        if table.viewed is not None:
            check_sole(ends.target, ends.owner.task, table.place, is_viewed=True)
        if table.place not in sides.target.tables:
            continue
        check_structure(table, sides)
        if not table.table.is_sequence and has_rows(ends.target, table.place):
            raise Fatal("MR-5091", f"{table.shown} has rows on the target", table=table.shown)
    sizes = table_sizes(ends.source)
    task = ends.owner.task
    loads.plan_load(
        ends.target,
        ends.owner,
        stream,
        [planned(table, definition_of(ends, table), stream, sizes) for table in sides.tables],
        also=lambda: insert_view(ends.target, task, admission.applied, begin_seq=UNSEEN),
    )


def check_structure(table: SourceTable, sides: Sides) -> None:
    """Errors of ``check_viewed`` or ``check_same`` if the target's table does not take the rows."""
    if table.viewed is not None:
        check_viewed(table, sides.target)
    else:
        is_same = sides.source.flavour is sides.target.flavour
        check_same(table, sides.target.tables[table.place], is_same_flavour=is_same)


def creation_of(table: SourceTable, text: str, sides: Sides) -> str:
    """The statement that creates the table. ``text``: its definition on the source.

    Fatal MR-5206 if the target would be without a foreign key whose cascades the source does not log.
    """
    if table.viewed is None:
        return text
    made = viewed_definition(text, table.viewed.view, table.viewed.schema, _parents(sides))
    lost = [line for line in made.left_out if "FOREIGN KEY" in line and _CASCADES.search(line)]
    if lost and not sides.logs_cascades:
        what = f"{table.shown}: the view has no parent for {lost[0]}, whose cascades the source does not log"
        raise Fatal("MR-5206", what, table=table.shown)
    if made.left_out:
        _log.warning("a table is created in part", table=table.shown, left_out=list(made.left_out))
    return made.sql


def _parents(sides: Sides) -> FindParent:
    known = {table.table.key: table for table in sides.tables}

    def find(database: str, name: str) -> Parent | None:
        table = known.get((database, name))
        if table is None:
            return None
        if table.viewed is not None:
            return Parent.of(table.viewed.view, table.viewed.schema)
        return Parent(table.place, {column.lower(): column for column in table.table.columns})

    return find


def definition_of(ends: Ends, table: SourceTable) -> str:
    """SHOW CREATE of the source."""
    ends.alive()
    return definition(ends.source, table.table)


def planned(
    table: SourceTable, text: str, stream: LoadStream, sizes: Mapping[TableKey, tuple[int, int]]
) -> LoadTable:
    """The table as it is stored before its first row. ``text``: its definition."""
    plain = without_rows(text)
    return LoadTable(
        table.key,
        COPIES,
        Reach(stream.begin),
        table.chunk_key.order_name if table.chunk_key else "",
        plain if table.viewed is None else hash_of(plain),
        expected=sizes.get(table.table.key, (0, 0))[0],
        detail=table.why_snapshot,
    )


def table_sizes(session: MySqlSession) -> Mapping[TableKey, tuple[int, int]]:
    """Those of all tables (``read_sizes``). Ends the transaction."""
    sizes = read_sizes(session, read_databases(session) - SYSTEM_DATABASES)
    session.rollback()
    return sizes
