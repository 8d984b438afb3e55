"""What is registered: schemas by id, and for each subject its versions in order. Pure; durability is the store's.

    identity   the JSON of a schema without blanks, properties and order included: same identity, same id, everywhere
    id         from 1, never given again
    version    from 1 in each subject, never given again; the same schema again is the version it was

Compatibility is never checked: DDL of a source must not stop capture (mode NONE).
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass

from schemas.record.avro_schema import canonical_text


@dataclass(frozen=True, slots=True)
class Entry:
    """One version of one subject, as stored."""

    subject: str
    version: int
    id: int
    schema: str


class Catalog:
    """Grows by ``add`` only. Not for several threads at once."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self._texts: dict[int, str] = {}
        self._ids: dict[str, int] = {}
        self._versions: dict[str, list[Entry]] = {}
        for entry in entries:
            self.add(entry)

    def next_entry(self, subject: str, schema: str) -> tuple[Entry, bool]:
        """(the entry that registering gives, True if it is not in the catalog yet). Nothing is added."""
        found = self.find(subject, schema)
        if found is not None:
            return found, False
        schema_id = self._ids.get(identity(schema), max(self._texts, default=0) + 1)
        versions = self._versions.get(subject, [])
        version = versions[-1].version + 1 if versions else 1
        return Entry(subject, version, schema_id, self._texts.get(schema_id, schema)), True

    def add(self, entry: Entry) -> None:
        """Take a stored entry in; a version that is already there is left as it is."""
        versions = self._versions.setdefault(entry.subject, [])
        if any(known.version == entry.version for known in versions):
            return
        versions.append(entry)
        versions.sort(key=lambda known: known.version)
        self._texts.setdefault(entry.id, entry.schema)
        self._ids.setdefault(identity(entry.schema), entry.id)

    def find(self, subject: str, schema: str) -> Entry | None:
        """The version of this subject with this schema."""
        wanted = self._ids.get(identity(schema))
        return next((entry for entry in self.versions(subject) if entry.id == wanted), None)

    def subjects(self) -> list[str]:
        """All, sorted."""
        return sorted(self._versions)

    def versions(self, subject: str) -> tuple[Entry, ...]:
        """In order; empty for an unknown subject."""
        return tuple(self._versions.get(subject, ()))

    def text(self, schema_id: int) -> str | None:
        """The schema of an id."""
        return self._texts.get(schema_id)

    def uses(self, schema_id: int) -> list[Entry]:
        """Where an id stands, by subject and version."""
        return [
            entry
            for subject in self.subjects()
            for entry in self.versions(subject)
            if entry.id == schema_id
        ]


def identity(schema: str) -> str:
    """Equal for schemas that differ in blanks alone. ``schema`` is valid JSON."""
    return canonical_text(json.loads(schema))
