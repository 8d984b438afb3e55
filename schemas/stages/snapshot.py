"""The stage of a capture task in its report while a snapshot runs: how far it is.

It is the key ``snapshot`` of a capture task in ``millrace status --json``; null while none runs. ``tables`` and
``done`` are null until the tables are listed. ``chunks`` and ``rows`` are those of the table under way. ``eta_s`` is of
the whole snapshot: null while nothing is published, and with a condition. It comes from the source's estimates of rows.
"""

from dataclasses import dataclass, field
from typing import Annotated

from schemas.plain import MaybeTenths, Wire
from schemas.stages.rates import Rates

LEFT_OUT_MAX = 20  # names; the rest is counted in the warning


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotStage:
    """The stage. ``asked``: its patterns. ``left_out``: tables that it can't read, with the reason.

    ``why``: what it does now.
    """

    id: str
    asked: Annotated[tuple[str, ...], Wire(is_added_later=True)] = ()
    table: str = ""
    tables: int | None = None
    done: int | None = None
    chunks: int = 0
    rows: int = 0
    where: str = ""
    why: str = ""
    left_out: Annotated[tuple[str, ...], Wire(length_max=LEFT_OUT_MAX)] = ()
    rates: Annotated[Rates, Wire(key="rows_s")] = field(default_factory=Rates)
    eta_s: MaybeTenths = None
