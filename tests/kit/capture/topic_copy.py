"""A subscriber that keeps a copy of tables from a topic alone: confluent-kafka and fastavro, nothing of the product.

It upserts rows of snapshots and inserts, applies updates with key changes, and deletes. It checks `seq`, and that rows
of a snapshot come between the begin and the end of their table.
"""

import io
import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import fastavro
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition

from tests.kit.waiting import answered

Key = tuple[str, ...]
Row = dict[str, str | None]
_SCHEMA_FIELDS = {
    "control": "string",
    "subject": "string",
    "id": "int",
    "fingerprint": "string",
    "schema": "string",
    "key_subject": ["null", "string"],
    "key_id": ["null", "int"],
    "key_schema": ["null", "string"],
    "db": "string",
    "table": "string",
    "seq": "long",
}
_SCHEMA = {
    "type": "record",
    "name": "millrace.control.Schema",
    "fields": [{"name": name, "type": kind} for name, kind in _SCHEMA_FIELDS.items()],
}


@dataclass
class TopicCopy:
    """Reads from the first record; ``look`` reads what has arrived."""

    bootstrap: str
    topic: str
    rows: dict[str, dict[Key, Row]] = field(default_factory=dict)
    snapshot_rows: Counter[str] = field(default_factory=Counter)
    begun: list[tuple[str, str]] = field(default_factory=list)  # (id, table)
    ended: list[tuple[str, str]] = field(default_factory=list)
    stopped: list[tuple[str, str]] = field(default_factory=list)
    state: Any = None  # of the last resolved or fence record
    seq: int | None = None

    def __post_init__(self) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "copy",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "allow.auto.create.topics": False,
            }
        )
        self._is_assigned = False
        self._schemas: dict[int, Any] = {}
        self._open: tuple[str, str] | None = None

    def look(self) -> "TopicCopy":
        """Apply what the topic has now."""
        if not self._is_assigned:
            found = self._consumer.list_topics(self.topic, timeout=10).topics.get(self.topic)
            if found is None or not found.partitions:
                return self  # the topic does not exist yet
            self._consumer.assign([TopicPartition(self.topic, 0, OFFSET_BEGINNING)])
            self._is_assigned = True
        place = TopicPartition(self.topic, 0)
        # a broker lists a young topic before it leads its partition
        ends = answered(
            lambda: self._consumer.get_watermark_offsets(place, timeout=10), KafkaException
        )
        end = ends[1]
        while (message := self._consumer.poll(1.0)) is not None:
            value = message.value()
            if value is None or message.error() is not None:
                break  # the end
            self._take(value)
            if (message.offset() or 0) >= end - 1:
                break
        return self

    def close(self) -> None:
        """Release the connections."""
        self._consumer.close()

    def table(self, name: str) -> dict[Key, Row]:
        """The copy of a table."""
        return self.rows.setdefault(name, {})

    def _take(self, value: bytes) -> None:
        kind = "row" if value[5] in (0, 2) else value[6 : 6 + value[5] // 2].decode()
        number = int.from_bytes(value[1:5], "big")
        layout: Any = _SCHEMA if kind == "schema" else self._schemas[number]
        record: Any = fastavro.schemaless_reader(io.BytesIO(value[5:]), layout, None)
        counts = kind in ("row", "ddl")
        seq = record["source"]["seq"] if counts else record["seq"]
        assert self.seq is None or seq == self.seq + counts, (kind, seq, self.seq)
        self.seq = seq
        match kind:
            case "schema":
                self._schemas[record["id"]] = json.loads(record["schema"])
            case "row":
                self._row(record, layout["fields"][0]["type"][1]["millrace.primary_key"])
            case "ddl":
                self._statement(record)
            case "snapshot":
                self._step(record)
            case "resolved" | "fence":
                self.state = record["snapshot"]

    def _row(self, record: Any, key: list[str]) -> None:
        source = record["source"]
        table = self.table(source["table"])
        before, after = record["before"], record["after"]
        if record["op"] == "r":
            assert source["snapshot"] == "true"
            assert before is None
            assert record["transaction"]["last"]
            assert self._open == (source["file"], source["table"]), (self._open, source)
            self.snapshot_rows[source["table"]] += 1
        if before is not None:
            table.pop(_key(before, key), None)
        if after is not None:
            table[_key(after, key)] = {name: _shown(value) for name, value in after.items()}

    def _statement(self, record: Any) -> None:
        if record["kind"] in ("truncate_table", "drop_table"):
            for named in record["tables"]:
                self.rows.pop(named["table"], None)

    def _step(self, record: Any) -> None:
        here = (record["id"], record["table"])
        if record["step"] == "begin":
            assert self._open is None
            self.begun.append(here)
            self._open = here
        else:
            assert self._open == here
            self._open = None
            (self.ended if record["step"] == "end" else self.stopped).append(here)


def _key(row: dict[str, object], key: list[str]) -> Key:
    return tuple(str(row[name]) for name in key)


def _shown(value: object) -> str | None:
    return None if value is None else str(value)
