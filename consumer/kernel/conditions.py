"""Evaluates the condition of a view for rows of records: ``schemas.view.condition`` describes the program.

One line of a program: ``op, column, comparison, number, start, end``. ``octets[start:end]`` are its bytes. The cells
are those of ``kernel.walk``, from the first cell of one image on. The result of a row is one of ``FALSE``, ``TRUE``,
``UNKNOWN`` (NULL) and ``UNREADABLE``: a text that the program compares is not valid in its character set.
"""

import numpy as np

from millrace.characters import MINUS, SPACE, ZERO
from millrace.consumer.kernel.compiled import Bytes, Ints, compiled, int64
from millrace.consumer.kernel.walk import BYTES, DECIMAL_BYTES_MAX, INT, NULL, read_long

FALSE, TRUE, UNKNOWN, UNREADABLE = 0, 1, 2, 3
STEP_WIDTH = 6

CELL, CELL_UNSIGNED, NUMBER = 0, 1, 2
ADD, SUBTRACT, MULTIPLY, REMAINDER, NEGATE = 3, 4, 5, 6, 7
CRC_NUMBER, CRC_CELL = 8, 9
COMPARE, COMPARE_DECIMAL, COMPARE_OCTETS, COMPARE_TEXT, COMPARE_LABEL = 10, 11, 12, 13, 14
NEVER_EQUAL, IS_NULL_CELL, IS_NULL = 15, 16, 17
AND, OR, NOT = 18, 19, 20
COMPARE_WEIGHTS = 21

# the bytes that CRC_CELL takes
RAW, UTF8, BY_TABLE, UTF16, UTF16_LITTLE, UTF32 = 0, 1, 2, 3, 4, 5

_EQUAL, _UNEQUAL, _LESS, _LESS_OR_EQUAL, _GREATER = 0, 1, 2, 3, 4  # 5: greater or equal
_SIGN_BIT = np.int64(-(2**63))


def _crc_table() -> Ints:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(0xEDB88320), table >> 1)
    return table.astype(np.int64)


_CRCS = _crc_table()


@compiled
def _crc_step(crc: int, byte: int) -> int:
    return int64(_CRCS[(crc ^ byte) & 255]) ^ (crc >> 8)


