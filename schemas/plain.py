"""Frozen dataclasses as plain JSON values and back. A field is declared once: by its type and ``Wire``.

    type of a field                            JSON
    str, int, float, bool, an Enum             the value
    X | None                                   the value, null for None
    tuple[X, ...]                              a list
    Mapping[str, X]                            an object
    a dataclass                                an object with its fields, in the order of their declaration
    pairs of text and count (``Wire.pair``)    a list of objects with two keys

Guarantees: a value that is read is written again with the same bytes. Unknown keys are ignored. TypeError, ValueError
or KeyError for other values. Null is 0.0 where a number with a fraction is wanted.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from functools import cache
from types import UnionType
from typing import Annotated, Any, ClassVar, Protocol, TypeVar, get_args, get_origin, get_type_hints

Plain = Mapping[str, object]
T = TypeVar("T")


class Dataclass(Protocol):
    """An instance of a dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """How a field is written: ``Annotated[float, Wire(digits=3)]``.

    ``key``             its key, if that is not its name
    ``digits``          after the point; a number is rounded when it is written
    ``length_max``      a longer text or list is cut when it is written
    ``is_inline``       the fields of the inner dataclass are keys of the outer object. If it is None, they are null,
                        and a list is empty; it is None if its first field is null
    ``flag``            one more key before it: whether it is not None
    ``is_added_later``  earlier versions do not write it: the default if it is absent
    ``is_zero_null``    0 is written as null
    ``pair``            the two keys of each object in a list, for a mapping of text to count, or a tuple of such pairs
    """

    key: str = ""
    digits: int | None = None
    length_max: int | None = None
    is_inline: bool = False
    flag: str = ""
    is_added_later: bool = False
    is_zero_null: bool = False
    pair: tuple[str, str] | None = None


Tenths = Annotated[float, Wire(digits=1)]
MaybeTenths = Annotated[float | None, Wire(digits=1)]
MaybeThousandths = Annotated[float | None, Wire(digits=3)]

_AS_DECLARED = Wire()
_Read = Callable[[object], object]


def to_plain(value: Dataclass) -> dict[str, object]:
    """The JSON object of a dataclass."""
    plain: dict[str, object] = {}
    for name, (wire, hint, _) in _fields(type(value)).items():
        content = getattr(value, name)
        if wire.flag:
            plain[wire.flag] = content is not None
        if wire.is_inline:
            plain |= _nulls(_class_of(hint)) if content is None else to_plain(content)
        else:
            plain[wire.key or name] = _written(content, wire)
    return plain


def from_plain(kind: Callable[..., T], plain: object) -> T:
    """The dataclass from its JSON object."""
    values = object_of(plain)
    arguments = {}
    for name, (wire, hint, read) in _fields(kind).items():
        key = wire.key or name
        if wire.is_inline:
            first = next(iter(_nulls(_class_of(hint))))
            is_null = hint is not _class_of(hint) and values[first] is None
            arguments[name] = None if is_null else read(plain)
        elif key in values or not wire.is_added_later:
            arguments[name] = read(values[key])
    return kind(**arguments)


def object_of(plain: object) -> Plain:
    """The value, which must be an object."""
    if not isinstance(plain, Mapping):
        raise TypeError("a part is not an object")
    return plain


def _written(value: Any, wire: Wire = _AS_DECLARED) -> object:
    if wire.pair is not None:
        pairs = sorted(value.items()) if isinstance(value, Mapping) else value
        return [dict(zip(wire.pair, pair, strict=True)) for pair in pairs]
    match value:
        case Enum():
            return value.value
        case str():
            return value[: wire.length_max]
        case tuple():
            return [_written(item) for item in value[: wire.length_max]]
        case Mapping():
            return {key: _written(item) for key, item in value.items()}
        case float() if wire.digits is not None:
            return round(value, wire.digits)
        case None | int() | float():
            return None if wire.is_zero_null and not value else value
        case _:
            return to_plain(value)


def _nulls(kind: Any) -> dict[str, object]:
    """The keys of an inline dataclass that is None."""
    plain: dict[str, object] = {}
    for name, (wire, hint, _) in _fields(kind).items():
        if wire.is_inline:
            plain |= _nulls(_class_of(hint))
        else:
            plain[wire.key or name] = [] if get_origin(hint) is tuple else None
    return plain


def _class_of(hint: Any) -> Any:
    """The type without ``| None``."""
    return get_args(hint)[0] if get_origin(hint) is UnionType else hint


@cache
def _fields(kind: Any) -> dict[str, tuple[Wire, Any, _Read]]:
    """By name: how it is written, its type, and its reader."""
    hints = get_type_hints(kind, include_extras=True)
    return {field.name: _declared(hints[field.name]) for field in fields(kind)}


def _declared(hint: Any) -> tuple[Wire, Any, _Read]:
    inner, wire = hint, _AS_DECLARED
    if get_origin(hint) is Annotated:
        inner, wire = get_args(hint)
    if wire.pair is not None:
        return wire, inner, _pairs_reader(wire.pair, get_origin(inner))
    if wire.is_zero_null:
        return wire, inner, lambda plain: _integer(plain or 0)
    return wire, inner, _reader(_class_of(inner) if wire.is_inline else inner)


def _reader(hint: Any) -> _Read:
    if hint in _SINGLE:
        return _SINGLE[hint]
    if is_dataclass(hint):
        return lambda plain: from_plain(hint, plain)  # type: ignore[arg-type]  # a class, not an instance
    if isinstance(hint, type) and issubclass(hint, Enum):
        return hint
    origin, inner = get_origin(hint), [arg for arg in get_args(hint) if arg is not type(None)]
    read = _reader(inner[-1] if origin is Mapping else inner[0])
    if origin is tuple:
        return lambda plain: tuple(map(read, _list(plain)))
    if origin is Mapping:
        return lambda plain: {str(key): read(item) for key, item in object_of(plain).items()}
    return lambda plain: None if plain is None else read(plain)


def _pairs_reader(keys: tuple[str, str], container: Any) -> _Read:
    make = dict if container is Mapping else tuple
    name, count = keys
    return lambda plain: make(
        (_text(item[name]), _integer(item[count])) for item in map(object_of, _list(plain))
    )


def _list(plain: object) -> list[object]:
    if not isinstance(plain, list):
        raise TypeError("a part is not a list")
    return plain


def _number(plain: object) -> float:
    if plain is not None and not isinstance(plain, int | float):
        raise TypeError("a value is not a number")
    float(plain or 0)  # OverflowError for a whole number that no float has
    return plain or 0.0


def _integer(plain: object) -> int:
    if not isinstance(plain, int):
        raise TypeError("a value is not a whole number")
    return plain


def _text(plain: object) -> str:
    if not isinstance(plain, str):
        raise TypeError("a value is not text")
    return plain


def _flag(plain: object) -> bool:
    if not isinstance(plain, bool):
        raise TypeError("a value is not true or false")
    return plain


_SINGLE: dict[Any, _Read] = {str: _text, bool: _flag, int: _integer, float: _number}
