"""The privileges of accounts: those that are needed, and those that SHOW GRANTS shows."""

import pytest

from millrace.codes import CATALOGUE
from millrace.drivers.mysql.grants import (
    DATABASE_PRIVILEGES,
    EVERYWHERE,
    GRANT_OPTION,
    META_PRIVILEGES,
    SOURCE_PRIVILEGES,
    TARGET_PRIVILEGES,
    Grant,
    Role,
    as_grant_pattern,
    each,
    needed_grants,
    parse_grants,
)
from millrace.schemas.gtid import Flavour
from tests.kit.paths import ROOT

# as MySQL 9.7 and MariaDB 11.4 print them
MYSQL = (
    "GRANT PROCESS, REPLICATION CLIENT ON *.* TO `m`@`%`",
    "GRANT BACKUP_ADMIN,XA_RECOVER_ADMIN ON *.* TO `m`@`%` WITH GRANT OPTION",
    r"GRANT SELECT, INSERT ON `shop\_%`.* TO `m`@`%`",
    "GRANT ALL PRIVILEGES ON `odd``name`.* TO `m`@`%`",
    "GRANT SELECT (`id`), INSERT ON `shop`.`items` TO `m`@`%`",
    "GRANT EXECUTE ON PROCEDURE `shop`.`p` TO `m`@`%`",
    "GRANT `reader`@`%` TO `m`@`%`",
    "REVOKE INSERT ON `mysql`.* FROM `m`@`%`",
)
MARIADB = (
    "GRANT REPLICATION SLAVE, BINLOG MONITOR, SLAVE MONITOR ON *.* TO `m`@`%` IDENTIFIED BY PASSWORD '*9E4'",
    "GRANT SELECT, INSERT, UPDATE, CREATE ON `ops`.* TO `m`@`%`",
)


def test_show_grants_of_both_flavours_is_understood() -> None:
    """Privileges on single tables and routines are left out. What a partial revoke takes away does not count."""
    held = parse_grants(MYSQL)
    assert held.on(EVERYWHERE) == {
        "PROCESS",
        "REPLICATION CLIENT",
        "BACKUP_ADMIN",
        "XA_RECOVER_ADMIN",
        GRANT_OPTION,
    }
    assert {"SELECT", "INSERT"} <= held.on("shop_1")
    assert "SELECT" not in held.on("shopping")
    assert "ALL PRIVILEGES" in held.on("odd`name")
    assert "INSERT" not in parse_grants(["GRANT INSERT ON *.* TO `m`@`%`", MYSQL[-1]]).on("mysql")


@pytest.mark.parametrize(
    ("database", "privileges"),
    [
        ("shop", {"INSERT"}),
        ("shop_a", {"DELETE"}),
        ("shop1a", {"SELECT"}),
        ("shut", {"UPDATE"}),
        ("crm", {"CREATE"}),
        (r"shop\_a", {"DELETE"}),
    ],
)
def test_only_the_most_specific_pattern_counts(database: str, privileges: set[str]) -> None:
    """The servers don't add the rights of patterns. Two that they may take in any order count as far as they agree."""
    held = parse_grants(
        f"GRANT {privilege} ON `{pattern}`.* TO `m`@`%`"
        for pattern, privilege in (
            *(("%", "CREATE"), ("sh%", "UPDATE"), ("sh_t", "UPDATE, ALTER"), ("shop%", "SELECT")),
            *(("shop_a", "SELECT"), (r"shop\_a", "DELETE"), ("shop", "INSERT")),
        )
    )
    assert held.on(database) == privileges


def test_missing_right_is_granted_on_the_pattern_that_counts() -> None:
    """A GRANT on the database alone would hide the rights of the pattern."""
    held = parse_grants(["GRANT INSERT, DELETE ON `sh%`.* TO `m`@`%`"])
    missing = held.missing([Grant(("SELECT", "INSERT"), "shop", "")])
    assert missing.fix == "GRANT SELECT ON `sh%`.* TO `m`@`%`;"
    other = held.missing([Grant(("SELECT", "INSERT"), "crm", "")])
    assert other.fix == "GRANT SELECT, INSERT ON `crm`.* TO `m`@`%`;"


