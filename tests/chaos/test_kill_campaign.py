"""Every process of the service killed at every registered fault point under load: topic complete, target equal.

Registering a point includes it here (`tests/kit/faults/campaign.py`). The same kills on a single relay log, publisher,
query or worker, which check one step, are in test_relay_kills, test_publisher_faults, test_apply_kills and
test_zk_workers. ``tests/stack`` kills each process once on a whole stack.
"""

import pytest

from tests.fixtures.servers import FLAVOURS
from tests.fixtures.stack import FaultStack
from tests.kit.faults.campaign import SERVICE_POINTS, kill_at, victim_of


@pytest.mark.parametrize("fault_stack", FLAVOURS, indirect=True, scope="session", ids=str)
@pytest.mark.parametrize("point", SERVICE_POINTS)
@pytest.mark.guarantee("resumed")
def test_kill_at_any_fault_point_loses_and_repeats_nothing(
    fault_stack: FaultStack, point: str
) -> None:
    """SIGKILL exactly at the point; after a restart everything is published and applied, topic complete, rows equal."""
    with fault_stack.load(point.replace(".", "_")):
        kill_at(fault_stack, point)
        fault_stack.restart(victim_of(point))
        fault_stack.wait_published()
    fault_stack.settle()
