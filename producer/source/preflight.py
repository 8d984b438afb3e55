"""Can a member's binlog be read without losing anything? Each reason why not: a code and the statement that mends it.

Pure: it judges what ``inventory`` asked. A setting that a server does not know (older or newer versions drop some)
counts as its only remaining value.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from millrace.codes import CATALOGUE
from producer.source.inventory import MemberFacts
from schemas.gtid import Flavour

PERSIST = " (and in the server's configuration; sessions that are open keep the old value until they reconnect)"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that keeps a member from being read. ``fix`` holds the statement; ``passes``: waiting may do."""

    code: str
    message: str
    fix: str
    passes: bool = False

    def __str__(self) -> str:
        return f"{self.code} {self.message}"


def check_settings(facts: MemberFacts) -> tuple[Finding, ...]:
    """Everything that is wrong with the settings of a member that answered."""
    checks: tuple[Callable[[MemberFacts], Iterable[Finding]], ...] = (
        _check_binlog,
        _check_rows,
        _check_gtids,
        _check_filters,
    )
    return tuple(finding for check in checks for finding in check(facts))


def _check_binlog(facts: MemberFacts) -> Iterable[Finding]:
    variables = facts.variables
    if variables.get("log_bin", "ON") != "ON":
        yield _finding("MR-1010", "log_bin=OFF", "start the server with `log_bin=mysql-bin`")
    logs = variables.get("log_replica_updates", variables.get("log_slave_updates", "ON"))
    if facts.replication is not None and logs != "ON":
        name = "log_slave_updates" if _flavour(facts) is Flavour.MARIADB else "log_replica_updates"
        yield _finding("MR-1011", f"{name}=OFF", f"start the replica with `{name}=ON`")
    if variables.get("binlog_checksum", "CRC32") != "CRC32":
        yield _wrong(facts, "MR-1019", "binlog_checksum", "CRC32")
    if variables.get("encrypt_binlog", "OFF") != "OFF":
        yield _finding("MR-1021", "encrypt_binlog=ON", CATALOGUE["MR-1021"].fix)


def _check_rows(facts: MemberFacts) -> Iterable[Finding]:
    variables = facts.variables
    for code, name, wanted in (
        ("MR-1012", "binlog_format", "ROW"),
        ("MR-1013", "binlog_row_image", "FULL"),
        ("MR-1014", "binlog_row_metadata", "FULL"),
        ("MR-1015", "binlog_row_value_options", ""),
    ):
        if variables.get(name, wanted).upper() != wanted:
            yield _wrong(facts, code, name, wanted)


def _check_gtids(facts: MemberFacts) -> Iterable[Finding]:
    if _flavour(facts) is Flavour.MARIADB:
        if facts.variables.get("gtid_strict_mode", "ON") != "ON":
            yield _wrong(facts, "MR-1017", "gtid_strict_mode", "ON")
        return
    mode = facts.variables.get("gtid_mode", "ON")
    if mode != "ON":
        steps = ["OFF", "OFF_PERMISSIVE", "ON_PERMISSIVE", "ON"]
        after = steps[steps.index(mode) + 1 :] if mode in steps else steps[-1:]
        statements = " ".join(f"SET GLOBAL gtid_mode = '{step}';" for step in after)
        yield _finding(
            "MR-1016",
            f"gtid_mode={mode}",
            f"SET GLOBAL enforce_gtid_consistency = 'ON'; {statements}{PERSIST}",
        )


def _check_filters(facts: MemberFacts) -> Iterable[Finding]:
    if facts.replication is None or not facts.replication.filters:
        return
    found = ", ".join(facts.replication.filters)
    yield _finding("MR-1018", f"it replicates only a part: {found}", CATALOGUE["MR-1018"].fix)


def _wrong(facts: MemberFacts, code: str, name: str, wanted: str) -> Finding:
    value = wanted if wanted == "ON" else f"'{wanted}'"
    fix = f"SET GLOBAL {name} = {value};"
    if name == "binlog_format" and facts.replication and _flavour(facts) is Flavour.MYSQL:
        fix = f"STOP REPLICA SQL_THREAD; {fix} START REPLICA SQL_THREAD;"  # MySQL refuses it else
    return _finding(code, f"{name}={facts.variables[name]}", f"{fix}{PERSIST}")


def _finding(code: str, message: str, fix: str) -> Finding:
    return Finding(code, f"{CATALOGUE[code].title}: {message}", fix)


def _flavour(facts: MemberFacts) -> Flavour | None:
    return facts.identity.flavour if facts.identity is not None else None
