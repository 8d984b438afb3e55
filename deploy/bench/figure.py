"""One figure of the benchmark, and its JSON line.

    {"name": "capture.bulk", "value": 310000.0, "unit": "rows/s", "peer": "python-mysql-replication 1.0.17",
     "peer_value": 40000.0, "ratio": 7.75}

``ratio`` is value divided by peer value, null without a peer. Machines differ: compare ratios, not values.
"""

import json
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """A measured value, and the peer's value from the same run if there is a peer."""

    name: str
    value: float
    unit: str
    peer: str | None = None
    peer_value: float | None = None

    def as_line(self) -> str:
        """The JSON line."""
        ratio = None if not self.peer_value else round(self.value / self.peer_value, 3)
        return json.dumps(
            {
                "name": self.name,
                "value": round(self.value, 2),
                "unit": self.unit,
                "peer": self.peer,
                "peer_value": None if self.peer_value is None else round(self.peer_value, 2),
                "ratio": ratio,
            }
        )
