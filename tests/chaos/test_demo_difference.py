"""The comparison of `millrace demo` on a target with a foreign write."""

import io

import pytest
from rich.console import Console

from deploy.demo.run import ShopRun, conclude
from deploy.workload.beats import Arrivals
from deploy.workload.shop import Counts
from schemas.gtid import Flavour
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
