"""Runs turns of an apply task in this process, without Spark: for a debugger.

    millrace task pause TASK
    python -m pdb -m millrace.consumer.task.local TASK     # or as a launch configuration of an editor
    millrace task resume TASK

Spark executes turns in Python workers that it forks, where no breakpoint stops. Here the turn runs in the main thread,
and its lanes in threads. It is a run like any other: it takes the lease and the fence, so it ends with MR-4004 while a
worker has the task, and it writes to the target. It ends when it has applied the topic up to its end.

Three good breakpoints, in the order in which a row passes them:

    consumer.turn.applier.Applier._dispatch             the window, the mark, the flights
    consumer.write.target_transaction.apply_part        a target transaction, before its first statement
    consumer.write.row_writer.RowWriter._write_run      the statements of rows of one table

It needs the environment of a worker: ZooKeeper's address, and the secrets of the target and the brokers. If it stops at
a breakpoint for longer than ZooKeeper's session, a resumed task may run in a worker; then the fence refuses the next
target transaction here (MR-5020).
Not done here: a load, a side stream, comparisons, reports.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from millrace.consumer.target.progress import Mark
from millrace.consumer.task.runner import same_topic
from millrace.consumer.task.start import applier_of, has_to_load, owner_of
from millrace.consumer.topic.beginning import begin_at
from millrace.consumer.turn.executor import execute
from millrace.consumer.turn.order import Outcome, Share, ShareEnd, TurnOrder, result_of
from millrace.consumer.turn.resident import forget
from millrace.drivers.kafka.reader import TopicIdentity
from millrace.drivers.mysql.connection import connect
from millrace.drivers.mysql.primary import primary_member
from millrace.schemas.documents import ApplyTask, SetDocument
from millrace.zk.ensemble import Ensemble
from millrace.zk.lease.lease import acquire
from millrace.zk.lease.membership import process_name
from millrace.zk.tree.store import Store


@dataclass(frozen=True, slots=True)
class LocalTurns:
    """The topic up to ``end``, in turns of this process."""

    end: int

    def apply(self, order: TurnOrder) -> Outcome:
        """One turn."""
        return result_of(execute(order))

    def executor_count(self) -> int:
        """This process."""
        return 1

    def apply_shares(self, shares: Sequence[Share]) -> Sequence[ShareEnd]:
        """Never called: a turn is shared only among several executors."""
        raise AssertionError(shares)


def run_here(task: ApplyTask, target: SetDocument, *, epoch: int) -> Mark:
    """Apply the topic up to its present end; the mark. The task must have progress, or not begin with a load."""
    endpoint, topic = primary_member(target), TopicIdentity(task.source.brokers, task.source.topic)
    session = connect(endpoint)
    try:
        owner = owner_of(session, task, epoch=epoch)
        assert owner is not None  # nothing ends the wait
        if has_to_load(session, task):
            sys.exit(f"{task.name} begins with a load. Resume it until the load has ended.")
        applier = applier_of(session, endpoint, task, owner)
        applier.mark = same_topic(topic, applier.mark, source=task.source)
        applier.begin = begin_at(task.source, applier.mark.next_offset)
        applier.process(LocalTurns(topic.end()), print)
    finally:
        session.close()
        topic.close()
        forget(task.name)
    return applier.mark


def main(name: str) -> None:
    """Run the task under its lease."""
    ensemble = Ensemble.from_environment()
    with ensemble.session() as session:
        store = Store(session, ensemble.tree)
        task = store.task_entry(name).document
        if not isinstance(task, ApplyTask):
            sys.exit(f"{name} is not an apply task")
        lease = acquire(session, ensemble.tree, task=name, worker=process_name(""))
        try:
            run_here(task, store.set_document(task.target), epoch=lease.epoch)
        finally:
            lease.release()


if __name__ == "__main__":
    main(sys.argv[1])
