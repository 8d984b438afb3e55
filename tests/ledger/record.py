"""A record as a stranger reads it: Confluent's framing, the registry's schema, fastavro.

    value:  00 | schema id, 4 bytes big-endian | Avro body

What kind of record it is, is taken from its schema's name alone.
"""

import io
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import fastavro

Image = Mapping[str, Any] | None
Schema = Any
SchemaOf = Callable[[int], Schema]


@dataclass(frozen=True, slots=True)
class Step:
    """Where a row or a statement stands in its source transaction."""

    gtid: str
    total_order: int
    is_last: bool


@dataclass(frozen=True, slots=True)
class Change:
    """A row's change; images by column name, in column order."""

    database: str
    table: str
    op: str  # c, u, d
    before: Image
    after: Image


@dataclass(frozen=True, slots=True)
class Ddl:
    """A statement; ``database`` is the default one."""

    database: str
    sql: str


@dataclass(frozen=True, slots=True)
class Message:
    """One committed record. ``kind`` is row, ddl, schema, resolved or fence; the last two have an ``epoch``."""

    offset: int
    kind: str
    seq: int
    epoch: int | None = None
    step: Step | None = None
    change: Change | Ddl | None = None

    @property
    def gtid(self) -> str:
        """Of the source transaction; empty without one."""
        return "" if self.step is None else self.step.gtid

    def __str__(self) -> str:
        return f"offset {self.offset}, seq {self.seq}{self.gtid and f', {self.gtid}'}"


def harm(message: Message, what: str) -> AssertionError:
    """What an oracle raises."""
    return AssertionError(f"{message}: {what}")


def read_message(offset: int, value: bytes, schema_of: SchemaOf) -> Message:
    """The message in a record's value; AssertionError when it is not framed."""
    assert value[0] == 0, f"offset {offset}: the first byte is {value[0]}"
    schema = schema_of(int.from_bytes(value[1:5], "big"))
    body = io.BytesIO(value[5:])
    record: Any = fastavro.schemaless_reader(body, schema, None)
    assert not body.read(1), f"offset {offset}: bytes behind the record"
    name = str(schema["name"]).rpartition(".")[2]
    if name == "Envelope":
        return _row(offset, record, schema)
    if name == "Ddl":
        source, step = record["source"], _step(record["transaction"])
        ddl = Ddl(record["session"].get("default_database", ""), record["sql"])
        return Message(offset, "ddl", source["seq"], None, step, ddl)
    assert name in ("Schema", "Resolved", "Fence"), f"offset {offset}: a record {name}"
    return Message(offset, name.lower(), record["seq"], record.get("epoch"))


def _row(offset: int, record: Any, schema: Schema) -> Message:
    source, names = record["source"], _names(schema)
    change = Change(
        source["db"],
        source["table"],
        record["op"],
        _image(record["before"], names),
        _image(record["after"], names),
    )
    step = _step(record["transaction"])
    assert source["gtid"] == step.gtid, f"offset {offset}: {source['gtid']} in {step.gtid}"
    return Message(offset, "row", source["seq"], None, step, change)


def _step(transaction: Any) -> Step:
    return Step(transaction["id"], transaction["total_order"], transaction["last"])


def _image(image: Any, names: Mapping[str, str]) -> Image:
    return None if image is None else {names[field]: value for field, value in image.items()}


def _names(schema: Schema) -> Mapping[str, str]:
    """Columns by the names of their fields."""
    row = next(
        branch
        for field in schema["fields"]
        if field["name"] == "before"
        for branch in field["type"]
        if isinstance(branch, dict)
    )
    return {field["name"]: field["millrace.name"] for field in row["fields"]}


def parse_schema(text: str) -> Schema:
    """A schema as the registry holds it, ready for ``read_message``."""
    return fastavro.parse_schema(json.loads(text))
