"""The progress of a slot, as the records of its partition of ``<task>.progress``.

    key                        value (JSON)
    fence                      epoch
    weights/<hash>             of a collation: what a definition names by its hash
    definition/<number>        from_seq, document, weights: all that the task has written under, the oldest is 0
    progress                   slots, seq, next_offset, gtid_set, topic_id: to here all records are in the outputs
    announced                  {id: seq}: the structures that the topic of schema changes has
    schemas                    {id: offset in the set topic}; of two structures of a table, the newer one is later
    partition/<topic>/<n>      topic_id, end, n, seq, part: the end of a partition after its last verified record

The topic is compacted: the last value of a key counts. Every record is true alone, so a torn Kafka transaction of them
is harmless. Only changed records are written.
"""

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from types import MappingProxyType

from millrace.consumer.format.transactions import NONE_COUNTED, CountedTransaction
from millrace.consumer.target.progress import Mark as TargetMark
from millrace.consumer.target.progress import MarkTopic
from millrace.drivers.kafka.partitions import HeaderedRecord, PartitionsReader, Place
from millrace.errors import Fatal

_FENCE, _PROGRESS, _SCHEMAS, _ANNOUNCED = b"fence", b"progress", b"schemas", b"announced"
_WEIGHTS, _DEFINITION, _PARTITION = b"weights/", b"definition/", b"partition/"


@dataclass(frozen=True, slots=True)
class Position:
    """A position in the set topic, with the fields of a mark on a target (``consumer.target.progress``).

    ``schemas``: where the set topic has the schemas of earlier records, by ID. ``snapshot``: the ID of the one that the
    task asked for at its start. ``at_ms``: the Unix time at which a slot reached the position. ``open_gtid``: a source
    transaction of which more rows follow, with the events so far of each table, if the task has a transaction topic.
    ``announced``: see ``schema_changes``.
    """

    seq: int
    next_offset: int
    gtid_set: str
    topic_id: str
    schemas: Mapping[int, int] = field(default_factory=dict)
    flavour: str = ""
    topic_epoch: int = 0
    whole_seq: int = -1
    past_start: bool = True
    commit_ms: int = 0
    snapshot: str = ""
    at_ms: int = 0
    open_gtid: str = ""
    open_events: Mapping[str, int] = field(default_factory=dict)
    announced: Mapping[int, int] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        reached: TargetMark,
        schemas: Mapping[int, int],
        *,
        snapshot: str,
        transaction: CountedTransaction = NONE_COUNTED,
        announced: Mapping[int, int] = MappingProxyType({}),
    ) -> "Position":
        """The position that a slot has reached now."""
        topic = reached.topic
        return cls(
            reached.seq,
            reached.next_offset,
            reached.gtid_set,
            topic.id,
            dict(schemas),
            reached.flavour,
            topic.epoch,
            topic.whole_seq,
            reached.past_start,
            reached.commit_ms,
            snapshot,
            time.time_ns() // 1_000_000,
            transaction.id,
            dict(transaction.counts),
            dict(announced),
        )

    def reached(self, topic: str) -> TargetMark:
        """The position as windows of the set topic ``topic`` take it."""
        place = MarkTopic(topic, self.topic_id, self.topic_epoch, self.whole_seq)
        return TargetMark(
            self.seq,
            self.next_offset,
            self.gtid_set,
            self.flavour,
            place,
            self.past_start,
            self.commit_ms,
        )

    @property
    def transaction(self) -> CountedTransaction:
        """The source transaction that is open at the position."""
        return CountedTransaction(self.open_gtid, tuple(sorted(self.open_events.items())))

    @property
    def lag_s(self) -> float | None:
        """From the source's commit of the last row to the position; None before the first row."""
        return max(self.at_ms - self.commit_ms, 0) / 1000 if self.commit_ms else None


@dataclass(frozen=True, slots=True)
class Tail:
    """The last record of an output partition (``n`` 0: none yet), and the end of the partition after it."""

    topic_id: str
    end: int
    n: int = 0
    seq: int = -1
    part: int = -1


@dataclass(frozen=True, slots=True)
class Description:
    """How records are written: a document as text, and the weights of texts in its conditions, by hash."""

    document: str = ""
    weights: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Definition:
    """From the record ``from_seq + 1`` on, records are written as ``description`` says."""

    from_seq: int
    description: Description


