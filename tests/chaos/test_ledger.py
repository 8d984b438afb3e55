"""The ledger under kills, checked from outside: a plain consumer, two independent decoders, the servers' checksums."""

import pytest

from millrace.schemas.gtid import Flavour
from tests.fixtures.stack import FaultStack, on
from tests.kit.waiting import eventually
from tests.oracle.run import Ledger, ledger_load

SEED = 20_261
KILL_AT = 150  # source transactions
COMMITTED = 500  # at least ten seconds of load


@on(Flavour.MYSQL)
@pytest.mark.guarantee("complete")
def test_ledger_is_whole_in_every_independent_reading(fault_stack: FaultStack) -> None:
    """Worker and apply driver are killed under load: topic, binlog and target hold one ledger without ghosts."""
    with ledger_load(fault_stack, SEED) as ledger:
        _wait_committed(ledger, KILL_AT)
        ledger.wait_seen()
        _wait_applied(ledger)
        for name in ("worker", "apply"):
            fault_stack.services[name].kill()
            fault_stack.end(name)
            fault_stack.launch(name)
        before = ledger.seen
        ledger.wait_seen()
        _wait_committed(ledger, COMMITTED)
        verdict = ledger.check()
    assert verdict.seen_in_load > before > 0
    assert verdict.transactions >= COMMITTED
    assert verdict.rows > verdict.transactions
    has_program = fault_stack.stack.source.flavour is Flavour.MYSQL  # MariaDB's is not there
    assert verdict.rows_of_mysqlbinlog == (verdict.rows if has_program else 0)
    assert verdict.values > verdict.rows
    assert verdict.sums >= COMMITTED
    assert verdict.ddl
    assert ledger.counts.rolled_back
    assert ledger.counts.in_savepoints


def _wait_committed(ledger: Ledger, number: int) -> None:
    eventually(
        lambda: ledger.counts.committed >= number or ledger.has_failed,
        every_s=0.1,
        what=f"{number} source transactions",
    )


def _wait_applied(ledger: Ledger) -> None:
    target = ledger.stack.stack.target
    sql = "SELECT 1 FROM information_schema.tables WHERE table_schema = %s AND table_name = 'never'"
    eventually(
        lambda: target.execute(sql, (ledger.database,)),
        every_s=0.1,
        what="the target has the ledger's tables",
    )
