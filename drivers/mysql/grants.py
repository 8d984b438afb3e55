"""The privileges that Millrace's accounts need, and those that an account has. Pure.

This is the only list of privileges: `millrace grants print` prints it, `millrace check` compares accounts with it, and
tests show that each privilege is needed and that together they suffice.

    role        on                          for
    source      *.*                         capture: the binlog, and the state of the members
    load        each database               `start: load`, on the source
    compare     each database               `millrace compare`
    snapshot    each database               capture: the rows that exist already
    heartbeat   the heartbeat's database    the row on an idle source
    target      millrace, each database     apply: progress, rows, DDL
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType

from schemas.gtid import Flavour
from schemas.sql.quoting import quoted

EVERYWHERE = "*"  # the scope *.*
META_DATABASE = "millrace"
ALL = "ALL PRIVILEGES"
GRANT_OPTION = "GRANT OPTION"

# Only MariaDB has SLAVE MONITOR, for SHOW ALL SLAVES STATUS.
SOURCE_PRIVILEGES = MappingProxyType(
    {
        Flavour.MYSQL: ("REPLICATION SLAVE", "REPLICATION CLIENT"),
        Flavour.MARIADB: ("REPLICATION SLAVE", "REPLICATION CLIENT", "SLAVE MONITOR"),
    }
)
# PROCESS: sessions that hold the fence, and the ids of tables. The other one: whether the member is a replica.
TARGET_PRIVILEGES = MappingProxyType(
    {
        Flavour.MYSQL: ("PROCESS", "REPLICATION CLIENT"),
        Flavour.MARIADB: ("PROCESS", "SLAVE MONITOR"),
    }
)
# MySQL locks a table without a usable key for the moment in which its snapshot begins; MariaDB locks none.
LOAD_PRIVILEGES = MappingProxyType(
    {Flavour.MYSQL: ("SELECT", "LOCK TABLES"), Flavour.MARIADB: ("SELECT",)}
)
COMPARE_PRIVILEGES = SNAPSHOT_PRIVILEGES = ("SELECT",)
HEARTBEAT_PRIVILEGES = ("CREATE", "SELECT", "INSERT", "UPDATE")
META_PRIVILEGES = (
    *("SELECT", "INSERT", "UPDATE", "DELETE", "CREATE", "ALTER"),
    *("CREATE ROUTINE", "ALTER ROUTINE", "EXECUTE"),
)
_ROWS_AND_DDL = (
    *("SELECT", "INSERT", "UPDATE", "DELETE", "CREATE", "ALTER", "DROP", "INDEX"),
    "TRIGGER",  # to see triggers, which would change the applied rows again (MR-5018)
)
# MySQL needs REFERENCES for a foreign key. MariaDB does not use it.
DATABASE_PRIVILEGES = MappingProxyType(
    {
        Flavour.MYSQL: (*_ROWS_AND_DDL, "REFERENCES"),
        Flavour.MARIADB: _ROWS_AND_DDL,
    }
)
# They change nothing and show no more than a SELECT.
_HARMLESS = frozenset({"USAGE", "SELECT", "SHOW DATABASES", "SHOW VIEW"})


class Role(StrEnum):
    """The use of an account."""

    SOURCE = "source"
    TARGET = "target"
    LOAD = "load"
    COMPARE = "compare"
    HEARTBEAT = "heartbeat"
    SNAPSHOT = "snapshot"


@dataclass(frozen=True, slots=True)
class Grant:
    """Privileges on a scope: EVERYWHERE, or a database as a pattern of GRANT, in which % and _ match."""

    privileges: tuple[str, ...]
    scope: str
    reason: str

    def sql(self, grantee: str) -> str:
        """The statement. ``grantee`` is an account as SQL."""
        scope = "*" if self.scope == EVERYWHERE else quoted(self.scope).decode()
        return f"GRANT {', '.join(self.privileges)} ON {scope}.* TO {grantee};"

    def revoking_sql(self, grantee: str) -> list[str]:
        """The statements that take it away. No server revokes GRANT OPTION together with ALL PRIVILEGES on a scope."""
        option = tuple(name for name in self.privileges if name == GRANT_OPTION)
        others = tuple(name for name in self.privileges if name != GRANT_OPTION)
        statements = [
            replace(self, privileges=names).sql(grantee) for names in (others, option) if names
        ]
        return [
            sql.replace("GRANT ", "REVOKE ", 1).replace(" TO ", " FROM ", 1) for sql in statements
        ]


def needed_grants(role: Role, flavour: Flavour, databases: Sequence[str] = ()) -> tuple[Grant, ...]:
    """The least grants of a role. ``databases``: patterns of GRANT (``as_grant_pattern``)."""
    match role:
        case Role.SOURCE:
            return (Grant(SOURCE_PRIVILEGES[flavour], EVERYWHERE, "the binlog of each member"),)
        case Role.LOAD:
            return tuple(
                Grant(LOAD_PRIVILEGES[flavour], name, "rows that exist before a task starts")
                for name in databases
            )
        case Role.COMPARE:
            return tuple(
                Grant(COMPARE_PRIVILEGES, name, "`millrace compare`") for name in databases
            )
        case Role.SNAPSHOT:
            return tuple(
                Grant(SNAPSHOT_PRIVILEGES, name, "snapshots of tables") for name in databases
            )
        case Role.HEARTBEAT:
            return tuple(Grant(HEARTBEAT_PRIVILEGES, name, "the heartbeat") for name in databases)
    return (
        Grant(META_PRIVILEGES, META_DATABASE, "the progress of the tasks"),
        *(
            Grant(DATABASE_PRIVILEGES[flavour], name, "rows and DDL of the topic")
            for name in databases
        ),
        Grant(TARGET_PRIVILEGES[flavour], EVERYWHERE, "the sessions of an earlier run; replicas"),
    )


def each(grants: Iterable[Grant]) -> list[str]:
    """Each privilege, as ``FILE on *.*``."""
    return [f"{name} on {_shown(grant.scope)}" for grant in grants for name in grant.privileges]


def shown(grants: Iterable[Grant]) -> str:
    """Grants in one line: ``SELECT, INSERT on shop.*; PROCESS on *.*``."""
    return "; ".join(f"{', '.join(grant.privileges)} on {_shown(grant.scope)}" for grant in grants)


def as_grant_pattern(pattern: str) -> str:
    """The database of a pattern of ``TableFilter``, as GRANT writes it: ``shop_*.items`` is ``shop\\_%``."""
    name = pattern.partition(".")[0]
    escaped = re.sub(r"([\\%_])", r"\\\1", name)
    return escaped.replace("*", "%").replace("?", "_")


@dataclass(frozen=True, slots=True)
class HeldGrants:
    """The answer of SHOW GRANTS: privileges by scope. ``account``: as SQL.

    ``has_roles``: roles add more, which are not listed here.
    """

    by_scope: Mapping[str, frozenset[str]]
    account: str = ""
    has_roles: bool = False

    @property
    def everywhere(self) -> frozenset[str]:
        """The privileges on *.*."""
        return self.by_scope.get(EVERYWHERE, frozenset())

    def on(self, scope: str) -> frozenset[str]:
        """The privileges on a scope, including those of wider ones."""
        found = set(self.everywhere)
        for held, privileges in self.by_scope.items():
            if held == scope or (EVERYWHERE not in (held, scope) and _covers(held, scope)):
                found |= privileges
        return frozenset(found)

    def _has(self, name: str, scope: str) -> bool:
        held = self.on(scope)
        return name in held or ALL in held

    def missing(self, needed: Iterable[Grant]) -> tuple[Grant, ...]:
        """The part of ``needed`` that is not held."""
        return tuple(
            Grant(absent, grant.scope, grant.reason)
            for grant in needed
            if ALL not in (held := self.on(grant.scope))
            and (absent := tuple(name for name in grant.privileges if name not in held))
        )

    def excess(self, needed: Iterable[Grant]) -> tuple[Grant, ...]:
        """The privileges beyond ``needed``: those on *.* and on ``mysql``, and the right to grant.

        In a replicated database all are allowed.
        """
        wanted: dict[str, set[str]] = {}
        for grant in needed:
            wanted.setdefault(grant.scope, set()).update(grant.privileges)
        found = []
        for scope, privileges in self.by_scope.items():
            allowed = wanted.get(scope, set()) | _HARMLESS
            is_wide = scope in (EVERYWHERE, "mysql")
            extra = privileges - allowed if is_wide else privileges & {GRANT_OPTION}
            if extra:
                found.append(Grant(tuple(sorted(extra)), scope, "superfluous"))
        return tuple(found)

    def revoking(self, excess: Iterable[Grant], needed: Iterable[Grant]) -> str:
        """The statements that take ``excess`` away, and grant what ``needed`` would lose by it.

        Grants on other scopes come first, so that the account is never without them.
        """
        lost = tuple(excess)
        left = dict(self.by_scope)
        for grant in lost:
            gone = left[grant.scope] if ALL in grant.privileges else frozenset(grant.privileges)
            left[grant.scope] = left[grant.scope] - gone
        changed = {grant.scope for grant in lost}
        again = [
            replace(grant, privileges=names)
            for grant in replace(self, by_scope=left).missing(needed)
            if (names := tuple(name for name in grant.privileges if self._has(name, grant.scope)))
        ]
        before = [grant.sql(self.account) for grant in again if grant.scope not in changed]
        revoked = [sql for grant in lost for sql in grant.revoking_sql(self.account)]
        after = [grant.sql(self.account) for grant in again if grant.scope in changed]
        return " ".join([*before, *revoked, *after])


def parse_grants(lines: Iterable[str]) -> HeldGrants:
    """The lines of SHOW GRANTS, of either flavour. Grants on single tables and routines are left out."""
    found: dict[str, set[str]] = {}
    account, has_roles = "", False
    for line in lines:
        if account == "" and (to := _ACCOUNT.search(line)) is not None:
            account = to["account"]
        parsed = _LINE.match(line)
        if parsed is None:
            has_roles |= line.startswith("GRANT ") and " ON " not in line
            continue
        scope = parsed["database"]
        name = EVERYWHERE if scope == "*" else scope[1:-1].replace("``", "`")
        privileges = {_current_name(text) for text in parsed["privileges"].split(",")}
        if " WITH GRANT OPTION" in line:
            privileges.add(GRANT_OPTION)
        if parsed["verb"] == "REVOKE":  # a partial revoke of MySQL
            continue
        found.setdefault(name, set()).update(privileges)
    return HeldGrants({name: frozenset(held) for name, held in found.items()}, account, has_roles)


_LINE = re.compile(
    r"(?P<verb>GRANT|REVOKE) (?P<privileges>[A-Z_, ]+?) ON (?P<database>\*|`(?:[^`]|``)+`)\.\* (?:TO|FROM) "
)
_ACCOUNT = re.compile(r" (?:TO|FROM) (?P<account>`(?:[^`]|``)*`@`(?:[^`]|``)*`)")
# MariaDB shows these privileges under another name than the one in GRANT.
_RENAMED = {"BINLOG MONITOR": "REPLICATION CLIENT", "REPLICA MONITOR": "SLAVE MONITOR"}


def _current_name(text: str) -> str:
    name = text.strip()
    return _RENAMED.get(name, name)


def _covers(held: str, scope: str) -> bool:
    """Whether the pattern ``held`` matches the database, or the pattern, ``scope``."""
    parts = re.findall(r"\\.|.", held, re.DOTALL)
    regex = "".join(
        ".*" if part == "%" else "." if part == "_" else re.escape(part[-1]) for part in parts
    )
    return re.fullmatch(regex, re.sub(r"\\(.)", r"\1", scope), re.DOTALL) is not None


def _shown(scope: str) -> str:
    return "*.*" if scope == EVERYWHERE else f"{scope}.*"
