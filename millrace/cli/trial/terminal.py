"""Records as lines for a person: a sign, the table, the key, what changed; in color on a terminal.

    14:03:22.963 + shop.orders id=7  customer: ü, price: 1.25        inserted
    14:03:23.001 ~ shop.orders id=7  price: 1.25 → 1.50              updated
                 - shop.orders id=8  customer: x, price: 2.00        deleted, in the same transaction
    14:03:24.417 ! shop: ALTER TABLE orders ADD COLUMN paid INT      a statement

The time is that of the commit, in this machine's zone.
"""

import os
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from types import MappingProxyType

from millrace.consumer.topic.tail import printable, shown_change, shown_value
from millrace.schemas.record.control import DdlRecord, RecordTransaction
from millrace.schemas.record.record import Image, RowRecord

_SIGNS = MappingProxyType({"c": "+", "u": "~", "d": "-", "r": "+"})
_COLORS = MappingProxyType({"+": "32", "~": "33", "-": "31", "!": "36"})
_DIM = "2"


def has_colors() -> bool:
    """Whether standard output is a terminal that has them, and NO_COLOR (no-color.org) is not set."""
    is_plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
    return sys.stdout.isatty() and not is_plain


@dataclass(slots=True)
class Lines:
    """Remembers the last source transaction: only its first line has the time."""

    is_colored: bool
    _gtid: str = ""

    def line(self, record: RowRecord | DdlRecord) -> str:
        """One line of printable text."""
        when = self._when(record.transaction, record.ts_ms)
        if isinstance(record, DdlRecord):
            sql = " ".join(record.statement.sql.split())
            database = record.source.database
            return self._joined(when, "!", f"{database}: {sql}" if database else sql, "")
        source, change = record.source, record.change
        key: Image = record.key or {}
        named = "".join(f" {name}={shown_value(value)}" for name, value in key.items())
        head = f"{source.database}.{source.table}{named}"
        return self._joined(when, _SIGNS[change.op], head, shown_change(record, key))

    def _when(self, transaction: RecordTransaction, ts_ms: int) -> str:
        if transaction.gtid == self._gtid:
            return " " * 12
        self._gtid = transaction.gtid
        return datetime.fromtimestamp(ts_ms / 1000, UTC).astimezone().strftime("%H:%M:%S.%f")[:12]

    def _joined(self, when: str, sign: str, head: str, rest: str) -> str:
        head, rest = printable(head), printable(rest)
        if not self.is_colored:
            return f"{when} {sign} {head}  {rest}".rstrip()
        color = _COLORS[sign]
        return f"\x1b[{_DIM}m{when}\x1b[0m \x1b[{color}m{sign} {head}\x1b[0m  {rest}".rstrip()
