"""Checks whether a member's binlog can be read without loss. Each finding has a code and the SQL that fixes it.

Pure: it judges the answers that ``members`` queried. A setting that a server's version does not have counts as correct.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from millrace.codes import CATALOGUE
from millrace.drivers.mysql.cloud import Cloud, binlog_fix, is_reader, setting_fix
from millrace.drivers.mysql.members import MemberFacts
from millrace.schemas.gtid import Flavour
from millrace.schemas.server_version import ServerVersion

PERSIST = " (and in the server's configuration; sessions that are open keep the old value until they reconnect)"


@dataclass(frozen=True, slots=True)
class Finding:
    """A reason why a member can't be read. ``fix`` is the SQL statement; ``is_transient``: waiting may help."""

    code: str
    message: str
    fix: str
    is_transient: bool = False

    def __str__(self) -> str:
        return f"{self.code} {self.message}"


def check_settings(facts: MemberFacts) -> tuple[Finding, ...]:
    """All findings about the settings of a member that answered."""
    checks: tuple[Callable[[MemberFacts], Iterable[Finding]], ...] = (
        _check_version,
        _check_binlog,
        _check_rows,
        _check_gtids,
        _check_filters,
        _check_commit_order,
    )
    return tuple(finding for check in checks for finding in check(facts))


def _check_version(facts: MemberFacts) -> Iterable[Finding]:
    if facts.identity is not None and not facts.identity.dialect.is_supported:
        message = f"it is {facts.identity.version}"
        oldest = facts.identity.dialect.oldest_supported
        yield _finding("MR-1023", message, f"upgrade the server to {oldest} or later")


def _check_binlog(facts: MemberFacts) -> Iterable[Finding]:
    variables = facts.variables
    if is_reader(variables):
        yield _finding("MR-1010", "it is an Aurora replica", binlog_fix(Cloud.AURORA))
        return
    if variables.get("log_bin", "ON") != "ON":
        fix = "start the server with `log_bin=mysql-bin`"
        fix = binlog_fix(facts.cloud) if facts.cloud else fix
        yield _finding("MR-1010", "log_bin=OFF", fix)
    logs = variables.get("log_replica_updates", variables.get("log_slave_updates", "ON"))
    if facts.replications and logs != "ON":
        name = _dialect(facts).variable("log_replica_updates")
        fix = binlog_fix(facts.cloud) if facts.cloud else f"start the replica with `{name}=ON`"
        yield _finding("MR-1011", f"{name}=OFF", fix)
    if variables.get("binlog_checksum", "CRC32") != "CRC32":
        yield _setting_finding(facts, "MR-1019", "binlog_checksum", "CRC32")


def _check_rows(facts: MemberFacts) -> Iterable[Finding]:
    variables = facts.variables
    for code, name, wanted in (
        ("MR-1012", "binlog_format", "ROW"),
        ("MR-1013", "binlog_row_image", "FULL"),
        ("MR-1014", "binlog_row_metadata", "FULL"),
        ("MR-1015", "binlog_row_value_options", ""),
    ):
        if variables.get(name, wanted).upper() != wanted:
            yield _setting_finding(facts, code, name, wanted)


def _check_gtids(facts: MemberFacts) -> Iterable[Finding]:
    if _flavour(facts) is Flavour.MARIADB:
        if facts.variables.get("gtid_strict_mode", "ON") != "ON":
            yield _setting_finding(facts, "MR-1017", "gtid_strict_mode", "ON")
        return
    mode = facts.variables.get("gtid_mode", "ON")
    if mode != "ON" and facts.cloud:
        fix = setting_fix(facts.cloud, {"enforce_gtid_consistency": "ON", "gtid_mode": "ON"})
        yield _finding("MR-1016", f"gtid_mode={mode}", fix)
    elif mode != "ON":
        steps = ["OFF", "OFF_PERMISSIVE", "ON_PERMISSIVE", "ON"]
        after = steps[steps.index(mode) + 1 :] if mode in steps else steps[-1:]
        statements = " ".join(f"SET GLOBAL gtid_mode = '{step}';" for step in after)
        yield _finding(
            "MR-1016",
            f"gtid_mode={mode}",
            f"SET GLOBAL enforce_gtid_consistency = 'ON'; {statements}{PERSIST}",
        )


def _check_filters(facts: MemberFacts) -> Iterable[Finding]:
    if filters := sorted({text for one in facts.replications for text in one.filters}):
        yield _finding("MR-1018", ", ".join(filters), CATALOGUE["MR-1018"].fix)


def _check_commit_order(facts: MemberFacts) -> Iterable[Finding]:
    """Check MySQL replicas with several workers. MariaDB keeps the order within a domain in every parallel mode."""
    if not facts.replications or _flavour(facts) is not Flavour.MYSQL:
        return
    variables, server = facts.variables, _dialect(facts)
    workers_name = server.variable("replica_parallel_workers")
    order_name = server.variable("replica_preserve_commit_order")
    workers = variables.get(workers_name, "0")
    if int(workers) > 1 and variables.get(order_name, "ON") != "ON":
        stop, start = f"STOP {server.replica} SQL_THREAD;", f"START {server.replica} SQL_THREAD;"
        fix = f"{stop} SET GLOBAL {order_name} = ON; {start}{PERSIST}"
        if facts.cloud:
            fix = setting_fix(facts.cloud, {order_name: "ON"})
        yield _finding("MR-1022", f"{order_name}=OFF with {workers_name}={workers}", fix)


def _setting_finding(facts: MemberFacts, code: str, name: str, wanted: str) -> Finding:
    if facts.cloud:
        fix = setting_fix(facts.cloud, {name: wanted})
        return _finding(code, f"{name}={facts.variables[name]}", fix)
    value = wanted if wanted == "ON" else f"'{wanted}'"
    fix = f"SET GLOBAL {name} = {value};"
    if name == "binlog_format" and facts.replications and _flavour(facts) is Flavour.MYSQL:
        replica = _dialect(facts).replica
        # MySQL refuses the SET while the SQL thread runs.
        fix = f"STOP {replica} SQL_THREAD; {fix} START {replica} SQL_THREAD;"
    return _finding(code, f"{name}={facts.variables[name]}", f"{fix}{PERSIST}")


def _finding(code: str, message: str, fix: str) -> Finding:
    return Finding(code, f"{CATALOGUE[code].title}: {message}", fix)


def _dialect(facts: MemberFacts) -> ServerVersion:
    return ServerVersion.parse(facts.identity.version if facts.identity is not None else "")


def _flavour(facts: MemberFacts) -> Flavour | None:
    return facts.identity.flavour if facts.identity is not None else None
