"""The stage of a capture task in its report: the member that it reads, the last switches, and all members of the set.

``source`` and ``switches`` are keys of a capture task in ``millrace status --json``; ``millrace replica list`` prints
``members``. Keys are stable; new ones may be added. A value is null while it is unknown. Pure values.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass

Plain = Mapping[str, object]
SWITCHES_MAX = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceView:
    """The member that is read. ``since``: the time of the last switch or start, UTC."""

    host: str
    port: int
    role: str  # primary, replica, unknown
    lag_s: float | None
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
    stage = _object(plain)
    source = _object(stage["source"])
    return Captured(
        source=SourceView(
            host=str(source["host"]),
            port=_integer(source["port"]),
            role=str(source["role"]),
            lag_s=_number(source["lag_s"]),
            since=str(source["since"]),
            why=str(source["why"]),
        ),
        switches=tuple(_switch(_object(item)) for item in _items(stage["switches"])),
        members=tuple(_member(_object(item)) for item in _items(stage["members"])),
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
        refused=tuple(str(item) for item in _items(plain["refused"])),
        gap_s=_number(plain["gap_s"]) or 0.0,
        switch_s=_number(plain["switch_s"]) or 0.0,
    )


def _member(plain: Plain) -> MemberView:
    missing = plain["missing"]
    return MemberView(
        host=str(plain["host"]),
        port=_integer(plain["port"]),
        role=str(plain["role"]),
        reachable=bool(plain["reachable"]),
        lag_s=_number(plain["lag_s"]),
        missing=None if missing is None else _integer(missing),
        admissible=bool(plain["admissible"]),
        why=str(plain["why"]),
        chosen=bool(plain["chosen"]),
    )


def _object(plain: object) -> Plain:
    if not isinstance(plain, dict):
        raise TypeError("a part of the stage is not an object")
    return plain


def _items(plain: object) -> list[object]:
    if not isinstance(plain, list):
        raise TypeError("a part of the stage is not a list")
    return plain


def _number(plain: object) -> float | None:
    if plain is not None and not isinstance(plain, int | float):
        raise TypeError("a value of the stage is not a number")
    return plain


def _integer(plain: object) -> int:
    if not isinstance(plain, int):
        raise TypeError("a value of the stage is not a whole number")
    return plain
