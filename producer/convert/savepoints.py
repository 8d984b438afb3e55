"""The savepoints of the open source transaction, by which it drops the records that the source rolled back.

The servers usually remove rolled-back rows from a transaction before they log it. MariaDB logs them, with the rollback
after them, if the transaction created or dropped a temporary table. Rows of tables without transactions and of
sequences are then in separate source transactions, which commit (tried with MyISAM, Aria and a sequence, also
changed by a trigger and by a joined UPDATE).

Not done here: dropping the records (``converter``).
"""

import re
from dataclasses import dataclass

from millrace.errors import Fatal
from millrace.producer.convert.arrays import Numbers
from millrace.producer.convert.kernel import state as s
from millrace.schemas.place import Coordinates

_TEXT = re.compile(
    r"(?:SAVEPOINT|ROLLBACK(?:\s+WORK)?\s+TO(?:\s+SAVEPOINT\b)?)\s*(.+?)\s*", re.I | re.S
)


@dataclass(frozen=True, slots=True)
class Mark:
    """A place in the open source transaction: the last ``seq``, the statements, and LAST_UNIT_ROWS there."""

    seq: int
    statements: int
    last_unit_rows: int

    @classmethod
    def here(cls, st: Numbers) -> "Mark":
        """The place that the kernel has reached."""
        return cls(int(st[s.SEQ]), int(st[s.STATEMENTS]), int(st[s.LAST_UNIT_ROWS]))

    @classmethod
    def start(cls, st: Numbers) -> "Mark":
        """The start of the source transaction, if no part of it is published."""
        return cls(int(st[s.OPEN_SEQ]), 0, 0)


class Savepoints:
    """Those of one source transaction at a time, oldest first."""

    def __init__(self) -> None:
        self._marks: dict[str, Mark] = {}
        self._transaction = -1

    def set(self, text: str, st: Numbers) -> None:
        """``SAVEPOINT …``. One with the same name is replaced."""
        if self._transaction != st[s.TRANSACTIONS]:
            self._marks.clear()
            self._transaction = int(st[s.TRANSACTIONS])
        name = _name(text)
        self._marks.pop(name, None)
        self._marks[name] = Mark.here(st)

    def back_to(self, text: str, st: Numbers, at: Coordinates) -> Mark:
        """``ROLLBACK TO …``. Later ones are forgotten. Fatal MR-6507 if it is not found, or its name is unsure.

        The servers compare the names without case and accents, here only ASCII names are compared.
        """
        name = _name(text)
        is_current = self._transaction == st[s.TRANSACTIONS]
        if not is_current or name not in self._marks or not all(map(str.isascii, self._marks)):
            raise Fatal("MR-6507", f"it is not clear where {text[:80]!r} leads", coordinates=at)
        names = list(self._marks)
        for later in names[names.index(name) + 1 :]:
            del self._marks[later]
        return self._marks[name]


def _name(text: str) -> str:
    found = _TEXT.fullmatch(text)
    name = found[1] if found else ""
    quote = name[:1]
    if quote in ("`", '"') and len(name) > 1 and name.endswith(quote):
        name = name[1:-1].replace(2 * quote, quote)
    return name.rstrip().lower()
