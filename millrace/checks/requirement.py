"""One requirement of `millrace check`, and whether it holds. Pure values.

    Subject("source", "db1:3306").warn("MR-4163", "clock", found="3.2 s ahead", wanted="at most 1 s")

A finding has a code of the catalogue, and its fix unless the check knows a better one. The context must never hold a
secret.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from millrace.codes import CATALOGUE
from millrace.errors import URL_CREDENTIALS, MillraceError

NAMED_MAX = 5  # tables or privileges that a text names


class Level(StrEnum):
    OK = "ok"
    WARN = "warn"  # works, but something can be lost or become slow
    FAIL = "fail"  # a task would not run


class Area(StrEnum):
    SOURCE = "source"
    KAFKA = "kafka"
    REGISTRY = "registry"
    ZOOKEEPER = "zookeeper"
    TARGET = "target"
    HOST = "host"


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """``code`` is empty if it holds. ``found`` and ``wanted`` are texts for a person."""

    level: Level
    subject: "Subject"
    what: str
    found: str
    code: str = ""
    wanted: str = ""
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Subject:
    """The thing that is checked: a member, a topic, an address. Its methods make requirements."""

    area: Area
    name: str

    def ok(self, what: str, found: str) -> Requirement:
        """A requirement that holds."""
        return Requirement(level=Level.OK, subject=self, what=what, found=found)

    def warn(
        self, code: str, what: str, *, found: str, wanted: str = "", fix: str = ""
    ) -> Requirement:
        """A warning: the task runs."""
        return Requirement(
            level=Level.WARN,
            subject=self,
            what=what,
            found=found,
            code=code,
            wanted=wanted,
            fix=fix or CATALOGUE[code].fix,
        )

    def fail(
        self, code: str, what: str, *, found: str, wanted: str = "", fix: str = ""
    ) -> Requirement:
        """A failure: the task does not run, or loses rows."""
        warned = self.warn(code, what, found=found, wanted=wanted, fix=fix)
        return replace(warned, level=Level.FAIL)

    def error(self, what: str, error: MillraceError, *, wanted: str = "") -> Requirement:
        """The failure that the product's own code raised."""
        found = URL_CREDENTIALS.sub("[redacted]", error.message)
        return self.fail(error.code, what, found=found, wanted=wanted, fix=error.fix)


def shortened(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    more = len(names) - NAMED_MAX
    return ", ".join(names[:NAMED_MAX]) + (f" and {more} more" if more > 0 else "")


def by_area(found: Iterable[Requirement]) -> list[Requirement]:
    """Sorted by area, with the requirements of one subject together."""
    known = list(found)
    first: dict[Subject, int] = {}
    for requirement in known:
        first.setdefault(requirement.subject, len(first))
    areas = list(Area)
    return sorted(known, key=lambda one: (areas.index(one.subject.area), first[one.subject]))


def without_ignored(found: Iterable[Requirement], ignored: Collection[str]) -> list[Requirement]:
    """The requirements whose code is not in ``ignored``."""
    return [requirement for requirement in found if requirement.code not in ignored]


def exit_code(found: Iterable[Requirement]) -> int:
    """0 if all hold, 1 if there are only warnings, 2 if there is a failure."""
    levels = {requirement.level for requirement in found}
    return 2 if Level.FAIL in levels else int(Level.WARN in levels)
