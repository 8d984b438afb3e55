"""The capture worker killed at each fault point under load: the topic stays whole, the target equal."""

import pytest

from tests.fix_stack import FaultStack

# At the N-th passage, so that the kill falls into the stream and not into the start.
POINTS = (
    "relay.before_write:kill@5",
    "relay.mid_write:kill@5",
    "relay.after_write:kill@5",
    "relay.before_fsync:kill@2",
    "relay.after_fsync:kill@2",
    "publisher.before_fence:kill",
    "publisher.after_fence:kill",
    "publisher.before_begin:kill@9",
    "publisher.after_begin:kill@9",
    "publisher.mid_produce:kill@9",
    "publisher.before_commit:kill@9",
    "publisher.after_commit:kill@9",
    "capture.after_attach:kill",
)


@pytest.mark.parametrize("fault", POINTS)
def test_a_worker_killed_at_a_fault_point_leaves_a_whole_topic_and_an_equal_target(
    fault_stack: FaultStack, fault: str
) -> None:
    """I1, I2, I3, I7: nothing lost, nothing twice, whatever the step."""
    fault_stack.restart("worker", fault=fault)
    with fault_stack.load("shop_" + "".join(c if c.isalnum() else "_" for c in fault)):
        fault_stack.wait_dead("worker")
        fault_stack.restart("worker")
    fault_stack.settle()


@pytest.mark.parametrize("passage", [1, 2])
def test_a_worker_killed_between_the_commits_of_one_large_source_transaction_goes_on_inside_it(
    fault_stack: FaultStack, passage: int
) -> None:
    """A source transaction of more rows than a Kafka transaction holds is neither repeated nor cut."""
    database = f"large_{passage}"
    fault_stack.settle()
    connection = fault_stack.connect()
    cursor = connection.cursor()
    cursor.execute(f"CREATE DATABASE {database}")
    cursor.execute(f"CREATE TABLE {database}.t (id INT NOT NULL PRIMARY KEY, v VARCHAR(20))")
    fault_stack.wait_published()
    fault_stack.restart("worker", fault=f"publisher.after_commit:kill@{passage + 1}")
    for start in range(0, 160_000, 20_000):
        rows = ",".join(f"({n},'row {n}')" for n in range(start, start + 20_000))
        cursor.execute(f"INSERT INTO {database}.t VALUES {rows}")
    connection.commit()
    connection.close()
    fault_stack.wait_dead("worker")
    fault_stack.restart("worker")
    fault_stack.settle()
