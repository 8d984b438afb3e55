"""The texts that a server's collation calls equal to the literals of a view: read once, stored with the view.

    CollationWeights   of one collation, only the characters that a text equal to a literal may have
    CharacterRange     code points that weigh the same: for each level of the collation its units
    step_octets        the weights that one literal needs, for ``kernel.conditions``

A collation weighs each character on one to four levels: letters, accents, case, kana. Two texts are equal if the units
of their characters, joined, are equal on each level. A character without a unit is ignored on that level. A collation
that pads also ignores the blank's units at the end.

This is true only while a server weighs characters one by one. It weighs some sequences together, ``ch`` in Czech. A
literal is refused if such a sequence could be a part of a text that equals the literal (``blocking_sequence``).
Collations that move characters, compare words, or compare otherwise than they weigh are refused (``why_unweighed``).
``drivers.mysql.weights`` reads the weights, since flavours and versions weigh differently under one name.
"""

import hashlib
import json
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import accumulate

from millrace.schemas.plain import to_plain

Weights = tuple[tuple[int, ...], ...]

_UNWEIGHED = (
    ("_czech_cs", "compares a text in four passes"),
    ("tis620_thai_", "moves vowels after consonants"),
    ("_myanmar_", "weighs syllables"),
    ("gb18030_", "has not been compared exactly"),
    ("big5_chinese_", "calls characters different that weigh the same"),
)
HEAD_WORDS = 2
LEVEL_WORDS = 3
RANGE_WORDS = 3


@dataclass(frozen=True, slots=True)
class CharacterRange:
    """Code points from ``first`` to ``last``."""

    first: int
    last: int
    weights: Weights


@dataclass(frozen=True, slots=True)
class CollationWeights:
    """``server`` is the version whose weights these are. ``ranges`` ascend.

    ``pad``: for each level the blank's unit, if it is ignored at the end, and () if not; () if it is on no level.
    ``unfit``: (literal, what is wanted instead). ``problem``: why no literal can be compared.
    """

    collation_id: int
    name: str
    server: str
    level_count: int = 0
    pad: Weights = ()
    ranges: tuple[CharacterRange, ...] = ()
    literals: tuple[str, ...] = ()
    unfit: tuple[tuple[str, str], ...] = ()
    problem: str = ""

    @property
    def hash(self) -> str:
        """SHA-256 in hex."""
        return hashlib.sha256(json.dumps(to_plain(self)).encode()).hexdigest()

    def weights_of(self, text: str) -> Weights:
        """The units of one of the literals."""
        points = {ord(character) for character in text}
        by_point = {
            point: one.weights
            for one in self.ranges
            for point in points
            if one.first <= point <= one.last
        }
        return joined([by_point[ord(character)] for character in text], self.level_count)


def why_unweighed(name: str) -> str:
    """Why texts under this collation are not the weights of their characters; "" if they are."""
    return next((reason for part, reason in _UNWEIGHED if part in name), "")


def joined(parts: Iterable[Weights], level_count: int) -> Weights:
    """The units of characters one after the other, on each level."""
    levels: list[list[int]] = [[] for _ in range(level_count)]
    for part in parts:
        for units, own in zip(levels, part, strict=True):
            units.extend(own)
    return tuple(map(tuple, levels))


def without_pad(weights: Weights, pad: Weights) -> Weights:
    """Without the pad's unit at the end of each level."""
    levels = []
    for level, pad_units in zip(weights, pad, strict=True) if pad else ():
        end = len(level)
        while end and level[end - 1 : end] == pad_units:
            end -= 1
        levels.append(level[:end])
    return tuple(levels) if pad else weights


def is_part(weights: Weights, literal: Weights, pad: Weights) -> bool:
    """Whether a text that equals the literal may have a character, or a sequence, of these weights."""
    return all(
        _is_within(level, whole + (pad[place] * len(level) if pad else ()))
        for place, (level, whole) in enumerate(zip(weights, literal, strict=True))
    )


def _is_within(part: tuple[int, ...], whole: tuple[int, ...]) -> bool:
    size = len(part)
    return any(whole[at : at + size] == part for at in range(len(whole) - size + 1))


@dataclass(frozen=True, slots=True)
class WeighedTogether:
    """Characters that a server weighs together. ``apart``: the units of its characters, one by one."""

    text: str
    together: Weights
    apart: Weights


def blocking_sequence(
    sequences: Iterable[WeighedTogether], takes: Callable[[Weights], bool]
) -> str:
    """A sequence that makes the comparison with a literal uncertain; "" for none.

    ``takes``: whether these units may be a part of a text that equals the literal (``is_part``). If they may together,
    the server may call a text equal that differs character by character. If they may apart, the reverse.
    """
    return next((one.text for one in sequences if takes(one.together) or takes(one.apart)), "")


def step_octets(collation: CollationWeights, literal: str) -> bytes:
    """The layout, in big-endian words of 32 bits; places count words:

    head     number of levels, number of ranges
    levels   first unit of the literal, its end, the pad's unit + 1 or 0
    ranges   first code point of each; last code point of each; place of the weights of each
    …        the literal's units; weights: for each level the number of units, and the units
    """
    whole = without_pad(collation.weights_of(literal), collation.pad)
    ranges = [one for one in collation.ranges if is_part(one.weights, whole, collation.pad)]
    start = HEAD_WORDS + LEVEL_WORDS * len(whole) + RANGE_WORDS * len(ranges)
    ends = list(accumulate(map(len, whole), initial=start))
    levels = [
        number
        for place in range(len(whole))
        for number in (
            ends[place],
            ends[place + 1],
            collation.pad[place][0] + 1 if collation.pad and collation.pad[place] else 0,
        )
    ]
    words = [unit for level in whole for unit in level]
    places: dict[Weights, int] = {}
    for one in ranges:
        if one.weights not in places:
            places[one.weights] = start + len(words)
            words += [number for level in one.weights for number in (len(level), *level)]
    table = [len(whole), len(ranges), *levels]
    table += [one.first for one in ranges] + [one.last for one in ranges]
    table += [places[one.weights] for one in ranges] + words
    return struct.pack(f">{len(table)}I", *table)
