"""Bytes of a text column as text, exactly as the servers convert, and only where the way back gives the same bytes.

The record carries text as UTF-8 if the bytes are valid in the column's character set *and* the server would turn the
text into these bytes again; else the raw bytes. So the target's rows equal the source's, byte for byte, whatever was
stored.

    utf8mb3, utf8mb4        checked (utf8mb3: nothing above U+FFFF)
    ucs2, utf16, utf16le, utf32    arithmetic, big-endian but for utf16le; no lone surrogates, ucs2 none at all
    binary                  labels only: taken as UTF-8
    all others              by table (``characters``), made from Python's codecs and ``schemas.charset_differences``

U+FFFD never comes out of a table: it stands for "no character". The kernels make their arrays from ``characters``; this
module's ``decode_text`` is for labels and for tests.
"""

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType

from millrace.errors import Fatal
from schemas.charset_differences import DIFFERENCES, UPPER_HALVES

UNICODE_CODECS = MappingProxyType(
    {
        "utf8mb3": "utf-8",
        "utf8mb4": "utf-8",
        "binary": "utf-8",
        "ucs2": "utf-16-be",
        "utf16": "utf-16-be",
        "utf16le": "utf-16-le",
        "utf32": "utf-32-be",
    }
)
TABLE_CHARSETS = tuple(sorted((*DIFFERENCES, *UPPER_HALVES)))

_BASIC_PLANE_ONLY = frozenset({"utf8mb3", "ucs2"})
_BASIC_PLANE_LAST = "\uffff"
_NO_CHARACTER = "\ufffd"
_CODE_BYTES_MAX = {"ujis": 3, "eucjpms": 3, "gb18030": 4}


def decode_text(charset: str, value: bytes) -> str | None:
    """The text, or None where it has to travel as bytes; Fatal MR-6006 for an unknown character set."""
    codec = UNICODE_CODECS.get(charset)
    if codec is None:
        return _by_table(charset, value)
    try:
        text = value.decode(codec)
    except UnicodeDecodeError:
        return None
    if charset in _BASIC_PLANE_ONLY and text and max(text) > _BASIC_PLANE_LAST:
        return None
    return text


@lru_cache(maxsize=64)
def characters(charset: str) -> Mapping[bytes, str]:
    """Every code of 1 byte, 2 bytes, and (ujis, eucjpms) 3 bytes behind 0x8f with its one character.

    gb18030 has codes of 4 bytes beside: ``gb18030_character``. Fatal MR-6006.
    """
    if charset in UPPER_HALVES:
        both = bytes(range(128)).decode("ascii") + UPPER_HALVES[charset]
        found = {bytes([code]): character for code, character in enumerate(both)}
    elif charset in DIFFERENCES:
        found = _from_codec(charset)
    else:
        raise Fatal("MR-6006", f"character set {charset!r} has no table", charset=charset)
    return MappingProxyType({code: text for code, text in found.items() if text != _NO_CHARACTER})


def gb18030_character(code: bytes) -> str | None:
    """The character of a code of 4 bytes."""
    put = dict(_pairs(DIFFERENCES["gb18030"].put))
    if code in put:
        return put[code]
    character = _one_character(code, "gb18030")
    # The two-byte half of the exception in ``put`` has taken this one's place.
    return None if character in put.values() else character


def _from_codec(charset: str) -> dict[bytes, str]:
    difference = DIFFERENCES[charset]
    codes = [bytes([code]) for code in range(256)]
    single = {code for code in codes if _one_character(code, difference.codec) is not None}
    codes += [
        bytes([lead, next_])
        for lead in range(0x80, 256)
        for next_ in range(256)
        if bytes([lead]) not in single
    ]
    if _CODE_BYTES_MAX.get(charset) == 3:
        codes += [bytes([0x8F, a, b]) for a in range(0xA1, 0xFF) for b in range(0xA1, 0xFF)]
    found = {}
    for code in codes:
        character = _one_character(code, difference.codec)
        if character is not None:
            found[code] = character
    for code in _codes(difference.drop):
        found.pop(code, None)
    return found | {code: text for code, text in _pairs(difference.put) if len(code) < 4}


def _one_character(code: bytes, codec: str) -> str | None:
    try:
        text = code.decode(codec)
    except UnicodeDecodeError:
        return None
    return text if len(text) == 1 else None


def _pairs(put: str) -> list[tuple[bytes, str]]:
    pairs = []
    for item in put.split():
        codes, _, point = item.partition("=")
        pairs += [(code, chr(int(point, 16) + i)) for i, code in enumerate(_codes(codes))]
    return pairs


def _codes(text: str) -> list[bytes]:
    codes = []
    for item in text.split():
        first, _, last = item.partition("-")
        width = len(first) // 2
        codes += [
            code.to_bytes(width, "big")
            for code in range(int(first, 16), int(last or first, 16) + 1)
        ]
    return codes


def _by_table(charset: str, value: bytes) -> str | None:
    table = characters(charset)
    longest = _CODE_BYTES_MAX.get(charset, 2)
    out = []
    at = 0
    while at < len(value):
        for width in range(1, longest + 1):
            code = value[at : at + width]
            character = table.get(code)
            if character is None and width == 4 == len(code):
                character = gb18030_character(code)
            if character is not None:
                break
        else:
            return None
        out.append(character)
        at += width
    return "".join(out)