def test_rights_of_active_roles_count() -> None:
    """MariaDB lists the roles' rights apart, and takes one pattern of each; an idle role has none."""
    idle = ["GRANT `r` TO `m`@`%`", "GRANT DELETE ON `sh%`.* TO `m`@`%`"]
    assert parse_grants(idle).on("shop") == {"DELETE"}
    held = parse_grants([*idle, "GRANT SELECT ON `shop`.* TO `r`", "GRANT FILE ON *.* TO `r`"])
    assert held.on("shop") == {"DELETE", "SELECT", "FILE"}
    assert held.excess(()) == ()  # the account can't lose what its role has


@pytest.mark.parametrize("flavour", list(Flavour))
@pytest.mark.parametrize("role", list(Role))
def test_printed_grants_are_exactly_what_is_needed(flavour: Flavour, role: Role) -> None:
    """With all of a role's grants none is missing and none superfluous; without one, that one is missing."""
    needed = needed_grants(role, flavour, ("shop", r"crm\_%"))
    lines = [grant.sql("`m`@`%`").rstrip(";") + " " for grant in needed]
    held = parse_grants(lines)
    assert not held.missing(needed)
    assert held.excess(needed) == ()
    for index, grant in enumerate(needed):
        others = parse_grants(lines[:index] + lines[index + 1 :])
        assert grant in others.missing(needed).grants


def test_mariadb_names_of_privileges_are_those_of_grant() -> None:
    """SHOW GRANTS prints BINLOG MONITOR for REPLICATION CLIENT."""
    held = parse_grants(MARIADB)
    needed = needed_grants(Role.SOURCE, Flavour.MARIADB)
    assert not held.missing(needed)
    assert each(held.excess(needed_grants(Role.HEARTBEAT, Flavour.MARIADB, ("ops",)))) == [
        "REPLICATION CLIENT on *.*",
        "REPLICATION SLAVE on *.*",
        "SLAVE MONITOR on *.*",
    ]


@pytest.mark.parametrize(
    ("line", "excess"),
    [
        ("GRANT ALL PRIVILEGES ON *.* TO `m`@`%`", ("ALL PRIVILEGES on *.*",)),
        ("GRANT FILE, SUPER ON *.* TO `m`@`%`", ("FILE on *.*", "SUPER on *.*")),
        ("GRANT INSERT ON *.* TO `m`@`%`", ("INSERT on *.*",)),
        ("GRANT SELECT ON *.* TO `m`@`%`", ()),
        ("GRANT ALL PRIVILEGES ON `shop`.* TO `m`@`%`", ()),
        ("GRANT SELECT ON `shop`.* TO `m`@`%` WITH GRANT OPTION", ("GRANT OPTION on shop.*",)),
        ("GRANT UPDATE ON `mysql`.* TO `m`@`%`", ("UPDATE on mysql.*",)),
    ],
)
def test_superfluous_privileges_are_found(line: str, excess: tuple[str, ...]) -> None:
    """On all databases, on ``mysql``, and the right to grant."""
    needed = needed_grants(Role.SOURCE, Flavour.MYSQL)
    assert tuple(each(parse_grants([line]).excess(needed))) == excess


def test_revoked_privileges_are_only_the_superfluous_ones() -> None:
    """ALL PRIVILEGES goes as a whole, so the needed ones of its scope are granted again."""
    needed = needed_grants(Role.SOURCE, Flavour.MYSQL)
    held = parse_grants(["GRANT FILE, REPLICATION SLAVE ON *.* TO `m`@`10.%` WITH GRANT OPTION"])
    revoking = held.revoking(held.excess(needed), needed)
    assert revoking == (
        "REVOKE FILE ON *.* FROM `m`@`10.%`; REVOKE GRANT OPTION ON *.* FROM `m`@`10.%`;"
    )
    held = parse_grants(["GRANT ALL PRIVILEGES ON *.* TO `m`@`%`"])
    assert held.revoking(held.excess(needed), needed) == (
        "REVOKE ALL PRIVILEGES ON *.* FROM `m`@`%`;"
        " GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO `m`@`%`;"
    )


