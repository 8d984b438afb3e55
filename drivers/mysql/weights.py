"""Reads from a source server how it weighs the characters that the literals of a view need.

``schemas.view.collation`` uses them.

Every character of the character set is weighed, on all levels of the collation; those that may be in a text equal to a
literal are kept. One collation takes the server and this process one to three seconds. Not read: exact collations
(``schemas.table.collation_ids.exact_collation``), which need no weights.

    MySQL     one WEIGHT_STRING; in collations after Unicode 9.0.0 a zero unit is between two levels
    MariaDB   one WEIGHT_STRING for each level, which has no zero units; how many there are is tried
    units     two bytes in Unicode's algorithm, a byte in character sets of single bytes, else a whole weight
"""

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

from millrace.drivers.mysql.catalog import read_collations
from millrace.drivers.mysql.collation import is_tailored, probes
from millrace.drivers.mysql.connection import MySqlSession, text_of
from millrace.drivers.mysql.folds import read_rows, read_sequences
from millrace.errors import Fatal
from millrace.schemas.gtid import Flavour
from millrace.schemas.sql.quoting import hex_bytes
from millrace.schemas.table.charset import UNICODE_CODECS, characters, encode_text
from millrace.schemas.table.collation_ids import UTF8MB4_0900_BIN, character_bytes_max, charset_of
from millrace.schemas.view.collation import (
    CharacterRange,
    CollationWeights,
    WeighedTogether,
    Weights,
    blocking_sequence,
    is_part,
    joined,
    why_unweighed,
    without_pad,
)

LITERALS_MAX = 1024  # of one collation
_PLANES, _BASIC_PLANE = range(17), (0,)
_LEVELS = ((1,), (1, 2), (1, 3), (1, 2, 3))
_LEVELS_MAX = 4  # of MySQL's
_CHARACTERS_PER_QUERY = 500
_TAILORED_DIGITS = 4
_SHIFTED = "äA"  # has a unit on each level


@dataclass(frozen=True, slots=True)
class _Scale:
    """How one collation weighs. ``levels``: of WEIGHT_STRING; () for MySQL's, which have no number."""

    charset: str
    collation: str
    levels: tuple[int, ...]
    unit_digits: int  # hexadecimal; 0: a whole weight is one unit
    has_separators: bool

    def sql(self, text: str) -> str:
        """The weight of a text of this character set in hexadecimal digits, with / between levels."""
        texts = [
            f"COALESCE(HEX(WEIGHT_STRING({text} COLLATE {self.collation}{level})), '')"
            for level in ([f" LEVEL {number}" for number in self.levels] or [""])
        ]
        return texts[0] if len(texts) == 1 else f"CONCAT_WS('/', {', '.join(texts)})"

    def converted(self, text: str) -> str:
        """The weight of a text in another character set."""
        return self.sql(f"CONVERT({text} USING {self.charset})")

    def weights(self, digits: str) -> Weights:
        """The units of each level."""
        if self.has_separators:
            levels: list[list[int]] = [[]]
            for unit in self._units(digits):
                if unit:
                    levels[-1].append(unit)
                else:
                    levels.append([])
            levels += [[] for _ in range(_LEVELS_MAX - len(levels))]
            return tuple(map(tuple, levels))
        return tuple(self._units(level) for level in digits.split("/"))

    def _units(self, digits: str) -> tuple[int, ...]:
        size = self.unit_digits or len(digits)
        return tuple(int(digits[at : at + size], 16) for at in range(0, len(digits), size or 1))


def read_weights(
    connection: MySqlSession, wanted: Mapping[int, Collection[str]]
) -> tuple[CollationWeights, ...]:
    """The weights for these literals, by collation ids; in the order of ids."""
    names = {number: name for name, number in read_collations(connection).items()}
    return tuple(
        _read(connection, number, names.get(number, ""), sorted(set(wanted[number])))
        for number in sorted(wanted)
    )


