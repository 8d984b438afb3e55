"""The GTID sets of a member that frame what a load reads there.

    begin    MySQL     ``gtid_executed``. It gets a transaction after this became visible, so all of it is visible to
                       later reads
             MariaDB   the place of a consistent snapshot in the binlog, as GTIDs. ``gtid_binlog_pos`` gets a
                       transaction before this becomes visible
    end      MySQL     ``gtid_owned``, then ``gtid_executed``, united. A transaction that is visible is in one of
                       them: it leaves the first when it enters the second
             MariaDB   ``gtid_binlog_pos``
    exact    MySQL     ``gtid_executed`` while LOCK TABLES … READ keeps all writers from the tables, for the snapshot
                       of another session that begins before they are unlocked. It is exact for these tables only
             MariaDB   that of the snapshot itself; no lock

On MariaDB all are united with ``gtid_slave_pos``, read before a begin: it names what a member got from a backup and
never logged, and it gets a transaction with the transaction's own commit.
"""

from collections.abc import Sequence

from millrace.drivers.mysql.catalog import TableKey
from millrace.drivers.mysql.connection import MySqlSession, connect
from millrace.errors import Retryable
from millrace.schemas.gtid import Flavour, GtidPosition, GtidSet, parse_gtid_set, unite
from millrace.schemas.sql.quoting import table_name

LOCK_WAIT_S = 2  # writers queue up after a lock that waits
LOCK_TRIES = 15


def executed(session: MySqlSession) -> GtidPosition:
    """All transactions that the member has committed, and perhaps some that are not visible yet (MariaDB)."""
    if session.flavour is Flavour.MYSQL:
        return _read(session, "gtid_executed")
    return unite(_read(session, "gtid_binlog_pos"), _read(session, "gtid_slave_pos"))


def read_begin(session: MySqlSession) -> GtidPosition:
    """Transactions that are visible to every later read. Ends the session's transaction."""
    if session.flavour is Flavour.MYSQL:
        return _read(session, "gtid_executed")
    found = begin_snapshot(session)
    session.rollback()
    return found


def read_end(session: MySqlSession) -> GtidPosition:
    """All transactions of which an earlier read may have seen a row, and perhaps more."""
    if session.flavour is Flavour.MARIADB:
        return executed(session)
    ((owned,),) = session.query("SELECT @@global.gtid_owned")
    return unite(GtidSet.parse_owned(str(owned or "")), _read(session, "gtid_executed"))


def begin_exact(session: MySqlSession, tables: Sequence[TableKey]) -> GtidPosition:
    """Begin a snapshot in this session: the rows of these tables are those of exactly this GTID set.

    Retryable MR-5005 if the tables can't be locked soon (MySQL).
    """
    if session.flavour is Flavour.MARIADB:
        return begin_snapshot(session)
    with connect(session.endpoint) as locking:
        _lock(locking, tables)
        found = _read(locking, "gtid_executed")
        _start_snapshot(session)
        locking.query("UNLOCK TABLES")
        return found


def begin_snapshot(session: MySqlSession) -> GtidPosition:
    """Begin a snapshot of MariaDB; the GTID set that is visible in it. Retryable MR-5093 if its binlog file is gone."""
    before = _read(session, "gtid_slave_pos")
    _start_snapshot(session)
    places = session.query("SHOW STATUS LIKE 'binlog\\_snapshot\\_%'")
    at = {str(name).lower(): value for name, value in places}
    file, position = at["binlog_snapshot_file"], int(str(at["binlog_snapshot_position"]))
    ((gtids,),) = session.query("SELECT BINLOG_GTID_POS(%s, %s)", (file, position))
    if gtids is None:
        raise Retryable("MR-5093", f"the server can't read its binlog {file} at {position}")
    return unite(before, parse_gtid_set(Flavour.MARIADB, str(gtids)))


def _start_snapshot(session: MySqlSession) -> None:
    session.rollback()
    session.query("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    session.query("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")


def _lock(session: MySqlSession, tables: Sequence[TableKey]) -> None:
    session.query(f"SET SESSION lock_wait_timeout = {LOCK_WAIT_S}")
    named = ", ".join(f"{table_name(*table).decode()} READ" for table in tables)
    for number in range(LOCK_TRIES):
        try:
            session.query(f"LOCK TABLES {named}")
        except Retryable as exc:
            if exc.code != "MR-5005" or number == LOCK_TRIES - 1:
                raise
        else:
            return


def _read(session: MySqlSession, name: str) -> GtidPosition:
    ((value,),) = session.query(f"SELECT @@global.{name}")
    return parse_gtid_set(session.flavour, str(value or ""))
