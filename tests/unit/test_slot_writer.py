"""The thread that writes through a slot while its turn reads on: order, merged commits, bounds and errors."""

import threading
from dataclasses import dataclass, field

import numpy as np
import pytest

from millrace.consumer.publish import writer as writers
from millrace.consumer.publish.mark import Position
from millrace.consumer.publish.outgoing import WIDTH, Outgoing
from millrace.consumer.publish.writer import SlotWriter
from millrace.consumer.records.pieces import Size
from millrace.errors import Fatal, Retryable
from tests.kit.waiting import PATIENCE_S

SIZE = 1000


@dataclass
class Recorded:
    """The calls that a slot got. ``gate`` holds up its first write; the call ``fails`` raises."""

    calls: list[str] = field(default_factory=list)
    gate: threading.Event = field(default_factory=threading.Event)
    fails: str = ""

    def owns(self, topic: str, partition: int) -> bool:
        """All."""
        return True

    def write(self, outgoing: Outgoing) -> int:
        """Once the gate is open."""
        assert self.gate.wait(PATIENCE_S)
        self._note(f"write {outgoing.topics[0]}")
        return len(outgoing.lines)

    def commit(self, position: Position) -> None:
        """Note the seq."""
        self._note(f"commit {position.seq}")

    def verify(self) -> None:
        """Note it."""
        self._note("verify")

    def _note(self, call: str) -> None:
        self.calls.append(call)
        if call == self.fails:
            raise Retryable("MR-3002", call)


def _outgoing(name: str) -> Outgoing:
    return Outgoing((name,), np.zeros(SIZE, np.uint8), np.zeros((1, WIDTH), np.int64))


def _position(seq: int) -> Position:
    return Position(seq, seq, "", "id")


def _fill(writer: SlotWriter, names: str, *, is_full: bool) -> None:
    """Write each, and commit after it."""
    for seq, name in enumerate(names, start=1):
        writer.write(_outgoing(name))
        writer.commit(_position(seq), is_full=is_full)


def test_full_transactions_are_committed_and_verified_in_order() -> None:
    """Each is verified before the next record is written."""
    slot = Recorded()
    with SlotWriter(slot) as writer:
        _fill(writer, "ab", is_full=True)
        slot.gate.set()
    assert slot.calls == ["write a", "commit 1", "verify", "write b", "commit 2", "verify"]


def test_commit_that_others_follow_is_left_to_them() -> None:
    """While the slot is busy, no queue of small Kafka transactions grows."""
    slot = Recorded()
    with SlotWriter(slot) as writer:
        _fill(writer, "abc", is_full=False)
        slot.gate.set()
    assert slot.calls == ["write a", "write b", "write c", "commit 3", "verify"]


def test_merged_commits_do_not_grow_beyond_a_full_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the slot is slower than the turn."""
    monkeypatch.setattr(writers, "FULL", Size(2, 1 << 30))
    slot = Recorded()
    with SlotWriter(slot) as writer:
        _fill(writer, "abcd", is_full=False)
        slot.gate.set()
    assert [call for call in slot.calls if call.startswith("commit")] == ["commit 2", "commit 4"]


@pytest.mark.parametrize("fails", ["write a", "commit 1", "verify"])
def test_nothing_is_written_after_an_error(fails: str) -> None:
    """The turn gets the error with its code, at the latest at its end."""
    slot = Recorded(fails=fails)
    slot.gate.set()
    with pytest.raises(Retryable) as raised, SlotWriter(slot) as writer:
        _fill(writer, "ab", is_full=True)
    assert raised.value.code == "MR-3002"
    assert slot.calls[-1] == fails
    assert "write b" not in slot.calls


def test_turn_that_waits_for_room_gets_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not wait for a thread that has ended."""
    monkeypatch.setattr(writers, "WAITING_BYTES_MAX", SIZE)
    slot = Recorded(fails="write a")
    opening = threading.Timer(0.05, slot.gate.set)
    opening.start()
    with pytest.raises(Retryable), SlotWriter(slot) as writer:
        _fill(writer, "a" * 1000, is_full=False)
    assert slot.calls == ["write a"]
    opening.join()


def test_bytes_that_wait_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The turn waits for the slot: one piece is written, and one beyond the limit may wait with those below."""
    monkeypatch.setattr(writers, "WAITING_BYTES_MAX", 2 * SIZE)
    slot = Recorded()
    slot.gate.set()
    added, ahead = 0, []
    with SlotWriter(slot) as writer:
        for _ in range(50):
            writer.write(_outgoing("a"))
            added += 1
            ahead.append(added - len(slot.calls))
    assert max(ahead) <= 4
    assert len(slot.calls) == 50


def test_error_of_the_turn_comes_after_what_it_gave() -> None:
    """All that precedes is written and committed."""
    slot = Recorded()

    def stop(writer: SlotWriter) -> None:
        _fill(writer, "a", is_full=False)
        slot.gate.set()
        raise Fatal("MR-5204", "a statement")

    with pytest.raises(Fatal, match="statement"), SlotWriter(slot) as writer:
        stop(writer)
    assert slot.calls == ["write a", "commit 1", "verify"]


def test_error_of_the_writing_counts_before_that_of_the_turn() -> None:
    """The error of the turn concerns later records, so a repeated run finds it again."""
    slot = Recorded(fails="commit 1")

    def stop(writer: SlotWriter) -> None:
        _fill(writer, "a", is_full=False)
        slot.gate.set()
        raise Fatal("MR-5204", "a statement")

    with pytest.raises(Retryable), SlotWriter(slot) as writer:
        stop(writer)
