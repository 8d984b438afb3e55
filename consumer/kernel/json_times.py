"""Turns the texts of DATE, TIME, DATETIME and TIMESTAMP into numbers since 1970 and into ISO 8601.

    DATE        YYYY-MM-DD
    TIME        [-]HH:MM:SS[.f]      hours to 838
    DATETIME    YYYY-MM-DD HH:MM:SS[.f]      TIMESTAMP the same, in UTC

A date that no calendar has (year, month or day 0, February 30) is not converted: the caller asks ``is_date`` first.
"""

import numpy as np

from millrace.characters import COLON, MINUS, POINT, QUOTE, SPACE, ZERO
from millrace.consumer.kernel.compiled import Bytes, compiled_plain, int64
from millrace.consumer.kernel.json_text import put_bytes

DATE_BYTES = 10
_DATETIME_BYTES = 19
_TIME_BYTES = 8
_SECOND_US = 1_000_000
_DAY_US = 86_400 * _SECOND_US
NANOSECONDS_US_MAX = (2**63 - 1) // 1000  # 1677-09-21 to 2262-04-11
_MONTH_DAYS = np.array([0, 31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31], np.int64)
_T, _Z = 84, 90


@compiled_plain
def _two(data: Bytes, at: int) -> int:
    return (int64(data[at]) - ZERO) * 10 + int64(data[at + 1]) - ZERO


@compiled_plain
def is_date(data: Bytes, start: int, end: int, has_time: bool) -> bool:
    """Whether the text begins with a date of the calendar; ``has_time``: and has a time, too."""
    if end - start < (_DATETIME_BYTES if has_time else DATE_BYTES):
        return False
    year = _two(data, start) * 100 + _two(data, start + 2)
    month, day = _two(data, start + 5), _two(data, start + 8)
    if year < 1 or month < 1 or month > 12 or day < 1 or day > _MONTH_DAYS[month]:
        return False
    return day < 29 or month != 2 or (year % 4 == 0 and (year % 100 != 0 or year % 400 == 0))


@compiled_plain
def days_of(data: Bytes, start: int) -> int:
    """Days from 1970-01-01 to the date at ``start``."""
    year = _two(data, start) * 100 + _two(data, start + 2)
    month, day = _two(data, start + 5), _two(data, start + 8)
    # years that begin in March, so that a leap day is the last of its year
    if month <= 2:
        year -= 1
        month += 12
    return (
        365 * year
        + year // 4
        - year // 100
        + year // 400
        + (153 * (month - 3) + 2) // 5
        + day
        - 719469
    )


@compiled_plain
def is_time(data: Bytes, start: int, end: int) -> bool:
    """Whether the text has the length of a time, and a colon where minutes begin."""
    minutes = start
    while minutes < end and data[minutes] != COLON:
        minutes += 1
    return minutes > start and end - minutes >= _TIME_BYTES - 2


@compiled_plain
def is_time_of_day(data: Bytes, start: int, end: int) -> bool:
    """Whether a TIME is from 00:00:00 to before 24:00:00."""
    return end > start + 2 and data[start + 2] == COLON and _two(data, start) < 24


@compiled_plain
def time_us(data: Bytes, start: int, end: int) -> int:
    """Microseconds of a TIME; below 0 if it begins with a minus."""
    at = start
    is_negative = data[at] == MINUS
    if is_negative:
        at += 1
    hours = int64(0)
    while data[at] != COLON:
        hours = hours * 10 + int64(data[at]) - ZERO
        at += 1
    seconds = (hours * 60 + _two(data, at + 1)) * 60 + _two(data, at + 4)
    total = seconds * _SECOND_US + _fraction_us(data, at + 6, end)
    return -total if is_negative else total


@compiled_plain
def datetime_us(data: Bytes, start: int, end: int) -> int:
    """Microseconds from 1970-01-01 to a DATETIME."""
    at = start + DATE_BYTES + 1
    seconds = (_two(data, at) * 60 + _two(data, at + 3)) * 60 + _two(data, at + 6)
    return days_of(data, start) * _DAY_US + seconds * _SECOND_US + _fraction_us(data, at + 8, end)


@compiled_plain
def _fraction_us(data: Bytes, at: int, end: int) -> int:
    """The digits after the point at ``at``; 0 without one."""
    value = int64(0)
    weight = int64(100_000)
    for place in range(at + 1, end):
        value += (int64(data[place]) - ZERO) * weight
        weight //= 10
    return value


@compiled_plain
def put_iso(out: Bytes, at: int, data: Bytes, start: int, end: int, is_trimmed: bool) -> int:
    """Write the text in ISO 8601 with ``Z``; ``is_trimmed``: without zeros at the end of the fraction."""
    if is_trimmed:
        point = end
        while point > start and data[point - 1] != POINT and data[point - 1] != COLON:
            point -= 1
        if point > start and data[point - 1] == POINT:
            while data[end - 1] == ZERO:
                end -= 1
            if data[end - 1] == POINT:
                end -= 1
    out[at] = QUOTE
    first = at + 1
    at = put_bytes(out, first, data, start, end)
    if end - start > DATE_BYTES and data[start + DATE_BYTES] == SPACE:
        out[first + DATE_BYTES] = _T
    out[at] = _Z
    out[at + 1] = QUOTE
    return at + 2
