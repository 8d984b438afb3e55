"""The capture worker is killed between the Kafka commits of one large source transaction."""

import pytest

from millrace.deploy.local.services import TOPIC
from millrace.drivers.kafka.reader import TopicReader
from millrace.schemas.documents import Brokers
from millrace.schemas.gtid import Flavour
from millrace.schemas.record.control import ResolvedRecord
from millrace.schemas.record.record import KnownSchemas, decode_record
from tests.fixtures.stack import FaultStack, on
from tests.kit.publisher.rig import Rig
from tests.kit.waiting import eventually

MARKERS_MAX = 8  # past the last record: one marker, and one more for each change of the coordinator


@on(Flavour.MARIADB)
@pytest.mark.parametrize("passage", [1, pytest.param(2, marks=pytest.mark.chaos)])
def test_worker_killed_inside_a_large_source_transaction_resumes_there(
    fault_stack: FaultStack, passage: int
) -> None:
    """A source transaction with more rows than one Kafka transaction holds is neither repeated nor cut."""
    fault_stack.services["worker"].stop()
    fault_stack.fill(f"large_{passage}", rows=250_000 * passage)
    fault_stack.stack.source.wait_for_replicas()
    for _ in range(passage):
        _die_inside(fault_stack)
    fault_stack.restart("worker")
    fault_stack.settle()


def _die_inside(stack: FaultStack) -> None:
    """Kill the worker after its second commit; the first may hold only the created tables."""
    for _ in range(4):
        stack.end("worker")
        stack.launch("worker", fault="publisher.after_commit:kill@2", is_trusting=True)
        stack.wait_dead("worker")
        if _ends_inside(stack):
            return
    raise AssertionError("no commit ended inside the large source transaction")


def _ends_inside(stack: FaultStack) -> bool:
    """Whether the topic's last record belongs to an open source transaction."""
    bootstrap = stack.stack.endpoints.kafka
    reader, rig = TopicReader(Brokers(bootstrap), TOPIC), Rig(bootstrap, TOPIC)
    # a commit returns before its marker is written
    eventually(lambda: reader.ends().stable == rig.high_end(), every_s=0.1, what="no open commit")
    stable = reader.ends().stable
    last = [
        found for chunk in reader.chunks(max(stable - MARKERS_MAX, 0), stable) for found in chunk
    ][-1]
    reader.close()
    record = decode_record(last.key, last.value, KnownSchemas())
    assert isinstance(record, ResolvedRecord)
    return record.progress.open is not None
