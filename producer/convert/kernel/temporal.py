"""Converts dates and times from packed bits to text. Zero and invalid parts are written as stored.

Layouts (sql-common/my_time.cc; MariaDB's are the same):

    DATE        3 bytes LE    year << 9 | month << 5 | day
    TIME2       3 bytes BE    value + 0x800000; then the fraction: ceil(f / 2) bytes BE. The value, fraction included,
                              is one signed number: sign 1 bit, unused 1, hour 10, minute 6, second 6
    DATETIME2   5 bytes BE    sign 1 (always set), year * 13 + month 17, day 5, hour 5, minute 6, second 6; fraction
                              as above
    TIMESTAMP2  4 bytes BE    seconds since 1970 UTC; fraction. 0 without a fraction is the zero timestamp
    TIME        3 bytes LE    signed HHMMSS              DATETIME  8 bytes LE  YYYYMMDDHHMMSS
    TIMESTAMP   4 bytes LE    seconds since 1970 UTC
    fraction    f digits rounded up to an even number, as a number of 1, 2 or 3 bytes

Text: ``YYYY-MM-DD``, ``[-]HH:MM:SS[.f]`` (hours 2 or 3 digits), ``YYYY-MM-DD HH:MM:SS[.f]``, exactly f digits.
TIMESTAMP is UTC. All writers return the offset after the text and write at most TEXT_BYTES_MAX.
"""

from millrace.characters import COLON, MINUS, POINT, SPACE, ZERO
from millrace.producer.convert.kernel.compiled import compiled
from millrace.producer.convert.kernel.memory import (
    Bytes,
    load_i64,
    load_u8,
    load_u16,
    load_u16be,
    load_u32,
    load_u32be,
    store_u8,
)

TEXT_BYTES_MAX = 40  # years of a broken value have up to 5 digits, hours up to 4


