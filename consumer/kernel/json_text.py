r"""Writes JSON strings: text, base64, hexadecimal digits, Latin-1, documents of MySQL's JSON.

Each function returns the position after the string. Escaped are ``"``, ``\`` and control characters, as Jackson does:
``\b \t \n \f \r``, the others as ``\u001F``. All other UTF-8 passes as it is.
"""

import numpy as np

from millrace.characters import BACKSLASH, COLON, COMMA, QUOTE, SPACE
from millrace.consumer.kernel.compiled import Bytes, compiled_plain, int64


def _escapes() -> Bytes:
    """For each byte: 0 if it passes, the letter after the backslash, ``u`` for a number."""
    table = np.zeros(256, np.uint8)
    table[:32] = ord("u")
    for byte, letter in zip(b'\b\t\n\f\r"\\', b'btnfr"\\', strict=True):
        table[byte] = letter
    return table


ESCAPES = _escapes()
HEX_UPPER = np.frombuffer(b"0123456789ABCDEF", np.uint8)
HEX_LOWER = np.frombuffer(b"0123456789abcdef", np.uint8)
_LETTERS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
BASE64 = np.frombuffer(_LETTERS + b"+/", np.uint8)
BASE64_URL_SAFE = np.frombuffer(_LETTERS + b"-_", np.uint8)

_NULL = np.frombuffer(b"null", np.uint8)

BLOCK = 16  # copied at once
_BLOCK = np.uint64(BLOCK)
_SHORT = 64
_NUMBERED, _EQUALS, _ZERO = 117, 61, 48
_FIRST_OF_TWO = 0x80  # from here on, UTF-8 has several bytes
_FIRST_PLAIN = np.uint8(SPACE)
_QUOTE, _BACKSLASH = np.uint8(QUOTE), np.uint8(BACKSLASH)


@compiled_plain
def put_bytes(out: Bytes, at: int, data: Bytes, start: int, end: int) -> int:
    """Copy ``data[start:end]``. Up to ``BLOCK`` bytes after the copy in ``out`` are overwritten, which must exist.

    Most copies are short. A block of a fixed size is one instruction or two; a loop over the length costs three times
    as much. It is used for long copies and at the end of ``data``.
    """
    size = end - start
    # An index that can be negative would add a branch for each byte.
    here, there = np.uint64(at), np.uint64(start)
    if size > _SHORT or start + size + BLOCK > len(data):
        for place in range(np.uint64(size)):
            out[here + place] = data[there + place]
        return at + size
    copied = 0
    while copied < size:
        for place in range(_BLOCK):
            out[here + place] = data[there + place]
        here += _BLOCK
        there += _BLOCK
        copied += BLOCK
    return at + size


@compiled_plain
def _is_special(byte: np.uint8) -> np.uint8:
    return np.uint8(
        np.uint8(byte < _FIRST_PLAIN) | np.uint8(byte == _QUOTE) | np.uint8(byte == _BACKSLASH)
    )


@compiled_plain
def put_string(out: Bytes, at: int, data: Bytes, start: int, end: int) -> int:
    """Write UTF-8 text. The copy is right if no byte is special; 16 bytes at a time, so without an early exit."""
    out[at] = QUOTE
    at += 1
    size = end - start
    here, there = np.uint64(at), np.uint64(start)
    special = np.uint8(0)
    for place in range(np.uint64(size)):
        byte = data[there + place]
        out[here + place] = byte
        special |= _is_special(byte)
    if special:
        at = _put_escaped(out, at, data, start, end)
    else:
        at += size
    out[at] = QUOTE
    return at + 1


@compiled_plain
def _put_escaped(out: Bytes, at: int, data: Bytes, start: int, end: int) -> int:
    for place in range(start, end):
        at = _put_character(out, at, data[place])
    return at


@compiled_plain
def _put_character(out: Bytes, at: int, byte: np.uint8) -> int:
    """One byte of a string."""
    escape = ESCAPES[byte]
    if escape == 0:
        out[at] = byte
        return at + 1
    out[at] = BACKSLASH
    out[at + 1] = escape
    if escape != _NUMBERED:
        return at + 2
    out[at + 2] = _ZERO
    out[at + 3] = _ZERO
    out[at + 4] = HEX_UPPER[byte >> 4]
    out[at + 5] = HEX_UPPER[byte & 15]
    return at + 6


