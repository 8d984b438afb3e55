"""The stage of a set's relay in a report: what is stored of its binlog, who needs it, and what might be lost.

``millrace relay status`` prints it. It is the key ``relayed`` of capture tasks and relays in ``millrace status
--json``. Keys are stable; new ones may be added. A value is null while it is unknown. Pure values.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from schemas.plain import Wire


@dataclass(frozen=True, slots=True, kw_only=True)
class BinlogEnd:
    """Where a binlog ends: the file, the offset in it, and all GTIDs up to there."""

    file: str
    pos: int | None
    gtid_set: str


@dataclass(frozen=True, slots=True)
class PurgeRefusal:
    """Why a purge request was not executed."""

    code: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgeAnswer:
    """The result of a purge: the deleted files and the oldest one that is left, as ``<subdir>/<file>``.

    ``id`` is that of the request; "" if none was answered. ``evicted``: tasks with their positions.
    """

    id: Annotated[str, Wire(is_added_later=True)] = ""
    deleted: Annotated[tuple[str, ...], Wire(is_added_later=True)] = ()
    oldest: Annotated[str, Wire(is_added_later=True)] = ""
    evicted: Annotated[Mapping[str, str], Wire(is_added_later=True)] = field(default_factory=dict)
    error: Annotated[PurgeRefusal | None, Wire(is_added_later=True)] = None


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
    # how long the source keeps its binlogs; None: without a limit in time, or unknown
    kept_s: float | None
    time_to_loss_s: float | None
    loss: str  # what would be lost then
    # the last answer, while a command on another host waits for one
    purge: Annotated[PurgeAnswer | None, Wire(is_added_later=True)] = None
