"""Reads plain values from YAML or JSON into typed values and collects every problem.

``Fields`` is one mapping of a document. Each ``take`` names a field and its reader. A wrong value becomes a ``Problem``
with its path, the value found and the value wanted. Reading continues with a fallback, so that one error lists all
problems. At the end the caller calls ``finish``, which reports unknown fields, and refuses the document if
``problems`` is not empty.

Guarantees: no plain value raises an error. Values in messages are shortened, and secrets are never shown.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TypeVar

from millrace.errors import Fatal
from millrace.schemas.documents.foreign import foreign_answer
from millrace.wording import counted

FOUND_CHARACTERS_MAX = 60
PROBLEMS_MAX = 50  # one screen; the others are only counted

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Problem:
    """One field that is missing, unknown or wrong."""

    path: str
    found: str
    wanted: str

    def __str__(self) -> str:
        return f"{self.path}: found {self.found}, wanted {self.wanted}"


class Unreadable(Exception):
    """Raised by a reader. ``wanted`` describes valid values; ``found`` replaces the value in the message."""

    def __init__(self, wanted: str, *, found: str = "") -> None:
        super().__init__(wanted)
        self.wanted = wanted
        self.found = found


@dataclass(frozen=True, slots=True)
class Part:
    """A mapping that a document may have. ``needed``: the field that it must have. ``short``: that of a plain text."""

    example: str
    needed: str = ""
    short: str = ""


@dataclass(slots=True)
class Fields:
    """One mapping at ``path`` ("" is the document). All parts of a document share ``problems``."""

    plain: object
    path: str
    problems: list[Problem]
    example: str = ""
    _taken: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        if not isinstance(self.plain, dict):
            self.problems.append(
                Problem(self.path or "(document)", shown(self.plain), _mapping(self.example))
            )

    def take(
        self, name: str, read: Callable[[object], T], fallback: T, *, needed: bool = True
    ) -> T:
        """The value that ``read`` returns; ``fallback`` if it is absent (a problem if ``needed``) or wrong."""
        self._taken.add(name)
        known = self.plain if isinstance(self.plain, dict) else {}
        if known.get(name) is None:
            if needed and isinstance(self.plain, dict):
                self.problems.append(Problem(self._at(name), "nothing", _wanted_of(read)))
            return fallback
        return self._read(self._at(name), known[name], read, fallback)

    def take_each(
        self,
        name: str,
        read: Callable[[object], T],
        *,
        default: Sequence[T] | None = None,
        needed: bool = True,
        count_max: int,
    ) -> tuple[T, ...]:
        """A list of values, or ``default`` if it is absent. Without one this is a problem, or () if not ``needed``.

        An empty list is a problem unless the default is empty.
        """
        count_min = 0 if default == () else 1
        needed = needed and default is None
        items = self._items(name, needed=needed, count_min=count_min, count_max=count_max)
        if items is None:
            return tuple(default or ())
        marker = object()
        found: list[T] = []
        for index, item in enumerate(items):
            value: T | object = self._read(f"{self._at(name)}[{index}]", item, read, marker)
            if value is not marker:
                found.append(value)  # type: ignore[arg-type]  # the marker is the only other value
        return tuple(found)

    def part(self, name: str, *, example: str, needed: bool = True, short: str = "") -> "Fields":
        """A mapping inside this one; an empty one if it is absent. A plain text is its field ``short``."""
        self._taken.add(name)
        known = self.plain if isinstance(self.plain, dict) else {}
        inner = known.get(name)
        if inner is None:
            if needed and isinstance(self.plain, dict):
                self.problems.append(Problem(self._at(name), "nothing", _mapping(example)))
            # all its fields are missing too; one problem is enough
            return Fields({}, self._at(name), [])
        if short and isinstance(inner, str):
            inner = {short: inner}
        return Fields(inner, self._at(name), self.problems, example)

    def parts(
        self, name: str, *, example: str, count_max: int, needed: bool = True
    ) -> "tuple[Fields, ...]":
        """A list of mappings, at least one if it is ``needed`` or there."""
        items = self._items(name, needed=needed, count_min=1, count_max=count_max) or []
        return tuple(
            Fields(item, f"{self._at(name)}[{index}]", self.problems, example)
            for index, item in enumerate(items)
        )

    def refuse(self, name: str, found: str, wanted: str) -> None:
        """Add a problem that is not about a single value."""
        self.problems.append(Problem(self._at(name), found, wanted))

    def finish(self) -> None:
        """Report all fields that were not taken as unknown."""
        if not isinstance(self.plain, dict):
            return
        for name in self.plain:
            if name in self._taken:
                continue
            foreign = "" if self.path else foreign_answer(str(name))
            hint = foreign or self._nearest(str(name))
            self.problems.append(Problem(self._at(shortened(str(name))), "an unknown field", hint))

    def _nearest(self, name: str) -> str:
        close = get_close_matches(name, sorted(self._taken), n=1)
        return f"{close[0]!r} (nearest)" if close else f"one of {', '.join(sorted(self._taken))}"

    def _items(
        self, name: str, *, needed: bool, count_min: int, count_max: int
    ) -> list[object] | None:
        self._taken.add(name)
        known = self.plain if isinstance(self.plain, dict) else {}
        items = known.get(name)
        wanted = (
            f"a list of {count_min} to {count_max}"
            if count_min
            else f"a list of at most {count_max}"
        )
        if items is None:
            if needed and isinstance(self.plain, dict):
                self.refuse(name, "nothing", wanted)
            return None
        if not isinstance(items, list):
            self.refuse(name, shown(items), wanted)
            return None
        if not count_min <= len(items) <= count_max:
            self.refuse(name, f"{len(items)} entries", wanted)
            return None
        return items

    def _read(self, path: str, value: object, read: Callable[[object], T], fallback: T) -> T:
        try:
            return read(value)
        except Unreadable as exc:
            self.problems.append(Problem(path, exc.found or shown(value), exc.wanted))
            return fallback

    def _at(self, name: str) -> str:
        return f"{self.path}.{name}" if self.path else name


def shown(value: object) -> str:
    """A value for a message, short and on one line."""
    match value:
        case None:
            return "nothing"
        case bool():
            return "true" if value else "false"
        case dict():
            return "a mapping"
        case list():
            return f"a list of {len(value)}"
        case str():
            return repr(shortened(value))
        case int() | float():
            return (
                shortened(str(value)) if abs(value) < 10**FOUND_CHARACTERS_MAX else "a huge number"
            )
        case _:
            return f"a {type(value).__name__}"


def shortened(text: str) -> str:
    """At most ``FOUND_CHARACTERS_MAX`` characters."""
    return text if len(text) <= FOUND_CHARACTERS_MAX else text[: FOUND_CHARACTERS_MAX - 1] + "…"


def refuse_if_any(problems: Sequence[Problem], origin: str, name: str) -> None:
    """Fatal MR-4101 that lists all problems of ``origin``, which has this name."""
    if not problems:
        return
    what = f"{origin} {name!r}" if name else origin
    raise Fatal(
        "MR-4101", f"{what} is refused: {counted(len(problems), 'problem')}\n{_listing(problems)}"
    )


def _listing(problems: Iterable[Problem]) -> str:
    """All problems, one per line."""
    lines = [f"  {problem}" for problem in problems]
    hidden = len(lines) - PROBLEMS_MAX
    return "\n".join(lines[:PROBLEMS_MAX] + ([f"  … and {hidden} more"] if hidden > 0 else []))


def _wanted_of(read: Callable[[object], object]) -> str:
    """The description of valid values, from the reader's error for ``None``."""
    try:
        read(None)
    except Unreadable as exc:
        return exc.wanted
    return "a value"


def _mapping(example: str) -> str:
    return f"a mapping: {example}" if example else "a mapping"
