r"""Writes values as SQL literals directly into the text of a statement.

    kind in the record       literal
    INT                      decimal digits
    BYTES, form BITS         the unsigned number
    DECIMAL                  digits, with the decimal point that the scale requires
    FLOAT, DOUBLE            shortest text of the double, always with an exponent (``-0.0e0`` keeps its sign)
    STRING                   '…' in utf8mb4, with NUL, ' and \ escaped as \0 \' \\
    BYTES                    _binary'…', with the same escapes
    NULL                     NULL

A row is ``opening literal,literal,… closing``; a comma joins rows. ``shape`` has a line for each literal: (image, cell,
form, scale). ``firsts`` has a line for each row: the first cell of the record with the before image, and of the record
with the after image, which differ in a merged change. The literal is the cell ``firsts[row, image] + cell``.

Only bytes that end or change a string literal are escaped. sql_mode must not contain NO_BACKSLASH_ESCAPES; ANSI_QUOTES
has no effect. The caller makes the texts of floats: ``floats`` has one line of ASCII, ended by NUL, for each value that
``collect_floats`` returns.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from consumer.kernel.compiled import compiled
from consumer.kernel.walk import BYTES, DECIMAL, DOUBLE, FLOAT, INT, STRING, read_long

Array = npt.NDArray[Any]

PLAIN, BITS = 0, 1
FLOAT_TEXT_BYTES = 32
_NUMBER_BYTES_MAX = 96  # DECIMAL(65) with sign and point, a double with exponent


@compiled
def collect_floats(data: Array, cells: Array, cell_count: Any) -> Any:
    """The values of all FLOAT and DOUBLE cells as doubles; each cell's ``line`` is set to its index among them."""
    count = 0
    for cell in range(cell_count):
        if cells[cell, 0] == FLOAT or cells[cell, 0] == DOUBLE:
            count += 1
    values = np.empty(count, np.float64)
    raw = values.view(np.uint8)
    narrow = np.empty(1, np.float32)
    narrow_raw = narrow.view(np.uint8)
    place = 0
    for cell in range(cell_count):
        kind, start = cells[cell, 0], cells[cell, 1]
        if kind == DOUBLE:
            for byte in range(8):
                raw[place * 8 + byte] = data[start + byte]
        elif kind == FLOAT:
            for byte in range(4):
                narrow_raw[byte] = data[start + byte]
            values[place] = np.float64(narrow[0])
        else:
            continue
        cells[cell, 3] = place
        place += 1
    return values


@compiled
def put_short_floats(values: Array, texts: Array) -> Any:
    """Write a line of ``texts`` for each whole number over 1 to 10**4; the indices of the other values.

    The server reads a decimal text as the double nearest to it, and the quotient of two exact doubles is the double
    nearest to it as well. So it reads ``n / 10**k`` as the value that the division gives here.
    """
    others = np.empty(len(values), np.int64)
    count = 0
    for place in range(len(values)):
        size = abs(values[place])
        power, digits, scale = 1.0, np.floor(size + 0.5), 0
        while digits / power != size and scale < 4:
            scale += 1
            power *= 10.0
            digits = np.floor(size * power + 0.5)
        if digits / power != size or digits >= 1e15 or size == 0.0:
            others[count] = place
            count += 1
            continue
        at = 0
        if values[place] < 0.0:
            texts[place, at] = 45
            at += 1
        whole = np.uint64(digits) // np.uint64(power)
        rest = np.uint64(digits) - whole * np.uint64(power)
        at = _put_number(texts[place], at, whole)
        if scale:
            texts[place, at] = 46
            for column in range(at + scale, at, -1):
                texts[place, column] = np.uint8(48) + np.uint8(rest % np.uint64(10))
                rest //= np.uint64(10)
    return others[:count]


@compiled
def measure(firsts: Array, cells: Array, shape: Array) -> Any:
    """An upper bound of the literal bytes of each row, without opening and closing."""
    bounds = np.empty(len(firsts), np.int64)
    for number in range(len(firsts)):
        total = np.int64(0)
        for place in range(len(shape)):
            cell = firsts[number, shape[place, 0]] + shape[place, 1]
            kind = cells[cell, 0]
            if kind in (STRING, BYTES):
                total += 2 * (cells[cell, 2] - cells[cell, 1]) + 24
            else:
                total += _NUMBER_BYTES_MAX
        bounds[number] = total
    return bounds


@compiled
def _put_number(out: Array, at: Any, value: Any) -> Any:
    """Write the digits of an unsigned 64-bit number; returns the position after them."""
    digits = 1
    rest = value // np.uint64(10)
    while rest > 0:
        digits += 1
        rest //= np.uint64(10)
    for place in range(at + digits - 1, at - 1, -1):
        out[place] = np.uint8(48) + np.uint8(value % np.uint64(10))
        value //= np.uint64(10)
    return at + digits


@compiled
def _put_signed(out: Array, at: Any, value: Any) -> Any:
    if value < 0:
        out[at] = 45
        return _put_number(out, at + 1, np.uint64(0) - np.uint64(value))
    return _put_number(out, at, np.uint64(value))


