"""Servers of RDS, Aurora and Cloud SQL are recognized, and fixes name what can be changed there. Pure."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from millrace.checks.requirement import Area, Level, Requirement, Subject
from millrace.drivers.mysql.cloud import Cloud, cloud_of
from millrace.drivers.mysql.grants import EVERYWHERE, Role, needed_grants, parse_grants
from millrace.drivers.mysql.members import Identity, MemberFacts, Replication, replication_of
from millrace.drivers.mysql.preflight import check_settings
from millrace.producer.checks.source import judge_expiry
from millrace.schemas.documents import Member
from millrace.schemas.gtid import Flavour
from tests.kit.capture.recorded import SETTINGS

GOOD = {**SETTINGS, "log_replica_updates": "ON", "binlog_expire_logs_seconds": "2592000"}
RDS = {"datadir": "/rdsdbdata/db/"}
AURORA = {**RDS, "aurora_version": "3.08.0", "innodb_read_only": "OFF"}
CLOUDS: Mapping[Cloud, tuple[str, Mapping[str, str]]] = {
    Cloud.RDS: ("8.4.5", RDS),
    Cloud.AURORA: ("8.0.39", AURORA),
    Cloud.CLOUD_SQL: ("8.0.37-google", {"datadir": "/mysql/datadir/"}),
}
SUBJECT = Subject(Area.SOURCE, "db1:3306")
HOUR_S = 3600.0


def member(cloud: Cloud, **variables: str) -> MemberFacts:
    """A primary that this provider runs, with all that capture needs, except ``variables``."""
    version, own = CLOUDS[cloud]
    return MemberFacts(
        Member("db1", 3306),
        identity=Identity(Flavour.MYSQL, "server-1", version),
        variables={**GOOD, **own, **variables},
    )


def replica(cloud: Cloud, **variables: str) -> MemberFacts:
    """A replica that this provider runs."""
    return replace(member(cloud, **variables), replications=(Replication(0.0),))


def expiry(fact: MemberFacts, pause_h: float) -> Requirement:
    """Whether binlogs are kept for the longest pause."""
    return judge_expiry(SUBJECT, fact, pause_h * HOUR_S, account="`m`@`%`")


@pytest.mark.parametrize("cloud", Cloud)
def test_provider_of_a_server_is_recognized(cloud: Cloud) -> None:
    """By its version and variables alone; a server of one's own has none."""
    assert member(cloud).cloud is cloud
    assert cloud_of("9.7.0", {"datadir": "/var/lib/mysql/"}) is None


@pytest.mark.parametrize("cloud", Cloud)
@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("log_bin", "OFF", "MR-1010"),
        ("binlog_format", "MIXED", "MR-1012"),
        ("binlog_row_image", "MINIMAL", "MR-1013"),
        ("binlog_row_metadata", "MINIMAL", "MR-1014"),
        ("gtid_mode", "OFF", "MR-1016"),
    ],
)
def test_fix_of_a_setting_is_possible_there(cloud: Cloud, name: str, value: str, code: str) -> None:
    """No account may SET GLOBAL or edit a file."""
    (finding,) = check_settings(member(cloud, **{name: value}))
    assert finding.code == code
    assert "SET GLOBAL " not in finding.fix.replace("refuses SET GLOBAL", "")
    assert "log_bin=" not in finding.fix
    places = ("parameter group", "database flags", "automated backups", "point-in-time recovery")
    assert any(place in finding.fix for place in places)


def test_fixes_of_replicas_name_the_parameter_group() -> None:
    """RDS has replicas with several workers, and such without backups, which log nothing."""
    unordered = {"replica_parallel_workers": "4", "replica_preserve_commit_order": "OFF"}
    (order,) = check_settings(replica(Cloud.RDS, **unordered))
    assert "`replica_preserve_commit_order` to ON in the DB parameter group" in order.fix
    (logs,) = check_settings(replica(Cloud.RDS, log_replica_updates="OFF"))
    assert (logs.code, "automated backups" in logs.fix) == ("MR-1011", True)


