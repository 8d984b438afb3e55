"""Which registry may start on a topic, with a model of Kafka's consumer group."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from millrace.drivers.kafka.group import Group as Described
from millrace.drivers.kafka.group import GroupMember
from millrace.errors import Fatal, Retryable
from millrace.registry import ownership
from millrace.registry.ownership import Ownership
from millrace.schemas.documents import Brokers

OWN, OTHER = "here/127.0.0.1:8081", "there/127.0.0.1:8081"
REBALANCING, EMPTY, STABLE = "rebalancing", "empty", "stable"


class Group:
    """One consumer group. ``looks`` are the owners and states that each look returns, the last one from then on.

    The first look is before this process joins.
    """

    def __init__(self, *looks: tuple[str, str]) -> None:
        self._looks = itertools.chain(looks, itertools.repeat(looks[-1]))
        self._owner, self._state = "", REBALANCING
        self.has_left = False

    def describe(self, *_: object, **__: object) -> Described:
        """The next look."""
        self._owner, self._state = next(self._looks)
        members = tuple(GroupMember(name, self._owner == name) for name in (OWN, OTHER))
        return Described(self._state == STABLE, members)

    def subscribe(self, _: list[str]) -> None:
        """Join: the group begins a rebalance."""
        self._owner, self._state = "", REBALANCING

    def poll(self, _: float) -> None:
        """Nothing is read."""

    def assignment(self) -> list[object]:
        """The partition, if this process owns it."""
        return [object()] if (self._owner, self._state) == (OWN, STABLE) else []

    def close(self) -> None:
        """Leave."""
        self.has_left = True


def _claim(
    group: Any, monkeypatch: pytest.MonkeyPatch, *, takes_over: bool = False, claim_s: float = 5.0
) -> None:
    monkeypatch.setattr(ownership, "Consumer", lambda _: group)
    monkeypatch.setattr(ownership, "describe_group", group.describe)
    monkeypatch.setattr(ownership, "LOOK_S", 0.001)
    monkeypatch.setattr(ownership, "CLAIM_S", claim_s)
    owned = Ownership(Brokers("127.0.0.1:1"), "schemas", name=OWN, takes_over=takes_over)
    try:
        owned.claim()
    finally:
        owned.release()


def test_live_owner_refuses_the_start_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is alive when it has joined the rebalance that this start caused."""
    group = Group((OTHER, STABLE), ("", REBALANCING), (OTHER, STABLE))
    with pytest.raises(Fatal, match=OTHER) as caught:
        _claim(group, monkeypatch)
    assert caught.value.code == "MR-6025"
    assert group.has_left


@pytest.mark.parametrize(
    "looks",
    [
        [("", EMPTY), (OWN, STABLE)],
        [("", EMPTY), ("", REBALANCING), (OWN, STABLE)],
        [(OTHER, STABLE), ("", REBALANCING), ("", REBALANCING), (OWN, STABLE)],
        [(OWN, STABLE), ("", REBALANCING)],
    ],
    ids=["alone", "after a look", "after a dead owner", "after a dead owner at this address"],
)
def test_start_without_a_live_owner_is_permitted(
    looks: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dead owner does not join the rebalance; one at this address has ended, because this process listens there."""
    group = Group(*looks)
    _claim(group, monkeypatch)
    assert group.has_left, "it never owned the registry's topic"


def test_take_over_asks_no_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    """The operator has decided; the process joins the group only to be seen by later starts."""
    group = Group((OTHER, STABLE))
    _claim(group, monkeypatch, takes_over=True)
    assert group.has_left, "no later start could have seen it"


@pytest.mark.parametrize("is_over", [False, True], ids=["for a moment", "for longer"])
def test_coordinator_that_does_not_answer_is_asked_again(
    is_over: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that has just started has no coordinator yet; at the end of ``CLAIM_S`` it is Retryable."""
    failures: list[Callable[[], None]] = [_unavailable] * 3
    group = Group(("", EMPTY), (OWN, STABLE))
    described = group.describe

    def describe(*_: object, **__: object) -> Described:
        if failures:
            failures.pop()()
        return described()

    monkeypatch.setattr(group, "describe", describe)
    if not is_over:
        _claim(group, monkeypatch)
        assert not failures
        return
    with pytest.raises(Retryable, match="MR-6020"):
        _claim(group, monkeypatch, claim_s=0.0)


def _unavailable() -> None:
    raise Retryable("MR-6020", "Kafka's error 15")