@compiled
def _put_decimal(out: Array, at: Any, data: Array, start: Any, end: Any, scale: Any) -> Any:
    """Write a two's complement number by dividing it by 10**9; 40 limbs of 16 bits are enough for DECIMAL(65)."""
    limbs = np.zeros(40, np.uint64)
    size = end - start
    negative = size > 0 and data[start] >= 128
    carry = np.uint64(1)
    for place in range(size):
        byte = np.uint64(data[end - 1 - place])
        if negative:
            byte = (byte ^ np.uint64(0xFF)) + carry
            carry = byte >> np.uint64(8)
            byte &= np.uint64(0xFF)
        limbs[place >> 1] |= byte << np.uint64(8 * (place & 1))
    if negative:
        out[at] = 45
        at += 1
    used = (size + 1) >> 1
    digits = np.empty(_NUMBER_BYTES_MAX, np.uint8)
    count = 0
    while used > 0 or count <= scale:
        rest = np.uint64(0)
        for place in range(used - 1, -1, -1):
            rest = (rest << np.uint64(16)) | limbs[place]
            limbs[place] = rest // np.uint64(1000000000)
            rest %= np.uint64(1000000000)
        while used > 0 and limbs[used - 1] == 0:
            used -= 1
        for _ in range(9):
            digits[count] = np.uint8(48) + np.uint8(rest % np.uint64(10))
            rest //= np.uint64(10)
            count += 1
    while count > scale + 1 and digits[count - 1] == 48:
        count -= 1
    for place in range(count - 1, -1, -1):
        out[at] = digits[place]
        at += 1
        if place == scale and scale > 0:
            out[at] = 46
            at += 1
    return at


@compiled
def _put_float(out: Array, at: Any, floats: Array, place: Any) -> Any:
    exponent = False
    for column in range(FLOAT_TEXT_BYTES):
        byte = floats[place, column]
        if byte == 0:
            break
        exponent |= byte == 101
        out[at] = byte
        at += 1
    if not exponent:
        out[at] = 101
        out[at + 1] = 48
        at += 2
    return at


@compiled
def _put_quoted(out: Array, at: Any, data: Array, start: Any, end: Any) -> Any:
    out[at] = 39
    at += 1
    for place in range(start, end):
        byte = data[place]
        if byte == 39 or byte == 92:
            out[at] = 92
            at += 1
        elif byte == 0:
            out[at] = 92
            at += 1
            byte = np.uint8(48)
        out[at] = byte
        at += 1
    out[at] = 39
    return at + 1


@compiled
def _put_text(out: Array, at: Any, text: Array) -> Any:
    for place in range(len(text)):
        out[at + place] = text[place]
    return at + len(text)


@compiled
def put_literal(
    out: Array,
    at: Any,
    data: Array,
    cells: Array,
    cell: Any,
    form: Any,
    scale: Any,
    floats: Array,
    binary: Array,
) -> Any:
    """Write one literal at ``out[at]``; returns the position after it. ``binary`` is the text ``_binary``."""
    kind, start, end = cells[cell, 0], cells[cell, 1], cells[cell, 2]
    if kind == INT:
        value, _ = read_long(data, start, end)
        return _put_signed(out, at, value)
    if kind == DECIMAL:
        return _put_decimal(out, at, data, start, end, scale)
    if kind in (FLOAT, DOUBLE):
        return _put_float(out, at, floats, cells[cell, 3])
    if kind == STRING:
        return _put_quoted(out, at, data, start, end)
    if kind == BYTES and form == BITS:
        bits = np.uint64(0)
        for place in range(start, end):
            bits = bits << np.uint64(8) | np.uint64(data[place])
        return _put_number(out, at, bits)
    if kind == BYTES:
        return _put_quoted(out, _put_text(out, at, binary), data, start, end)
    out[at] = 78
    out[at + 1] = 85
    out[at + 2] = 76
    out[at + 3] = 76
    return at + 4


@compiled
def put_rows(
    out: Array,
    data: Array,
    firsts: Array,
    cells: Array,
    shape: Array,
    lead: Array,
    opening: Array,
    closing: Array,
    tail: Array,
    floats: Array,
    binary: Array,
) -> Any:
    """Write ``lead``, the rows joined by commas, and ``tail`` into ``out``; returns the number of bytes."""
    at = _put_text(out, 0, lead)
    for number in range(len(firsts)):
        if number > 0:
            out[at] = 44
            at += 1
        at = _put_text(out, at, opening)
        for place in range(len(shape)):
            if place > 0:
                out[at] = 44
                at += 1
            cell = firsts[number, shape[place, 0]] + shape[place, 1]
            at = put_literal(
                out, at, data, cells, cell, shape[place, 2], shape[place, 3], floats, binary
            )
        at = _put_text(out, at, closing)
    return _put_text(out, at, tail)


@compiled
def put_template(
    out: Array,
    data: Array,
    firsts: Array,
    cells: Array,
    shape: Array,
    glue: Array,
    glue_ends: Array,
    floats: Array,
    binary: Array,
) -> Any:
    """Write one row's literals between fixed texts: text 0, literal 0, text 1, …; returns the number of bytes."""
    at = 0
    start = 0
    for place in range(len(glue_ends)):
        for byte in range(start, glue_ends[place]):
            out[at] = glue[byte]
            at += 1
        start = glue_ends[place]
        if place < len(shape):
            cell = firsts[0, shape[place, 0]] + shape[place, 1]
            at = put_literal(
                out, at, data, cells, cell, shape[place, 2], shape[place, 3], floats, binary
            )
    return at
