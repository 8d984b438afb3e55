"""The progress of a load as a stage of the task's report, from looks at the stored tables. Pure.

The rate of a table and of all comes from the rows between looks; the ETA from the source's estimate of rows, which may
be wrong by half. A table with more rows than estimated has no ETA. A table that waits for another load is listed, and
not counted: this load does not copy the rest of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from millrace.consumer.target.loads import COPIED, COPIES, FOLLOWS, WAITS, LoadTable
from millrace.drivers.mysql.catalog import TableKey
from millrace.metrics.rates import LONG_S, SHORT_S, Meter
from millrace.schemas.stages import LOADED_TABLES_MAX, Loaded, LoadedTable, Rates

_ORDER = {COPIES: 0}


@dataclass(slots=True)
class Progress:
    """The looks of the last minute."""

    _all: Meter = field(default_factory=Meter)
    _each: dict[TableKey, Meter] = field(default_factory=dict)

    def saw(self, tables: Sequence[LoadTable], *, at_s: float) -> Loaded:
        """Add a look; the stage as of it."""
        shown = [self._shown(table, at_s) for table in tables]
        counted = [table for table in tables if table.state != WAITS]
        rows = sum(table.done.rows for table in counted)
        self._all.note(rows, at_s=at_s)
        is_done = [table.state in (COPIED, FOLLOWS) for table in counted]
        left = sum(
            max(table.expected - table.done.rows, 0)
            for table, done in zip(counted, is_done, strict=True)
            if not done
        )
        rate = self._all.over(SHORT_S) or self._all.over(LONG_S)
        shown.sort(key=lambda table: (_ORDER.get(table.state, 1), not table.rows, table.name))
        return Loaded(
            rows=rows,
            bytes=sum(table.done.bytes for table in counted),
            expected=rows + left,
            rates=Rates(self._all.over(SHORT_S), self._all.over(LONG_S)),
            eta_s=0.0 if all(is_done) else left / rate if rate and left else None,
            done=sum(is_done),
            count=len(counted),
            tables=tuple(shown[:LOADED_TABLES_MAX]),
        )

    def _shown(self, table: LoadTable, at_s: float) -> LoadedTable:
        rate = eta_s = None
        if table.state == COPIES:
            meter = self._each.setdefault(table.key, Meter())
            meter.note(table.done.rows, at_s=at_s)
            rate = meter.over(SHORT_S)
            left = table.expected - table.done.rows
            eta_s = left / rate if rate and left > 0 else None
        else:
            self._each.pop(table.key, None)
        return LoadedTable(
            name=".".join(table.key),
            state=table.state,
            rows=table.done.rows,
            bytes=table.done.bytes,
            expected=table.expected,
            rows_s=rate,
            eta_s=eta_s,
            snapshot="" if table.state == WAITS else table.detail,
            waits=table.detail if table.state == WAITS else "",
        )
