"""The stage of a capture task in its report: the member that it reads, the last switches, and all members of the set.

``source`` and ``switches`` are keys of a capture task in ``millrace status --json``; ``millrace replica list`` prints
``members``. Keys are stable; new ones may be added. A value is null while it is unknown. Pure values.
"""

from dataclasses import asdict, dataclass

from schemas.stages.plain import Plain, count_of, integer_of, list_of, number_of, object_of

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
    source: str
    target: str
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

    def to_plain(self) -> dict[str, object]:
        """Its JSON object."""
        return {
            "source": asdict(self.source),
            "switches": [_plain_switch(switch) for switch in self.switches],
            "members": [asdict(member) for member in self.members],
        }


def captured_of(plain: object) -> Captured | None:
    """The stage from its JSON object; None for null. TypeError, ValueError or KeyError if it is another value."""
    if plain is None:
        return None
    stage = object_of(plain)
    source = object_of(stage["source"])
    return Captured(
        source=SourceView(
            host=str(source["host"]),
            port=integer_of(source["port"]),
            role=str(source["role"]),
            lag_s=number_of(source["lag_s"]),
            missing=count_of(source["missing"]),
            still_s=number_of(source["still_s"]),
            since=str(source["since"]),
            why=str(source["why"]),
        ),
        switches=tuple(_switch(object_of(item)) for item in list_of(stage["switches"])),
        members=tuple(_member(object_of(item)) for item in list_of(stage["members"])),
    )


def _plain_switch(switch: SwitchView) -> dict[str, object]:
    plain = asdict(switch) | {"refused": list(switch.refused)}
    return {"at": plain.pop("at"), "from": plain.pop("source"), "to": plain.pop("target"), **plain}


def _switch(plain: Plain) -> SwitchView:
    return SwitchView(
        at=str(plain["at"]),
        source=str(plain["from"]),
        target=str(plain["to"]),
        why=str(plain["why"]),
        refused=tuple(str(item) for item in list_of(plain["refused"])),
        gap_s=number_of(plain["gap_s"]) or 0.0,
        switch_s=number_of(plain["switch_s"]) or 0.0,
    )


def _member(plain: Plain) -> MemberView:
    return MemberView(
        host=str(plain["host"]),
        port=integer_of(plain["port"]),
        role=str(plain["role"]),
        reachable=bool(plain["reachable"]),
        lag_s=number_of(plain["lag_s"]),
        missing=count_of(plain["missing"]),
        admissible=bool(plain["admissible"]),
        why=str(plain["why"]),
        chosen=bool(plain["chosen"]),
    )
