"""The part of `millrace demo` that compares, on a target that somebody wrote to."""

import io

from rich.console import Console

from deploy.demo.observe import Sightings
from deploy.demo.run import Course, conclude
from deploy.workload.shop import Counts
from schemas.gtid import Flavour
from tests.fix_stack import FaultStack, on


@on(Flavour.MARIADB)
def test_a_difference_ends_the_demo_with_one(fault_stack: FaultStack) -> None:
    """A row that was changed on the target is named, and its exit code is 1; mended, it is 0."""
    fault_stack.fill("differs", rows=20)
    fault_stack.wait_applied()
    course = Course(Counts(), Sightings(), Sightings())
    target = fault_stack.stack.target
    ((right,),) = target.execute("SELECT v FROM differs.t WHERE id = 7")
    for value, code in (("other", 1), (right, 0)):
        target.execute("UPDATE differs.t SET v = %s WHERE id = 7", (value,))
        output = io.StringIO()
        console = Console(file=output, width=200, highlight=False)
        assert conclude(fault_stack.stack, console, course) == code
        told = output.getvalue()
        assert ("differs.t: different: 7" in told) is (code == 1)
        verdict = "see above" if code else "none: every row of every table is equal"
        assert f"differences  {verdict}" in told
