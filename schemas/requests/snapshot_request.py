"""An operator's request for a snapshot of a running capture task, as ZooKeeper keeps it until the owner has taken it.

    snapshots/<task>   {"format":1,"requests":[{"id":"…","tables":["shop.orders"],"where":"","by":"…","at_ms":0}],
                        "stops":["…"],
                        "ended":[{"id":"…","tables":["…"],"where":"","begun_ms":0,"ended_ms":0,"rows":0,"stopped":false}]}

The owner takes the first request into its topic (``schemas.snapshot``) and then removes it. So it runs exactly once,
whenever the owner dies. ``stops``: the ids of snapshots that must end, running or not. ``ended``: the last that have
ended, the newest last; ``begun_ms`` and ``rows`` are null if several owners published it.
"""

from dataclasses import dataclass, replace
from typing import Annotated

from millrace.schemas.documents.model import SNAPSHOT_PATTERNS_MAX
from millrace.schemas.plain import Wire
from millrace.schemas.snapshot import SnapshotState

ENDED_MAX = 20
REQUESTS_MAX = 32  # that wait; a node of ZooKeeper has at most 1 MiB
TABLES_MAX = (
    SNAPSHOT_PATTERNS_MAX  # patterns of one request: they are in each resolved record while it runs
)
WHERE_CHARACTERS_MAX = 2000


@dataclass(frozen=True, slots=True)
class SnapshotRequest:
    """``tables``: patterns. ``where``: SQL, "" for all rows. ``by``: the operator. ``at_ms``: Unix time."""

    id: str
    tables: tuple[str, ...]
    where: str = ""
    by: str = ""
    at_ms: int = 0

    def __post_init__(self) -> None:
        if not self.tables:
            raise ValueError("a request without tables")

    @property
    def state(self) -> SnapshotState:
        """The state with which it begins."""
        return SnapshotState(self.id, self.tables, self.where)


@dataclass(frozen=True, slots=True)
class Span:
    """Unix times; ``begun_ms`` is None if it is not known."""

    begun_ms: int | None
    ended_ms: int


@dataclass(frozen=True, slots=True)
class EndedSnapshot:
    """``rows``: those that were published; None if they are not known. ``is_stopped``: an operator ended it."""

    id: str
    tables: tuple[str, ...]
    where: str
    span: Annotated[Span, Wire(is_inline=True)]
    rows: int | None
    is_stopped: Annotated[bool, Wire(key="stopped")] = False


@dataclass(frozen=True, slots=True)
class SnapshotRequests:
    """The content of the node."""

    requests: tuple[SnapshotRequest, ...] = ()
    stops: tuple[str, ...] = ()
    ended: Annotated[tuple[EndedSnapshot, ...], Wire(is_added_later=True)] = ()

    def added(self, request: SnapshotRequest) -> "SnapshotRequests":
        """With one more request, which comes last."""
        return replace(self, requests=(*self.requests, request))

    def stopping(self, id_: str) -> "SnapshotRequests":
        """With the wish that a snapshot ends. A request that waits is removed."""
        kept = tuple(request for request in self.requests if request.id != id_)
        if len(kept) < len(self.requests):
            return replace(self, requests=kept)
        return replace(self, stops=(*(stop for stop in self.stops if stop != id_), id_))

    def taken(self, id_: str) -> "SnapshotRequests":
        """Without this request."""
        kept = tuple(request for request in self.requests if request.id != id_)
        return replace(self, requests=kept)

    def stopped(self, id_: str) -> "SnapshotRequests":
        """Without the wish that it ends."""
        return replace(self, stops=tuple(stop for stop in self.stops if stop != id_))

    def with_ended(self, snapshot: EndedSnapshot) -> "SnapshotRequests":
        """With one more that has ended, and the last of the others."""
        others = tuple(one for one in self.ended if one.id != snapshot.id)
        return replace(self, ended=(*others, snapshot)[-ENDED_MAX:])