@compiled
def _two(out: Bytes, at: int, value: int) -> int:
    store_u8(out, at, ZERO + value // 10)
    store_u8(out, at + 1, ZERO + value % 10)
    return at + 2


@compiled
def _four(out: Bytes, at: int, value: int) -> int:
    if value > 9999:  # only in a broken value
        store_u8(out, at, ZERO + value // 10000 % 10)
        at += 1
        value %= 10000
    at = _two(out, at, value // 100)
    return _two(out, at, value % 100)


@compiled
def write_date_parts(out: Bytes, at: int, year: int, month: int, day: int) -> int:
    at = _four(out, at, year)
    store_u8(out, at, MINUS)
    at = _two(out, at + 1, month)
    store_u8(out, at, MINUS)
    return _two(out, at + 1, day)


@compiled
def write_clock_parts(out: Bytes, at: int, hour: int, minute: int, second: int) -> int:
    """``HH:MM:SS``, with three or four digits of hours if needed."""
    if hour >= 100:
        if hour >= 1000:
            store_u8(out, at, ZERO + hour // 1000)
            at += 1
        store_u8(out, at, ZERO + hour // 100 % 10)
        at += 1
    at = _two(out, at, hour % 100)
    store_u8(out, at, COLON)
    at = _two(out, at + 1, minute)
    store_u8(out, at, COLON)
    return _two(out, at + 1, second)


@compiled
def write_fraction(out: Bytes, at: int, micros: int, digits: int) -> int:
    """``.f`` with the first `digits` of six digits; nothing for 0 digits."""
    if digits == 0:
        return at
    store_u8(out, at, POINT)
    _two(out, at + 1, micros // 10000 % 100)  # always all six, because constants divide faster
    _two(out, at + 3, micros // 100 % 100)
    _two(out, at + 5, micros % 100)
    return at + 1 + digits


@compiled
def fraction_size(digits: int) -> int:
    return (digits + 1) // 2


@compiled
def _fraction_bits(buf: Bytes, pos: int, digits: int) -> int:
    """The fraction's bytes as one number, not yet microseconds."""
    if digits == 0:
        return 0
    if digits <= 2:
        return load_u8(buf, pos)
    if digits <= 4:
        return load_u16be(buf, pos)
    return (load_u8(buf, pos) << 16) | load_u16be(buf, pos + 1)


@compiled
def _micros(bits: int, digits: int) -> int:
    if digits <= 2:
        return bits * 10000
    if digits <= 4:
        return bits * 100
    return bits


@compiled
def write_date(out: Bytes, at: int, buf: Bytes, pos: int) -> int:
    value = load_u16(buf, pos) | (load_u8(buf, pos + 2) << 16)
    return write_date_parts(out, at, value >> 9, (value >> 5) & 15, value & 31)


@compiled
def write_time2(out: Bytes, at: int, buf: Bytes, pos: int, digits: int) -> int:
    bits = 8 * fraction_size(digits)
    whole = (load_u8(buf, pos) << 16) | load_u16be(buf, pos + 1)
    value = ((whole << bits) | _fraction_bits(buf, pos + 3, digits)) - (0x800000 << bits)
    if value < 0:
        store_u8(out, at, MINUS)
        at += 1
        value = -value
    clock = value >> bits
    at = write_clock_parts(out, at, (clock >> 12) & 0x3FF, (clock >> 6) & 63, clock & 63)
    return write_fraction(out, at, _micros(value & ((1 << bits) - 1), digits), digits)


@compiled
def write_datetime2(out: Bytes, at: int, buf: Bytes, pos: int, digits: int) -> int:
    value = ((load_u8(buf, pos) << 32) | load_u32be(buf, pos + 1)) & 0x7FFFFFFFFF
    months = value >> 22
    at = write_date_parts(out, at, months // 13, months % 13, (value >> 17) & 31)
    store_u8(out, at, SPACE)
    at = write_clock_parts(out, at + 1, (value >> 12) & 31, (value >> 6) & 63, value & 63)
    return write_fraction(out, at, _micros(_fraction_bits(buf, pos + 5, digits), digits), digits)


@compiled
def write_utc(out: Bytes, at: int, seconds: int, micros: int, digits: int) -> int:
    """Seconds since 1970 as UTC text; 0 and no microseconds is the zero timestamp."""
    if seconds == 0 and micros == 0:
        at = write_date_parts(out, at, 0, 0, 0)
        store_u8(out, at, SPACE)
        at = write_clock_parts(out, at + 1, 0, 0, 0)
        return write_fraction(out, at, 0, digits)
    # civil date from days: H. Hinnant, "chrono-compatible low-level date algorithms"; years start in March
    days = seconds // 86400 + 719468
    clock = seconds % 86400
    era = days // 146097
    day_of_era = days - era * 146097
    year_of_era = (
        day_of_era - day_of_era // 1460 + day_of_era // 36524 - day_of_era // 146096
    ) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    month_from_march = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * month_from_march + 2) // 5 + 1
    month = month_from_march + 3 if month_from_march < 10 else month_from_march - 9
    year = year_of_era + era * 400 + (1 if month <= 2 else 0)
    at = write_date_parts(out, at, year, month, day)
    store_u8(out, at, SPACE)
    at = write_clock_parts(out, at + 1, clock // 3600, clock // 60 % 60, clock % 60)
    return write_fraction(out, at, micros, digits)


@compiled
def write_timestamp2(out: Bytes, at: int, buf: Bytes, pos: int, digits: int) -> int:
    micros = _micros(_fraction_bits(buf, pos + 4, digits), digits)
    return write_utc(out, at, load_u32be(buf, pos), micros, digits)


@compiled
def write_old_time(out: Bytes, at: int, buf: Bytes, pos: int) -> int:
    """TIME of servers before 5.6 (and of MariaDB tables kept in that format)."""
    value = load_u16(buf, pos) | (load_u8(buf, pos + 2) << 16)
    if value >= 0x800000:
        value = 0x1000000 - value
        store_u8(out, at, MINUS)
        at += 1
    return write_clock_parts(out, at, value // 10000, value // 100 % 100, value % 100)


@compiled
def write_old_datetime(out: Bytes, at: int, buf: Bytes, pos: int) -> int:
    """DATETIME of servers before 5.6; -1 if the number is not a YYYYMMDDHHMMSS."""
    value = load_i64(buf, pos)
    if value < 0 or value > 99991231235959 * 10:
        return -1
    date = value // 1000000
    clock = value % 1000000
    at = write_date_parts(out, at, date // 10000, date // 100 % 100, date % 100)
    store_u8(out, at, SPACE)
    return write_clock_parts(out, at + 1, clock // 10000, clock // 100 % 100, clock % 100)


@compiled
def write_old_timestamp(out: Bytes, at: int, buf: Bytes, pos: int) -> int:
    """TIMESTAMP of servers before 5.6."""
    return write_utc(out, at, load_u32(buf, pos), 0, 0)
