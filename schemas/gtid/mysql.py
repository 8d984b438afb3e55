"""MySQL's GTID sets as values, exact to the interval, with the tags of MySQL 8.3 and later.

Text form (closed intervals): ``3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5:8:blue:1-3``.
Memory form: half-open ``[start, stop)`` intervals for each ``(uuid, tag)``, sorted, disjoint, never adjacent. So equal
sets compare equal and print the same text. ``advanced`` costs the same for the millionth consecutive transaction as for
the first. Import these names from ``schemas.gtid``.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias
from uuid import UUID

from millrace.errors import Fatal
from millrace.schemas.gtid.position import Flavour, GtidPosition

# `millrace try` numbers source transactions without a GTID, as those of this server
NO_SERVER = "00000000-0000-0000-0000-000000000000"
NUMBER_MAX = 2**63 - 2  # the last number that MySQL assigns; INT64_MAX itself marks the end

Source: TypeAlias = tuple[UUID, str]  # server uuid and tag ("" without one)
Interval: TypeAlias = tuple[int, int]  # half-open
Runs: TypeAlias = tuple[tuple[Source, tuple[Interval, ...]], ...]

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE | re.ASCII)
_TAG = re.compile(r"[a-z_][a-z0-9_]{0,31}", re.ASCII)
_NUMBERS = re.compile(r"([0-9]{1,19})(?:-([0-9]{1,19}))?", re.ASCII)
_OWNER = re.compile(r"#[0-9]+")


@dataclass(frozen=True, slots=True)
class Gtid:
    """One MySQL transaction."""

    uuid: UUID
    number: int
    tag: str = ""

    @classmethod
    def parse(cls, text: str) -> "Gtid":
        """``uuid:number`` or ``uuid:tag:number``; Fatal MR-6001."""
        runs = list(_parse_intervals(text))
        if len(runs) != 1 or runs[0][1][0] + 1 != runs[0][1][1]:
            raise Fatal("MR-6001", f"{text!r} is not one GTID")
        ((uuid, tag), (number, _)) = runs[0]
        return cls(uuid, number, tag)

    def __str__(self) -> str:
        return f"{self.uuid}:{self.tag}:{self.number}" if self.tag else f"{self.uuid}:{self.number}"


@dataclass(frozen=True, slots=True)
class GtidSet:
    """An immutable set of MySQL transactions with the usual set operators.

    >>> done = GtidSet.parse("3e11fa47-71ca-11e1-9e33-c80aa9429562:1-3:5")
    >>> str(done | GtidSet.parse("3e11fa47-71ca-11e1-9e33-c80aa9429562:4"))
    '3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5'
    """

    _runs: Runs = ()

    @classmethod
    def parse(cls, text: str) -> "GtidSet":
        """From a server's text, in any letter case, with or without white space; "" is the empty set. Fatal MR-6001."""
        return cls.of_intervals(_parse_intervals(text))

    @classmethod
    def parse_owned(cls, text: str) -> "GtidSet":
        """From the variable ``gtid_owned``, where each number has its thread: ``UUID:5#20:6#21``. Fatal MR-6001."""
        return cls.parse(_OWNER.sub("", text))

    @classmethod
    def of(cls, gtids: Iterable[Gtid]) -> "GtidSet":
        """From single transactions, in any order."""
        return cls.of_intervals(
            ((gtid.uuid, gtid.tag), (gtid.number, gtid.number + 1)) for gtid in gtids
        )

    @classmethod
    def of_intervals(cls, found: Iterable[tuple[Source, Interval]]) -> "GtidSet":
        """From half-open intervals in any order, overlapping or not."""
        by_source: dict[Source, list[Interval]] = {}
        for source, interval in found:
            by_source.setdefault(source, []).append(interval)
        return cls(tuple((source, _merged(by_source[source])) for source in sorted(by_source)))

    @property
    def flavour(self) -> Flavour:
        """Always MySQL."""
        return Flavour.MYSQL

    @property
    def is_empty(self) -> bool:
        """True for the empty set."""
        return not self._runs

    @property
    def count(self) -> int:
        """The number of transactions."""
        return sum(stop - start for _, (start, stop) in self.intervals())

    def intervals(self) -> Iterator[tuple[Source, Interval]]:
        """Every half-open interval with its source, in order."""
        return ((source, interval) for source, intervals in self._runs for interval in intervals)

    def covers(self, gtid: object) -> bool:
        """True if this transaction is in the set."""
        if not isinstance(gtid, Gtid):
            raise Fatal("MR-6001", f"a MySQL position cannot contain {gtid}")
        source = (gtid.uuid, gtid.tag)
        for known, intervals in self._runs:
            if known == source:
                at = bisect_right(intervals, (gtid.number, NUMBER_MAX + 2)) - 1
                return at >= 0 and gtid.number < intervals[at][1]
        return False

    __contains__ = covers

    def advanced(self, gtid: object) -> "GtidSet":
        """This set plus one transaction, which may already be in it."""
        if not isinstance(gtid, Gtid):
            raise Fatal("MR-6001", f"a MySQL position cannot be advanced by {gtid}")
        return self.advanced_through(gtid, gtid.number)

    add = advanced

    def advanced_through(self, first: Gtid, last_number: int) -> "GtidSet":
        """This set plus the transactions ``first.number`` to ``last_number`` of the same uuid and tag."""
        source = (first.uuid, first.tag)
        for index, (known, intervals) in enumerate(self._runs):
            if known == source and intervals[-1][1] == first.number <= last_number:
                grown = (*intervals[:-1], (intervals[-1][0], last_number + 1))
                return GtidSet((*self._runs[:index], (known, grown), *self._runs[index + 1 :]))
        return self | GtidSet.of_intervals([(source, (first.number, last_number + 1))])

    def includes(self, other: GtidPosition) -> bool:
        """True if ``other`` is a subset."""
        if not isinstance(other, GtidSet):
            raise Fatal("MR-6001", f"a MySQL position cannot be compared with {other}")
        return (other - self).is_empty

    def __le__(self, other: "GtidSet") -> bool:
        return other.includes(self)

    def __or__(self, other: "GtidSet") -> "GtidSet":
        return GtidSet.of_intervals([*self.intervals(), *other.intervals()])

    def __sub__(self, other: "GtidSet") -> "GtidSet":
        taken = dict(other._runs)
        left = (
            (source, _without(intervals, taken.get(source, ()))) for source, intervals in self._runs
        )
        return GtidSet(tuple((source, intervals) for source, intervals in left if intervals))

    def __and__(self, other: "GtidSet") -> "GtidSet":
        return self - (self - other)

    def __str__(self) -> str:
        parts: dict[UUID, list[str]] = {}
        for (uuid, tag), intervals in self._runs:
            out = parts.setdefault(uuid, [_uuid_text(uuid)])
            out += [tag] * bool(tag)
            out += [
                f"{start}" if stop == start + 1 else f"{start}-{stop - 1}"
                for start, stop in intervals
            ]
        return ",".join(":".join(part) for part in parts.values())


