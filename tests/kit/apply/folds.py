"""A fold for tests without a server: letters of ``utf8mb4_general_ci`` as far as Unicode's own tables give them."""

import unicodedata
from functools import cache

from millrace.drivers.mysql.collation import PAGE, Fold, make_fold


@cache
def general_fold() -> Fold:
    """Case and accents do not matter; all characters outside the first plane are equal."""
    firsts = [first for first in range(0, 0x20000, PAGE) if not 0xD800 <= first < 0xE000]
    weights = {first: [_weight(first + at) for at in range(PAGE)] for first in firsts}
    return make_fold(weights, {}, tailored=True)


def _weight(point: int) -> bytes:
    if point > 0xFFFF:
        return b"\xff\xfd"
    base = unicodedata.normalize("NFD", chr(point))[0].upper()
    return ord(base[0]).to_bytes(2, "big") if ord(base[0]) < 0x10000 else b"\xff\xfd"
