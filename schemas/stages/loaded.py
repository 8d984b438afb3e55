"""The stage of an apply task that copies existing rows: how much is copied, how fast, and how long it takes still.

It is the key ``loaded`` of an apply task in ``millrace status --json``; null before and after a load.
"""

from dataclasses import dataclass, field
from typing import Annotated

from schemas.plain import MaybeTenths, Wire
from schemas.stages.rates import Rates

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
    expected: Annotated[int | None, Wire(key="expected_rows")] = None
    rows_s: MaybeTenths = None
    eta_s: MaybeTenths = None
    snapshot: str = ""
    waits: Annotated[str, Wire(is_added_later=True)] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """The stage. ``source``: the member that is read. ``paused``: why no chunk begins now; "" if chunks do.

    ``rows`` and ``bytes`` are those of all tables, also of earlier runs; ``tables`` lists some of them.
    """

    source: str = ""
    rows: int = 0
    bytes: int = 0
    expected: Annotated[int | None, Wire(key="expected_rows")] = None
    rates: Annotated[Rates, Wire(key="rows_s")] = field(default_factory=Rates)
    eta_s: MaybeTenths = None
    done: Annotated[int, Wire(key="tables_done")] = 0  # tables
    count: Annotated[int, Wire(key="tables_count")] = 0
    paused: str = ""
    tables: tuple[LoadedTable, ...] = ()

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
