"""What makes registered schemas survive: an append-only sequence of entries with one writer."""

from collections.abc import Iterable
from typing import Protocol

from registry.catalog import Entry


class SchemaStore(Protocol):
    """Errors are those of ``millrace.errors``; after Fenced the process must end, another one serves now."""

    def load(self) -> Iterable[Entry]:
        """Become the writer, then everything stored so far, in order."""
        ...

    def append(self, entry: Entry) -> None:
        """Durable when it returns."""
        ...

    def close(self) -> None:
        """Give up what it holds."""
        ...


class MemoryStore:
    """Forgets at the end of the process: for tests."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self._entries = list(entries)

    def load(self) -> tuple[Entry, ...]:
        """What was appended."""
        return tuple(self._entries)

    def append(self, entry: Entry) -> None:
        """Remember it."""
        self._entries.append(entry)

    def close(self) -> None:
        """Nothing is held."""
