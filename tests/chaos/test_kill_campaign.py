"""Every process of the service killed at every registered fault point under load: topic complete, target equal.

Registering a point includes it here (`tests/kit/faults/campaign.py`). The same kills on a single relay log, publisher,
query or worker, which check one step, are in test_relay_kills, test_publisher_faults, test_apply_kills and
test_zk_workers. ``tests/stack`` kills each process once on a whole stack.
"""

from collections.abc import Sequence

import pytest

from tests.fixtures.servers import FLAVOURS
from tests.fixtures.stack import FaultStack
from tests.kit.faults.campaign import kill_at, service_points, victim_of

# points under one load, each on the state that the last kill left: the proof at the end takes longer than a kill
GROUPS = service_points(at_most=4)


@pytest.mark.parametrize("fault_stack", FLAVOURS, indirect=True, scope="session", ids=str)
@pytest.mark.parametrize("points", GROUPS.values(), ids=GROUPS)
@pytest.mark.guarantee("resumed")
def test_kill_at_any_fault_point_loses_and_repeats_nothing(
    fault_stack: FaultStack, points: Sequence[str]
) -> None:
    """SIGKILL exactly at each point; after restarts everything is published and applied, topic complete, rows equal."""
    with fault_stack.load(points[0].replace(".", "_")):
        for point in points:
            kill_at(fault_stack, point)
            fault_stack.restart(victim_of(point))
            fault_stack.wait_published()
            if victim_of(point) == "apply":
                fault_stack.wait_applied()
    fault_stack.settle()
