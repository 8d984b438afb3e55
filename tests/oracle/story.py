"""A small ledger as messages, without any server: the input that the oracles' own tests damage."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from tests.kit.workload.ledger import ACCOUNT_COUNT, OPENING
from tests.oracle.binlog import Column, Logged
from tests.oracle.binlog_text import TextRow
from tests.oracle.record import Change, Ddl, Image, Message, Step

DATABASE = "books"
LONG = 3  # the binlog's number of INT
ACKNOWLEDGED = {0: 2, 1: 2}


class Story:
    """Messages in the form and order of a topic."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self._seq = 0
        self._gtid = 0

    def mark(self, kind: str, epoch: int) -> None:
        """A fence or a resolved record."""
        self.messages.append(Message(len(self.messages), kind, self._seq, epoch))

    def transaction(self, *changes: Change | Ddl) -> None:
        """One source transaction."""
        self._gtid += 1
        for place, change in enumerate(changes, 1):
            self._seq += 1
            step = Step(f"0-1-{self._gtid}", place, place == len(changes))
            kind = "ddl" if isinstance(change, Ddl) else "row"
            self.messages.append(Message(len(self.messages), kind, self._seq, None, step, change))


def row(table: str, before: Image, after: Image) -> Change:
    """A change; its operation follows from its images."""
    op = "c" if before is None else "d" if after is None else "u"
    return Change(DATABASE, table, op, before, after)


def entry(writer: int, n: int, row_count: int) -> Change:
    """The entry of a source transaction."""
    image = {"writer": writer, "n": n, "ghost": 0, "row_count": row_count}
    return row("entries", None, image)


def account(number: int, before: int | None, after: int | None) -> Change:
    """An account's balance."""
    images = [
        None if balance is None else {"id": number, "balance": balance}
        for balance in (before, after)
    ]
    return row("accounts", *images)


def ledger_messages() -> list[Message]:
    """Two owners, two writers, four entries."""
    story = Story()
    story.mark("fence", 3)
    story.mark("resolved", 3)
    story.transaction(Ddl("", f"CREATE DATABASE `{DATABASE}`"))
    for table in ("entries", "accounts", "loose", "never", "passing"):
        story.transaction(Ddl(DATABASE, f"CREATE TABLE {table} (…)"))
    opened = [account(number, None, OPENING) for number in range(1, ACCOUNT_COUNT + 1)]
    story.transaction(*opened)
    story.mark("resolved", 3)
    story.transaction(account(1, 1000, 900), account(2, 1000, 1100), entry(0, 1, 3))
    loose = {"writer": 1, "body": "x", "ghost": 0}
    story.transaction(entry(1, 1, 3), row("loose", None, loose), row("loose", None, loose))
    story.mark("resolved", 3)
    story.mark("fence", 4)
    story.transaction(Ddl(DATABASE, "RENAME TABLE passing TO passed_by"))
    story.transaction(account(1, 900, 700), account(3, 1000, 1200), entry(0, 2, 3))
    story.transaction(entry(1, 2, 2), row("loose", loose, None))
    story.mark("resolved", 4)
    return story.messages


def renumbered(messages: Iterable[Message]) -> list[Message]:
    """Renumber messages as if published in this order: correct offsets, seq, total_order and last flags."""
    made: list[Message] = []
    seq = 0
    for message in messages:
        step = message.step
        if step is not None:
            seq += 1
            before = made[-1].step if made else None
            is_same = before is not None and before.gtid == step.gtid and not before.is_last
            total_order = before.total_order + 1 if is_same and before is not None else 1
            step = replace(step, total_order=total_order)
        made.append(replace(message, offset=len(made), seq=seq, step=step))
    return made


def logged(messages: Iterable[Message]) -> list[Logged]:
    """The same ledger as binlog rows."""
    return [
        Logged(message.gtid, message.change, _columns(message.change))
        for message in messages
        if message.change is not None
    ]


def _columns(change: Change | Ddl) -> Mapping[str, Column]:
    if isinstance(change, Ddl):
        return {}
    image = change.before if change.after is None else change.after
    return {name: Column(LONG) for name in image or {}}


def printed(messages: Iterable[Message]) -> list[TextRow]:
    """The same ledger as mysqlbinlog prints it."""
    return [
        TextRow(message.gtid, message.change.table, message.change.op, _first(message.change))
        for message in messages
        if isinstance(message.change, Change)
    ]


def _first(change: Change) -> int | None:
    image = change.after if change.before is None else change.before
    return next(iter(image.values())) if image else None
