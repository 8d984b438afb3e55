"""The rows of `millrace worker list`."""

from dataclasses import replace

import pytest

from millrace.cli.worker import age, takes_more
from millrace.schemas.documents import TaskKind
from millrace.zk.lease.membership import Registered
from millrace.zk.placement.assignment import Placeable
from millrace.zk.placement.fleet import Fleet, WorkerView, worker_views

ONE = WorkerView(
    name="w1",
    worker=Registered(kind=TaskKind.CAPTURE, capacity=2),
    units=1,
    tasks=3,
    is_drained=False,
    is_settled=True,
)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "yes"),
        ({"units": 2}, "no: full"),
        ({"is_settled": False}, "not yet: registered recently"),
        ({"is_settled": None}, "no scheduler is running"),
        ({"is_drained": True, "units": 2}, "no: drained"),
        ({"is_drained": True, "worker": None}, "no: drained, not running"),
    ],
)
def test_worker_list_says_why_a_worker_takes_no_more(
    changes: dict[str, object], words: str
) -> None:
    """The first reason that an operator can act on."""
    assert takes_more(replace(ONE, **changes)) == words  # type: ignore[arg-type]


def test_units_are_counted_once_and_tasks_each() -> None:
    """A drained worker that does not run is shown too; a task of a dead worker is in no row."""
    fleet = Fleet(
        workers={"w1": Registered(kind=TaskKind.CAPTURE)},
        drained={"w9"},
        tasks={
            name: Placeable(name, TaskKind.CAPTURE, unit)
            for name, unit in (("a", "set:s"), ("b", "set:s"), ("c", "set:t"), ("d", "set:u"))
        },
        assigned={"a": "w1", "b": "w1", "c": "w1", "d": "gone"},
        owners={"e": "w1"},
        unsettled={"w1"},
    )
    rows = [(row.name, row.units, row.tasks, row.is_settled) for row in worker_views(fleet)]
    assert rows == [("w1", 2, 3, False), ("w9", 0, 0, None)]
    assert fleet.tasks_of("w1") == ["a", "b", "c", "e"], "e still stops there"
    assert (fleet.units_of("w1"), fleet.tasks_of_unit("set:s")) == ({"set:s", "set:t"}, ["a", "b"])


@pytest.mark.parametrize(
    ("ms", "text"),
    [(-5, "0 s"), (59_999, "59 s"), (60_000, "1 min"), (7_200_000, "2 h"), (90_000_000, "1 d")],
)
def test_age_has_one_unit(ms: int, text: str) -> None:
    """A clock that is late shows 0."""
    assert age(ms) == text
