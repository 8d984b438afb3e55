"""The capture worker killed at each fault point under load: the topic stays whole, the target equal."""

import pytest

from schemas.gtid import Flavour
from tests.fix_stack import FaultStack, on

# At the N-th passage, so that the kill falls into the stream and not into the start.
IN_THE_STREAM = (
    "relay.mid_write:kill@9",
    "relay.before_fsync:kill@2",
    "publisher.mid_produce:kill@3",
    "publisher.before_commit:kill@9",
    "publisher.after_commit:kill@9",
)
AT_THE_START = ("publisher.after_fence:kill", "capture.after_attach:kill")
LEFT = (
    "relay.before_write:kill@9",
    "relay.after_write:kill@9",
    "relay.after_fsync:kill@2",
    "relay.before_meta:kill@2",
    "publisher.after_init:kill",
    "publisher.after_tail_read:kill",
    "publisher.before_fence:kill",
    "publisher.before_begin:kill@9",
    "publisher.after_begin:kill@9",
    "zk.slot.after_acquire:kill",
)


@on(Flavour.MARIADB)
@pytest.mark.parametrize(
    "faults",
    [
        pytest.param(IN_THE_STREAM, id="in the stream"),
        pytest.param(AT_THE_START, id="at the start"),
        pytest.param(LEFT, id="all others", marks=pytest.mark.chaos),
    ],
)
def test_a_worker_killed_again_and_again_leaves_a_whole_topic_and_an_equal_target(
    fault_stack: FaultStack, faults: tuple[str, ...]
) -> None:
    """Nothing lost, nothing twice, whatever the step: each start begins with what the last kill left."""
    with fault_stack.load(f"kill_{len(faults)}"):
        for fault in faults:
            fault_stack.restart("worker", fault=fault)
            fault_stack.wait_dead("worker")
        fault_stack.restart("worker")
        fault_stack.wait_published()
    fault_stack.settle()


@on(Flavour.MARIADB)
@pytest.mark.parametrize("passage", [1, pytest.param(2, marks=pytest.mark.chaos)])
def test_a_worker_killed_between_the_commits_of_one_large_source_transaction_goes_on_inside_it(
    fault_stack: FaultStack, passage: int
) -> None:
    """A source transaction of more rows than a Kafka transaction holds is neither repeated nor cut."""
    fault_stack.services["worker"].stop()
    fault_stack.fill(f"large_{passage}", rows=130_000)
    fault_stack.launch("worker", fault=f"publisher.after_commit:kill@{passage + 1}")
    fault_stack.wait_dead("worker")
    fault_stack.restart("worker")
    fault_stack.settle()
