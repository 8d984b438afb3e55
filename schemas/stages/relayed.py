"""The stage of a set's relay in a report: what is stored of its binlog, who needs it, and what might be lost.

``millrace relay status`` prints it. It is the key ``relayed`` of capture tasks and relays in ``millrace status
--json``. Keys are stable; new ones may be added. A value is null while it is unknown. Pure values.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from schemas.stages.plain import count_of, integer_of, number_of, object_of


@dataclass(frozen=True, slots=True, kw_only=True)
class BinlogEnd:
    """Where a binlog ends: the file, the offset in it, and all GTIDs up to there."""

    file: str
    pos: int | None
    gtid_set: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Relayed:
    """The stage."""

    stage: str  # receives, paused, switches, waits
    why: str
    source: BinlogEnd | None  # of the member that is read
    subdir: str
    relay: BinlogEnd
    caught_up: bool | None
    behind_bytes: int | None  # in the source's file, if the relay log ends in the same one
    received_bytes: int  # like ``connects``, since the stream began
    connects: int
    stored_bytes: int | None
    disk_left_bytes: int | None
    oldest_file: str  # "subdir/file", like the next
    needed: Mapping[str, str]  # by task; "" if it needs more than the relay log has
    end_at_s: float | None  # Unix time of the last event, by the server's clock
    kept_s: (
        float | None
    )  # how long the source keeps its binlogs; None: without a limit in time, or unknown
    time_to_loss_s: float | None
    loss: str  # what would be lost then
    purge: Mapping[str, object] | None = (
        None  # the last answer, while a command on another host waits for one
    )

    def to_plain(self) -> dict[str, object]:
        """Its JSON object."""
        purge = None if self.purge is None else dict(self.purge)
        return asdict(self) | {"needed": dict(self.needed), "purge": purge}


def relayed_of(plain: object) -> Relayed | None:
    """The stage from its JSON object; None for null. TypeError, ValueError or KeyError if it is another value."""
    if plain is None:
        return None
    stage = object_of(plain)
    relay = _end(stage["relay"])
    if relay is None:
        raise TypeError("the stage of the relay has no end")
    return Relayed(
        stage=str(stage["stage"]),
        why=str(stage["why"]),
        source=_end(stage["source"]),
        subdir=str(stage["subdir"]),
        relay=relay,
        caught_up=None if stage["caught_up"] is None else bool(stage["caught_up"]),
        behind_bytes=count_of(stage["behind_bytes"]),
        received_bytes=integer_of(stage["received_bytes"]),
        connects=integer_of(stage["connects"]),
        stored_bytes=count_of(stage["stored_bytes"]),
        disk_left_bytes=count_of(stage["disk_left_bytes"]),
        oldest_file=str(stage["oldest_file"]),
        needed={str(task): str(file) for task, file in object_of(stage["needed"]).items()},
        end_at_s=number_of(stage["end_at_s"]),
        kept_s=number_of(stage["kept_s"]),
        time_to_loss_s=number_of(stage["time_to_loss_s"]),
        loss=str(stage["loss"]),
        purge=None if (purge := stage.get("purge")) is None else object_of(purge),
    )


def _end(plain: object) -> BinlogEnd | None:
    if plain is None:
        return None
    end = object_of(plain)
    return BinlogEnd(file=str(end["file"]), pos=count_of(end["pos"]), gtid_set=str(end["gtid_set"]))
