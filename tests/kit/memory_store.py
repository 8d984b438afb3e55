"""A store of schemas without a broker."""

from collections.abc import Iterable, Sequence

from millrace.registry.catalog import Entry


class MemoryStore:
    """Keeps entries in memory."""

    first_id = 1

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self._entries = list(entries)

    def load(self) -> tuple[Entry, ...]:
        return tuple(self._entries)

    def append(self, entries: Sequence[Entry]) -> None:
        self._entries += entries

    def close(self) -> None:
        """There is nothing to release."""
