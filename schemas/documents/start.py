"""Where a task without progress begins."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Start:
    """Where a task without progress begins: at the oldest binlog, after a GTID set, or with the rows that exist.

    ``is_load``: only of an apply task; the load finds the GTID set (``consumer.load``). ``is_snapshot``: only of a
    publish task, which asks for a snapshot that is its own.
    """

    gtid_set: str = ""
    is_load: bool = False
    is_snapshot: bool = False

    @property
    def is_first(self) -> bool:
        """True for a start at the oldest binlog."""
        return not self.gtid_set and not self.is_load and not self.is_snapshot

    def __str__(self) -> str:
        if self.is_snapshot:
            return "snapshot"
        return "load" if self.is_load else self.gtid_set or "first"