@compiled_plain
def put_plain(out: Bytes, at: int, data: Bytes, start: int, end: int) -> int:
    """Write text that needs no escapes, such as a date."""
    out[at] = QUOTE
    at = put_bytes(out, at + 1, data, start, end)
    out[at] = QUOTE
    return at + 1


@compiled_plain
def put_document(out: Bytes, at: int, data: Bytes, start: int, end: int, is_compact: bool) -> int:
    """Write a document of MySQL's JSON as a string, without the marks of its types (docs/record.md).

    MySQL prints a blank after a comma and a colon, and nowhere else outside strings; ``is_compact`` drops these, too.
    """
    out[at] = QUOTE
    at += 1
    is_inside = False
    place = start
    while place < end:
        byte = data[place]
        if is_inside:
            if byte == BACKSLASH and place + 1 < end:
                at = _put_character(out, at, byte)
                place += 1
                byte = data[place]
            elif byte == QUOTE:
                is_inside = False
        elif byte == QUOTE:
            is_inside = True
        elif byte == SPACE:
            before = data[place - 1] if place > start else np.uint8(0)
            if is_compact or (before != COMMA and before != COLON):
                place += 1
                continue
        at = _put_character(out, at, byte)
        place += 1
    out[at] = QUOTE
    return at + 1


@compiled_plain
def put_base64(out: Bytes, at: int, data: Bytes, start: int, end: int, letters: Bytes) -> int:
    """Write bytes in base64, with padding."""
    out[at] = QUOTE
    at += 1
    place = start
    while end - place >= 3:
        group = int64(data[place]) << 16 | int64(data[place + 1]) << 8 | int64(data[place + 2])
        out[at] = letters[group >> 18]
        out[at + 1] = letters[group >> 12 & 63]
        out[at + 2] = letters[group >> 6 & 63]
        out[at + 3] = letters[group & 63]
        at += 4
        place += 3
    if place < end:
        group = int64(data[place]) << 16
        is_two = end - place == 2
        if is_two:
            group |= int64(data[place + 1]) << 8
        out[at] = letters[group >> 18]
        out[at + 1] = letters[group >> 12 & 63]
        out[at + 2] = letters[group >> 6 & 63] if is_two else np.uint8(_EQUALS)
        out[at + 3] = _EQUALS
        at += 4
    out[at] = QUOTE
    return at + 1


@compiled_plain
def put_hex(out: Bytes, at: int, data: Bytes, start: int, end: int) -> int:
    """Write bytes as lower-case hexadecimal digits."""
    out[at] = QUOTE
    at += 1
    for place in range(start, end):
        byte = data[place]
        out[at] = HEX_LOWER[byte >> 4]
        out[at + 1] = HEX_LOWER[byte & 15]
        at += 2
    out[at] = QUOTE
    return at + 1


@compiled_plain
def put_latin1(out: Bytes, at: int, data: Bytes, start: int, end: int) -> int:
    """Write bytes as a string in which each is the character of Latin-1 with its number."""
    out[at] = QUOTE
    at += 1
    for place in range(start, end):
        byte = data[place]
        if byte < _FIRST_OF_TWO:
            at = _put_character(out, at, byte)
        else:
            out[at] = 0xC0 | byte >> 6
            out[at + 1] = 0x80 | byte & 0x3F
            at += 2
    out[at] = QUOTE
    return at + 1


@compiled_plain
def put_raw_document(out: Bytes, at: int, data: Bytes, start: int, end: int) -> int:
    """Write a document of MySQL's JSON as it is, without blanks outside strings; an empty one is null."""
    if start == end:
        return put_bytes(out, at, _NULL, 0, len(_NULL))
    is_inside, is_escaped = False, False
    for place in range(start, end):
        byte = data[place]
        if is_escaped:
            is_escaped = False
        elif byte == BACKSLASH:
            is_escaped = is_inside
        elif byte == QUOTE:
            is_inside = not is_inside
        elif byte == SPACE and not is_inside:
            continue
        out[at] = byte
        at += 1
    return at