def _merged(intervals: Iterable[Interval]) -> tuple[Interval, ...]:
    merged: list[Interval] = []
    for start, stop in sorted(intervals):
        if not 0 < start < stop <= NUMBER_MAX + 1:
            raise Fatal(
                "MR-6001",
                f"GTID numbers {start}-{stop - 1} are not an ascending range between 1 and {NUMBER_MAX}",
            )
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(stop, merged[-1][1]))
        else:
            merged.append((start, stop))
    return tuple(merged)


def _without(intervals: tuple[Interval, ...], taken: tuple[Interval, ...]) -> tuple[Interval, ...]:
    """``intervals`` minus ``taken``; both are sorted."""
    left: list[Interval] = []
    at = 0
    for first, stop in intervals:
        start = first
        while at < len(taken) and taken[at][1] <= start:
            at += 1
        scan = at
        while scan < len(taken) and taken[scan][0] < stop:
            if start < taken[scan][0]:
                left.append((start, taken[scan][0]))
            start = max(start, taken[scan][1])
            scan += 1
        if start < stop:
            left.append((start, stop))
    return tuple(left)


def _parse_intervals(text: str) -> Iterator[tuple[Source, Interval]]:
    for uuid_set in filter(None, re.sub(r"\s", "", text).split(",")):
        head, *rest = uuid_set.split(":")
        if not _UUID.fullmatch(head) or not rest or _TAG.fullmatch(rest[-1].lower()):
            raise Fatal("MR-6001", f"{uuid_set!r} is not uuid:[tag:]numbers")
        uuid, tag = UUID(head), ""
        for item in rest:
            if _TAG.fullmatch(item.lower()):
                tag = item.lower()
                continue
            numbers = _NUMBERS.fullmatch(item)
            if numbers is None:
                raise Fatal("MR-6001", f"{item!r} in {uuid_set!r} is neither a tag nor numbers")
            first, last = int(numbers[1]), int(numbers[2] or numbers[1])
            if not 0 < first <= last <= NUMBER_MAX:
                raise Fatal(
                    "MR-6001",
                    f"{item!r} in {uuid_set!r} is not an ascending range between 1 and {NUMBER_MAX}",
                )
            yield (uuid, tag), (first, last + 1)


@lru_cache(maxsize=4096)
def _uuid_text(uuid: UUID) -> str:
    return str(uuid)


def next_number(position: str) -> int:
    """The number of the next source transaction of ``NO_SERVER``, after a GTID set as text."""
    found = re.search(rf"{NO_SERVER}:1(?:-([0-9]+))?(?:,|$)", position)
    return int(found[1] or 1) + 1 if found else 1


def without_numbers(position: str) -> str:
    """A GTID set as text, without those of ``NO_SERVER``."""
    return ",".join(part for part in position.split(",") if NO_SERVER not in part)
