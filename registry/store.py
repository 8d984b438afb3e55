"""The durable store of registered schemas: an append-only sequence of entries with one writer."""

from collections.abc import Iterable, Sequence
from typing import Protocol

from registry.catalog import Entry


class SchemaStore(Protocol):
    """Raises errors of ``millrace.errors``. After Fenced the process must end, because another one serves."""

    def load(self) -> Iterable[Entry]:
        """Become the writer, then return all stored entries in order."""

    def append(self, entries: Sequence[Entry]) -> None:
        """Store all of the entries, or none, durably before returning."""

    def close(self) -> None: ...


class MemoryStore:
    """Keeps entries in memory, for tests."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self._entries = list(entries)

    def load(self) -> tuple[Entry, ...]:
        return tuple(self._entries)

    def append(self, entries: Sequence[Entry]) -> None:
        self._entries += entries

    def close(self) -> None:
        """There is nothing to release."""
