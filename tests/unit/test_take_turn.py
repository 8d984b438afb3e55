"""A turn takes the fence from exactly the owner that its order names."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from millrace.consumer.target.fence import raise_fence, take_turn
from millrace.consumer.target.progress import Owner
from millrace.errors import Fenced


@dataclass
class _Session:
    """A session of a target whose fence has this epoch and run."""

    fence: tuple[int, int]
    changes: list[tuple[object, ...]] = field(default_factory=list)
    commits: int = 0
    locks: int = 0
    id = 1
    server = "a"

    def query(self, sql: str, arguments: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
        if sql.startswith("UPDATE"):
            self.changes.append(arguments)
        self.locks += sql.endswith("FOR UPDATE")
        return [self.fence] if sql.startswith("SELECT epoch, run") else [("task",)]

    def commit(self) -> None:
        self.commits += 1

    def rollback(self) -> None:
        """Nothing is kept."""


def test_turn_is_the_next_run_of_the_owner() -> None:
    """Parts of the turn before are refused from now on."""
    session: Any = _Session((3, 7))
    assert take_turn(session, Owner("task", 3, 7)) == Owner("task", 3, 8)
    assert session.changes == [(3, 8, "task")]
    assert session.commits == 2


@pytest.mark.parametrize("held", [(3, 8), (3, 6), (4, 7), (2, 7), (4, 9)])
def test_turn_of_another_owner_is_refused(held: tuple[int, int]) -> None:
    """A second or late execution, or another run: the fence stays with its owner."""
    session: Any = _Session(held)
    with pytest.raises(Fenced) as caught:
        take_turn(session, Owner("task", 3, 7))
    assert caught.value.code == "MR-5020"
    assert f"epoch {held[0]}, run {held[1]}" in caught.value.message
    assert session.changes == []
    assert session.locks == 0, "a wait for the lock ends the sessions that hold it"


@dataclass
class _Overtaken(_Session):
    """A fence that another execution takes before the lock is granted."""

    def query(self, sql: str, arguments: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
        found = super().query(sql, arguments)
        if sql.startswith("SELECT epoch, run"):
            self.fence = (3, 8)
        return found


def test_turn_overtaken_before_its_lock_is_refused() -> None:
    """The row is compared again under the lock."""
    session: Any = _Overtaken((3, 7))
    with pytest.raises(Fenced):
        take_turn(session, Owner("task", 3, 7))
    assert (session.locks, session.changes) == (1, [])


@pytest.mark.parametrize("held", [(3, 8), (2, 7), (0, 0)])
def test_start_takes_the_fence_from_any_earlier_owner(held: tuple[int, int]) -> None:
    """Only a greater epoch refuses it."""
    session: Any = _Session(held)
    assert raise_fence(session, task="task", epoch=3) == Owner("task", 3, held[1] + 1)
    later: Any = _Session((4, 1))
    with pytest.raises(Fenced):
        raise_fence(later, task="task", epoch=3)
    assert later.changes == []
