"""How many rows a second a task moved, over two spans of time. Part of a stage."""

from dataclasses import dataclass

from schemas.plain import MaybeTenths


@dataclass(frozen=True, slots=True)
class Rates:
    """Rows and DDL statements a second; None: unknown, because the task has run for less than a second."""

    over_10_s: MaybeTenths = None
    over_60_s: MaybeTenths = None
