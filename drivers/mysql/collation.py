"""Folds: for a collation, a function of texts that is equal for all texts that the collation calls equal.

A fold replaces each character by letters and joins them. Two texts that are equal on the server have equal letters,
apart from blanks at the end. The reverse is not true: a fold compares only the first level, so case, accents and more
never matter. That costs parallelism, and no row.

The letters are the server's own weights (``drivers.mysql.folds`` reads them):

    unit     a weight has two bytes in Unicode's algorithm (``is_tailored``), else each byte of a weight is a letter
    level    letters up to the first zero weight; the next levels only separate case and accents
    lead     FB40 to FBFF only begin the weights of rare characters and Han: left out
    unknown  characters outside the planes that are read, or with long weights: the text is not comparable

Contractions: a server may weigh some characters together, such as ``dz`` in Hungarian or a Thai vowel with the next
consonant. ``probes`` lists all sequences that a server may treat so: those in the rules of MySQL 9.7 and MariaDB 11.4,
all canonical decompositions, and pairs of Latin letters. For each that the server does weigh together, letters are
merged or left out until the letters of the characters, one by one, equal those of the sequence (``_solved``). So the
letters of a text are those of its characters.

Not here: collations that also move characters or compare words (``has_fold``). Texts under them are not compared.
"""

import struct
import unicodedata
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product

import numpy as np
import numpy.typing as npt

PLANES = (0, 1, 2, 3, 14)  # the other planes have no assigned characters
PAGE = 256
PAGES = 0x110000 // PAGE
PLAIN = 128
UNKNOWN = np.uint32(0xFFFFFFFF)
WORD = np.uint32(0x80000000)  # length << 24 | place of the first letter
LETTERS_MAX = 16  # a character with longer weights is unknown
PROBE_LENGTH_MAX = 4

_UNICODE = ("utf8mb4_", "utf8mb3_", "utf8_", "ucs2_", "utf16_", "utf16le_", "utf32_")
_UNFOLDED = ("_czech_cs", "tis620_thai_", "_myanmar_", "binary")
_LEAD_FIRST, _LEAD_LAST = 0xFB40, 0xFBFF

# "ddzs" and the like in the rules of Croatian, Czech, Danish, Hungarian, Norwegian, Slovak, Spanish (traditional)
_TOGETHER = "ch aa ll cs ccs dz ddz dzs ddzs gy ggy ly lly ny nny sz ssz ty tty zs zzs lj nj dž l·"
_CHINESE = ("重庆", "沈阳", "藏文")
_TIBETAN = ("\u0fb2\u0f81", "\u0fb3\u0f81")
_PREPOSED = "\u0e40\u0e41\u0e42\u0e43\u0e44\u0ec0\u0ec1\u0ec2\u0ec3\u0ec4"  # vowels written before their consonant
_PREPOSED += "\u19b5\u19b6\u19b7\u19ba\uaab5\uaab6\uaab9\uaabb\uaabc"
_MARKS = "".join(map(chr, range(0x300, 0x34F)))
_LATIN = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_KANA = "".join(map(chr, (*range(0x3041, 0x3100), *range(0x31F0, 0x3200), *range(0xFF66, 0xFFA0))))
_PROLONGED = "\u30fc"
# "the character before, again": a text with one is not comparable
_ITERATION = "\u309d\u309e\u30fd\u30fe"

Letters = tuple[int, ...]
Codes = npt.NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class Fold:
    """One collation's fold, compressed: 20 to 150 KB. Equal bytes mean equal folds."""

    packed: bytes


def has_fold(collation: str) -> bool:
    """Whether this collation's texts can be folded character by character."""
    return bool(collation) and not any(part in collation for part in _UNFOLDED)


def is_exact(collation: str) -> bool:
    """Whether texts are equal only if they are the same, apart from blanks at the end."""
    return collation.startswith(_UNICODE) and collation.endswith("_bin")


def is_tailored(collation: str) -> bool:
    """Whether weights have two bytes and may belong to several characters."""
    return collation.startswith(_UNICODE) or "_unicode_" in collation


