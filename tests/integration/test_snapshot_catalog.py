"""The keys of a table as a snapshot reads them from a real server."""

from contextlib import closing

from millrace.deploy.servers import DatabaseServer
from millrace.drivers.mysql.catalog import read_table
from millrace.producer.source.connection import connect_member
from tests.kit.relay.relay import login_of, member_of

DATABASE = "cataloged"


def test_key_without_overlaps_is_known_by_its_own_name(mariadb_server: DatabaseServer) -> None:
    """Its last columns are a period, so it names no row. Another key of the same columns has none."""
    mariadb_server.execute(f"CREATE DATABASE {DATABASE}")
    mariadb_server.execute(
        "CREATE TABLE t (id INT, s DATE, e DATE, PERIOD FOR p (s, e), UNIQUE `by``p` (id, p WITHOUT OVERLAPS),"
        " UNIQUE plain (id, s, e))",
        db=DATABASE,
    )
    source = connect_member(member_of(mariadb_server), login_of(mariadb_server))
    with closing(source):
        table = read_table(source, (DATABASE, "t"))
    assert table is not None
    assert {key.name: key.has_period for key in table.unique_keys} == {"by`p": True, "plain": False}
    mariadb_server.execute(f"DROP DATABASE {DATABASE}")
