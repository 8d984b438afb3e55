"""The registered schemas: texts by ID, and each subject's versions in order. Pure; the store makes it durable.

    identity   a schema's JSON without white space; properties and order count. Equal identities have the same ID.
    id         from ``first_id`` on, never reused
    version    from 1 in each subject, never reused; registering the same schema again returns its version

Compatibility is never checked (mode NONE), because DDL of a source must not stop capture.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from millrace.schemas.record.avro_schema import canonical_text


@dataclass(frozen=True, slots=True)
class Entry:
    """One version of one subject, as stored."""

    subject: str
    version: int
    id: int
    schema: str


class Catalog:
    """Only ``add`` changes it. Not for several threads.

    ``first_id``: of a catalog that has no entries. One that has some continues after the greatest ID.
    """

    def __init__(self, entries: Iterable[Entry] = (), *, first_id: int = 1) -> None:
        self._first_id = first_id
        self._texts: dict[int, str] = {}
        self._ids: dict[str, int] = {}
        self._versions: dict[str, list[Entry]] = {}
        self._entries: list[Entry] = []
        self._last_id = 0
        for entry in entries:
            self.add(entry)

    def next_entry(self, subject: str, schema: str) -> tuple[Entry, bool]:
        """(the entry for this schema, True if it is new). Does not add it."""
        (found,) = self.next_entries([(subject, schema)])
        return found

    def next_entries(self, wanted: Sequence[tuple[str, str]]) -> list[tuple[Entry, bool]]:
        """The same for several pairs of subject and schema, as if each were added before the next one."""
        last_id, ids = self._last_id or self._first_id - 1, dict[str, int]()
        texts, drafts = dict[int, str](), dict[str, list[Entry]]()
        found: list[tuple[Entry, bool]] = []
        for subject, schema in wanted:
            known = identity(schema)
            schema_id = self._ids.get(known) or ids.get(known)
            versions = (*self.versions(subject), *drafts.get(subject, ()))
            entry = next((entry for entry in versions if entry.id == schema_id), None)
            is_new = entry is None
            if entry is None:
                if schema_id is None:
                    schema_id = ids[known] = last_id = last_id + 1
                text = self._texts.get(schema_id) or texts.setdefault(schema_id, schema)
                version = versions[-1].version + 1 if versions else 1
                entry = Entry(subject, version, schema_id, text)
                drafts.setdefault(subject, []).append(entry)
            found.append((entry, is_new))
        return found

    def add(self, entry: Entry) -> None:
        """Add a stored entry; a version that exists is not changed."""
        versions = self._versions.setdefault(entry.subject, [])
        if any(known.version == entry.version for known in versions):
            return
        versions.append(entry)
        self._entries.append(entry)
        self._last_id = max(self._last_id, entry.id)
        versions.sort(key=lambda known: known.version)
        self._texts.setdefault(entry.id, entry.schema)
        self._ids.setdefault(identity(entry.schema), entry.id)

    def find(self, subject: str, schema: str) -> Entry | None:
        wanted = self._ids.get(identity(schema))
        return next((entry for entry in self.versions(subject) if entry.id == wanted), None)

    def entries(self, prefix: str) -> list[Entry]:
        """The entries of all subjects that begin with ``prefix``, in the order of their registration."""
        return [entry for entry in self._entries if entry.subject.startswith(prefix)]

    def subjects(self) -> list[str]:
        """All names, sorted."""
        return sorted(self._versions)

    def versions(self, subject: str) -> tuple[Entry, ...]:
        return tuple(self._versions.get(subject, ()))

    @property
    def last_id(self) -> int:
        """The greatest ID; 0 without entries."""
        return self._last_id

    def text(self, schema_id: int) -> str | None:
        """The schema of an id."""
        return self._texts.get(schema_id)

    def uses(self, schema_id: int) -> list[Entry]:
        """The entries that use an ID, by subject and version."""
        return [
            entry
            for subject in self.subjects()
            for entry in self.versions(subject)
            if entry.id == schema_id
        ]


def identity(schema: str) -> str:
    """Equal for schemas that differ only in white space. ``schema`` is valid JSON."""
    return canonical_text(json.loads(schema))
