"""Where a task without progress begins."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Start:
    """Where a task without progress begins: at the oldest binlog, after a GTID set, or after a load of all tables.

    ``is_load``: only of an apply task; the load finds the GTID set (``consumer.load``).
    """

    gtid_set: str = ""
    is_load: bool = False

    @property
    def is_first(self) -> bool:
        """True for a start at the oldest binlog."""
        return not self.gtid_set and not self.is_load

    def __str__(self) -> str:
        return "load" if self.is_load else self.gtid_set or "first"
