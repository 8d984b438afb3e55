"""The records that a publish task must have written, computed from its set topic and the history of its document.

    history     the records ``definition/…`` of the progress topic: after the row ``from_seq``, ``document`` holds
    view        rules, conditions, columns and masks in plain Python; the caller has a function for each condition
    formats     ``json``, and of ``debezium-json`` the key and what depends on the view: op, images, names
    partition   Kafka's default: murmur2 of the key, as its documentation has it

Only for tables with a primary key, and for columns whose JSON is that of Python: integers, text, NULL.
"""

import hashlib
import hmac
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from tests.oracle.record import Change, Image

ASK_S = 60.0
Row = dict[str, Any]
Condition = Callable[[Mapping[str, Any]], bool]
# fields of a document that change no record
_OF_NO_RECORD = ("kafka", "registry", "compression", "topic_settings", "on_change")


@dataclass(frozen=True, slots=True, order=True)
class Sent:
    """A record of an output topic. ``value``: JSON, without what does not depend on the view; None: a tombstone.

    ``moved``: Debezium's header about a changed key, as name and value.
    """

    seq: int
    part: int
    topic: str
    partition: int
    key: str
    value: str | None
    moved: tuple[str, str] = ("", "")


@dataclass(frozen=True, slots=True)
class Definition:
    """``first_seq``: of the first row that ``document`` describes."""

    first_seq: int
    document: Mapping[str, Any]

    @property
    def shape(self) -> Mapping[str, Any]:
        """The fields that decide what a record is."""
        return {name: value for name, value in self.document.items() if name not in _OF_NO_RECORD}


def read_history(bootstrap: str, task: str) -> list[Definition]:
    """The definitions in the progress topic, which are the same in each partition; the first one has no beginning."""
    histories = []
    config = {"bootstrap.servers": bootstrap, "group.id": "history", "enable.auto.commit": False}
    with closing(Consumer({**config, "isolation.level": "read_committed"})) as consumer:
        name = f"_{task}.progress"
        for partition in consumer.list_topics(name, timeout=ASK_S).topics[name].partitions:
            place = TopicPartition(name, partition)
            low, end = consumer.get_watermark_offsets(place, timeout=ASK_S)
            consumer.assign([TopicPartition(name, partition, low)])
            latest = {}
            while consumer.position([place])[0].offset < end:
                message = consumer.poll(1.0)
                if message is None:
                    continue
                assert message.error() is None, message.error()
                kind, _, number = bytes(message.key() or b"").partition(b"/")
                if kind == b"definition":
                    latest[int(number)] = json.loads(message.value() or b"")
            histories.append([latest[number] for number in sorted(latest)])
    assert all(one == histories[0] for one in histories), histories
    history: list[Definition] = []
    for one in histories[0]:
        first_seq = one["from_seq"] + 1 if history else 0
        definition = Definition(first_seq, json.loads(one["document"])["document"])
        if not history or history[-1].shape != definition.shape:
            history.append(definition)
    return history


