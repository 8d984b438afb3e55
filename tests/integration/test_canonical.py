"""The canonical checksums of source transactions, compared between a primary and its replicas."""

from collections.abc import Iterator

import numpy as np
import pytest

from millrace.deploy.servers import DatabaseServer, DatabaseSet
from millrace.producer.convert.canonical import checksums
from millrace.schemas.gtid import Flavour
from tests.kit.relay.relay import run_mixed_workload

pytestmark = pytest.mark.both_flavours


def _next_file(server: DatabaseServer) -> str:
    """The binlog file that begins now."""
    server.execute("FLUSH BINARY LOGS")
    return str(server.execute("SHOW BINARY LOGS")[-1][0])


def _sums(server: DatabaseServer, *, begin: str) -> dict[str, int | None]:
    """The checksums of everything in the server's binlog from the file ``begin`` to now."""
    end = _next_file(server)
    found: dict[str, int | None] = {}
    for name, *_ in server.execute("SHOW BINARY LOGS"):
        if begin <= str(name) < end:
            content = np.fromfile(server.binlog_dir / str(name), np.uint8)[4:]
            found |= checksums(content, flavour=server.flavour)
    return found


@pytest.fixture
def packed(source_set: DatabaseSet) -> Iterator[DatabaseServer]:
    """A replica that logs compressed and smaller events."""
    _, replica = source_set.replicas
    is_mariadb = source_set.flavour is Flavour.MARIADB
    option = "log_bin_compress" if is_mariadb else "binlog_transaction_compression"
    threads = "SLAVE" if is_mariadb else "REPLICA"
    for value in ("ON", "OFF"):
        replica.execute(f"SET GLOBAL {option} = {value}")
        replica.execute(f"STOP {threads}")
        replica.execute(f"START {threads}")
        if value == "ON":
            yield replica


def test_replicas_have_the_checksums_of_the_primary(
    source_set: DatabaseSet, packed: DatabaseServer
) -> None:
    """Every kind of source transaction, one replica with compressed and smaller events."""
    primary, run = source_set.primary, source_set.execute
    source_set.wait_for_replicas()
    members = (primary, source_set.replicas[0], packed)
    begins = [_next_file(member) for member in members]
    run_mixed_workload(primary, "canonical")
    run("CREATE TABLE canonical.keyless (a INT, b JSON, c DECIMAL(30, 9), d VARCHAR(400))")
    run(
        "INSERT INTO canonical.keyless WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 400)"
        " SELECT i % 7, JSON_OBJECT('i', i), i / 3, REPEAT(CHAR(65 + i % 20), i) FROM n"
    )
    run("UPDATE canonical.keyless SET d = CONCAT(a, 'é'), a = NULL WHERE a < 5")
    run("DELETE FROM canonical.keyless WHERE a IS NULL LIMIT 30")
    run("DROP DATABASE canonical")
    source_set.wait_for_replicas()
    known, *others = (
        _sums(member, begin=begin) for member, begin in zip(members, begins, strict=True)
    )
    assert len(known) > 30
    assert None not in known.values()
    for found in others:
        assert {gtid: found.get(gtid) for gtid in known} == known


def test_other_rows_have_another_checksum(server: DatabaseServer) -> None:
    """A server logs a transfer and its reverse: the same bytes in other rows."""
    found = []
    for rich, poor in ((1, 2), (2, 1)):
        server.execute("CREATE DATABASE bank")
        begin = _next_file(server)
        server.execute("CREATE TABLE bank.account (id INT PRIMARY KEY, balance INT)")
        server.execute(f"INSERT INTO bank.account VALUES ({rich}, 200), ({poor}, 100)")
        found.append(list(_sums(server, begin=begin).values()))
        server.execute("DROP DATABASE bank")
    assert [len(sums) for sums in found] == [2, 2]
    assert found[0][0] == found[1][0]
    assert found[0][1] != found[1][1]
