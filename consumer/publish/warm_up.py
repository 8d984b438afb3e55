"""Compiles the kernels of publish tasks in advance. Apart: `make setup` runs it as a program.

``consumer.turn.warm_up`` does so for those of apply.
"""

import sys
from dataclasses import replace

import numpy as np

from millrace.consumer.kernel.partitions import assign_numbers
from millrace.consumer.publish.conversion import convert
from millrace.consumer.publish.plans import PublishPlans
from millrace.consumer.records.numbers import RecordNumbers
from millrace.consumer.records.rows import walk_values
from millrace.consumer.turn.warm_up import SCHEMAS, warm_values
from millrace.drivers.kafka.headers import compile_loop
from millrace.schemas.documents import Brokers, OutputTopics, PublishTask, TopicAddress
from millrace.schemas.view.format_options import FormatName, FormatOptions
from millrace.schemas.view.view import ALL_TABLES, Mask, MaskKind, TableRule, View

_TRANSACTIONS = dict.fromkeys(
    (FormatName.DEBEZIUM_JSON, FormatName.DEBEZIUM_AVRO), "warm.transaction"
)


def warm_publishing(*formats: FormatName) -> None:
    """Publish an update of an invented table in these formats, or in every one, without Kafka."""
    source = TopicAddress(topic="warm", brokers=Brokers("warm:1"))
    masked = View((TableRule("*.*", masks=(("weight", Mask(MaskKind.REDACT)),)),))
    names = formats or tuple(FormatName)
    for name, view in ((name, view) for view in (ALL_TABLES, masked) for name in names):
        task = PublishTask(
            name="warm",
            source=source,
            view=view,
            topics=OutputTopics(partitions=2),
            format=replace(
                FormatOptions.of(name),
                transaction_topic=_TRANSACTIONS.get(name, ""),
                cloudevents=True,
            ),
        )
        plans = PublishPlans(task, SCHEMAS, lambda _subject, _schema: 1)
        rows = walk_values(warm_values(), plans.programs)
        convert(plans, rows, RecordNumbers(np.arange(len(rows))))
    ints = np.zeros((1, 2), np.int64)
    assign_numbers(ints, np.zeros(1, np.int64), np.zeros((1, 3), np.int64))
    compile_loop()


if __name__ == "__main__":
    warm_publishing(*map(FormatName, sys.argv[1:]))