@cache
def probes() -> tuple[str, ...]:
    """All sequences of characters that a server may weigh together."""
    found = {"".join(case) for text in _TOGETHER.split() for case in product(*map(_cases, text))}
    found.update(first + second for first in _LATIN for second in _LATIN + _MARKS)
    found.update(_decompositions())
    found.update(first + second for first in _PREPOSED for second in _neighbors(first))
    found.update(kana + mark for kana in _KANA for mark in _PROLONGED + _ITERATION)
    found.update(("ê\u0300", "Ê\u0300", *_CHINESE, *_TIBETAN))
    return tuple(sorted(found, key=lambda text: (len(text), text)))


def make_fold(
    weights: Mapping[int, Sequence[bytes]],
    sequences: Mapping[str, bytes],
    *,
    tailored: bool,
) -> Fold:
    """The fold from ``weights[first]``, those of PAGE characters from ``first``, and the weights of ``sequences``."""
    read, read_page = (_units, _one_letter_each) if tailored else (_bytes, _one_byte_each)
    codes = np.full(0x110000, UNKNOWN, np.uint32)
    slow: dict[int, Letters] = {}
    for first, page in weights.items():
        letters = read_page(page)
        if letters is not None:
            codes[first : first + PAGE] = letters
        else:
            slow.update((first + at, read(weight)) for at, weight in enumerate(page))

    def letters_of(point: int) -> Letters:
        known = slow.get(point)
        return (int(codes[point]),) if known is None and codes[point] != UNKNOWN else known or ()

    unknown, equations = set(), []
    for text, weight in sequences.items():
        together = read(weight)
        apart = tuple(letter for char in text for letter in letters_of(ord(char)))
        if together == apart:
            continue
        if text[-1] in _ITERATION:
            unknown.add(ord(text[-1]))
        else:
            equations.append((together, apart))
    meaning = _solved(equations)
    for point in np.flatnonzero(np.isin(codes, list(meaning))) if meaning else ():
        slow[int(point)] = (int(codes[point]),)
    return _packed(codes, {p: word for p, word in slow.items() if p not in unknown}, meaning)


def make_table(folds: Iterable[Fold]) -> Codes:
    """The folds for the kernel, in this order: 0.2 to 0.8 MB each.

    One array, because each array that a kernel passes on costs time. ``table[n]`` is the place of fold ``n``:

        128      the letter of each ASCII character; WORD if it has no letter or several, and for a blank
        4,352    for each page of 256 characters the place of its codes
        …        codes: a letter, 0 for none, UNKNOWN, or WORD with the word's length and its place after ``place``
        …        words
    """
    parts: list[Codes] = []
    places: list[int] = []
    found = list(folds)
    room = len(found)
    for fold in found:
        numbers, codes, words = _unpacked(fold)
        first_page = room + PLAIN + PAGES
        plain = codes[numbers[0] * PAGE :][:PLAIN].copy()
        plain[(plain == 0) | (plain == plain[32])] = WORD
        is_word = (codes & WORD != 0) & (codes != UNKNOWN)
        codes[is_word] += np.uint32(PLAIN + PAGES + len(codes))
        places.append(room)
        parts += (plain, numbers * np.uint32(PAGE) + np.uint32(first_page), codes, words)
        room += sum(map(len, parts[-4:]))
    return np.concatenate([np.array(places, np.uint32), *parts])


def _cases(letter: str) -> tuple[str, ...]:
    return (letter, letter.upper())


def _decompositions() -> Iterable[str]:
    """Every character with parts, as parts: ``й`` as ``и`` and a mark; both all parts and one step."""
    for point in range(0x20000):
        parts = unicodedata.decomposition(chr(point))
        if parts and not parts.startswith("<"):
            whole = unicodedata.normalize("NFD", chr(point))
            for text in ("".join(chr(int(part, 16)) for part in parts.split()), whole):
                if 1 < len(text) <= PROBE_LENGTH_MAX:
                    yield text


def _neighbors(char: str) -> str:
    first = ord(char) & ~0x7F
    return "".join(map(chr, range(first, first + 0x80)))


