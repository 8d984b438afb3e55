"""The subscriber of the benchmark of publish tasks: it finds records that are missing, repeated or out of order."""

from dataclasses import dataclass
from typing import cast

import pytest
from confluent_kafka import Message

from millrace.deploy.bench.subscriber import Counted
from millrace.errors import Fatal


@dataclass(frozen=True)
class Arrived:
    """A record with its three numbers."""

    n: int
    seq: int
    part: int = 0

    def headers(self) -> list[tuple[str, bytes]]:
        """As the driver returns them."""
        return [(name, b"%d" % getattr(self, name)) for name in ("n", "seq", "part")]

    def topic(self) -> str:
        """Its topic."""
        return "t"

    def partition(self) -> int:
        """Its partition."""
        return 0

    def offset(self) -> int:
        """Its offset."""
        return self.n


def _counted(*records: Arrived) -> int:
    counted = Counted()
    for record in records:
        counted.add(cast(Message, record))
    return counted.records


def test_records_in_order_are_counted() -> None:
    """``seq`` has gaps, which are records of other partitions; a changed key has several parts."""
    assert _counted(Arrived(1, 3), Arrived(2, 7), Arrived(3, 7, 1), Arrived(4, 7, 2)) == 4


@pytest.mark.parametrize("wrong", [Arrived(3, 9), Arrived(1, 9), Arrived(2, 3), Arrived(2, 2)])
def test_missing_repeated_or_disordered_record_is_an_error(wrong: Arrived) -> None:
    """After the record n 1 of seq 3."""
    with pytest.raises(Fatal):
        _counted(Arrived(1, 3), wrong)
