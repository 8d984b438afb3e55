"""Servers that a cloud provider runs: which one it is, and what differs there. Pure, but for what a session answers.

    cloud       is recognized by           settings change in             binlogs are kept
    rds         datadir in /rdsdbdata      the DB parameter group         as the table mysql.rds_configuration says
    aurora      aurora_version             the DB cluster parameter group the same table
    cloud_sql   a version with -google     the database flags             binlog_expire_logs_seconds

``SET GLOBAL`` is refused there, so each fix names the place instead. On RDS and Aurora ``binlog_expire_logs_seconds``
has no meaning. The table has the row `binlog retention hours`, with NULL for "as soon as possible".

RDS for MariaDB gives no account SLAVE MONITOR. Its procedure mysql.rds_replica_status returns the same row.

Sources: the manuals of the three, see docs/cloud/. Nothing here has run on the clouds themselves.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING

from millrace.errors import Fatal, MillraceError

if TYPE_CHECKING:  # it imports ``grants``, which imports this module
    from millrace.drivers.mysql.connection import MySqlSession, NamedRow

RETENTION = "binlog retention hours"
"""Among a member's variables, as the table names it: a number, or one of the next two."""
AT_ONCE, UNREADABLE = "NULL", "unreadable"
CONFIGURATION = "mysql.rds_configuration"
REPLICA_STATUS = "mysql.rds_replica_status"
READER = "innodb_read_only"
CLOUD_VARIABLES = ("aurora_version", "datadir", READER)

RDS_DATA = "/rdsdbdata"  # where its data directories are
_REFUSED = frozenset({1044, 1142, 1143, 1146})  # no right to the table, or no such table
# RDS keeps its own tables out of its read replicas: none of them is published
_FILTERS = ("Replicate_Ignore_Table", "Replicate_Wild_Ignore_Table")
_OWN_DATABASES = ("mysql.", "innodb_memcache.")


class Cloud(StrEnum):
    RDS = "rds"
    AURORA = "aurora"
    CLOUD_SQL = "cloud_sql"


_NAMES = {Cloud.RDS: "Amazon RDS", Cloud.AURORA: "Amazon Aurora", Cloud.CLOUD_SQL: "Cloud SQL"}
_HOURS_MAX = {Cloud.RDS: 168, Cloud.AURORA: 2160}
_PLACES = {
    Cloud.RDS: "the DB parameter group of the instance",
    Cloud.AURORA: "the DB cluster parameter group",
    Cloud.CLOUD_SQL: "the database flags of the instance",
}
_BINLOGS = {
    Cloud.RDS: "turn on automated backups: set the backup retention period of the instance to a day or more",
    Cloud.AURORA: (
        "set `binlog_format` to ROW in the DB cluster parameter group and reboot the writer, and name only the cluster"
        " endpoint as the set's one member"
    ),
    Cloud.CLOUD_SQL: "turn on point-in-time recovery: `gcloud sql instances patch INSTANCE --enable-bin-log`",
}


def cloud_of(version: str, variables: Mapping[str, str]) -> Cloud | None:
    """The provider of a server with these global variables; None for a server of one's own."""
    if "aurora_version" in variables:
        return Cloud.AURORA
    if variables.get("datadir", "").startswith(RDS_DATA):
        return Cloud.RDS
    return Cloud.CLOUD_SQL if "-google" in version.lower() else None


def is_reader(variables: Mapping[str, str]) -> bool:
    """Whether it is an Aurora replica: it shares the storage of the writer, and writes no binlog."""
    return "aurora_version" in variables and variables.get(READER) == "ON"


def ask_retention(session: "MySqlSession") -> str:
    """How many hours RDS or Aurora keeps binlogs: a number, ``AT_ONCE`` or ``UNREADABLE``."""
    try:
        rows = session.named(f"SELECT value FROM {CONFIGURATION} WHERE name = '{RETENTION}'")
    except MillraceError as error:
        if error.errno in _REFUSED:
            return UNREADABLE
        raise
    value = rows[0]["value"] if rows else None
    return AT_ONCE if value is None else str(value)


def is_rds(session: "MySqlSession") -> bool:
    """Whether Amazon RDS runs the server."""
    ((data,),) = session.query("SELECT @@datadir")
    return str(data).startswith(RDS_DATA)


def replica_status_grant(grantee: str) -> str:
    """The right that RDS for MariaDB grants instead of SLAVE MONITOR. ``grantee`` is an account as SQL."""
    return f"GRANT EXECUTE ON PROCEDURE {REPLICA_STATUS} TO {grantee};"


def ask_replica_status(session: "MySqlSession", refused: MillraceError) -> "list[NamedRow]":
    """The rows of SHOW ALL SLAVES STATUS, which RDS for MariaDB has ``refused``. Raises that on other servers."""
    if not is_rds(session):
        raise refused
    try:
        return session.named(f"CALL {REPLICA_STATUS}")
    except MillraceError as error:
        fix = f"{replica_status_grant('the account')} (as the master user)"
        raise Fatal(refused.code, error.message, fix=fix, **error.context) from error


def retained_s(retention: str) -> float:
    """The time in seconds; 0 if it is not known, because that is the default."""
    return float(retention) * 3600 if retention.isdigit() else 0.0


def hides_own_tables(name: str, tables: str) -> bool:
    """Whether a replica's filter leaves out nothing but tables of RDS itself."""
    return name in _FILTERS and all(
        table.strip().startswith(_OWN_DATABASES) for table in tables.split(",")
    )


def setting_fix(cloud: Cloud, settings: Mapping[str, str]) -> str:
    """Where these settings are changed."""
    wanted = " and ".join(
        f"`{name}` to {value or 'the empty value'}" for name, value in settings.items()
    )
    return f"set {wanted} in {_PLACES[cloud]} ({_NAMES[cloud]} refuses SET GLOBAL), and reboot it if it asks for that"


def binlog_fix(cloud: Cloud) -> str:
    """How binlogs are turned on."""
    return f"{_BINLOGS[cloud]} ({_NAMES[cloud]})"


def retention_fix(cloud: Cloud | None, retention: str, pause_s: float, account: str) -> str:
    """How binlogs are kept for ``pause_s``. ``account``: as SQL, which must be able to see how long they are."""
    if cloud is None:
        return f"SET GLOBAL binlog_expire_logs_seconds = {round(pause_s)};"
    if cloud is Cloud.CLOUD_SQL:
        days = f" Also keep transaction logs for {-(-round(pause_s) // 86_400)} days or more."
        return setting_fix(cloud, {"binlog_expire_logs_seconds": str(round(pause_s))}) + "." + days
    hours = min(-(-round(pause_s) // 3600), _HOURS_MAX[cloud])
    call = f"CALL mysql.rds_set_configuration('{RETENTION}', {hours});"
    if retention == UNREADABLE:
        call = f"GRANT SELECT ON {CONFIGURATION} TO {account}; {call}"
    return (
        f"{call} (as the master user; {hours} is the most)" if hours == _HOURS_MAX[cloud] else call
    )