@dataclass(frozen=True, slots=True)
class View:
    """The records of a change under one definition. ``conditions``: by their text in the document."""

    definition: Definition
    conditions: Mapping[str, Condition]

    def sent(self, seq: int, change: Change, key: Sequence[str]) -> Iterator[Sent]:
        """The records of a change. ``key``: the columns of the table's primary key."""
        document = self.definition.document
        name = f"{change.database}.{change.table}"
        rule = next((one for one in self._rules if fnmatchcase(name, one["from"])), None)
        if rule is None:
            return
        before, after = (self._row(rule, image) for image in (change.before, change.after))
        renamed = rule.get("columns", {}).get("rename", {})
        columns = [renamed.get(column, column) for column in key]
        keys = [
            None if row is None else _json({one: row[one] for one in columns})
            for row in (before, after)
        ]
        topic = str(document["topics"]).format(
            task=document["task"], database=change.database, table=change.table
        )
        for part, record_key, value in self._parts(before, after, keys):
            partition = murmur2(record_key.encode()) % int(document["partitions"])
            moved = self._moved(part, keys)
            yield Sent(seq, part, topic, partition, record_key, value, moved)

    def seen(self, value: str | None) -> str | None:
        """The part of a published value that ``Sent`` has."""
        if value is None or self._is_plain:
            return value
        event = json.loads(value)
        return _json({name: event[name] for name in ("op", "before", "after")})

    def _moved(self, part: int, keys: Sequence[str | None]) -> tuple[str, str]:
        old, new = keys
        if self._is_plain or old is None or new is None or old == new:
            return "", ""
        return ("__debezium.oldkey", old) if part == 2 else ("__debezium.newkey", new)

    @property
    def _is_plain(self) -> bool:
        return bool(self.definition.document["records"]["format"] == "json")

    @property
    def _rules(self) -> list[Mapping[str, Any]]:
        """A view that leaves all rows as they are is stored as the patterns of its tables."""
        document = self.definition.document
        included = [{"from": pattern} for pattern in document.get("include", ())]
        return [*document.get("tables", included)]

    def _parts(
        self, before: Row | None, after: Row | None, keys: Sequence[str | None]
    ) -> Iterator[tuple[int, str, str | None]]:
        """Number, key and value of each record."""
        old, new = keys
        is_moved = old is not None and new is not None and old != new
        if self._is_plain:
            if old is not None and (new is None or is_moved):
                yield 0, old, None
            if new is not None:
                yield int(is_moved), new, _json(after)
            return
        if old is not None and (new is None or is_moved):
            yield 0, old, _json({"op": "d", "before": before, "after": None})
            yield 1, old, None
        if new is not None and (old is None or is_moved):
            yield 2 * is_moved, new, _json({"op": "c", "before": None, "after": after})
        elif new is not None:
            yield 0, new, _json({"op": "u", "before": before, "after": after})

    def _row(self, rule: Mapping[str, Any], image: Image) -> Row | None:
        """The columns of the view; None for no image, and for a row that the condition leaves out."""
        if image is None or ("where" in rule and not self.conditions[rule["where"]](image)):
            return None
        columns, masks = rule.get("columns", {}), rule.get("mask", {})
        row: Row = {}
        for name, value in image.items():
            if name in columns.get("drop", ()) or name not in columns.get("keep", image):
                continue
            name = columns.get("rename", {}).get(name, name)
            row[name] = _masked(masks[name], value) if name in masks else value
        return row | dict(columns.get("add", {}))


def _masked(mask: str, value: str | None) -> str | None:
    if value is None or mask == "redact":
        return None
    kind, _, argument = mask.rstrip(")").partition("(")
    if kind == "truncate":
        return value[: int(argument)]
    assert kind == "hmac-sha256", mask
    secret = Path(argument.removeprefix("file:")).read_bytes()
    return hmac.new(secret, value.encode(), hashlib.sha256).hexdigest()


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def murmur2(octets: bytes) -> int:
    """The hash of Kafka's Java client, as a positive number."""
    factor, mask = 0x5BD1E995, 0xFFFFFFFF
    hashed = 0x9747B28C ^ len(octets)
    whole = len(octets) // 4 * 4
    for place in range(0, whole, 4):
        word = int.from_bytes(octets[place : place + 4], "little") * factor & mask
        word = (word ^ word >> 24) * factor & mask
        hashed = hashed * factor & mask ^ word
    if rest := octets[whole:]:
        hashed = (hashed ^ int.from_bytes(rest, "little")) * factor & mask
    hashed = (hashed ^ hashed >> 13) * factor & mask
    return (hashed ^ hashed >> 15) & 0x7FFFFFFF


def compare(
    expected: Iterable[Sent], lines: Iterable[Mapping[str, Any]], views: Callable[[int], View]
) -> int:
    """The count of records, if the subscriber has exactly these, in order in each partition. Else AssertionError."""
    waiting = {(one.topic, one.partition, one.seq, one.part): one for one in expected}
    count, last = 0, dict[tuple[str, int], tuple[int, int]]()
    for line in lines:
        headers = line["headers"]
        seq, part = int(headers["seq"]), int(headers["part"])
        place = (line["topic"], line["partition"])
        value = views(seq).seen(line["value"])
        (moved,) = [one for one in headers.items() if one[0][:1] == "_"] or [("", "")]
        record = Sent(seq, part, *place, line["key"], value, moved)
        assert (seq, part) > last.get(place, (0, 0)), f"{record} after {last.get(place)}"
        assert waiting.pop((*place, seq, part), None) == record, f"not expected: {record}"
        last[place] = (seq, part)
        count += 1
    assert not waiting, f"{len(waiting)} are missing, such as {min(waiting.values())}"
    return count