def _read(
    connection: MySqlSession, collation_id: int, name: str, literals: list[str]
) -> CollationWeights:
    server = connection.version_text
    problem = why_unweighed(name) if name else "is not on this server"
    if len(literals) > LITERALS_MAX:
        problem = f"is compared with more than {LITERALS_MAX} literals"
    if problem:
        return CollationWeights(collation_id, name or str(collation_id), server, problem=problem)
    scale = _scale(connection, charset_of(collation_id), name)
    if collation_id == UTF8MB4_0900_BIN:
        return _by_code_point(connection, scale, literals)
    fitting = [text for text in literals if encode_text(scale.charset, text) is not None]
    own = _of_some(connection, scale, sorted({" "}.union(*fitting)))
    blank = own[" "]
    pads = _pads(connection, scale)
    # MariaDB's collations without padding pad all levels but the first
    pad = blank if pads else ((), *blank[1:]) if scale.levels[1:] else ()
    if any(len(level) != 1 for level in pad[not pads :]):
        problem = "has no single weight for a blank"
        return CollationWeights(collation_id, name, server, problem=problem)
    wholes = {text: joined([own[one] for one in text], len(blank)) for text in fitting}
    choices = {text: _Choice(whole, pad) for text, whole in wholes.items()}
    weighed = list(_ranges(_weighed(connection, scale, choices.values())))
    sequences = _sequences(connection, scale, weighed, len(blank))
    unfit = {text: f"a text in {scale.charset}" for text in literals if text not in wholes}
    for text, choice in choices.items():
        if blocking := blocking_sequence(sequences, choice.takes):
            unfit[text] = f"a text without a part like {blocking!r}, which is weighed as one"
    fit = [choice for text, choice in choices.items() if text not in unfit]
    return CollationWeights(
        collation_id,
        name,
        server,
        len(blank),
        pad,
        tuple(one for one in weighed if any(choice.takes(one.weights) for choice in fit)),
        tuple(text for text in wholes if text not in unfit),
        tuple(sorted(unfit.items())),
    )


def _by_code_point(
    connection: MySqlSession, scale: _Scale, literals: list[str]
) -> CollationWeights:
    """A collation that calls only the same text equal, and of which each server knows whether it pads."""
    points = sorted({ord(character) for text in literals for character in text} | {ord(" ")})
    ranges = tuple(CharacterRange(point, point, ((point + 1,),)) for point in points)
    return CollationWeights(
        UTF8MB4_0900_BIN,
        scale.collation,
        connection.version_text,
        level_count=1,
        pad=((ord(" ") + 1,),) if _pads(connection, scale) else (),
        ranges=ranges,
        literals=tuple(literals),
    )


class _Choice:
    """Which weights a text that equals one literal may have."""

    def __init__(self, whole: Weights, pad: Weights) -> None:
        self._whole, self._pad = without_pad(whole, pad), pad
        self._known: dict[Weights, bool] = {}
        self.first_units = {*self._whole[0], *(pad[0] if pad else ())}

    def takes(self, weights: Weights) -> bool:
        if weights not in self._known:
            self._known[weights] = is_part(weights, self._whole, self._pad)
        return self._known[weights]


def _scale(connection: MySqlSession, charset: str, collation: str) -> _Scale:
    tailored = is_tailored(collation)
    unit_digits = _TAILORED_DIGITS if tailored else 2 if character_bytes_max(charset) == 1 else 0
    is_mysql = connection.flavour is Flavour.MYSQL
    scale = _Scale(charset, collation, (), unit_digits, is_mysql and "_0900_" in collation)
    if is_mysql or not tailored:
        return scale
    shifted = f"_utf32 {hex_bytes(_SHIFTED.encode('utf-32-be').hex())}"
    whole = _text(connection, scale.converted(shifted))
    for levels in _LEVELS:
        leveled = replace(scale, levels=levels)
        if _text(connection, leveled.converted(shifted)).replace("/", "") == whole:
            return leveled
    raise Fatal("MR-6006", f"collation {collation} has other levels than {_LEVELS}")


def _text(connection: MySqlSession, sql: str) -> str:
    ((value,),) = connection.query(f"SELECT {sql}")
    return text_of(value)


