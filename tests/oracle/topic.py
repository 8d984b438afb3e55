"""The order of a set topic, from its messages alone.

    offsets  increase
    seq      grows by one with every row and statement, is unchanged in all others; begins at 1 in a whole topic
    epochs   never decrease
    whole    a source transaction's messages are adjacent, total_order 1, 2, 3, …, the last one is marked
    once     no message repeats

A reading that begins inside a topic may begin inside a source transaction.
"""

from tests.oracle.record import Message, Step, harm


class TopicOracle:
    """Checks every message fed to it in order; ``finish`` checks the end."""

    def __init__(self, *, is_whole: bool) -> None:
        """``is_whole``: the first message is the first of the topic."""
        self.transaction_count = 0
        self.row_count = 0
        self._is_whole = is_whole
        self._last: Message | None = None
        self._seq: int | None = None
        self._epoch = 0
        self._open: Step | None = None
        self._ended: set[str] = set()

    def feed(self, message: Message) -> None:
        """Check the next message."""
        if self._last is not None and message.offset <= self._last.offset:
            raise harm(message, f"after offset {self._last.offset}")
        self._check_seq(message)
        if message.epoch is not None:
            if message.epoch < self._epoch:
                raise harm(message, f"epoch {message.epoch} after epoch {self._epoch}")
            self._epoch = message.epoch
        if message.step is not None:
            self._check_step(message, message.step)
        self._last = message

    def finish(self) -> None:
        """Check the end, after the last message of a topic at rest."""
        assert self._last is not None, "nothing was read"
        if self._open is not None:
            raise harm(self._last, f"{self._open.gtid} has no last row")
        if self._last.epoch is None:
            raise harm(self._last, "the topic ends without a resolved record")

    def _check_seq(self, message: Message) -> None:
        counts = message.step is not None
        if self._seq is None:
            if self._is_whole and message.seq != int(counts):
                raise harm(message, "the topic does not begin here")
        elif message.seq != self._seq + counts:
            raise harm(message, f"seq {message.seq} after seq {self._seq}")
        self._seq = message.seq

    def _check_step(self, message: Message, step: Step) -> None:
        self.row_count += 1
        if step.gtid in self._ended:
            raise harm(message, "this source transaction has ended before")
        if self._open is None:
            is_first = self._last is None or (not self._is_whole and not self._ended)
            if step.total_order != 1 and not is_first:
                raise harm(message, f"begins with row {step.total_order}")
        elif self._open.gtid != step.gtid:
            raise harm(message, f"{self._open.gtid} is not whole: it has no last row")
        elif step.total_order != self._open.total_order + 1:
            raise harm(message, f"row {step.total_order} after row {self._open.total_order}")
        self._open = step
        if step.is_last:
            self.transaction_count += 1
            self._ended.add(step.gtid)
            self._open = None
