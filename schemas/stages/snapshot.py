"""The stage of a capture task in its report while a snapshot runs: how far it is.

It is the key ``snapshot`` of a capture task in ``millrace status --json``; null while none runs. ``tables`` and
``done`` are null until the tables are listed. ``chunks`` and ``rows`` are those of the table under way. ``eta_s`` is of
the whole snapshot: null while nothing is published, and with a condition. It comes from the source's estimates of rows.
"""

from dataclasses import dataclass, field

from schemas.stages.plain import count_of, integer_of, list_of, number_of, object_of, rounded
from schemas.stages.rates import Rates, rates_of

LEFT_OUT_MAX = 20  # names; the rest is counted in the warning


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotStage:
    """The stage. ``asked``: its patterns. ``left_out``: tables that it can't read, with the reason.

    ``why``: what it does now.
    """

    id: str
    asked: tuple[str, ...] = ()
    table: str = ""
    tables: int | None = None
    done: int | None = None
    chunks: int = 0
    rows: int = 0
    where: str = ""
    why: str = ""
    left_out: tuple[str, ...] = ()
    rates: Rates = field(default_factory=Rates)
    eta_s: float | None = None

    def to_plain(self) -> dict[str, object]:
        """Its JSON object."""
        return {
            "id": self.id,
            "asked": list(self.asked),
            "table": self.table,
            "tables": self.tables,
            "done": self.done,
            "chunks": self.chunks,
            "rows": self.rows,
            "where": self.where,
            "why": self.why,
            "left_out": list(self.left_out[:LEFT_OUT_MAX]),
            "rows_s": self.rates.to_plain(),
            "eta_s": rounded(self.eta_s, 1),
        }


def snapshot_of(plain: object) -> SnapshotStage | None:
    """The stage from its JSON object; None for null. TypeError, ValueError or KeyError if it is another value."""
    if plain is None:
        return None
    stage = object_of(plain)
    return SnapshotStage(
        id=str(stage["id"]),
        asked=tuple(map(str, list_of(stage.get("asked", [])))),
        table=str(stage["table"]),
        tables=count_of(stage["tables"]),
        done=count_of(stage["done"]),
        chunks=integer_of(stage["chunks"]),
        rows=integer_of(stage["rows"]),
        where=str(stage["where"]),
        why=str(stage["why"]),
        left_out=tuple(map(str, list_of(stage["left_out"]))),
        rates=rates_of(stage["rows_s"]),
        eta_s=number_of(stage["eta_s"]),
    )