def _pads(connection: MySqlSession, scale: _Scale) -> bool:
    charset = scale.charset
    return (
        _text(
            connection,
            f"CONVERT('' USING {charset}) = CONVERT(' ' USING {charset}) COLLATE {scale.collation}",
        )
        == "1"
    )


def _of_some(
    connection: MySqlSession, scale: _Scale, texts: Sequence[str]
) -> Mapping[str, Weights]:
    """The weights of characters that the character set has."""
    weights: dict[str, Weights] = {}
    for first in range(0, len(texts), _CHARACTERS_PER_QUERY):
        part = texts[first : first + _CHARACTERS_PER_QUERY]
        listed = ", ".join(scale.sql(_literal(scale.charset, text)) for text in part)
        (row,) = connection.query(f"SELECT {listed}")
        weights |= zip(part, map(scale.weights, map(text_of, row)), strict=True)
    return weights


def _literal(charset: str, text: str) -> str:
    encoded = encode_text(charset, text)
    assert encoded is not None, (charset, text)
    return f"_{charset} {hex_bytes(encoded.hex())}"


def _weighed(
    connection: MySqlSession, scale: _Scale, choices: Iterable[_Choice]
) -> Iterator[tuple[int, Weights]]:
    """The characters that a choice takes, and those of ``probes``."""
    if scale.charset not in UNICODE_CODECS:
        texts = sorted(characters(scale.charset).values())
        yield from (
            (ord(one), weights) for one, weights in _of_some(connection, scale, texts).items()
        )
        return
    probed = _probed()
    takes = _prefilter(scale, choices)

    planes = _BASIC_PLANE if scale.charset in ("ucs2", "utf8mb3") else _PLANES
    for first, row in read_rows(connection, scale.converted, planes):
        for point, digits in enumerate(row.split(","), first):
            if point in probed or takes(digits):
                yield point, scale.weights(digits)


def _prefilter(scale: _Scale, choices: Iterable[_Choice]) -> Callable[[str], bool]:
    """Whether a choice may take these weights; most rare characters begin with a unit that no literal has."""
    listed = list(choices)
    size = scale.unit_digits
    first_units = {unit for choice in listed for unit in choice.first_units}
    taken = set[str]()
    heads = {f"{unit:0{size}X}" for unit in first_units} | {"", "0" * size}

    def takes(digits: str) -> bool:
        if size and digits[:size] not in heads and not digits.startswith("/"):
            return False
        if digits not in taken:
            weights = scale.weights(digits)
            if not any(choice.takes(weights) for choice in listed):
                return False
            taken.add(digits)
        return True

    return takes


def _sequences(
    connection: MySqlSession, scale: _Scale, weighed: Sequence[CharacterRange], level_count: int
) -> list[WeighedTogether]:
    """Those whose weights are not those of their characters."""
    if scale.unit_digits != _TAILORED_DIGITS:
        return []
    firsts = [one.first for one in weighed]
    alone = dict[int, Weights]()
    for point in _probed():
        place = bisect_right(firsts, point) - 1
        if place >= 0 and point <= weighed[place].last:
            alone[point] = weighed[place].weights
    together = []
    for text, digits in read_sequences(connection, scale.converted).items():
        parts = [alone[ord(one)] for one in text if ord(one) in alone]
        if len(parts) == len(text):  # else the character set has no such text
            weights, apart = scale.weights(digits), joined(parts, level_count)
            if weights != apart:
                together.append(WeighedTogether(text, weights, apart))
    return together


@cache
def _probed() -> frozenset[int]:
    return frozenset(ord(one) for text in probes() for one in text)


def _ranges(weighed: Iterable[tuple[int, Weights]]) -> Iterator[CharacterRange]:
    """Ascending code points as ranges."""
    first = last = -1
    weights: Weights = ()
    for point, own in weighed:
        if point != last + 1 or own != weights:
            if last >= 0:
                yield CharacterRange(first, last, weights)
            first, weights = point, own
        last = point
    if last >= 0:
        yield CharacterRange(first, last, weights)
