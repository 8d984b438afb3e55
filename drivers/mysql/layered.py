"""A mapping value: a changed copy shares the entries of the original, so its cost does not grow with their number.

    base    the entries at the last merge, shared by all copies since
    top     the changes since then, at most the square root of the entries of the base

A copy duplicates only ``top``. When that is full, it is merged into a new base. A merge copies all entries, but after
as many changes as the square root of their number.
"""

from collections.abc import Iterator, Mapping
from math import isqrt
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")

TOP_MIN = 64  # entries; a smaller base is not worth a merge


class LayeredMap(Mapping[K, V], Generic[K, V]):
    """A mapping that is never changed; no value is None."""

    __slots__ = ("_base", "_count", "_top")

    def __init__(self, entries: Mapping[K, V] | None = None) -> None:
        self._base: dict[K, V] = dict(entries or {})
        self._top: dict[K, V | None] = {}
        self._count = len(self._base)

    def changed(self, changes: Mapping[K, V | None]) -> "LayeredMap[K, V]":
        """A copy with these entries; None removes one."""
        found: LayeredMap[K, V] = LayeredMap()
        found._base, found._top = self._base, {**self._top, **changes}
        found._count = self._count + sum(
            (value is not None) - (key in self) for key, value in changes.items()
        )
        if len(found._top) > max(TOP_MIN, isqrt(len(found._base))):
            found._base, found._top = dict(found.items()), {}
        return found

    def __getitem__(self, key: K) -> V:
        value = self._top[key] if key in self._top else self._base[key]
        if value is None:
            raise KeyError(key)
        return value

    def __iter__(self) -> Iterator[K]:
        for key in self._base:
            if key not in self._top:
                yield key
        for key, value in self._top.items():
            if value is not None:
                yield key

    def __len__(self) -> int:
        return self._count

    def differing(self, other: "LayeredMap[K, V]") -> list[K]:
        """The keys with another value, or none, in ``other``. Fast if both come from the same base."""
        if self._base is other._base:
            keys = self._top.keys() | other._top.keys()
        else:
            keys = self._base.keys() | self._top.keys() | other._base.keys() | other._top.keys()
        return [key for key in keys if not _is_same(self.get(key), other.get(key))]


def layered(entries: Mapping[K, V]) -> LayeredMap[K, V]:
    """The mapping itself, or a layered copy of it."""
    return entries if isinstance(entries, LayeredMap) else LayeredMap(entries)


def _is_same(one: object, other: object) -> bool:
    return one is other or one == other
