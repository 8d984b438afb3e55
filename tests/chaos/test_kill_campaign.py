"""Every process of the service killed at every registered fault point, under load: topic whole, target equal.

A point is tested by being registered (`tests/kit/faults/campaign.py`). Where one step matters, the same kills on a lone
relay log, publisher, query or worker are in test_relay_kills, test_publisher_faults, test_apply_kills and
test_zk_workers; one kill of each process on a whole stack is in ``tests/stack``.
"""

import pytest

from tests.fixtures.servers import FLAVOURS
from tests.fixtures.stack import FaultStack
from tests.kit.faults.campaign import POINTS, kill_at, victim_of


@pytest.mark.parametrize("fault_stack", FLAVOURS, indirect=True, scope="session", ids=str)
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.guarantee("resumed")
def test_kill_at_any_fault_point_loses_and_repeats_nothing(
    fault_stack: FaultStack, point: str
) -> None:
    """Dead by SIGKILL exactly there; started again, everything is published and applied: topic whole, rows equal."""
    with fault_stack.load(point.replace(".", "_")):
        kill_at(fault_stack, point)
        fault_stack.restart(victim_of(point))
        fault_stack.wait_published()
    fault_stack.settle()
