"""The rights of accounts: what each role needs, what an account holds, what is missing and the GRANT that gives it.

This is the only list of privileges. `millrace grants print` prints it; `millrace check`, loads, comparisons and
snapshots compare accounts with it. Tests show that each privilege is needed and that together they suffice.

    role        on                          for
    source      *.*                         capture: the binlog, and the state of the members
    load        each database               `start: load`, on the source
    compare     each database               `millrace compare`
    snapshot    each database               capture: the rows that exist already
    heartbeat   the heartbeat's database    the row on an idle source
    target      millrace, each database     apply: progress, rows, DDL

What an account holds on a database, as the servers count it:

    on *.*         counts, without what a partial revoke takes away (MySQL)
    a pattern      counts too, but of those that match the name only the one whose first wildcard comes last. If two
                   are equal in this, the server's choice is not known, and only what both give counts
    a role         counts while it is active: SHOW GRANTS lists its rights. MySQL lists them as the account's own,
                   MariaDB apart, and chooses a pattern for each role

Not done here: rights on single tables, and ``partial_revokes=ON`` of MySQL, with which % and _ are letters in a GRANT.

``privilege_fix`` derives the GRANT from a server's refusal:

    you need (at least one of) the SUPER, SLAVE MONITOR privilege(s) …     GRANT SLAVE MONITOR ON *.* TO `a`@`%`;
    Access denied for user 'a'@'h' to database 'shop'                       GRANT SELECT, … ON `shop`.* TO `a`@`%`;
    SHOW command denied to user 'a'@'h' for table `shop`.`t`                GRANT SELECT ON `shop`.* TO `a`@`%`;

The account is the one that CURRENT_USER() returns: a refusal may name the client's host, for which no account exists.
If CURRENT_USER() is unknown, the name is used without a host, which means '%'. For a refused table the GRANT covers its
database: on a missing table only CREATE can be granted. Nothing is guessed: a text of another form, a table without its
database, or a right that is not a table privilege gives no statement. A refused database gets all privileges that apply
needs there: the text does not say which one is missing.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING

from millrace.codes import CATALOGUE
from millrace.drivers.mysql.cloud import is_rds, replica_status_grant
from millrace.schemas.gtid import Flavour
from millrace.schemas.sql.quoting import quoted

if TYPE_CHECKING:  # it imports this module for its errors
    from millrace.drivers.mysql.connection import MySqlSession

EVERYWHERE = "*"  # the scope *.*
EVERY_DATABASE = "%"  # a pattern: *.* without the rights of the server itself
META_DATABASE = "millrace"
ALL = "ALL PRIVILEGES"
GRANT_OPTION = "GRANT OPTION"

# Only MariaDB has it, for SHOW ALL SLAVES STATUS.
SLAVE_MONITOR = "SLAVE MONITOR"
SOURCE_PRIVILEGES = MappingProxyType(
    {
        Flavour.MYSQL: ("REPLICATION SLAVE", "REPLICATION CLIENT"),
        Flavour.MARIADB: ("REPLICATION SLAVE", "REPLICATION CLIENT", SLAVE_MONITOR),
    }
)
# PROCESS: sessions that hold the fence, and the ids of tables. The other one: whether the member is a replica.
TARGET_PRIVILEGES = MappingProxyType(
    {
        Flavour.MYSQL: ("PROCESS", "REPLICATION CLIENT"),
        Flavour.MARIADB: ("PROCESS", SLAVE_MONITOR),
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
class Missing:
    """The grants that an account is without; false if there are none. ``account``: as SQL."""

    grants: tuple[Grant, ...]
    account: str
    is_on_rds: bool = False

    def __bool__(self) -> bool:
        return bool(self.grants)

    def __str__(self) -> str:
        return f"without {shown(self.grants)}"

    @property
    def fix(self) -> str:
        """The statements. RDS for MariaDB has one of its own instead of SLAVE MONITOR."""
        if not self.is_on_rds:
            return " ".join(grant.sql(self.account) for grant in self.grants)
        statements = []
        for grant in self.grants:
            if names := tuple(name for name in grant.privileges if name != SLAVE_MONITOR):
                statements.append(replace(grant, privileges=names).sql(self.account))
            if SLAVE_MONITOR in grant.privileges:
                statements.append(replica_status_grant(self.account))
        return " ".join(statements)


Rights = Mapping[str, frozenset[str]]  # privileges by scope


@dataclass(frozen=True, slots=True)
class HeldGrants:
    """The answer of SHOW GRANTS. ``account``: as SQL. ``revoked``: by database. ``of_roles``: of each active one.

    ``is_on_rds``: on RDS for MariaDB.
    """

    by_scope: Rights
    account: str = ""
    revoked: Rights = field(default_factory=dict)
    of_roles: tuple[Rights, ...] = ()
    is_on_rds: bool = False

    def on(self, scope: str) -> frozenset[str]:
        """The privileges on a scope; see the module's docstring."""
        every = (self.by_scope, *self.of_roles)
        wide = frozenset().union(*(rights.get(EVERYWHERE, frozenset()) for rights in every))
        if scope == EVERYWHERE:
            return wide
        wide -= self.revoked.get(re.sub(r"\\(.)", r"\1", scope), frozenset())
        return wide.union(*(_of_best_patterns(rights, scope) for rights in every))

    def missing(self, needed: Iterable[Grant]) -> Missing:
        """The part of ``needed`` that is not held, on the pattern that counts: a better one would hide its rights."""
        grants = (
            replace(grant, privileges=self._unheld(grant), scope=self._counting(grant.scope))
            for grant in needed
        )
        lacking = tuple(grant for grant in grants if grant.privileges)
        return Missing(lacking, self.account, self.is_on_rds)

    def _unheld(self, grant: Grant) -> tuple[str, ...]:
        held = self.on(grant.scope)
        return () if ALL in held else tuple(name for name in grant.privileges if name not in held)

    def _counting(self, scope: str) -> str:
        patterns = _best_patterns(self.by_scope, scope)
        return patterns[0] if len(patterns) == 1 else scope

    def excess(self, needed: Iterable[Grant]) -> tuple[Grant, ...]:
        """The privileges beyond ``needed``: those on *.* and on ``mysql``, and the right to grant.

        In a replicated database all are allowed.
        """
        wanted: dict[str, set[str]] = {}
        for grant in needed:
            wanted.setdefault(grant.scope, set()).update(grant.privileges)
        excess = []
        for scope, privileges in self.by_scope.items():
            allowed = wanted.get(scope, set()) | _HARMLESS
            is_wide = scope in (EVERYWHERE, "mysql")
            extra = privileges - allowed if is_wide else privileges & {GRANT_OPTION}
            if extra:
                excess.append(Grant(tuple(sorted(extra)), scope, "superfluous"))
        return tuple(excess)

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
            replace(grant, privileges=held)
            for grant in replace(self, by_scope=left).missing(needed).grants
            if (held := tuple(one for one in grant.privileges if one not in self._unheld(grant)))
        ]
        before = [grant.sql(self.account) for grant in again if grant.scope not in changed]
        revoked = [sql for grant in lost for sql in grant.revoking_sql(self.account)]
        after = [grant.sql(self.account) for grant in again if grant.scope in changed]
        return " ".join([*before, *revoked, *after])


