"""Chooses the member of the source set that a comparison reads, and another one if that is lost.

    a replica      that a load would read (``consumer.load.source``), if it gets what the primary has now within the
                   time that the comparison waits for a side
    the primary    if there is no such replica; the reason is logged. Not if an operator has drained it

A primary must answer in any case: it is asked for its position, which bounds what the target may have
(``consumer.compare.sides``). A member that is drained during a comparison is left at the end of a chunk (``Watch``).
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from millrace.consumer.compare.sides import POLL_S
from millrace.consumer.load.source import (
    SourceMember,
    check_not_drained,
    check_still_not_drained,
    choose_source,
)
from millrace.drivers.mysql.connection import Endpoint, Side, connect
from millrace.drivers.mysql.primary import primary_member
from millrace.drivers.mysql.snapshot_position import executed, read_end
from millrace.errors import MillraceError, Retryable
from millrace.log import get_logger
from millrace.schemas.documents import Directives, SetDocument
from millrace.schemas.gtid import GtidPosition, shortened

T = TypeVar("T")

TRIES_MAX = 3  # of a comparison whose member is lost
_LOST = {"MR-5001", "MR-5128", "MR-5090"}
WATCH_S = 2.0  # until a drained member is left

Wishes = Callable[[], Directives]

_log = get_logger("compare")


@dataclass(frozen=True, slots=True)
class ReadMember:
    """The member to read. ``primary``: of its set, None if it is read. ``why``: why no replica is read."""

    source: Endpoint
    primary: Endpoint | None = None
    why: str = ""

    @property
    def name(self) -> str:
        """As host:port."""
        return self.source.name


@dataclass(slots=True)
class Watch:
    """Notices that an operator drains the member that is read. Called after each chunk."""

    origin: ReadMember
    wishes: Wishes
    _next_s: float = field(default_factory=lambda: time.monotonic() + WATCH_S)

    def look(self) -> None:
        """Retryable MR-5090 if it is drained now. It is read on while that is unknown."""
        if time.monotonic() < self._next_s:
            return
        self._next_s = time.monotonic() + WATCH_S
        check_still_not_drained(self.origin.source, self.wishes)


def choose_origin(document: SetDocument, wishes: Wishes, *, wait_s: float) -> ReadMember:
    """The member. Retryable MR-5001 or MR-5003 if no primary is found; MR-5090 if only drained ones are left."""
    directives = wishes()
    primary = primary_member(document, for_writing=False, side=Side.SOURCE)
    try:
        replica = choose_source(document, directives)
    except Retryable as exc:
        check_not_drained(primary, directives)
        return _read(ReadMember(primary, why=exc.message))
    if replica.endpoint == primary:
        return _read(ReadMember(primary))
    if why := _why_late(replica, primary, wait_s):
        check_not_drained(primary, directives)
        return _read(ReadMember(primary, why=f"{replica.name}: {why}"))
    return _read(ReadMember(replica.endpoint, primary))


def from_members(
    document: SetDocument,
    wishes: Wishes,
    *,
    wait_s: float,
    compare: Callable[[ReadMember], T],
    is_stored: bool,
) -> T:
    """The answer of ``compare`` with a member.

    If that is lost, too late or drained, ``compare`` is called with a member again. Only a comparison that
    ``is_stored``, which continues after its last chunks.
    """
    for _ in range(TRIES_MAX - 1 if is_stored else 0):
        try:
            return compare(choose_origin(document, wishes, wait_s=wait_s))
        except Retryable as exc:
            if exc.code not in _LOST:
                raise
            _log.warning("the comparison continues, perhaps with another member", error=exc)
    return compare(choose_origin(document, wishes, wait_s=wait_s))


def _read(origin: ReadMember) -> ReadMember:
    if origin.why:
        _log.warning("a comparison reads the primary", member=origin.name, why=origin.why)
    else:
        _log.info("a comparison reads", member=origin.name)
    return origin


def _why_late(replica: SourceMember, primary: Endpoint, wait_s: float) -> str:
    """Why this replica is too late to be read; "" when it has what the primary had."""
    if replica.lag_s > wait_s:
        return f"its lag is {replica.lag_s:g} s"
    try:
        with connect(primary) as session:
            wanted = read_end(session)
        return "" if _gets(replica.endpoint, wanted, wait_s) else _late(wanted, wait_s)
    except MillraceError as exc:
        return exc.message


def _gets(endpoint: Endpoint, wanted: GtidPosition, wait_s: float) -> bool:
    """Whether the member has the position within this time."""
    deadline_s = time.monotonic() + wait_s
    with connect(endpoint) as session:
        while not executed(session).includes(wanted):
            session.rollback()
            if time.monotonic() > deadline_s:
                return False
            time.sleep(POLL_S)
    return True


def _late(wanted: GtidPosition, wait_s: float) -> str:
    return f"it does not have {shortened(str(wanted))} after {wait_s:g} s"
