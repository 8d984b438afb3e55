"""Regular expressions over names of databases and tables as patterns with ``*`` and ``?``.

A point without a quantifier stands for itself, as its authors mean it: ``shop.orders``, not ``shopXorders``.
Alternatives and optional parts become several patterns. ``\\d``, ``[a-z]`` and ``{2}`` have no pattern that matches the
same names.
"""

from collections.abc import Iterator
from dataclasses import dataclass

PATTERNS_MAX = 64  # of one expression
_WILD = "*?"
_SPECIAL = "\\^$.[]|()*+?{}"


class Inexpressible(Exception):
    """No set of patterns matches the same names."""


@dataclass(slots=True)
class _Reader:
    text: str
    place: int = 0

    def peek(self) -> str:
        return self.text[self.place : self.place + 1]

    def next(self) -> str:
        character = self.peek()
        self.place += 1
        return character


def patterns_of(expression: str) -> tuple[str, ...]:
    """The patterns that match the same names as the expression does as a whole. Inexpressible."""
    reader = _Reader(expression.strip())
    patterns = tuple(dict.fromkeys(_alternatives(reader)))
    if reader.peek():
        raise Inexpressible
    return patterns


def split_list(text: str) -> list[str]:
    """The parts of a list with commas; ``\\,`` and a comma in braces belong to a part."""
    parts, depth, part, rest = [], 0, "", iter(text)
    for character in rest:
        depth += (character in "{[(") - (character in "}])")
        if character == "\\":
            following = next(rest, "")
            part += following if following == "," else character + following
        elif character == "," and depth <= 0:
            parts.append(part)
            part = ""
        else:
            part += character
    return [each.strip() for each in [*parts, part] if each.strip()]


def _alternatives(reader: _Reader) -> Iterator[str]:
    yield from _sequence(reader)
    while reader.peek() == "|":
        reader.next()
        yield from _sequence(reader)


def _sequence(reader: _Reader) -> list[str]:
    """All texts of one alternative."""
    texts = [""]
    while reader.peek() and reader.peek() not in "|)":
        pieces = _piece(reader)
        texts = [text + piece for text in texts for piece in pieces]
        if len(texts) > PATTERNS_MAX:
            raise Inexpressible
    return texts


def _piece(reader: _Reader) -> list[str]:
    """All texts that one character, group or class matches, with its quantifier."""
    character = reader.next()
    if character in "^$":
        return [""]
    if character == ".":
        return _any(reader)
    if character == "(":
        pieces = _group(reader)
    elif character == "[":
        pieces = [_class(reader)]
    elif character == "\\":
        pieces = [_escaped(reader.next())]
    elif character in _SPECIAL:
        raise Inexpressible
    else:
        pieces = [character]
    quantifier = reader.peek()
    if quantifier == "?":
        reader.next()
        return [*pieces, ""]
    if quantifier and quantifier in "*+{":
        raise Inexpressible
    return pieces


def _any(reader: _Reader) -> list[str]:
    """A point: any characters with a quantifier, else itself."""
    quantifier = reader.peek()
    if quantifier == "{":
        raise Inexpressible
    if quantifier not in ("*", "+"):
        return ["."] if quantifier != "?" else _optional(reader)
    reader.next()
    if reader.peek() == "?":  # reluctant; it matches the same as a whole
        reader.next()
    return ["*" if quantifier == "*" else "?*"]


def _optional(reader: _Reader) -> list[str]:
    reader.next()
    return ["?", ""]


def _group(reader: _Reader) -> list[str]:
    if reader.peek() == "?":
        reader.next()
        if reader.next() != ":":
            raise Inexpressible
    pieces = list(_alternatives(reader))
    if reader.next() != ")":
        raise Inexpressible
    return pieces


def _class(reader: _Reader) -> str:
    """A class with one character, such as ``[.]``."""
    character = reader.next()
    if character == "\\":
        character = _escaped(reader.next())
    if character == "^" or character in _WILD or reader.next() != "]":
        raise Inexpressible
    return character


def _escaped(character: str) -> str:
    if not character or character.isalnum() or character in _WILD:
        raise Inexpressible
    return character
