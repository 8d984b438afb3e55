"""How large a run of the benchmark is, and which lines it prints."""

from dataclasses import dataclass

from schemas.gtid import Flavour


@dataclass(frozen=True, slots=True)
class Size:
    """The servers' flavour, the factor of every number of changes and seconds, and how many rounds are counted."""

    flavour: Flavour
    scale: float = 1.0
    rounds: int = 3
