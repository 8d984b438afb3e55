"""A captured set loses its primary while capture reads a replica: a whole stack, from the writer to the target."""

import pytest

from millrace.deploy.local.services import CAPTURE_TASK
from millrace.deploy.servers import DatabaseServer, DatabaseSet
from tests.fixtures.stack import FaultStack
from tests.kit.capture.promote import promote


@pytest.mark.chaos
@pytest.mark.stack
@pytest.mark.guarantee("failover")
def test_lost_primary_costs_no_row_end_to_end(failover_stack: FaultStack) -> None:
    """Capture resumes on the replica of the new primary, and on the new primary when that replica is lost, too."""
    stack = failover_stack
    with stack.load("before"):
        stack.wait_published()
        attached = stack.status(CAPTURE_TASK)
        first, second = stack.stack.source.replicas
        read, new = (first, second) if _reads(stack, first) else (second, first)
        assert _reads(stack, read)
    stack.stack.source.wait_for_replicas()
    stack.stack.source.primary.kill()
    promote(new, read)
    stack.stack.source = DatabaseSet(new, (read,))
    with stack.load("after"):
        stack.fill("at_the_new_primary", rows=1000)
        stack.wait_published()
        now = stack.status(CAPTURE_TASK)
        assert _reads(stack, read)
        assert (now["epoch"], now["worker"]) == (attached["epoch"], attached["worker"])
        stack.services["worker"].kill()
        stack.launch("worker")
        stack.wait_epoch_after(CAPTURE_TASK, now["epoch"])
        stack.wait_published()
        read = next(member for member in stack.stack.source.members if _reads(stack, member))
        if read is not new:
            stack.lose_member(read, new)
        stack.wait_published()
        assert _reads(stack, new)
    stack.settle()


def _reads(stack: FaultStack, member: DatabaseServer) -> bool:
    """Whether capture is attached to this member."""
    return bool(stack.status(CAPTURE_TASK)["source"]["port"] == member.port)
