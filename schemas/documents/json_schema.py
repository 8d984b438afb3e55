"""JSON Schemas of set and task documents, for editors and other tools.

They are recorded from the parser: it reads its fields from a ``Fields`` that records each name, reader, limit and
default. The parser is stricter: a schema can not express some of its rules (a server given twice, a host name that is
too long).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from millrace.schemas.documents.fields import Fields
from millrace.schemas.documents.model import TaskKind
from millrace.schemas.documents.parse import take_format, take_set, take_task
from millrace.schemas.documents.readers import schema_of

T = TypeVar("T")
Schema = dict[str, object]
_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def set_schema() -> Schema:
    """The schema of a set document."""
    fields = _Recorder({}, "", [])
    take_format(fields)
    take_set(fields)
    return {"$schema": _DIALECT, "title": "A Millrace set"} | fields.schema()


def task_schema() -> Schema:
    """The schema of a task document of any kind."""
    return {
        "$schema": _DIALECT,
        "title": "A Millrace task",
        "oneOf": [_task_schema(kind) for kind in TaskKind],
    }


def _task_schema(kind: TaskKind) -> Schema:
    fields = _Recorder({}, "", [])
    take_format(fields)
    fields.note("kind", {"const": kind.value}, needed=True)
    take_task(fields, kind)
    return {"title": f"kind: {kind}"} | fields.schema()


@dataclass(slots=True)
class _Recorder(Fields):
    """Records the fields that are taken. Every field is absent, and none is a problem."""

    properties: Schema = field(default_factory=dict)
    needed: list[str] = field(default_factory=list)
    short: str = ""  # the field that a plain text stands for
    word: Schema = field(default_factory=dict)  # the schema of that text, once the field is taken

    def note(self, name: str, schema: Schema, *, needed: bool) -> None:
        """Record one field."""
        self.properties[name] = schema
        if name == self.short:
            self.word |= schema
        if needed:
            self.needed.append(name)

    def schema(self) -> Schema:
        """The schema of the mapping. Fields that are recorded later appear in it too."""
        return {
            "type": "object",
            "properties": self.properties,
            "required": self.needed,
            "additionalProperties": False,
        }

    def take(
        self, name: str, read: Callable[[object], T], fallback: T, *, needed: bool = True
    ) -> T:
        is_told = not needed and fallback is not None and str(fallback) != ""
        default = {"default": _plain(fallback)} if is_told else {}
        self.note(name, schema_of(read) | default, needed=needed)
        return fallback

    def take_each(
        self,
        name: str,
        read: Callable[[object], T],
        *,
        default: Sequence[T] | None = None,
        needed: bool = True,
        count_max: int,
    ) -> tuple[T, ...]:
        schema: Schema = {"type": "array", "items": schema_of(read), "maxItems": count_max}
        schema["minItems"] = 0 if default == () else 1
        if default is not None:
            schema["default"] = [_plain(value) for value in default]
        self.note(name, schema, needed=needed and default is None)
        return tuple(default or ())

    def part(self, name: str, *, example: str, needed: bool = True, short: str = "") -> Fields:
        inner = _Recorder({}, name, [], short=short)
        about: Schema = {"description": f"such as {example}"}
        schema = {"oneOf": [inner.word, inner.schema()]} if short else inner.schema()
        self.note(name, schema | about, needed=needed)
        return inner

    def parts(
        self, name: str, *, example: str, count_max: int, needed: bool = True
    ) -> tuple[Fields, ...]:
        inner = _Recorder({}, name, [])
        schema: Schema = {"type": "array", "items": inner.schema(), "maxItems": count_max}
        schema |= {"minItems": 1, "description": f"such as {example}"}
        self.note(name, schema, needed=needed)
        return (inner,)

    def finish(self) -> None:
        pass


def _plain(value: object) -> object:
    return value if isinstance(value, int | float) else str(value)