def _one_letter_each(page: Sequence[bytes]) -> Codes | None:
    """The letters of a page whose characters have one letter each and weights of one size; None for other pages."""
    sizes = set(map(len, page))
    if len(sizes) > 1 or sizes == {0}:
        return None
    units = np.frombuffer(b"".join(page), ">u2").reshape(PAGE, -1).astype(np.uint32)
    found = np.zeros(PAGE, np.uint32)
    for column in units.T:
        if not column.any():
            break
        is_lead = (column >= _LEAD_FIRST) & (column <= _LEAD_LAST)
        if not column.all() or (not is_lead.all() and (is_lead.any() or found.any())):
            return None
        if not is_lead.all():
            found = column
    return found


def _one_byte_each(page: Sequence[bytes]) -> Codes | None:
    """As ``_one_letter_each`` for weights whose bytes are letters: those of pages with one byte each."""
    if set(map(len, page)) != {1}:
        return None
    return np.frombuffer(b"".join(page), np.uint8).astype(np.uint32) + np.uint32(1)


def _units(weight: bytes) -> Letters:
    units = struct.unpack(f">{len(weight) // 2}H", weight)
    first_level = units[: units.index(0)] if 0 in units else units
    return tuple(unit for unit in first_level if not _LEAD_FIRST <= unit <= _LEAD_LAST)


def _bytes(weight: bytes) -> Letters:
    return tuple(byte + 1 for byte in weight)


def _solved(equations: Iterable[tuple[Letters, Letters]]) -> dict[int, Letters]:
    """For some letters other letters, so that both sides of each equation become equal.

    Each step replaces one letter everywhere, which keeps the earlier equations true. A letter that alone makes one side
    becomes the other side; a letter without a counterpart is left out.
    """
    meaning: dict[int, Letters] = {}

    def replaced(word: Letters) -> Letters:
        return tuple(new for letter in word for new in meaning.get(letter, (letter,)))

    for pair in equations:
        left, right = _without_common(replaced(pair[0]), replaced(pair[1]))
        while left or right:
            if len(right) == 1 and right[0] not in left:
                left, right = right, left
            is_name = len(left) == 1 and left[0] not in right
            letter, word = (left[0], right) if is_name else ((left or right)[0], ())
            meaning = {
                known: tuple(new for old in text for new in (word if old == letter else (old,)))
                for known, text in meaning.items()
            }
            meaning[letter] = word
            left, right = _without_common(replaced(left), replaced(right))
    return meaning


def _without_common(left: Letters, right: Letters) -> tuple[Letters, Letters]:
    """Without the letters that both have at the beginning or at the end."""
    while left and right and left[0] == right[0]:
        left, right = left[1:], right[1:]
    while left and right and left[-1] == right[-1]:
        left, right = left[:-1], right[:-1]
    return left, right


def _packed(codes: Codes, slow: Mapping[int, Letters], meaning: Mapping[int, Letters]) -> Fold:
    """The fold of ``codes``, after those of ``slow`` are replaced."""
    words: dict[Letters, int] = {}
    room = 0
    for point, own in slow.items():
        letters = own
        if meaning:
            letters = tuple(new for old in own for new in meaning.get(old, (old,)))
        code = UNKNOWN
        if len(letters) <= 1:
            code = np.uint32(letters[0] if letters else 0)
        elif len(letters) <= LETTERS_MAX:
            if letters not in words:
                words[letters] = room
                room += len(letters)
            code = WORD | np.uint32(len(letters) << 24 | words[letters])
        codes[point] = code
    rows: dict[bytes, int] = {}
    numbers = [rows.setdefault(row.tobytes(), len(rows)) for row in codes.reshape(PAGES, PAGE)]
    flat = np.frombuffer(b"".join(rows), np.uint32)
    steps = np.diff(flat, prepend=np.uint32(0)).astype("<u4")  # Han letters count up by one
    text = [letter for word in words for letter in word]
    head = (len(rows), len(text))
    whole = np.concatenate([np.array(part, "<u4") for part in (head, numbers, steps, text)])
    return Fold(zlib.compress(whole.tobytes(), 6))


def _unpacked(fold: Fold) -> tuple[Codes, Codes, Codes]:
    whole = np.frombuffer(zlib.decompress(fold.packed), "<u4").astype(np.uint32)
    row_count = int(whole[0])
    numbers, rest = whole[2 : 2 + PAGES], whole[2 + PAGES :]
    codes = np.cumsum(rest[: row_count * PAGE], dtype=np.uint32)
    return numbers, codes, rest[row_count * PAGE :].copy()
