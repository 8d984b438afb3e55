"""The start of a publish task: where it begins, its order for the slots, and the definition of its records."""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol
from uuid import uuid4

from millrace.consumer.publish.definitions import content_of, describe, weights_in
from millrace.consumer.publish.mark import Description, Position
from millrace.consumer.publish.outputs import OutputShape, TaskOrder
from millrace.consumer.publish.snapshot_rows import OWNED
from millrace.consumer.spark.session import FIRST_OFFSET
from millrace.consumer.topic.structures import topic_tables
from millrace.consumer.view.mask_keys import MaskKeys
from millrace.consumer.view.source_texts import (
    SourceTexts,
    compares_texts,
    read_source_texts,
    reads_octets,
    weighs_texts,
)
from millrace.drivers.kafka.reader import TopicIdentity
from millrace.errors import MillraceError
from millrace.log import get_logger
from millrace.schemas.documents import CaptureTask, PublishTask, Reader, SetDocument
from millrace.schemas.gtid import parse_any_gtid_set
from millrace.schemas.requests.snapshot_request import SnapshotRequest, SnapshotRequests
from millrace.zk.lease.membership import process_name

_log = get_logger("publish")


class Documents(Protocol):
    """The documents and requests of a run besides its task's document (``zk.run.runner.SetSource``)."""

    def capture_task_of(self, task: Reader) -> CaptureTask:
        """The task that captures to the topic of the publish task. Retryable MR-4203 while there is none."""

    def set_document(self, name: str) -> SetDocument:
        """The set's current document. Retryable while ZooKeeper is away, or the set is missing or unreadable."""

    def change_snapshots(
        self, task: str, change: Callable[[SnapshotRequests], SnapshotRequests]
    ) -> SnapshotRequests:
        """Change the requests for snapshots of a capture task, and return the result."""


def task_order(task: PublishTask, *, epoch: int) -> TaskOrder:
    """The order of a task for all its slots."""
    settings = task.topics.settings
    config = {
        "min.insync.replicas": settings.min_insync_replicas,
        "retention.ms": settings.retention_ms,
        "cleanup.policy": settings.cleanup_policy,
    }
    return TaskOrder(
        task=task.name,
        epoch=epoch,
        slots=task.topics.slots,
        brokers=task.source.brokers,
        worker=process_name(""),
        shape=OutputShape(
            partitions=task.topics.partitions,
            replicas=settings.replication_factor or -1,
            config={name: str(value) for name, value in config.items() if value is not None},
        ),
        compression=task.topics.compression,
    )


def first_position(task: PublishTask, topic: TopicIdentity, documents: Documents) -> Position:
    """The position of a task without progress. With ``start: snapshot`` it asks for the rows that exist.

    Then the task begins at the end that the topic had before it asked: its rows come later.
    """
    topic_id = topic.ask()
    if task.start.gtid_set:
        start = parse_any_gtid_set(task.start.gtid_set)
        return Position(
            -1, FIRST_OFFSET, str(start), topic_id, flavour=str(start.flavour), past_start=False
        )
    if not task.start.is_snapshot:
        return Position(0, FIRST_OFFSET, "", topic_id)
    end = topic.end()
    seq = topic.seq_before(end) if end else None
    snapshot = f"{OWNED}{uuid4().hex[:12]}"
    _ask_for_rows(task, snapshot, documents)
    if seq is None:  # no record yet
        return Position(0, FIRST_OFFSET, "", topic_id, snapshot=snapshot)
    return Position(seq, end, "", topic_id, snapshot=snapshot)


def described(task: PublishTask, documents: Documents, last: Description) -> Description:
    """The description of the records from now on, as it is stored. ``last``: the stored one, which may be empty.

    If a condition compares texts, the source is asked how it weighs them, and if it reads bytes, whether they are a
    UUID (Fatal MR-5201). While the source does not answer, an unchanged document keeps its weights, and a new one needs
    no answer unless a table of the set topic needs weights.
    """
    fingerprints = MaskKeys().fingerprints(task.view)
    plain = describe(task, fingerprints)
    compares = compares_texts(task.view)
    if not compares and not reads_octets(task.view):
        return plain
    is_same = bool(last.document) and content_of(last) == content_of(plain)
    known = weights_in(last) if is_same else ()
    tables = topic_tables(task.source) if compares else ()
    try:
        document = documents.set_document(documents.capture_task_of(task).set_name)
        texts = read_source_texts(task.view, tables, document, known=known)
    except MillraceError as error:
        if not is_same and weighs_texts(task.view, tables):
            raise
        _log.warning("the source was not asked about its texts", task=task.name, error=error)
        texts = SourceTexts(known)
    for problem in texts.problems:
        if is_same and problem.code != "MR-5201":
            _log.warning("the source was not asked about its UUIDs", task=task.name, error=problem)
        else:
            raise problem
    weighing = replace(task, view=replace(task.view, collations=texts.weights))
    return describe(weighing, fingerprints)


def _ask_for_rows(task: PublishTask, snapshot: str, documents: Documents) -> None:
    capture = documents.capture_task_of(task)
    request = SnapshotRequest(
        snapshot,
        task.snapshot_tables,
        by=f"publish task {task.name}",
        at_ms=time.time_ns() // 1_000_000,
    )
    documents.change_snapshots(capture.name, lambda before: before.added(request))