def test_account_is_never_without_what_it_needs() -> None:
    """Its rights through ALL on all databases are granted on each scope first."""
    needed = needed_grants(Role.TARGET, Flavour.MARIADB, ("shop",))
    held = parse_grants(["GRANT ALL PRIVILEGES ON *.* TO `m`@`%`"])
    statements = held.revoking(held.excess(needed), needed).split("; ")
    words = [(sql.split()[0], sql.partition(" ON ")[2].partition(" ")[0]) for sql in statements]
    assert words == [
        ("GRANT", "`millrace`.*"),
        ("GRANT", "`shop`.*"),
        ("REVOKE", "*.*"),
        ("GRANT", "*.*"),
    ]


def test_all_privileges_of_a_wider_scope_suffice() -> None:
    """A target's account with ALL PRIVILEGES needs no more."""
    needed = needed_grants(Role.TARGET, Flavour.MYSQL, ("shop",))
    assert not parse_grants(["GRANT ALL PRIVILEGES ON *.* TO `m`@`%`"]).missing(needed)
    held = parse_grants(
        ["GRANT PROCESS ON *.* TO `m`@`%`", "GRANT ALL PRIVILEGES ON `%`.* TO `m`@`%`"]
    )
    missing = held.missing(needed)
    assert missing.grants == (Grant(("REPLICATION CLIENT",), EVERYWHERE, needed[-1].reason),)
    assert str(missing) == "without REPLICATION CLIENT on *.*"
    assert missing.fix == "GRANT REPLICATION CLIENT ON *.* TO `m`@`%`;"


@pytest.mark.parametrize(
    ("pattern", "scope"),
    [("shop.*", "shop"), ("shop_*.items", r"shop\_%"), ("a?b.*", "a_b"), ("50%.*", r"50\%")],
)
def test_filter_pattern_becomes_a_grant_pattern(pattern: str, scope: str) -> None:
    """Characters that GRANT would match are escaped."""
    assert as_grant_pattern(pattern) == scope


def test_fixes_of_errors_name_the_needed_privileges() -> None:
    """The catalogue imports nothing, so its texts repeat the privileges."""
    for privilege in SOURCE_PRIVILEGES[Flavour.MARIADB]:
        assert privilege in CATALOGUE["MR-1005"].fix
    target = CATALOGUE["MR-5007"].fix
    for flavour in Flavour:
        assert all(privilege in target for privilege in TARGET_PRIVILEGES[flavour])
    assert f"GRANT {', '.join(META_PRIVILEGES[-3:])} ON millrace.*" in CATALOGUE["MR-5026"].fix


def test_documents_print_the_same_grants() -> None:
    """docs/install.md and docs/documents.md repeat what a source's account needs."""
    install, page = (ROOT / "docs/install.md").read_text(), (ROOT / "docs/documents.md").read_text()
    assert f"GRANT {', '.join(SOURCE_PRIVILEGES[Flavour.MYSQL])} ON *.* TO millrace;" in install
    (beats,) = needed_grants(Role.HEARTBEAT, Flavour.MYSQL, ("ops",))
    statement = beats.sql("millrace").replace("`", "")
    assert statement in install
    assert statement in page


def test_page_about_checks_lists_the_privileges() -> None:
    """The table in docs/check.md has the privileges of every role, by flavor."""
    page = (ROOT / "docs/check.md").read_text()
    for role in Role:
        for grant in needed_grants(role, Flavour.MYSQL, ("shop",)):
            assert f"| {', '.join(grant.privileges)} |" in page
    assert f"| {', '.join(TARGET_PRIVILEGES[Flavour.MARIADB])} |" in page
    without = set(DATABASE_PRIVILEGES[Flavour.MYSQL]) - set(DATABASE_PRIVILEGES[Flavour.MARIADB])
    assert without == {"REFERENCES"}