def held_grants(session: "MySqlSession") -> HeldGrants:
    """The rights of the account of this session."""
    held = parse_grants(str(next(iter(row.values()))) for row in session.named("SHOW GRANTS"))
    return replace(held, is_on_rds=session.flavour is Flavour.MARIADB and is_rds(session))


def parse_grants(lines: Iterable[str]) -> HeldGrants:
    """The lines of SHOW GRANTS, of either flavour."""
    by_grantee: dict[str, dict[str, frozenset[str]]] = {}
    revoked: dict[str, frozenset[str]] = {}
    account = ""
    for line in lines:
        if account == "" and (to := _ACCOUNT.search(line)) is not None:
            account = to["account"]
        if (shown := _REPLICA_STATUS.match(line)) is not None:
            rights = by_grantee.setdefault(shown["grantee"], {})
            rights[EVERYWHERE] = rights.get(EVERYWHERE, frozenset()) | {SLAVE_MONITOR}
        parsed = _LINE.match(line)
        if parsed is None:
            continue
        database = parsed["database"]
        scope = EVERYWHERE if database == "*" else database[1:-1].replace("``", "`")
        privileges = {_current_name(text) for text in parsed["privileges"].split(",")}
        if " WITH GRANT OPTION" in line:
            privileges.add(GRANT_OPTION)
        is_revoked = parsed["verb"] == "REVOKE"
        rights = revoked if is_revoked else by_grantee.setdefault(parsed["grantee"], {})
        rights[scope] = rights.get(scope, frozenset()) | privileges
    own = by_grantee.pop(account, {})
    return HeldGrants(own, account, revoked, tuple(by_grantee.values()))


_LINE = re.compile(
    r"(?P<verb>GRANT|REVOKE) (?P<privileges>[A-Z_, ]+?) ON (?P<database>\*|`(?:[^`]|``)+`)\.\*"
    r" (?:TO|FROM) (?P<grantee>(?:`(?:[^`]|``)*`@?)+|\w+)"
)
# RDS for MariaDB grants it instead of SLAVE MONITOR, see ``cloud``
_REPLICA_STATUS = re.compile(
    r"GRANT EXECUTE ON PROCEDURE `mysql`\.`rds_replica_status` TO (?P<grantee>(?:`(?:[^`]|``)*`@?)+|\w+)"
)
_ACCOUNT = re.compile(r" (?:TO|FROM) (?P<account>`(?:[^`]|``)*`@`(?:[^`]|``)*`)")
# MariaDB shows these privileges under another name than the one in GRANT.
_RENAMED = {"BINLOG MONITOR": "REPLICATION CLIENT", "REPLICA MONITOR": SLAVE_MONITOR}


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


