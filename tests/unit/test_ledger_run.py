"""The ledger's run without a stack: whether its subscriber read while the load ran."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.ledger import run
from tests.ledger.reader import Reading
from tests.ledger.run import Ledger, Start


@dataclass
class Reader:
    """A subscriber that has read what the test says; with ``each_look`` as many more whenever it is asked."""

    each_look: int = 0
    has_failed: bool = False
    read: Reading = field(default_factory=Reading)

    @property
    def reading(self) -> Reading:
        """What it has read."""
        self.reads(self.each_look)
        return self.read

    def reads(self, count: int) -> None:
        """So many records more."""
        self.read.seen += [(0, b"")] * count

    def abandon(self) -> None:
        """It is a model."""


def _ledger(reader: Reader, *, read_at_the_end: int = 0) -> Ledger:
    """Whose subscriber reads so many records when the load has ended, while all settles."""
    stack = SimpleNamespace(settle=lambda **_: reader.reads(read_at_the_end))
    ledger = Ledger(cast(Any, stack), "ledger", 1, Start(0, "bin", 4))
    ledger._subscriber = cast(Any, reader)
    return ledger


def test_a_subscriber_that_begins_when_the_load_has_ended_is_noticed() -> None:
    """It would see a topic at rest, whole and in order, whatever was to be seen before."""
    ledger = _ledger(Reader(), read_at_the_end=1000)
    with pytest.raises(AssertionError, match="read nothing while the load ran"):
        ledger.check()


def test_what_was_read_is_counted_when_the_load_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither when it has settled, nor when it is ended once more."""
    reader = Reader()
    ledger = _ledger(reader, read_at_the_end=1000)
    asked: list[int | None] = []
    monkeypatch.setattr(Ledger, "_ask", lambda self: asked.append(self._seen_in_load))
    reader.reads(7)
    ledger.check()
    ledger.leave()
    ledger.check()
    assert asked == [7, 7]


def test_who_waits_for_the_subscriber_waits_for_more_than_it_had_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also behind what it read before; a subscriber that stands still is told, one that failed is not waited for."""
    monkeypatch.setattr(run, "SETTLED_S", 0.0)
    monkeypatch.setattr(run, "LOOK_S", 0.0)
    reads_on = Reader(each_look=1)
    _ledger(reads_on).wait_seen()
    stands_still = Reader()
    stands_still.reads(9)
    with pytest.raises(AssertionError, match="reads on behind 9 records"):
        _ledger(stands_still).wait_seen()
    _ledger(Reader(has_failed=True)).wait_seen()
