"""The stage of a capture task in its report: the member that it reads, the last switches, and all members of the set.

``source`` and ``switches`` are keys of a capture task in ``millrace status --json``; ``millrace replica list`` prints
``members``. Keys are stable; new ones may be added. A value is null while it is unknown. Pure values.
"""

from dataclasses import dataclass
from typing import Annotated

from schemas.plain import Wire

SWITCHES_MAX = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceView:
    """The member that is read. ``since``: the time of the last switch or start, UTC.

    ``missing``: transactions of the set that it does not have. ``still_s``: how long it has
    applied nothing although some are missing.
    """

    host: str
    port: int
    role: str  # primary, replica, unknown
    lag_s: float | None
    missing: int | None
    still_s: float | None
    since: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchView:
    """A change of the member. ``gap_s``: from the last byte of ``source`` to the first byte of ``target``.

    ``refused``: the errors of the members that were tried in between.
    """

    at: str  # when it was decided, UTC
    source: Annotated[str, Wire(key="from")]
    target: Annotated[str, Wire(key="to")]
    why: str
    refused: tuple[str, ...]
    gap_s: float
    switch_s: float  # from the decision to the first byte of ``target``


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberView:
    """A member of the set. ``missing``: transactions of the set that it does not have."""

    host: str
    port: int
    role: str
    reachable: bool
    lag_s: float | None
    missing: int | None
    admissible: bool
    why: str
    chosen: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Captured:
    """The stage."""

    source: SourceView
    switches: tuple[SwitchView, ...] = ()  # the last ten, oldest first
    members: tuple[MemberView, ...] = ()
