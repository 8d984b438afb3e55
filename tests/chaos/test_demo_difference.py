"""The comparison of `millrace demo` on a target with a foreign write."""

import io

import pytest
from rich.console import Console

from millrace.deploy.demo.run import ShopRun, conclude
from millrace.deploy.local.services import APPLY_TASK
from millrace.deploy.workload.beats import Arrivals
from millrace.deploy.workload.shop import Counts
from millrace.schemas.gtid import Flavour
from tests.fixtures.stack import FaultStack, on


@on(Flavour.MARIADB)
@pytest.mark.guarantee("compared")
def test_demo_exits_with_1_on_a_difference(fault_stack: FaultStack) -> None:
    """The changed target row is named and the exit code is 1. After a repair it is 0."""
    fault_stack.fill("differs", rows=20)
    fault_stack.wait_applied()
    run = ShopRun(Counts(), Arrivals({}), Arrivals({}))
    target = fault_stack.stack.target
    ((right,),) = target.execute("SELECT v FROM differs.t WHERE id = 7")
    for value, code in (("other", 1), (right, 0)):
        target.execute("UPDATE differs.t SET v = %s WHERE id = 7", (value,))
        output = io.StringIO()
        console = Console(file=output, width=200, highlight=False)
        assert conclude(fault_stack.stack, console, run) == code
        printed = output.getvalue()
        assert ("differs.t: different: 7" in printed) is (code == 1)
        verdict = "see above" if code else "none: every row of every table is equal"
        assert f"differences  {verdict}" in printed


@on(Flavour.MYSQL)
@pytest.mark.guarantee("compared")
def test_damaged_target_is_repaired_under_load(fault_stack: FaultStack) -> None:
    """The load writes, creates and drops tables meanwhile. Exactly the damaged rows differ."""
    fault_stack.fill("damaged", rows=7_000)
    fault_stack.wait_applied()
    target = fault_stack.stack.target
    kept, fault_stack.databases[:] = fault_stack.databases[:], []
    with fault_stack.load("repairing"):
        target.execute("DELETE FROM damaged.t WHERE id % 7 = 0")
        target.execute("UPDATE damaged.t SET v = 'x' WHERE id % 7 = 1")
        target.execute("INSERT INTO damaged.t SELECT -id, v FROM damaged.t WHERE id % 7 = 2")
        done = fault_stack.stack.try_command(
            "compare", APPLY_TASK, "--repair", "--yes", "--timeout", "240", timeout_s=600
        )
    assert "3,000 differences, 3,000 repaired" in done.stdout, done.stdout + done.stderr
    assert done.returncode == 0
    fault_stack.databases += kept
    fault_stack.settle()
