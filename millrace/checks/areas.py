"""Runs the areas of `millrace check` at the same time. An area that fails or hangs does not hide the others.

An area yields its requirements one by one: those that it found before its time is up are kept. Its thread is a daemon,
because a call that no server answers must not delay the end of the command.
"""

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from millrace.checks.requirement import Requirement, Subject
from millrace.errors import MillraceError
from millrace.wording import with_names

LIMIT_S = 60.0  # of one area: a silent server costs 10 s for each of a few connections


@dataclass(frozen=True, slots=True)
class Check:
    """One area to check. ``find`` yields requirements; a Millrace error that it raises becomes the last one.

    ``names``: for the commands of fixes (``millrace.wording``).
    """

    subject: Subject
    find: Callable[[], Iterable[Requirement]]
    what: str = "can be asked"
    names: Mapping[str, str] = field(default_factory=dict)


def run_checks(checks: Sequence[Check], *, limit_s: float = LIMIT_S) -> list[Requirement]:
    """All requirements, in the order of ``checks``. Raises an unexpected error after all others have ended."""
    runs = [_Run(check) for check in checks]
    for run in runs:
        run.thread.start()
    deadline_s = time.monotonic() + limit_s
    for run in runs:
        run.thread.join(max(0.0, deadline_s - time.monotonic()))
    found: list[Requirement] = []
    for run in runs:
        found += run.result(limit_s)
    return found


@dataclass(slots=True)
class _Run:
    check: Check
    found: list[Requirement] = field(default_factory=list)
    unexpected: BaseException | None = None
    thread: threading.Thread = field(init=False)

    def __post_init__(self) -> None:
        name = f"check {self.check.subject.name}"
        self.thread = threading.Thread(target=self._run, name=name, daemon=True)

    def _run(self) -> None:
        try:
            for requirement in self.check.find():
                self.found.append(requirement)
        except MillraceError as error:
            self.found.append(self.check.subject.error(self.check.what, error))
        except BaseException as error:  # noqa: BLE001 - `result` raises it in the thread of the command
            self.unexpected = error

    def result(self, limit_s: float) -> list[Requirement]:
        if self.unexpected is not None:
            raise self.unexpected
        found = list(self.found)
        if self.thread.is_alive():
            late = f"no end after {limit_s:g} s"
            found.append(self.check.subject.fail("MR-4178", self.check.what, found=late))
        names = self.check.names
        return [replace(one, fix=with_names(one.fix, names)) for one in found]
