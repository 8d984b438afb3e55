"""The Spark driver, its Python workers and its whole session killed around each commit, under load: targets equal."""

import pytest

from deploy.services import APPLY_TASK
from schemas.gtid import Flavour
from schemas.status import TaskState
from tests.fix_stack import FaultStack, on

LANE_COMMITS = ("apply.before_lane_commit", "apply.after_lane_commit")


@pytest.mark.chaos  # one Spark query under the same kills is in test_apply_kills
@on(Flavour.MYSQL)
def test_a_killed_python_worker_costs_a_restart_of_the_query_and_no_row(
    fault_stack: FaultStack,
) -> None:
    """Before and after the commit of a lane: the task says why it starts again, and the target ends equal."""
    with fault_stack.load("python_worker"):
        for point in LANE_COMMITS:
            fault_stack.restart("apply", fault=f"{point}:kill@3")
            told = fault_stack.wait_report(APPLY_TASK, TaskState.DEGRADED, "MR-5050")
            assert told.fix
        fault_stack.restart("apply")
    fault_stack.settle()


@on(Flavour.MYSQL)
def test_a_driver_killed_with_all_its_processes_at_a_lane_commit_costs_no_row(
    fault_stack: FaultStack,
) -> None:
    """A lane stands before or just behind its commit when everything that belongs to the driver is killed at once."""
    with fault_stack.load("session"):
        for point in LANE_COMMITS:
            fault_stack.restart("apply", fault=f"{point}:stop@3")
            fault_stack.wait_stopped("apply")
            fault_stack.services["apply"].kill()
        fault_stack.launch("apply")
    fault_stack.settle()
