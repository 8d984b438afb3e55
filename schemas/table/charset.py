"""Converts bytes of a text column to text exactly as the servers do, if the text converts back to the same bytes.

The record carries text as UTF-8 if the bytes are valid in the column's character set *and* the server converts the text
back to these bytes. Otherwise it carries the raw bytes. So the target's rows equal the source's byte for byte, even if
the stored bytes are invalid.

    utf8mb3, utf8mb4        checked (utf8mb3: nothing above U+FFFF)
    ucs2, utf16, utf16le, utf32    arithmetic, big-endian except utf16le; no lone surrogates; ucs2: no surrogates
    binary                  labels only: read as UTF-8
    all others              by table (``characters``), built from Python's codecs and ``charset_differences``

A table never contains U+FFFD, because it marks "no character". The kernels build their arrays from ``characters``;
``decode_text`` is for labels and for tests.
"""

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType

from millrace.errors import Fatal
from millrace.schemas.table.charset_differences import DIFFERENCES, UPPER_HALVES

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
    """The text, or None if the record must carry bytes; Fatal MR-6006 for an unknown character set."""
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


def encode_text(charset: str, text: str) -> bytes | None:
    """The bytes that ``decode_text`` reads as this text; None if a character of it is not in the character set."""
    codec = UNICODE_CODECS.get(charset)
    try:
        if codec is not None:
            encoded = text.encode(codec)
        else:
            encoded = b"".join(_code_of(charset, character) for character in text)
    except (UnicodeEncodeError, KeyError):
        return None
    return encoded if decode_text(charset, encoded) == text else None


def _code_of(charset: str, character: str) -> bytes:
    code = _codes_by_character(charset).get(character)
    if code is None and charset == "gb18030":
        put = {text: code for code, text in _pairs(DIFFERENCES[charset].put)}
        return put.get(character) or character.encode(charset)
    if code is None:
        raise KeyError(character)
    return code


@lru_cache(maxsize=64)
def _codes_by_character(charset: str) -> Mapping[str, bytes]:
    return {character: code for code, character in characters(charset).items()}


@lru_cache(maxsize=64)
def characters(charset: str) -> Mapping[bytes, str]:
    """Every code of 1 or 2 bytes, and (ujis, eucjpms) of 3 bytes that start with 0x8f, with its character.

    For the 4-byte codes of gb18030 see ``gb18030_character``. Fatal MR-6006 for a character set without a table.
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
    """The character of a 4-byte code; None if it has none."""
    put = dict(_pairs(DIFFERENCES["gb18030"].put))
    if code in put:
        return put[code]
    character = _one_character(code, "gb18030")
    # ``put`` assigns this character to another code.
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
