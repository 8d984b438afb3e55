"""Errors that real servers provoke, beside those that other tests meet on their way."""

import pytest

from deploy.servers import DatabaseServer
from millrace.errors import Fatal
from tests.binlog_session import logged


def test_an_alter_that_is_logged_in_two_phases_is_refused(mariadb_server: DatabaseServer) -> None:
    """MR-6513, by the flags of its GTID event: both phases hold the statement, which would be applied twice."""
    with logged(mariadb_server, "two_phases") as source:
        source.run(
            "CREATE TABLE t (id INT PRIMARY KEY)",
            "SET SESSION binlog_alter_two_phase=ON",
            "ALTER TABLE t ADD v INT",
            "SET SESSION binlog_alter_two_phase=OFF",
        )
        with pytest.raises(Fatal) as caught:
            source.conversion().records()
    assert caught.value.code == "MR-6513"
    assert source.file in caught.value.context["coordinates"]


def test_a_table_may_be_called_like_a_phase_of_an_alter(mariadb_server: DatabaseServer) -> None:
    """Only the event's flags count, not what the statement's text looks like."""
    with logged(mariadb_server, "one_phase") as source:
        source.run("CREATE TABLE `START ALTER` (id INT PRIMARY KEY)")
        assert len(source.conversion().records()) == 2
