"""The records of a publish task on the terminal or in one topic, without its exactly-once delivery: for a look.

`--as FORMAT` prints each record as one JSON object: `topic`, `key` and `value`, which is null in a tombstone.
Formats with a schema registry are for tasks alone.
"""

import json
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from millrace.consumer.publish.definitions import Definitions
from millrace.consumer.publish.mark import Position
from millrace.consumer.publish.order import PublishOrder
from millrace.consumer.publish.outgoing import (
    KEY_END,
    KEY_START,
    TOPIC,
    VALUE_END,
    VALUE_START,
    Outgoing,
)
from millrace.consumer.publish.plans import PublishPlans
from millrace.consumer.publish.turn import PublishTurn, Tools
from millrace.consumer.records.pieces import Size, Taken
from millrace.consumer.records.row_schemas import RowSchemas
from millrace.consumer.records.rows import Values
from millrace.consumer.target.progress import Mark, MarkTopic
from millrace.consumer.task.publish_start import task_order
from millrace.errors import Fatal
from millrace.producer.trial.trial import RawRecords
from millrace.schemas.documents import Brokers, OutputTopics, PublishTask, TopicAddress
from millrace.schemas.view.format_options import FormatName, FormatOptions

NAME = "try"


@dataclass(frozen=True, slots=True)
class Sent:
    """A record of an output topic. ``value``: None for a tombstone."""

    topic: str
    key: bytes | None
    value: bytes | None

    def line(self) -> str:
        """One JSON object."""
        plain = {"topic": self.topic, "key": _parsed(self.key), "value": _parsed(self.value)}
        return json.dumps(plain, ensure_ascii=False)


def _parsed(octets: bytes | None) -> object:
    return None if octets is None else json.loads(octets)


def publish(
    batches: Iterable[RawRecords], name: FormatName, send: Callable[[Iterator[Sent]], bool]
) -> None:
    """Give ``send`` the records of each batch of a set topic, until it returns False."""
    task = PublishTask(
        name=NAME,
        source=TopicAddress(topic=NAME, brokers=Brokers("none:0")),
        topics=OutputTopics(pattern="{database}.{table}"),
        format=FormatOptions.of(name),
    )
    order = PublishOrder(
        task=task_order(task, epoch=1),
        definitions=Definitions((0,), (task,)),
        slot=0,
        turn_s=math.inf,
    )
    output = _Output(send)
    tools = Tools(
        _Source(iter(batches)),
        output,
        look_up=_unknown_schema,
        is_over=lambda: output.is_over,
    )
    mark = Mark(0, 0, topic=MarkTopic(NAME))
    PublishTurn(order, tools, PublishPlans(task, RowSchemas({})), mark, "", {}).run()


@dataclass(slots=True)
class _Source:
    """``Source`` over batches that come once."""

    batches: Iterator[RawRecords]
    _offset: int = 0

    def seek(self, offset: int) -> None:
        """It is there."""

    def take(self, size: Size, *, wait_s: float) -> Taken | None:  # noqa: ARG002
        """The next batch; None in a quiet moment."""
        batch = next(self.batches)
        if not batch:
            return None
        payload = np.frombuffer(b"".join(value for _, value in batch), np.uint8)
        bounds: npt.NDArray[np.integer[npt.NBitBase]] = np.zeros(len(batch) + 1, np.int64)
        np.cumsum([len(value) for _, value in batch], out=bounds[1:])
        offsets = np.arange(self._offset, self._offset + len(batch))
        self._offset += len(batch)
        return Taken(offsets, Values(payload, bounds), True)


@dataclass(slots=True)
class _Output:
    """``Output`` that owns all partitions."""

    send: Callable[[Iterator[Sent]], bool]
    is_over: bool = field(default=False)

    def owns(self, _topic: str, _partition: int) -> bool:
        return True

    def write(self, outgoing: Outgoing) -> None:
        """Send the records in the order of the source."""
        self.is_over = self.is_over or not self.send(_sent(outgoing))

    def commit(self, _position: Position, *, is_full: bool) -> None:
        """Nothing is committed."""


def _sent(outgoing: Outgoing) -> Iterator[Sent]:
    octets = outgoing.payload
    for line in outgoing.lines.tolist():
        key = octets[line[KEY_START] : line[KEY_END]].tobytes() if line[KEY_START] >= 0 else None
        value = (
            octets[line[VALUE_START] : line[VALUE_END]].tobytes() if line[VALUE_END] >= 0 else None
        )
        yield Sent(outgoing.topics[line[TOPIC]], key, value)


def _unknown_schema(number: int) -> str:
    raise Fatal("MR-6009", f"schema id {number} is unknown", schema_id=number)
