"""The fields in which two documents differ. Works on the plain values of any document, so it knows no field by name.

A field that a document leaves out has its default (from the JSON Schema, which is recorded from the parser): only
fields whose effect differs are reported. Mappings are compared field by field, other values as a whole, as is a text
with a mapping.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from millrace.schemas.documents.json_schema import set_schema, task_schema
from millrace.schemas.documents.model import TaskKind

Plain = dict[str, object]
_UNCOMPARED = ("format",)  # an older format with the same fields means the same


@dataclass(frozen=True, slots=True)
class FieldChange:
    """One field, such as ``relay.purge.expires_h``. ``None``: it is not set and has no default."""

    path: str
    before: object
    after: object


def field_changes(before: Plain, after: Plain) -> tuple[FieldChange, ...]:
    """The fields that differ, in the order of ``after``. Documents of different kinds share no default."""
    return tuple(_changes(_with_defaults(before), _with_defaults(after), ""))


def _changes(before: Plain, after: Plain, path: str) -> Iterator[FieldChange]:
    for name in [*after, *(name for name in before if name not in after)]:
        if not path and name in _UNCOMPARED:
            continue
        old, new = before.get(name), after.get(name)
        if all(value is None or isinstance(value, dict) for value in (old, new)):
            yield from _changes(_mapping(old), _mapping(new), f"{path}{name}.")
        elif old != new:
            yield FieldChange(f"{path}{name}", old, new)


def _mapping(value: object) -> Plain:
    return value if isinstance(value, dict) else {}


def _with_defaults(document: Plain) -> Plain:
    return _merged(_defaults(str(document.get("kind", ""))), document)


def _merged(defaults: Plain, values: Plain) -> Plain:
    merged = dict(values)
    for name, default in defaults.items():
        value = values.get(name)
        if isinstance(default, dict) and (name not in values or isinstance(value, dict)):
            if inner := _merged(default, _mapping(value)):
                merged[name] = inner
        elif name not in values:
            merged[name] = default
    return merged


@cache
def _defaults(kind: str) -> Plain:
    """The defaults of a set ("") or of a task of this kind."""
    if not kind:
        return _defaults_of(set_schema())
    of_tasks = task_schema()["oneOf"]
    assert isinstance(of_tasks, list), "one schema for each kind of task"
    return _defaults_of(dict(zip(TaskKind, of_tasks, strict=True))[TaskKind(kind)])


def _defaults_of(schema: object) -> Plain:
    """The defaults of a mapping; a field whose mapping has none is left out."""
    found: Plain = {}
    properties = _mapping(_mapping(schema).get("properties"))
    for name, about in properties.items():
        part = _mapping(about)
        inner = next((each for each in _alternatives(part) if "properties" in each), None)
        if inner is not None:
            found[name] = _defaults_of(inner)
        elif "default" in part:
            found[name] = part["default"]
    return found


def _alternatives(part: Plain) -> Iterator[Plain]:
    """The schema, or those of a mapping that may be written as one word."""
    yield part
    one_of = part.get("oneOf")
    yield from (_mapping(each) for each in one_of) if isinstance(one_of, list) else ()
