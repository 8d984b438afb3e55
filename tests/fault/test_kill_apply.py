"""Spark's Python workers killed around a lane's commit, under load: the task says why it starts again, targets equal.

The driver and everything that belongs to it is killed at each of apply's points in test_kill_campaign.
"""

import pytest

from deploy.services import APPLY_TASK
from schemas.gtid import Flavour
from schemas.status import TaskState
from tests.campaign import IN_A_PYTHON_WORKER
from tests.fix_stack import FaultStack, on


@pytest.mark.chaos  # one Spark query under the same kills is in test_apply_kills
@on(Flavour.MYSQL)
def test_a_killed_python_worker_costs_a_restart_of_the_query_and_no_row(
    fault_stack: FaultStack,
) -> None:
    """Before and after the commit of a lane: the task says why it starts again, and the target ends equal."""
    with fault_stack.load("python_worker"):
        for point in IN_A_PYTHON_WORKER:
            fault_stack.restart("apply", fault=f"{point}:kill@3")
            told = fault_stack.wait_report(APPLY_TASK, TaskState.DEGRADED, "MR-5050")
            assert told.fix
        fault_stack.restart("apply")
    fault_stack.settle()
