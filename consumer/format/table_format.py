"""One table in a format: what a publish task needs of every format. ``formats.make_format`` makes them."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from millrace.consumer.format.encoded import Encoded
from millrace.consumer.kernel.compiled import Bytes
from millrace.consumer.records.numbers import Ints
from millrace.consumer.records.rows import Rows
from millrace.consumer.view.changes import Changes

ALL_PARTITIONS: Bytes = np.frombuffer(b"", np.uint8)


@dataclass(frozen=True, slots=True)
class FormatNames:
    """``topic`` of the table, which names its Connect schemas; ``prefix`` is ``source.name`` in the records."""

    topic: str
    prefix: str
    connector: str = "mysql"


class TableFormat(Protocol):
    """A pure function of options, view and structure: equal changes give equal bytes, whatever the batch."""

    def encode(
        self,
        rows: Rows,
        changes: Changes,
        *,
        orders: Ints | None = None,
        owned: Bytes = ALL_PARTITIONS,
    ) -> Encoded:
        """The records of all changes. ``orders``: of ``transactions``; None without transaction metadata.

        ``owned``: for each partition that a key may choose, 1 if its records are wanted. Other records may be missing.
        """
        ...


@runtime_checkable
class EventFormat(TableFormat, Protocol):
    """A format of Debezium's, whose events ``transactions`` counts."""

    def event_counts(self, rows: Rows, changes: Changes) -> Ints:
        """How many events of Debezium each change is."""
        ...
