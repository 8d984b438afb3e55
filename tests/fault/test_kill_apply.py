"""The Spark driver, its Python workers and its whole session killed around each commit, under load: targets equal."""

import pytest

from deploy.services import APPLY_TASK
from schemas.gtid import Flavour
from schemas.status import TaskState
from tests.fix_stack import FaultStack, on

LANE_COMMITS = ("apply.before_lane_commit", "apply.after_lane_commit")
IN_THE_DRIVER = (
    "apply.before_mark:kill",
    "apply.after_mark:kill",
    "apply.ddl_after_intent:kill@2",
    "apply.ddl_after_execute:kill@2",
)
FILL_ROWS = 40_000  # enough for lanes; a trickle is applied by one Spark task


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


@pytest.mark.chaos  # two minutes; one Spark query under the same kills is in test_apply_kills
@on(Flavour.MYSQL)
def test_a_driver_killed_around_its_mark_or_a_ddl_statement_applies_each_once(
    fault_stack: FaultStack,
) -> None:
    """The mark over many lanes and a statement's intent, execution and end: what a crash leaves is found out."""
    with fault_stack.load("driver"):
        for number, fault in enumerate(IN_THE_DRIVER):
            fault_stack.restart("apply", fault=fault)
            fault_stack.fill(f"driver_fill_{number}", rows=FILL_ROWS)
            fault_stack.wait_dead("apply")
        fault_stack.restart("apply")
    fault_stack.settle()


def test_the_points_killed_here_are_all_that_apply_has() -> None:
    """A new fault point in apply needs its kill here."""
    import consumer.batch
    import consumer.ddl
    import consumer.executor

    modules = (consumer.batch, consumer.ddl, consumer.executor)
    names = {
        value
        for module in modules
        for value in vars(module).values()
        if isinstance(value, str) and value.startswith("apply.")
    }
    assert names == {*LANE_COMMITS, *(fault.partition(":")[0] for fault in IN_THE_DRIVER)}
