"""Two processes killed at the same moment, then again while they recover: topic complete, target equal.

The first of a pair is stopped at a fault point when both die, so both leave unfinished work. Servers are restarted.
Service processes die once more at a fault point of their start, before any of their tasks runs. test_kill_campaign has
single kills at each point; test_soak has random pairs by seed.
"""

import signal
from dataclasses import dataclass
from itertools import cycle

import pytest

from millrace.deploy.local.services import APPLY_TASK, CAPTURE_TASK
from tests.fixtures.servers import FLAVOURS
from tests.fixtures.stack import FaultStack
from tests.kit.faults.campaign import RECOVERY, kill_while_they_recover, lead_to, victim_of

TASKS = {"worker": CAPTURE_TASK, "apply": APPLY_TASK}


@dataclass(frozen=True, slots=True)
class Pair:
    """The process stopped at a fault point, and the process that dies with it."""

    point: str
    other: str

    @property
    def first(self) -> str:
        """The process that is stopped at the point."""
        return victim_of(self.point)


PAIRS = (
    Pair("publisher.before_commit", "apply"),
    Pair("publisher.before_commit", "kafka"),
    Pair("publisher.after_commit", "kafka"),
    Pair("publisher.mid_produce", "registry"),
    Pair("publisher.after_fence", "zookeeper"),
    Pair("relay.mid_write", "replica 1"),
    Pair("capture.after_attach", "scheduler"),
    Pair("apply.before_lane_commit", "target"),
    Pair("apply.after_lane_commit", "kafka"),
    Pair("apply.before_mark", "zookeeper"),
    Pair("apply.ddl_after_execute", "target"),
    Pair("apply.after_mark", "worker"),
    Pair("zk.placement.scheduler.between_commits", "worker"),
    Pair("zk.placement.scheduler.after_election", "apply"),
)


def _pairs_of(name: str) -> list[Pair]:
    return [pair for pair in PAIRS if pair.first == name]


@pytest.mark.chaos
@pytest.mark.parametrize("first", RECOVERY)
@pytest.mark.parametrize("fault_stack", FLAVOURS, indirect=True, scope="session")
@pytest.mark.guarantee("outages")
def test_paired_kills_during_recovery_lose_and_repeat_nothing(
    fault_stack: FaultStack, first: str
) -> None:
    """Pairs die under one load, each on the state that the last pair left; then everything is checked."""
    recovery = {name: cycle(points) for name, points in RECOVERY.items()}
    with fault_stack.load(f"pairs_{first}"):
        for pair in _pairs_of(first):
            _kill_together(fault_stack, pair)
            dead = [name for name in (pair.first, pair.other) if name in RECOVERY]
            kill_while_they_recover(fault_stack, {name: next(recovery[name]) for name in dead})
            _recover(fault_stack, dead)
    fault_stack.settle()


def _kill_together(stack: FaultStack, pair: Pair) -> None:
    """Kill the first at its point together with the other; restart only servers and the registry."""
    lead_to(stack, pair.point, "stop")
    stack.wait_stopped(pair.first)
    dying = stack.servers.get(pair.other) or stack.services[pair.other]
    assert dying.is_alive()
    stack.kill_together(pair.first, pair.other)
    assert stack.services[pair.first].exit_status == -signal.SIGKILL
    assert not dying.is_alive()
    if pair.other in stack.servers:
        stack.servers[pair.other].start()
    for name in {pair.first, pair.other} & stack.services.keys():
        stack.end(name)
        stack.expire(stack.services[name])
    if pair.other not in {*stack.servers, *RECOVERY}:
        stack.launch(pair.other)


def _recover(stack: FaultStack, dead: list[str]) -> None:
    """Start the dead processes; each task runs under a new epoch and catches up, so the next kill hits the stream."""
    before = {TASKS[name]: stack.epoch(TASKS[name]) for name in dead if name in TASKS}
    for name in dead:
        if not stack.services[name].is_alive():
            stack.launch(name)
    for task, epoch in before.items():
        stack.wait_epoch_after(task, epoch)
    stack.wait_published()
    if "apply" in dead:
        stack.wait_applied()


def test_kill_pairs_cover_every_process_and_server_kind() -> None:
    """The primary is excluded because the load needs it."""
    assert {pair.first for pair in PAIRS} == set(RECOVERY)
    assert {"kafka", "zookeeper", "target", "replica 1", "registry"} <= {
        pair.other for pair in PAIRS
    }
