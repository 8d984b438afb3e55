"""The capture worker killed between the Kafka commits of one source transaction that is larger than one of them."""

import pytest

from schemas.gtid import Flavour
from tests.fix_stack import FaultStack, on


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
