"""The part of Confluent's REST API that clients of a topic need, as functions from request to answer, without HTTP.

    POST /subjects/{s}/versions               register: {"id": …}
    POST /subjects/{s}                        look up a schema: subject, version, id, schema
    GET  /subjects?subjectPrefix=             names
    GET  /subjects/{s}/versions               numbers
    GET  /subjects/{s}/versions/{v}[/schema]  v is a number, "latest" or -1
    GET  /schemas?subjectPrefix=&offset=&limit=   subjects, versions, IDs and texts; latestOnly and deleted are ignored
    GET  /schemas/ids/{id}[/schema|/subjects|/versions]   subject is ignored, fetchMaxId=true adds maxId
    GET  /schemas/types                       ["AVRO"]
    GET  /contexts                            ["."], the default one: there are no others
    GET  /config[/{s}], /mode[/{s}]           NONE, READWRITE; they can not be changed
    POST /compatibility/subjects/{s}/versions/{v}   always true: compatibility is NONE

and what Apicurio's deserializers and converters ask, in their versions 2 and 3. Global and content IDs are the IDs:

    GET  /apis/registry/{v2|v3}/ids/{globalIds|contentIds}/{id}              the schema
    GET  /apis/registry/{v2|v3}/ids/{globalIds|contentIds}/{id}/references   []

    error    HTTP  when
    40401     404  unknown subject
    40402     404  unknown version
    40403     404  unknown schema or ID
    42201     422  invalid Avro schema
    42202     422  invalid version
    40501     405  deleting, or changing the configuration

Guarantees: a registration is answered after the store has it. Registrations that arrive while the store is busy are
stored together, next: an append takes tens of milliseconds, however many there are. After an append with an unknown
outcome, the store is read again before the next ID is assigned. After Fenced the store is not used again.
A subject in a request for an ID is only a hint, as in Confluent's registry. Therefore each new store has another first
ID: a client that asks the registry of another installation gets 40403 and not another schema.
Not done here: deleting, references between schemas, other formats than Avro, compatibility rules, authentication.
"""

import threading
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn, Protocol

from millrace.errors import Fatal, Fenced, MillraceError
from millrace.registry.catalog import Catalog, Entry
from millrace.schemas.record.avro_codec import check_schema
from millrace.schemas.record.avro_schema import Json

SUBJECT_UNKNOWN = 40401
VERSION_UNKNOWN = 40402
SCHEMA_UNKNOWN = 40403
SCHEMA_INVALID = 42201
VERSION_INVALID = 42202
_VERSION_MAX = 2**31 - 1
_DIGITS_MAX = 19  # of 64 bits


class SchemaStore(Protocol):
    """The durable schemas: entries that are only appended, by one writer. Raises errors of ``millrace.errors``.

    After Fenced the process must end, because another one serves. ``first_id`` is known after ``load``.
    """

    @property
    def first_id(self) -> int:
        """The first ID of a store that has no entries."""

    def load(self) -> Iterable[Entry]:
        """Become the writer, then return all stored entries in order."""

    def append(self, entries: Sequence[Entry]) -> None:
        """Store all of the entries, or none, durably before returning."""

    def close(self) -> None: ...


class Refusal(Exception):
    def __init__(self, code: int, message: str) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message

    @property
    def status(self) -> int:
        return self.code // 100


@dataclass(slots=True)
class _Waiting:
    """A registration. ``id`` or ``error`` is set when it is done."""

    subject: str
    schema: str
    id: int = 0
    error: MillraceError | None = None
    is_done: bool = False


