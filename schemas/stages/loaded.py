"""The stage of an apply task that copies existing rows: how much is copied, how fast, and how long it takes still.

It is the key ``loaded`` of an apply task in ``millrace status --json``; null before and after a load.
"""

from dataclasses import dataclass, field

from schemas.stages.plain import count_of, integer_of, number_of, object_of, rounded
from schemas.stages.rates import Rates, rates_of

TABLES_MAX = 20  # that are listed, those under way first


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedTable:
    """One table. ``expected``: rows as the source estimates them. ``snapshot``: why it is not read in chunks.

    ``waits``: why it waits for another load.
    """

    name: str
    state: str  # waits, copies, copied
    rows: int = 0
    bytes: int = 0
    expected: int | None = None
    rows_s: float | None = None
    eta_s: float | None = None
    snapshot: str = ""
    waits: str = ""

    def to_plain(self) -> dict[str, object]:
        """Its JSON object."""
        return {
            "name": self.name,
            "state": self.state,
            "rows": self.rows,
            "bytes": self.bytes,
            "expected_rows": self.expected,
            "rows_s": rounded(self.rows_s, 1),
            "eta_s": rounded(self.eta_s, 1),
            "snapshot": self.snapshot,
            "waits": self.waits,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """The stage. ``source``: the member that is read. ``paused``: why no chunk begins now; "" if chunks do.

    ``rows`` and ``bytes`` are those of all tables, also of earlier runs; ``tables`` lists some of them.
    """

    source: str = ""
    rows: int = 0
    bytes: int = 0
    expected: int | None = None
    rates: Rates = field(default_factory=Rates)
    eta_s: float | None = None
    done: int = 0  # tables
    count: int = 0
    paused: str = ""
    tables: tuple[LoadedTable, ...] = ()

    def to_plain(self) -> dict[str, object]:
        """Its JSON object."""
        return {
            "source": self.source,
            "rows": self.rows,
            "bytes": self.bytes,
            "expected_rows": self.expected,
            "rows_s": self.rates.to_plain(),
            "eta_s": rounded(self.eta_s, 1),
            "tables_done": self.done,
            "tables_count": self.count,
            "paused": self.paused,
            "tables": [table.to_plain() for table in self.tables],
        }

    def at_rest(self) -> "Loaded":
        """The values that stay true when the task does not run."""
        return Loaded(
            source=self.source,
            rows=self.rows,
            bytes=self.bytes,
            expected=self.expected,
            done=self.done,
            count=self.count,
        )


def loaded_of(plain: object) -> Loaded | None:
    """The stage from its JSON object; None for null. TypeError, ValueError or KeyError if it is another value."""
    if plain is None:
        return None
    stage = object_of(plain)
    tables = stage["tables"]
    if not isinstance(tables, list):
        raise TypeError("the tables of the stage are no list")
    return Loaded(
        source=str(stage["source"]),
        rows=integer_of(stage["rows"]),
        bytes=integer_of(stage["bytes"]),
        expected=count_of(stage["expected_rows"]),
        rates=rates_of(stage["rows_s"]),
        eta_s=number_of(stage["eta_s"]),
        done=integer_of(stage["tables_done"]),
        count=integer_of(stage["tables_count"]),
        paused=str(stage["paused"]),
        tables=tuple(map(_table, tables)),
    )


def _table(plain: object) -> LoadedTable:
    table = object_of(plain)
    return LoadedTable(
        name=str(table["name"]),
        state=str(table["state"]),
        rows=integer_of(table["rows"]),
        bytes=integer_of(table["bytes"]),
        expected=count_of(table["expected_rows"]),
        rows_s=number_of(table["rows_s"]),
        eta_s=number_of(table["eta_s"]),
        snapshot=str(table["snapshot"]),
        waits=str(table.get("waits", "")),
    )
