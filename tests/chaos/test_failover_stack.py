"""A captured set loses its primary while capture reads a replica: a whole stack, from the writer to the target."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local.services import CAPTURE_TASK
from deploy.local.stack import LocalStack, StackOptions
from deploy.servers import DatabaseServer, DatabaseSet
from tests.fixtures.servers import FLAVOURS
from tests.fixtures.stack import FaultStack
from tests.kit.capture.promote import promote


@pytest.fixture(params=FLAVOURS, ids=str)
def stack(
    request: pytest.FixtureRequest, tmp_path: Path, session_timeout: None
) -> Iterator[FaultStack]:
    """A stack with two replicas; the test does not repair it."""
    options = StackOptions(flavour=request.param, replica_count=2)
    with LocalStack(tmp_path, options) as local:
        services = {process.spec.name.split()[-1]: process for process in local.services}
        yield FaultStack(local, services)


@pytest.mark.chaos
@pytest.mark.stack
@pytest.mark.guarantee("failover")
def test_lost_primary_costs_no_row_end_to_end(stack: FaultStack) -> None:
    """Capture resumes on the replica of the new primary, and on the new primary when that replica is lost, too."""
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
    source: str = stack.status(CAPTURE_TASK)["figures"]["source"]
    return source.endswith(f":{member.port}")