def test_aurora_replica_is_no_second_primary() -> None:
    """It replicates from no server and has no binlog: only the writer can be read."""
    reader = member(Cloud.AURORA, innodb_read_only="ON")
    assert not reader.is_primary
    assert member(Cloud.AURORA).is_primary
    (finding,) = check_settings(reader)
    assert finding.code == "MR-1010"
    assert "cluster endpoint" in finding.fix


@pytest.mark.parametrize(
    ("cloud", "retention", "pause_h", "found", "fix"),
    [
        (Cloud.RDS, "24", 24, "24.0 h", ""),
        (Cloud.RDS, "24", 72, "24.0 h", "hours', 72);"),
        (Cloud.RDS, "NULL", 72, "NULL", "hours', 72);"),
        (Cloud.RDS, "24", 999, "24.0 h", "168 is the most"),
        (Cloud.AURORA, "NULL", 999, "NULL", "hours', 999);"),
        (Cloud.RDS, "unreadable", 72, "can't read", "GRANT SELECT ON mysql.rds_configuration TO `m`@`%`;"),
    ],
)  # fmt: skip
def test_rds_keeps_binlogs_as_its_own_table_says(
    cloud: Cloud, retention: str, pause_h: float, found: str, fix: str
) -> None:
    """The server's variable says 30 days. NULL is the default: files go as soon as the backup has them."""
    fact = member(cloud, **{"binlog retention hours": retention})
    requirement = expiry(fact, pause_h)
    assert requirement.level is (Level.WARN if fix else Level.OK)
    assert found in requirement.found
    assert fix in requirement.fix
    assert fact.kept_s == (float(retention) * HOUR_S if retention.isdigit() else 0.0)


def test_cloud_sql_keeps_binlogs_by_a_flag() -> None:
    """And by the days that it keeps transaction logs."""
    fix = expiry(member(Cloud.CLOUD_SQL, binlog_expire_logs_seconds="86400"), 72).fix
    assert "`binlog_expire_logs_seconds` to 259200 in the database flags" in fix
    assert "transaction logs for 3 days" in fix


def test_replica_of_rds_filters_only_tables_of_rds() -> None:
    """A filter that leaves out a table of a user still keeps a replica from being read."""
    own = "mysql.rds_history, mysql.plugin,innodb_memcache.containers"
    row = {"Replica_IO_Running": "Yes", "Replica_SQL_Running": "Yes", "Seconds_Behind_Source": 0}
    assert replication_of({**row, "Replicate_Ignore_Table": own}).filters == ()
    both = replication_of({**row, "Replicate_Ignore_Table": f"{own},shop.t"})
    assert both.filters == (f"Replicate_Ignore_Table={own},shop.t",)
    assert replication_of({**row, "Replicate_Do_Table": own}).filters


def test_procedure_of_rds_counts_as_slave_monitor() -> None:
    """RDS for MariaDB grants no account SLAVE MONITOR, but EXECUTE on the procedure that shows the same."""
    line = "GRANT EXECUTE ON PROCEDURE `mysql`.`rds_replica_status` TO `m`@`%`"
    first = "GRANT REPLICATION SLAVE, BINLOG MONITOR ON *.* TO `m`@`%`"
    held = parse_grants([first, line]).on(EVERYWHERE)
    assert held == {"REPLICATION SLAVE", "REPLICATION CLIENT", "SLAVE MONITOR"}
    assert "SLAVE MONITOR" not in parse_grants([first]).on(EVERYWHERE)


def test_missing_slave_monitor_is_the_procedure_of_rds() -> None:
    """The statement that the master user of RDS for MariaDB can run; other servers get SLAVE MONITOR."""
    held = parse_grants(["GRANT REPLICATION SLAVE ON *.* TO `m`@`%`"])
    needed = needed_grants(Role.SOURCE, Flavour.MARIADB)
    first = "GRANT REPLICATION CLIENT"
    assert held.missing(needed).fix == f"{first}, SLAVE MONITOR ON *.* TO `m`@`%`;"
    assert replace(held, is_on_rds=True).missing(needed).fix == (
        f"{first} ON *.* TO `m`@`%`; GRANT EXECUTE ON PROCEDURE mysql.rds_replica_status TO `m`@`%`;"
    )