class RegistryService:
    """For several threads at once."""

    def __init__(self, store: SchemaStore) -> None:
        self._store = store
        self._catalog = self._loaded()
        self._lock = threading.Lock()
        self._waiting: deque[_Waiting] = deque()  # until a thread that has the lock takes them
        self._is_stale = False
        self._fenced: Fenced | None = None

    def register(self, subject: str, request: Mapping[str, Json]) -> Json:
        waiting = _Waiting(subject, _schema_of(request))
        self._waiting.append(waiting)
        with self._lock:
            if not waiting.is_done:  # those that came meanwhile are done too
                batch = [self._waiting.popleft() for _ in range(len(self._waiting))]
                self._register_all(batch)
        if not waiting.id:
            raise waiting.error or Fatal("MR-9001", "a registration ended without an answer")
        return {"id": waiting.id}

    @property
    def waiting_count(self) -> int:
        """The registrations that wait for the store."""
        return len(self._waiting)

    def _loaded(self) -> Catalog:
        entries = self._store.load()
        return Catalog(entries, first_id=self._store.first_id)

    def _register_all(self, batch: "list[_Waiting]") -> None:
        """Store the registrations together; each gets its ID or the error."""
        try:
            entries = self._stored([(waiting.subject, waiting.schema) for waiting in batch])
        except MillraceError as error:
            for waiting in batch:
                waiting.error = error
        else:
            for waiting, entry in zip(batch, entries, strict=True):
                waiting.id = entry.id
        finally:
            for waiting in batch:
                waiting.is_done = True

    def _stored(self, wanted: list[tuple[str, str]]) -> list[Entry]:
        if self._fenced is not None:  # loading the store again would fence the successor
            raise self._fenced
        if self._is_stale:
            self._catalog = self._loaded()
            self._is_stale = False
        entries = self._catalog.next_entries(wanted)
        if new := [entry for entry, is_new in entries if is_new]:
            # Stale until the outcome is known: the store may have the entries, and their IDs would be taken.
            self._is_stale = True
            try:
                self._store.append(new)
            except Fenced as error:
                self._fenced = error
                raise
            for entry in new:
                self._catalog.add(entry)
            self._is_stale = False
        return [entry for entry, _ in entries]

    def look_up(self, subject: str, request: Mapping[str, Json]) -> Json:
        """The version of ``subject`` that has this schema."""
        schema = _schema_of(request)
        self._versions(subject)
        entry = self._catalog.find(subject, schema)
        if entry is None:
            _refuse(SCHEMA_UNKNOWN, "Schema not found")
        return _described(entry)

    def schemas(self, query: Mapping[str, str]) -> Json:
        """A page of the schemas of all subjects with a prefix, in the order of their registration."""
        entries = self._catalog.entries(query.get("subjectPrefix", ""))
        first, count = _number(query, "offset", 0), _number(query, "limit", len(entries))
        return [_described(entry) for entry in entries[first : first + count]]

    def subjects(self, query: Mapping[str, str]) -> Json:
        """The names with a prefix. Those of the default context may be asked for as ``:.:`` or ``:*:``."""
        prefix = query.get("subjectPrefix", "")
        for context in (":.:", ":*:"):
            prefix = prefix.removeprefix(context)
        return [name for name in self._catalog.subjects() if name.startswith(prefix)]

    def versions(self, subject: str) -> Json:
        return [entry.version for entry in self._versions(subject)]

    def version(self, subject: str, version: str) -> Json:
        return _described(self._version(subject, version))

    def version_schema(self, subject: str, version: str) -> str:
        return self._version(subject, version).schema

    def schema(self, schema_id: str, query: Mapping[str, str]) -> Json:
        answer: dict[str, Json] = {"schema": self.schema_text(schema_id)}
        if query.get("fetchMaxId", "") == "true":
            answer["maxId"] = self._catalog.last_id
        return answer

    def schema_text(self, schema_id: str) -> str:
        text = (
            self._catalog.text(int(schema_id))
            if schema_id.isascii() and schema_id.isdigit() and len(schema_id) <= _DIGITS_MAX
            else None
        )
        if text is None:
            _refuse(SCHEMA_UNKNOWN, f"Schema {schema_id} not found")
        return text

    def uses(self, schema_id: str) -> list[Entry]:
        self.schema_text(schema_id)
        return self._catalog.uses(int(schema_id))

    def _versions(self, subject: str) -> tuple[Entry, ...]:
        versions = self._catalog.versions(subject)
        if not versions:
            _refuse(SUBJECT_UNKNOWN, f"Subject '{subject}' not found.")
        return versions

    def _version(self, subject: str, version: str) -> Entry:
        if version in ("latest", "-1"):
            return self._versions(subject)[-1]
        is_number = version.isascii() and version.isdigit() and len(version) <= _DIGITS_MAX
        if not (is_number and 0 < int(version) <= _VERSION_MAX):
            _refuse(
                VERSION_INVALID,
                f"The specified version '{version}' is not a valid version id. Allowed values are between "
                f'[1, {_VERSION_MAX}] and the string "latest"',
            )
        versions = self._versions(subject)
        for entry in versions:
            if entry.version == int(version):
                return entry
        return _refuse(VERSION_UNKNOWN, f"Version {version} not found.")


def _number(query: Mapping[str, str], name: str, default: int) -> int:
    """A parameter of a query; another text than a number, such as Confluent's limit -1, is the default."""
    text = query.get(name, "")
    is_number = text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX
    return int(text) if is_number else default


def _schema_of(request: Mapping[str, Json]) -> str:
    schema = request.get("schema")
    if request.get("schemaType", "AVRO") != "AVRO":
        _refuse(
            SCHEMA_INVALID,
            f"Invalid schema type {request['schemaType']}: this registry stores only AVRO",
        )
    if request.get("references"):
        _refuse(SCHEMA_INVALID, "Invalid schema: this registry does not support references")
    if not isinstance(schema, str):
        _refuse(SCHEMA_INVALID, "Invalid schema: the field 'schema' is not a string")
    try:
        check_schema(schema)
    except Fatal as error:
        raise Refusal(SCHEMA_INVALID, f"Invalid schema: {error.message}") from error
    return schema


def _described(entry: Entry) -> Json:
    return {
        "subject": entry.subject,
        "version": entry.version,
        "id": entry.id,
        "schema": entry.schema,
        "schemaType": "AVRO",
    }


def _refuse(code: int, message: str) -> NoReturn:
    raise Refusal(code, message)