@dataclass(frozen=True, slots=True)
class Mark:
    """``slots``: into how many the task was divided when the position was written. ``epoch`` 0: no start yet."""

    epoch: int = 0
    slots: int = 0
    position: Position | None = None
    definitions: tuple[Definition, ...] = ()
    tails: Mapping[Place, Tail] = field(default_factory=dict)

    def records(self, since: "Mark | None" = None) -> dict[bytes, bytes | None]:
        """Key and value of each record; with ``since``, of those that differ. What the position refers to precedes it.

        A former slot has no position.
        """
        records: dict[bytes, bytes | None] = {}
        if since is None or self.epoch != since.epoch:
            records[_FENCE] = _json({"epoch": self.epoch})
        former = since.definitions if since is not None else ()
        if len(self.definitions) > len(former):  # each Kafka transaction asks
            records |= _of_definitions(self.definitions, former)
        stored = since.tails if since is not None else {}
        for (topic, partition), tail in self.tails.items():
            # a task can have thousands: most are the same object
            if (before := stored.get((topic, partition))) is not tail and before != tail:
                records[_PARTITION + f"{topic}/{partition}".encode()] = _json(asdict(tail))
        if self.position is None:
            return records | {_PROGRESS: None, _SCHEMAS: None}
        if since is None or self.position != since.position or self.slots != since.slots:
            values = asdict(self.position)
            schemas = values.pop("schemas")
            announced = values.pop("announced")
            stored_before = since.position.announced if since and since.position else {}
            if announced != stored_before:
                records[_ANNOUNCED] = _json(announced)
            known = since.position.schemas if since is not None and since.position else None
            if known is None or list(schemas.items()) != list(known.items()):
                records[_SCHEMAS] = _json(schemas)
            records[_PROGRESS] = _json({"slots": self.slots, **values})
        return records

    @classmethod
    def of(cls, records: Iterable[tuple[bytes, bytes]]) -> "Mark":
        """From the last record of each key; Fatal MR-3101 if one can't be read."""
        mark, tails, weights = cls(), {}, dict[str, str]()
        definitions: dict[int, tuple[int, str, list[str]]] = {}
        schemas: Mapping[int, int] = {}
        announced: Mapping[int, int] = {}
        for key, value in records:
            try:
                content = json.loads(value)
                if key == _FENCE:
                    mark = replace(mark, epoch=int(content["epoch"]))
                elif key.startswith(_WEIGHTS):
                    weights[key[len(_WEIGHTS) :].decode()] = value.decode()
                elif key.startswith(_DEFINITION):
                    number = int(key[len(_DEFINITION) :])
                    one = content["from_seq"], content["document"], content["weights"]
                    definitions[number] = one
                elif key == _SCHEMAS:
                    schemas = {int(schema_id): int(offset) for schema_id, offset in content.items()}
                elif key == _ANNOUNCED:
                    announced = {int(schema_id): int(seq) for schema_id, seq in content.items()}
                elif key == _PROGRESS:
                    slots = int(content.pop("slots"))
                    mark = replace(mark, slots=slots, position=Position(**content))
                elif key.startswith(_PARTITION):
                    topic, _, partition = key[len(_PARTITION) :].decode().rpartition("/")
                    tails[topic, int(partition)] = Tail(**content)
                else:
                    raise KeyError(key)
            except (ValueError, LookupError, TypeError, AttributeError) as error:
                raise Fatal(
                    "MR-3101", f"a progress topic has an unreadable record with the key {key!r}"
                ) from error
        if mark.position is not None:
            mark = replace(
                mark, position=replace(mark.position, schemas=schemas, announced=announced)
            )
        return replace(mark, definitions=_definitions(definitions, weights), tails=tails)


def _of_definitions(
    history: tuple[Definition, ...], former: tuple[Definition, ...]
) -> dict[bytes, bytes]:
    """The records of a history that are not those of ``former``, its beginning. A topic limits the size of each."""
    records: dict[bytes, bytes] = {}
    stored = {name for one in former for name in one.description.weights}
    for number, one in enumerate(history[len(former) :], len(former)):
        description = one.description
        for name in description.weights.keys() - stored:
            records[_WEIGHTS + name.encode()] = description.weights[name].encode()
        names = list(description.weights)
        plain = {"from_seq": one.from_seq, "document": description.document, "weights": names}
        records[_DEFINITION + b"%d" % number] = _json(plain)
    return records


def _definitions(
    stored: Mapping[int, tuple[int, str, list[str]]], weights: Mapping[str, str]
) -> tuple[Definition, ...]:
    try:
        return tuple(
            Definition(from_seq, Description(document, {name: weights[name] for name in names}))
            for _, (from_seq, document, names) in sorted(stored.items())
        )
    except KeyError as missing:
        raise Fatal("MR-3101", f"a progress topic does not have the weights {missing}") from missing


def last_values(records: Iterable[HeaderedRecord]) -> dict[bytes, bytes]:
    """The last value of each key; a key whose last record has no value is left out."""
    values: dict[bytes, bytes] = {}
    for record in records:
        key = record.key or b""
        if record.value is None:
            values.pop(key, None)
        else:
            values[key] = record.value
    return values


def marks_in(
    reader: PartitionsReader, ranges: Mapping[Place, tuple[int, int]], *, within_s: float
) -> dict[Place, Mark]:
    """The mark in each of these ranges of progress partitions. Errors as ``reader``; Fatal MR-3101."""
    records: dict[Place, list[HeaderedRecord]] = {place: [] for place in ranges}
    reader.visit(ranges, lambda place, record: records[place].append(record), within_s=within_s)
    return {place: Mark.of(last_values(own).items()) for place, own in records.items()}


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