@compiled
def _crc_of_digits(number: int, is_unsigned: int) -> int:
    """CRC32 of a number's decimal digits."""
    crc = int64(0xFFFFFFFF)
    left = np.uint64(number)
    if number < 0 and is_unsigned == 0:
        crc = _crc_step(crc, MINUS)
        left = np.uint64(0) - left
    power = np.uint64(1)
    while left // power >= np.uint64(10):
        power *= np.uint64(10)
    while power > np.uint64(0):
        crc = _crc_step(crc, int64(left // power % np.uint64(10)) + ZERO)
        power //= np.uint64(10)
    return crc ^ int64(0xFFFFFFFF)


@compiled
def _crc_of_bytes(data: Bytes, start: int, end: int) -> int:
    crc = int64(0xFFFFFFFF)
    for at in range(start, end):
        crc = _crc_step(crc, int64(data[at]))
    return crc ^ int64(0xFFFFFFFF)


@compiled
def _crc_of_text(data: Bytes, start: int, end: int, form: int, octets: Bytes, table: int) -> int:
    """CRC32 of a text in UTF-8 in another form; -1 for a character without one."""
    crc = int64(0xFFFFFFFF)
    at = start
    while at < end:
        point, at = _character(data, at)
        code, size = point, int64(4)
        if form == BY_TABLE:
            count = _word(octets, table, 0)
            place = _range_of(octets, table, 1, count, point)
            if place < 0:
                return int64(-1)
            code += _word(octets, table, 1 + 2 * count + place) - _word(octets, table, 1 + place)
            size = int64(1) + int64(code > 0xFF) + int64(code > 0xFFFF)
        elif form != UTF32:
            size = int64(2)
            if point > 0xFFFF:
                size = int64(4)
                code = (0xD800 + ((point - 0x10000) >> 10)) << 16 | 0xDC00 + (point & 0x3FF)
        for byte in range(size - 1, -1, -1):
            place = byte ^ 1 if form == UTF16_LITTLE else byte
            crc = _crc_step(crc, code >> (8 * place) & 255)
    return crc ^ int64(0xFFFFFFFF)


@compiled
def _crc_of_cell(
    program: Ints, line: int, octets: Bytes, data: Bytes, kind: int, start: int, end: int
) -> int:
    """CRC32 of a value in its column's character set; -1 for an invalid text."""
    form = program[line, 3]
    if kind == BYTES and form != RAW:
        return int64(-1)
    if form in (RAW, UTF8):
        return _crc_of_bytes(data, start, end)
    return _crc_of_text(data, start, end, form, octets, program[line, 4])


@compiled
def _unsigned_of(data: Bytes, start: int, end: int) -> int:
    """A BIGINT UNSIGNED, which is a decimal in the record, as the 64 bits of a signed number."""
    value = np.uint64(0)
    for at in range(start, end):
        value = value << np.uint64(8) | np.uint64(data[at])
    return int64(value)


@compiled
def _order_of_numbers(left: int, right: int, flags: int) -> int:
    if flags == 3:
        left, right = int64(left ^ _SIGN_BIT), int64(right ^ _SIGN_BIT)
    elif flags == 1 and left < 0:
        return 1
    elif flags == 2 and right < 0:
        return -1
    return int64(left > right) - int64(left < right)


@compiled
def _order_of_octets(
    data: Bytes, start: int, end: int, octets: Bytes, other: int, other_end: int
) -> int:
    shared = min(end - start, other_end - other)
    for place in range(shared):
        if data[start + place] != octets[other + place]:
            return 1 if data[start + place] > octets[other + place] else -1
    return int64(end - start > shared) - int64(other_end - other > shared)


@compiled
def _order_of_decimals(data: Bytes, start: int, end: int, octets: Bytes, other: int) -> int:
    """A two's complement number beside one of ``DECIMAL_BYTES_MAX``."""
    filler = int64(255) if end > start and data[start] >= 128 else int64(0)
    for place in range(DECIMAL_BYTES_MAX):
        at = end - DECIMAL_BYTES_MAX + place
        left = int64(data[at]) if at >= start else filler
        right = int64(octets[other + place])
        if place == 0:  # the byte with the sign
            left, right = left ^ 128, right ^ 128
        if left != right:
            return 1 if left > right else -1
    return 0


@compiled
def _word(octets: Bytes, start: int, place: int) -> int:
    """A word of the layout in ``schemas.view.collation.step_octets``."""
    at = start + 4 * place
    return (
        int64(octets[at]) << 24
        | int64(octets[at + 1]) << 16
        | int64(octets[at + 2]) << 8
        | int64(octets[at + 3])
    )


@compiled
def _range_of(octets: Bytes, table: int, first: int, count: int, point: int) -> int:
    """The number of the range that has this code point; -1 if none has."""
    low, high = int64(0), count
    while low < high:  # the first range that begins after the point
        middle = (low + high) // 2
        if _word(octets, table, first + middle) <= point:
            low = middle + 1
        else:
            high = middle
    low -= 1
    return low if low >= 0 and point <= _word(octets, table, first + count + low) else int64(-1)


@compiled
def _weighs_the_same(data: Bytes, start: int, end: int, octets: Bytes, table: int) -> int:
    """Whether a text in UTF-8 has the literal's weights; their tables begin at ``octets[table]``."""
    for level in range(_word(octets, table, 0)):
        if not _is_same_level(data, start, end, octets, table, level):
            return int64(0)
    return int64(1)


@compiled
def _is_same_level(data: Bytes, start: int, end: int, octets: Bytes, table: int, level: int) -> int:
    first = 2 + 3 * _word(octets, table, 0)
    count = _word(octets, table, 1)
    own, own_end = _word(octets, table, 2 + 3 * level), _word(octets, table, 3 + 3 * level)
    pad = _word(octets, table, 4 + 3 * level) - 1
    at = start
    while at < end:
        point, at = _character(data, at)
        range_ = _range_of(octets, table, first, count, point)
        if range_ < 0:
            return int64(0)
        place = _word(octets, table, first + 2 * count + range_)
        for _ in range(level):
            place += 1 + _word(octets, table, place)
        for unit_at in range(place + 1, place + 1 + _word(octets, table, place)):
            unit = _word(octets, table, unit_at)
            if unit != (_word(octets, table, own) if own < own_end else pad):
                return int64(0)
            own += int64(own < own_end)
    return int64(own == own_end)


@compiled
def _character(data: Bytes, at: int) -> tuple[int, int]:
    """A code point in valid UTF-8, and the place of the next one."""
    lead = int64(data[at])
    if lead < 0x80:
        return lead, at + 1
    size = 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
    point = lead & (0xFF >> (size + 1))
    for place in range(at + 1, at + size):
        point = point << 6 | int64(data[place]) & 0x3F
    return point, at + size


@compiled
def _compared(order: int, comparison: int) -> int:
    if comparison == _EQUAL:
        return int64(order == 0)
    if comparison == _UNEQUAL:
        return int64(order != 0)
    if comparison == _LESS:
        return int64(order < 0)
    if comparison == _LESS_OR_EQUAL:
        return int64(order <= 0)
    return int64(order > 0) if comparison == _GREATER else int64(order >= 0)


@compiled
def _calculated(op: int, left: int, right: int) -> tuple[int, int]:
    """(result, whether it is NULL)."""
    if op == ADD:
        return left + right, int64(0)
    if op == SUBTRACT:
        return left - right, int64(0)
    if op == MULTIPLY:
        return left * right, int64(0)
    if right == 0:
        return int64(0), int64(1)
    if right == -1:
        return int64(0), int64(0)
    remainder = left % right  # has the sign of the divisor
    if remainder != 0 and (left < 0) != (right < 0):
        remainder -= right
    return remainder, int64(0)


@compiled
def _with_cell(
    program: Ints, line: int, octets: Bytes, data: Bytes, kind: int, start: int, end: int
) -> int:
    """The number or the truth of an operation on a column that is not NULL; UNREADABLE for an invalid text."""
    op, comparison = program[line, 0], program[line, 2]
    other, other_end = program[line, 4], program[line, 5]
    if op == COMPARE_DECIMAL:
        return _compared(_order_of_decimals(data, start, end, octets, other), comparison)
    if op == COMPARE_OCTETS:
        return _compared(_order_of_octets(data, start, end, octets, other, other_end), comparison)
    if op == COMPARE_TEXT:
        if kind == BYTES:
            return UNREADABLE
        if program[line, 3] == 1:
            while end > start and data[end - 1] == SPACE:
                end -= 1
        return _compared(_order_of_octets(data, start, end, octets, other, other_end), comparison)
    if op == COMPARE_WEIGHTS:
        if kind == BYTES:
            return UNREADABLE
        return _compared(1 - _weighs_the_same(data, start, end, octets, other), comparison)
    if op == COMPARE_LABEL:
        if kind == INT:
            number, _ = read_long(data, start, end)
            return _compared(int64(number != program[line, 3]), comparison)
        return _compared(_order_of_octets(data, start, end, octets, other, other_end), comparison)
    return int64(comparison == _UNEQUAL)  # NEVER_EQUAL


@compiled
def evaluate(
    program: Ints,
    octets: Bytes,
    depth: int,
    data: Bytes,
    cells: Ints,
    firsts: Ints,
    out: Bytes,
) -> None:
    """The result of each image into ``out``: its cells begin at ``firsts``. -1 is no image, and ``FALSE``."""
    numbers, nulls = np.empty(depth, np.int64), np.empty(depth, np.int64)
    for place in range(len(firsts)):
        first, is_readable = firsts[place], True
        if first < 0:
            out[place] = FALSE
            continue
        top = -1
        for line in range(len(program)):
            op = program[line, 0]
            if op in (AND, OR):
                top -= 1
                a = UNKNOWN if nulls[top] else numbers[top]
                b = UNKNOWN if nulls[top + 1] else numbers[top + 1]
                decisive = FALSE if op == AND else TRUE
                is_decided = decisive in (a, b)
                nulls[top] = int64(not is_decided and UNKNOWN in (a, b))
                numbers[top] = decisive if is_decided else TRUE - decisive
            elif op == NOT:
                numbers[top] = 1 - numbers[top]
            elif op == NEGATE:
                numbers[top] = -numbers[top]
            elif op == IS_NULL:
                numbers[top], nulls[top] = nulls[top], int64(0)
            elif op == CRC_NUMBER:
                numbers[top] = _crc_of_digits(numbers[top], program[line, 3])
            elif op == COMPARE:
                top -= 1
                order = _order_of_numbers(numbers[top], numbers[top + 1], program[line, 3])
                numbers[top] = _compared(order, program[line, 2])
                nulls[top] |= nulls[top + 1]
            elif ADD <= op <= REMAINDER:
                top -= 1
                is_null = nulls[top] | nulls[top + 1]
                numbers[top], by_zero = _calculated(op, numbers[top], numbers[top + 1])
                nulls[top] = is_null | by_zero
            elif op == NUMBER:
                top += 1
                numbers[top], nulls[top] = program[line, 3], int64(0)
            else:
                top += 1
                cell = first + program[line, 1]
                kind, start, end = cells[cell, 0], cells[cell, 1], cells[cell, 2]
                numbers[top], nulls[top] = int64(0), int64(kind == NULL)
                if op == IS_NULL_CELL:
                    numbers[top], nulls[top] = int64(kind == NULL), int64(0)
                elif kind != NULL:
                    if op == CELL:
                        numbers[top], _ = read_long(data, start, end)
                    elif op == CELL_UNSIGNED:
                        numbers[top] = _unsigned_of(data, start, end)
                    elif op == CRC_CELL:
                        crc = _crc_of_cell(program, line, octets, data, kind, start, end)
                        if crc < 0:
                            is_readable = False
                            break
                        numbers[top] = crc
                    else:
                        result = _with_cell(program, line, octets, data, kind, start, end)
                        if result == UNREADABLE:
                            is_readable = False
                            break
                        numbers[top] = result
        if not is_readable:
            out[place] = UNREADABLE
        else:
            out[place] = UNKNOWN if nulls[0] else numbers[0]
