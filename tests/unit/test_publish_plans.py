"""The plan of a published table: refused fields, and the partitions of its records."""

import numpy as np
import pytest

from millrace.consumer.publish.plans import PublishPlans, last_met
from millrace.consumer.records.row_schemas import RowSchemas
from millrace.errors import Fatal
from millrace.schemas.documents import (
    Brokers,
    OutputTopics,
    PartitionRule,
    PublishTask,
    TopicAddress,
)
from millrace.schemas.record.avro_schema import envelope_schema
from tests.kit.apply.tables import integer, table, text

ORDERS = table("shop", "orders", integer("id"), text("name"))


def test_partition_columns_must_be_in_the_key() -> None:
    """An update of another column would let a reader see the delete after the insert."""
    task = PublishTask(
        name="public",
        source=TopicAddress(topic="shop", brokers=Brokers("b:1")),
        topics=OutputTopics(partition_by=(PartitionRule("shop.*", ("name",)),)),
    )
    schemas = RowSchemas({1: envelope_schema("shop", ORDERS).text})
    with pytest.raises(Fatal, match="found name, wanted a column of the key: id") as refused:
        PublishPlans(task, schemas).table(0)
    assert refused.value.code == "MR-5205"


def test_slots_are_ordered_by_the_place_of_their_last_row() -> None:
    """-1 is a record of no slot."""
    assert last_met(np.array([2, -1, 0, 2, 1, 0, -1]), 4) == [2, 1, 0]
    assert last_met(np.array([-1]), 2) == []
    assert last_met(np.empty(0, np.int64), 0) == []
