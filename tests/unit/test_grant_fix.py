"""The missing GRANT is derived from the refusals of both servers."""

import pymysql
import pytest

from millrace.codes import CATALOGUE
from millrace.drivers.mysql.connection import Endpoint, Side, connect, translated
from millrace.drivers.mysql.grants import privilege_fix
from millrace.errors import Retryable

NEEDS = "Access denied; you need (at least one of) the {} privilege(s) for this operation"
DENIED = "{} command denied to user 'm'@'127.0.0.1' for table `shop`.`t`"


META_GRANT = (
    "GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, ALTER, CREATE ROUTINE, ALTER ROUTINE, EXECUTE"
    " ON `millrace`.* TO"
)


@pytest.mark.parametrize(
    ("text", "grant"),
    [
        (NEEDS.format("SLAVE MONITOR"), "GRANT SLAVE MONITOR ON *.* TO"),
        (NEEDS.format("SUPER, SLAVE MONITOR"), "GRANT SLAVE MONITOR ON *.* TO"),
        (NEEDS.format("SUPER"), "GRANT SUPER ON *.* TO"),
        (
            "Access denied for user 'm'@'127.0.0.1' to database 'millrace'",
            META_GRANT,
        ),
        (DENIED.format("SELECT"), "GRANT SELECT ON `shop`.* TO"),
        (DENIED.format("INSERT, DELETE"), "GRANT INSERT, DELETE ON `shop`.* TO"),
        (f"db:3306: {DENIED.format('SHOW')}", "GRANT SELECT ON `shop`.* TO"),
    ],
)
def test_fix_grants_exactly_the_missing_privileges(text: str, grant: str) -> None:
    """First comes the GRANT for this refusal, to the account that the server knows, then everything that is needed."""
    for account, grantee in (("m@%", "`m`@`%`"), ("m@x@10.0.0.%", "`m@x`@`10.0.0.%`"), ("", "`m`")):
        fix = privilege_fix("MR-1005", text, account=account, user="m")
        assert fix.startswith(f"{grant} {grantee}; (In all: `GRANT REPLICATION SLAVE")
        assert fix.endswith("document, on the primary)")


@pytest.mark.parametrize(
    "text",
    ["", "no", "SELECT command denied to user 'm'@'h' for table 't'", DENIED.format("FLY, SELECT")],
)
def test_unrecognized_refusal_keeps_the_catalogue_fix(text: str) -> None:
    """The catalogue's fix does not change."""
    assert privilege_fix("MR-1005", text, user="m") == CATALOGUE["MR-1005"].fix


def test_missing_target_privileges_are_not_blamed_on_the_password() -> None:
    """Error 1044: the login succeeded, but the account may not use the database."""
    refusal = "Access denied for user 'm'@'%' to database 'millrace'"
    error = translated(pymysql.err.OperationalError(1044, refusal))
    assert error.code == "MR-5007"
    assert error.fix.startswith(f"{META_GRANT} `m`;")


@pytest.mark.parametrize("side", Side)
def test_error_of_a_server_names_its_side(side: Side) -> None:
    """A load and a comparison read the source with the same code that writes the target."""
    with pytest.raises(Retryable, match=rf"^MR-5001 {side} 127\.0\.0\.1:1: .*refused"):
        connect(Endpoint("127.0.0.1", 1, "m", "", side=side))


def test_refused_lock_on_the_source_is_fixed_there() -> None:
    """MySQL names only the database when LOCK TABLES is refused: apply's privileges do not help."""
    refusal = pymysql.err.OperationalError(
        1044, "Access denied for user 'm'@'%' to database 'shop'"
    )
    error = translated(
        refusal, endpoint=Endpoint("db", 1, "m", "", side=Side.SOURCE), account="m@%"
    )
    assert error.fix.startswith("GRANT SELECT, LOCK TABLES ON `shop`.* TO `m`@`%`;")
    assert "primary of the source set" in error.fix
    assert "REPLICATION CLIENT" not in error.fix
