"""The canonical checksums of source transactions, compared between a primary and its replicas."""

import numpy as np
import pytest

from deploy.servers import DatabaseServer, DatabaseSet
from producer.convert.canonical import checksums
from schemas.gtid import Flavour
from tests.fixtures.servers import FLAVOURS, NewSet
from tests.kit.relay.relay import run_mixed_workload

pytestmark = pytest.mark.both_flavours


def _sums(server: DatabaseServer, *, last: int = 0) -> dict[str, int | None]:
    """The checksums of everything in the server's binlog files, or in the last closed ones."""
    server.execute("FLUSH BINARY LOGS")
    found: dict[str, int | None] = {}
    for name, *_ in server.execute("SHOW BINARY LOGS")[:-1][-last:]:
        content = np.fromfile(server.binlog_dir / str(name), np.uint8)[4:]
        found |= checksums(content, flavour=server.flavour)
    return found


@pytest.mark.parametrize("flavour", FLAVOURS, ids=str)
def test_replicas_have_the_checksums_of_the_primary(flavour: Flavour, new_set: NewSet) -> None:
    """Every kind of source transaction, one replica with compressed and smaller events."""
    servers: DatabaseSet = new_set(flavour, replica_count=2)
    plain, packed = servers.replicas
    is_mariadb = flavour is Flavour.MARIADB
    option = "log_bin_compress" if is_mariadb else "binlog_transaction_compression"
    packed.execute(f"SET GLOBAL {option} = ON")
    packed.execute("STOP SLAVE" if is_mariadb else "STOP REPLICA")
    packed.execute("START SLAVE" if is_mariadb else "START REPLICA")
    run = servers.execute
    run_mixed_workload(servers.primary, "canonical")
    run("CREATE TABLE canonical.keyless (a INT, b JSON, c DECIMAL(30, 9), d VARCHAR(400))")
    run(
        "INSERT INTO canonical.keyless WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 400)"
        " SELECT i % 7, JSON_OBJECT('i', i), i / 3, REPEAT(CHAR(65 + i % 20), i) FROM n"
    )
    run("UPDATE canonical.keyless SET d = CONCAT(a, 'é'), a = NULL WHERE a < 5")
    run("DELETE FROM canonical.keyless WHERE a IS NULL LIMIT 30")
    servers.wait_for_replicas()
    known = _sums(servers.primary)
    assert len(known) > 30
    assert None not in known.values()
    for replica in (plain, packed):
        found = _sums(replica)
        assert {gtid: found.get(gtid) for gtid in known} == known


def test_other_rows_have_another_checksum(server: DatabaseServer) -> None:
    """A server logs a transfer and its reverse: the same bytes in other rows."""
    found = []
    for rich, poor in ((1, 2), (2, 1)):
        server.execute("CREATE DATABASE bank")
        server.execute("FLUSH BINARY LOGS")
        server.execute("CREATE TABLE bank.account (id INT PRIMARY KEY, balance INT)")
        server.execute(f"INSERT INTO bank.account VALUES ({rich}, 200), ({poor}, 100)")
        found.append(list(_sums(server, last=1).values()))
        server.execute("DROP DATABASE bank")
    assert [len(sums) for sums in found] == [2, 2]
    assert found[0][0] == found[1][0]
    assert found[0][1] != found[1][1]
