"""Every process of the service killed at every registered fault point, under load: topic whole, target equal.

A point is tested by being registered (`tests/campaign.py`). Here each is tried once, on MariaDB and MySQL in turns, one
after the other under one load; ``--chaos`` tries each alone and on both. Where only one step is of interest, the same
kills on a lone relay log, publisher, query or worker are in test_relay_kills, test_publisher_faults, test_apply_kills
and test_zk_workers.
"""

from collections.abc import Callable

import pytest

from schemas.gtid import Flavour
from tests.campaign import POINTS, PROVOCATIONS, kill_at, victim_of
from tests.fix_servers import FLAVOURS
from tests.fix_stack import FaultStack

PROCESSES = ("worker", "scheduler", "apply")


def _kills(flavour: Flavour) -> list[object]:
    """The points of each process whose turn is this flavour's; alone, as chaos, all of them."""
    turn, count = FLAVOURS.index(flavour) if flavour in FLAVOURS else 0, len(FLAVOURS)
    in_turn = [point for number, point in enumerate(POINTS) if number % count == turn]
    return [
        *(
            pytest.param(tuple(point for point in in_turn if victim_of(point) == name), id=name)
            for name in PROCESSES
        ),
        *(pytest.param((point,), id=point, marks=pytest.mark.chaos) for point in POINTS),
    ]


def _kill_and_settle(
    stack: FaultStack, points: tuple[str, ...], whole_time_again: Callable[[], None]
) -> None:
    """Dead by SIGKILL exactly there, each behind what the last one left; started again, everybody is asked."""
    with stack.load(points[0].replace(".", "_")):
        for point in points:
            whole_time_again()
            kill_at(stack, point)
        whole_time_again()
        stack.restart(victim_of(points[0]))
        stack.wait_published()
    stack.settle()


@pytest.mark.parametrize("fault_stack", [Flavour.MARIADB], indirect=True, scope="session")
@pytest.mark.parametrize("points", _kills(Flavour.MARIADB))
def test_killed_at_a_fault_point_mariadb_goes_on_without_loss_or_repeat(
    fault_stack: FaultStack, points: tuple[str, ...], whole_time_again: Callable[[], None]
) -> None:
    """Everything published and applied: topic verified, every row equal."""
    _kill_and_settle(fault_stack, points, whole_time_again)


@pytest.mark.parametrize("fault_stack", FLAVOURS[1:], indirect=True, scope="session")
@pytest.mark.parametrize("points", _kills(Flavour.MYSQL))
def test_killed_at_a_fault_point_mysql_goes_on_without_loss_or_repeat(
    fault_stack: FaultStack, points: tuple[str, ...], whole_time_again: Callable[[], None]
) -> None:
    """The other half, and with ``--chaos`` all."""
    _kill_and_settle(fault_stack, points, whole_time_again)


def test_every_provocation_is_of_a_registered_point() -> None:
    """A renamed point takes its provocation along; each point has a victim."""
    assert set(PROVOCATIONS) <= set(POINTS)
    assert {victim_of(point) for point in POINTS} == {"worker", "scheduler", "apply"}
