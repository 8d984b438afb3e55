"""Parts of a stage's JSON object, with their types checked. TypeError names what was wanted."""

from collections.abc import Mapping

Plain = Mapping[str, object]


def object_of(plain: object) -> Plain:
    """The value, which must be an object."""
    if not isinstance(plain, dict):
        raise TypeError("a part of a stage is not an object")
    return plain


def list_of(plain: object) -> list[object]:
    """The value, which must be a list."""
    if not isinstance(plain, list):
        raise TypeError("a part of a stage is not a list")
    return plain


def number_of(plain: object) -> float | None:
    """The value, which must be a number or null."""
    if plain is not None and not isinstance(plain, int | float):
        raise TypeError("a value of a stage is not a number")
    return plain


def integer_of(plain: object) -> int:
    """The value, which must be a whole number."""
    if not isinstance(plain, int):
        raise TypeError("a value of a stage is not a whole number")
    return plain


def count_of(plain: object) -> int | None:
    """The value, which must be a whole number or null."""
    return None if plain is None else integer_of(plain)


def rounded(value: float | None, digits: int) -> float | None:
    """The value with fewer digits; None stays None."""
    return None if value is None else round(value, digits)
