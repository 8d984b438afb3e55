"""Every process of the service killed at every registered fault point, under load: topic whole, target equal.

A point is tested by being registered (`tests/campaign.py`). Here each is tried once, on MariaDB and MySQL in turns;
``--chaos`` tries each on both. Where only one step is of interest, the same kills on a lone relay log, publisher, query
or worker are in test_relay_kills, test_publisher_faults, test_apply_kills and test_zk_workers.
"""

import pytest

from schemas.gtid import Flavour
from tests.campaign import POINTS, PROVOCATIONS, kill_at, victim_of
from tests.fix_servers import FLAVOURS
from tests.fix_stack import FaultStack

# Apply's come last, so that one Spark session serves until then.
_ORDERED = sorted(POINTS, key=lambda point: (victim_of(point) == "apply", point))


def _in_turn(turn: int) -> list[object]:
    """All points; those that are another flavour's turn are chaos."""
    count = len(FLAVOURS)
    return [
        pytest.param(point, marks=[] if number % count == turn % count else pytest.mark.chaos)
        for number, point in enumerate(_ORDERED)
    ]


def _kill_and_settle(stack: FaultStack, point: str) -> None:
    """Dead by SIGKILL exactly there, started again; then everything is asked."""
    with stack.load(point.replace(".", "_")):
        kill_at(stack, point)
        stack.wait_published()
    stack.settle()


@pytest.mark.parametrize("fault_stack", [Flavour.MARIADB], indirect=True, scope="session")
@pytest.mark.parametrize("point", _in_turn(0))
def test_killed_at_a_fault_point_mariadb_goes_on_without_loss_or_repeat(
    fault_stack: FaultStack, point: str
) -> None:
    """Everything published and applied: topic verified, every row equal."""
    _kill_and_settle(fault_stack, point)


@pytest.mark.parametrize("fault_stack", FLAVOURS[1:], indirect=True, scope="session")
@pytest.mark.parametrize("point", _in_turn(1))
def test_killed_at_a_fault_point_mysql_goes_on_without_loss_or_repeat(
    fault_stack: FaultStack, point: str
) -> None:
    """The other half, and with ``--chaos`` all."""
    _kill_and_settle(fault_stack, point)


def test_every_provocation_is_of_a_registered_point() -> None:
    """A renamed point takes its provocation along; each point has a victim."""
    assert set(PROVOCATIONS) <= set(POINTS)
    assert {victim_of(point) for point in POINTS} == {"worker", "scheduler", "apply"}
