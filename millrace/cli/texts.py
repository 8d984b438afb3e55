"""Numbers as people read them. Pure."""

MINUTE_S, HOUR_S, DAY_S = 60, 3600, 86_400
_SIZES = (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))


def duration(seconds: float, *, digits: int = 0) -> str:
    """Such as "12 s", "1:02:03" from a minute on, "3 d 4 h" from two days on. ``digits`` of the seconds alone."""
    if seconds < MINUTE_S:
        return f"{seconds:.{digits}f} s"
    whole = round(seconds)
    if whole >= 2 * DAY_S:
        return f"{whole // DAY_S} d {whole % DAY_S // HOUR_S} h"
    hours, left = divmod(whole, HOUR_S)
    return f"{hours}:{left // MINUTE_S:02}:{left % MINUTE_S:02}"


def size(count: int) -> str:
    for unit, bytes_each in _SIZES:
        if count >= bytes_each:
            return f"{count / bytes_each:.1f} {unit}"
    return f"{count} B"


def shortened(text: str, characters_max: int) -> str:
    """The text, cut with "…" if it is longer."""
    return text if len(text) <= characters_max else text[: max(characters_max - 1, 0)] + "…"
