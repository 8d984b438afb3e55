"""Millrace's records of the same binlog: a publish task for each variant, whose topics a plain consumer reads."""

import json
from dataclasses import dataclass
from typing import Any

import urllib3

from millrace.consumer.publish.rebuild import EVERY_SEQ
from millrace.schemas.documents import Brokers, OutputTopics, Registry, TopicAddress
from millrace.schemas.view.format_options import (
    BigintUnsigned,
    BinaryMode,
    DecimalMode,
    FormatName,
    FormatOptions,
    TimeMode,
)
from tests.kit.debezium.connectors import Record, Variant, topic_records
from tests.kit.debezium.whole_way import CopiedTopic, publish


@dataclass(frozen=True, slots=True)
class Publisher:
    """Publishes a set topic, with the built-in registry at ``registry``."""

    topic: CopiedTopic
    registry: str

    def records(self, variant: Variant) -> list[Record]:
        """The records of a task with the variant's name and options, in the order of its topics' names."""
        prefix, topic = f"{variant.name}.", self.topic
        task = publish(
            topic,
            name=variant.name,
            source=TopicAddress(
                topic=topic.topic,
                brokers=Brokers(topic.bootstrap),
                registry=Registry(self.registry),
            ),
            topics=OutputTopics(pattern=f"{prefix}{{database}}.{{table}}"),
            format=format_options(variant),
            accept_ddl=EVERY_SEQ,
        )
        records = topic_records(topic.bootstrap, prefix)
        return [record for record in records if record.topic != f"{task.name}.progress"]

    def schema(self, number: int) -> Any:
        """An Avro schema by its ID."""
        answer = urllib3.request("GET", f"{self.registry}/schemas/ids/{number}", retries=False)
        assert answer.status == 200
        return json.loads(json.loads(answer.data)["schema"])


def format_options(variant: Variant) -> FormatOptions:
    """The options that have the names of the variant's options."""
    options = variant.options
    return FormatOptions(
        FormatName.DEBEZIUM_AVRO if variant.is_avro else FormatName.DEBEZIUM_JSON,
        schemas=variant.has_schemas and not variant.is_avro,
        tombstones=options.get("tombstones.on.delete") != "false",
        transaction_topic=f"{variant.name}.transaction"
        if options.get("provide.transaction.metadata") == "true"
        else "",
        schema_change_topic=f"{variant.name}.schema-changes"
        if options.get("include.schema.changes") == "true"
        else "",
        heartbeat_ms=int(options.get("heartbeat.interval.ms", "0")),
        heartbeat_topic=f"{variant.name}.heartbeat" if "heartbeat.interval.ms" in options else "",
        decimal=DecimalMode(options.get("decimal.handling.mode", "precise")),
        time=TimeMode(options.get("time.precision.mode", "adaptive_time_microseconds")),
        bigint_unsigned=BigintUnsigned(options.get("bigint.unsigned.handling.mode", "long")),
        binary=BinaryMode(options.get("binary.handling.mode", "bytes")),
    )