def _of_best_patterns(rights: Rights, scope: str) -> frozenset[str]:
    held = [rights[pattern] for pattern in _best_patterns(rights, scope)]
    return frozenset.intersection(*held) if held else frozenset()


def _best_patterns(rights: Rights, scope: str) -> list[str]:
    """The pattern that counts for a database, or those of which one counts; see the module's docstring."""
    if scope == EVERYWHERE:
        return []
    patterns = [held for held in rights if held != EVERYWHERE and _covers(held, scope)]
    best = max(map(_first_wildcard, patterns), default=0)
    return [pattern for pattern in patterns if _first_wildcard(pattern) == best]


def _first_wildcard(pattern: str) -> int:
    """The place of the first % or _ that is not escaped, as the servers sort patterns; after all others without one."""
    match = _LETTERS.match(pattern)
    place = match.end() if match else 0
    return _NO_WILDCARD if place == len(pattern) else min(place, _NO_WILDCARD - 1)


_LETTERS = re.compile(r"(?:\\.|[^%_])*", re.DOTALL)
_NO_WILDCARD = 127  # the servers compare no longer prefixes


def _shown(scope: str) -> str:
    return "*.*" if scope == EVERYWHERE else f"{scope}.*"


_NEEDED = re.compile(r"you need \(at least one of\) the (?P<rights>[A-Z_, ]+?) privilege\(s\)")
_DATABASE = re.compile(r"Access denied for user '(?P<user>.*)'@'.*' to database '(?P<database>.*)'")
_TABLE = re.compile(
    r"(?P<rights>[A-Z][A-Z, ]*) command denied to user '(?P<user>.*)'@'.*' for table (?P<database>`.*`)\.`.*`"
)
_OF_A_SOURCE = (
    "Run it on the primary of the source set. `millrace grants print` prints what loads and comparisons need there:"
    " SELECT, and for loads on MySQL LOCK TABLES."
)
_TOO_MUCH = ("SUPER", "ALL PRIVILEGES")  # would suffice, but allow far too much
_OF_TABLES = frozenset(
    {
        *("SELECT", "INSERT", "UPDATE", "DELETE", "CREATE", "DROP", "ALTER", "INDEX"),
        *("REFERENCES", "TRIGGER", "LOCK TABLES", "CREATE VIEW", "SHOW VIEW"),
    }
)


def privilege_fix(
    code: str, text: str, *, account: str = "", user: str = "", is_source: bool = False
) -> str:
    """The fix of ``code`` for the refusal ``text``: the missing GRANT, then everything that is needed.

    ``account`` is the answer of CURRENT_USER(), like ``a@%``. ``user`` is the name alone, for a text without one.
    ``is_source``: rows are read on the source of a task; otherwise a refused database is one that apply writes.
    """
    grant = _grant_for(text, account, user, is_source=is_source)
    needed = _OF_A_SOURCE if is_source else CATALOGUE[code].fix
    return f"{grant} (In all: {needed.rstrip('.')})" if grant else needed


def grantee(account: str, user: str) -> str:
    """The grantee as SQL: ``account`` if it is known, else ``user``, whose host is then '%'.

    A name may contain an @, a host may not.
    """
    name, at, host = account.rpartition("@")
    return f"{quoted(name).decode()}@{quoted(host).decode()}" if at else quoted(user).decode()


def _grant_for(text: str, account: str, user: str, *, is_source: bool) -> str:
    if (needed := _NEEDED.search(text)) is not None:
        rights = [right.strip() for right in needed["rights"].split(",")]
        right = next((right for right in rights if right not in _TOO_MUCH), rights[0])
        to = grantee(account, user) if account or user else "the account of the set document"
        return f"GRANT {right} ON *.* TO {to};"
    if (refused := _DATABASE.search(text)) is not None:
        to = grantee(account, refused["user"])
        name = refused["database"]
        all_rights = DATABASE_PRIVILEGES[Flavour.MYSQL]
        if is_source:  # MariaDB refuses no lock, because none is taken there
            all_rights = LOAD_PRIVILEGES[Flavour.MYSQL]
        elif name == META_DATABASE:
            all_rights = META_PRIVILEGES
        return f"GRANT {', '.join(all_rights)} ON {quoted(name).decode()}.* TO {to};"
    if (refused := _TABLE.search(text)) is not None:
        rights = [right.strip() for right in refused["rights"].split(",")]
        rights = ["SELECT" if right == "SHOW" else right for right in rights]
        if _OF_TABLES.issuperset(rights):
            to = grantee(account, refused["user"])
            return f"GRANT {', '.join(rights)} ON {refused['database']}.* TO {to};"
    return ""
