"""Checks the topic of a capture task, by the rules of the publisher's start, and changes nothing.

The dry run makes a Kafka transaction without records and aborts it. A record, even an aborted one, would move the end
of the topic, and the audit of a running task would stop it (MR-3015). Its transactional ID is the check's own, so that
it fences no task. It needs only some requests of a transaction, so the brokers are also asked which ones they know.
Whether records may be written is asked with the topic's permissions.
"""

import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Protocol

from millrace.checks.requirement import Area, Level, Requirement, Subject
from millrace.checks.retention import judge_retention
from millrace.drivers.kafka.acls import Grants, check_acls
from millrace.drivers.kafka.names import check_id, transactional_id
from millrace.drivers.kafka.open_transactions import find_open_writer
from millrace.drivers.kafka.reader import Ends
from millrace.drivers.kafka.topic import TopicSettings
from millrace.drivers.kafka.wire import require_transactions
from millrace.errors import Fatal, MillraceError
from millrace.producer.checks.answers import Tables
from millrace.producer.publish.config import PublisherConfig, PublisherLimits, publisher_config
from millrace.producer.publish.kafka import KafkaDriver
from millrace.producer.publish.topic_check import check_topic, durability_warning
from millrace.schemas.documents.model import CaptureTask, TopicAddress
from millrace.schemas.gtid import Flavour
from millrace.wording import counted

CLIENT = "check"
DRY_RUN_S = 15.0
OPEN_S = 3.0  # a transaction that stays open for longer is named
_LOOK_S = 0.1
_OWN_FIX = (
    "Nothing to do: the running task ends it, and without one the broker aborts it within a minute."
)
_UNKNOWN_FIX = (
    "See `millrace status TASK` first: a task that writes may own it, and ends it. If it stays open, find its"
    " writer with `kafka-transactions.sh find-hanging`, and abort it only if no task of Millrace writes this topic."
)
_NEEDED_OPERATIONS = frozenset({"READ", "WRITE", "DESCRIBE", "DESCRIBE_CONFIGS"})


def check_topic_of(task: CaptureTask, *, pause_s: float) -> Iterator[Requirement]:
    """The requirements of the task's topic. Errors of an unavailable broker: see ``producer.publish.kafka``."""
    config = trial_config(task)
    subject = topic_subject(task)
    driver = KafkaDriver(config)
    admin = driver.admin()
    settings = admin.settings()
    yield subject.ok("brokers", config.brokers.bootstrap)
    try:
        require_transactions(config.brokers)
    except Fatal as error:
        yield subject.error("Kafka transaction", error)
        return
    if settings is None:
        yield trial_creation(subject, admin, config)
        yield from judge_planned(subject, admin, config, pause_s=pause_s)
        return
    yield from judge_topic(subject, settings, config, pause_s=pause_s)
    yield judge_operations(subject, admin.operations())
    yield _dry_run(subject, driver, settings, task.output)
    with closing(driver.partition()) as partition:
        yield judge_open(
            subject, *watch_open(partition, config), ours=transactional_id(config.topic)
        )


def trial_config(task: CaptureTask) -> PublisherConfig:
    """The publisher's configuration, with a transactional ID that fences no task."""
    config = publisher_config(task, flavour=Flavour.MYSQL, epoch=0, worker=CLIENT)
    limits = replace(config.limits, publish_timeout_s=DRY_RUN_S)
    return replace(config, transactional_id=check_id(config.topic), limits=limits)


def topic_subject(task: CaptureTask) -> Subject:
    return Subject(Area.KAFKA, f"topic {task.output.topic}")


class _Creator(Protocol):
    def create(self, record_bytes_max: int, *, is_trial: bool) -> None: ...

    def planned(self, record_bytes_max: int) -> TopicSettings: ...


def trial_creation(subject: Subject, admin: _Creator, config: PublisherConfig) -> Requirement:
    """Whether the broker would create the topic."""
    try:
        admin.create(config.limits.record_bytes_max, is_trial=True)
    except MillraceError as error:
        return subject.error("creation", error)
    return subject.ok("creation", "the broker would create it")


def judge_planned(
    subject: Subject, admin: _Creator, config: PublisherConfig, *, pause_s: float
) -> Iterator[Requirement]:
    """The requirements of the topic that the task would create. To see a broker's defaults is no right of a task."""
    try:
        planned = admin.planned(config.limits.record_bytes_max)
    except Fatal as error:
        if error.code != "MR-3005":
            raise
        yield subject.ok("settings", "the account does not see the broker's defaults")
        return
    yield from judge_topic(subject, planned, config, pause_s=pause_s)


def judge_topic(
    subject: Subject, settings: TopicSettings, config: PublisherConfig, *, pause_s: float
) -> Iterator[Requirement]:
    """MR-3009, MR-3020, MR-3021 and MR-4165. ``settings`` may be those of a topic that does not exist yet."""
    what = "settings"
    try:
        check_topic(settings, config)
    except Fatal as error:
        yield subject.error(what, error)
    else:
        yield subject.ok(what, f"1 partition, cleanup.policy={settings.cleanup_policy}")
    replicas = (
        f"{counted(settings.replication_factor, 'replica')},"
        f" min.insync.replicas={settings.min_insync_replicas}"
    )
    if (weak := durability_warning(settings, config)) is not None:
        yield replace(
            subject.error("durability", weak, wanted="3 replicas, min.insync.replicas=2"),
            level=Level.WARN,
        )
    else:
        yield subject.ok("durability", replicas)
    yield judge_retention(subject, settings.retention_ms, pause_s)


def judge_operations(subject: Subject, operations: frozenset[str]) -> Requirement:
    """MR-3005 if the account may not do what capture does."""
    what = "permissions"
    if "ALL" in operations or operations >= _NEEDED_OPERATIONS:
        return subject.ok(what, ", ".join(sorted(_NEEDED_OPERATIONS)))
    missing = ", ".join(sorted(_NEEDED_OPERATIONS - operations))
    return subject.fail(
        "MR-3005", what, found=f"without {missing}", wanted=", ".join(sorted(_NEEDED_OPERATIONS))
    )


def judge_row_size(subject: Subject, tables: Tables, limit_bytes: int) -> Requirement:
    """MR-4166 if two images of the widest row do not fit into a record. Rows that wide need not exist."""
    what = "widest row"
    if not tables.count:
        return subject.ok(what, "the source's account sees no table (needs SELECT)")
    images_bytes = 2 * tables.row_bytes_max
    if images_bytes > limit_bytes:
        return subject.warn(
            "MR-4166",
            what,
            found=f"{_mib(tables.row_bytes_max)} at most in {tables.widest}; max.message.bytes is {_mib(limit_bytes)}",
            wanted=f"max.message.bytes of {_mib(images_bytes)}: two images of a row",
        )
    return subject.ok(what, f"{_mib(tables.row_bytes_max)} at most")


def topic_limit_bytes(task: CaptureTask) -> int:
    """The topic's max.message.bytes, or that of the topic that the task would create."""
    config = trial_config(task)
    settings = KafkaDriver(config).admin().settings()
    return config.limits.record_bytes_max if settings is None else settings.record_bytes_max


def _dry_run(
    subject: Subject, driver: KafkaDriver, settings: TopicSettings, output: TopicAddress
) -> Requirement:
    began_s = time.monotonic()
    transactions = driver.transactions(settings.record_bytes_max)
    rights = Grants(output.brokers, check_acls(output.topic))
    try:
        with rights.explained():
            transactions.init()
            transactions.begin()
            transactions.abort()
    except MillraceError as error:
        return subject.error("Kafka transaction", error)
    finally:
        transactions.discard()
    return subject.ok(
        "Kafka transaction", f"begun and aborted in {time.monotonic() - began_s:.1f} s"
    )


class _Ended(Protocol):
    def all_ends(self) -> Ends: ...


def watch_open(partition: _Ended, config: PublisherConfig) -> tuple[Ends, str]:
    """The ends, equal if no transaction stays open, and the writer of the one that does ("": unknown).

    A capture task ends a transaction within its ``publish_timeout_s``, so one of an unknown writer is watched for as
    long. Without the ends before it, a transaction can end between two requests and look as if it were open.
    """
    ends = watch_ends(partition, open_s=OPEN_S)
    if ends.stable == ends.high:
        return ends, ""
    writer = find_open_writer(config.brokers, config.topic, offset=ends.stable)
    unknown_s = 0.0 if writer else PublisherLimits().publish_timeout_s
    return watch_ends(partition, open_s=unknown_s, first=ends), writer


def watch_ends(partition: _Ended, *, open_s: float, first: Ends | None = None) -> Ends:
    """The ends of the partition once no transaction is open, or once one has been open for ``open_s``.

    ``first``: an earlier answer. An answer has the stable end of one moment and the end of the log of a later one, so
    the stable end of a second answer decides, however long an answer takes.
    """
    first = first or partition.all_ends()
    deadline_s = time.monotonic() + open_s
    ends = first
    while ends.stable != ends.high:
        is_over = time.monotonic() >= deadline_s
        ends = partition.all_ends()
        if ends.stable != first.stable:  # that one has ended
            return replace(ends, high=ends.stable)
        if is_over:
            break
        time.sleep(_LOOK_S)
    return ends


def judge_open(subject: Subject, ends: Ends, writer: str, *, ours: str) -> Requirement:
    """MR-3013 if a transaction stays open. ``ours`` is the task's transactional ID.

    Only a foreign writer's is a failure. The fix of another one must not end a transaction of the running task.
    """
    what = "open transactions"
    if ends.stable == ends.high:
        return subject.ok(what, "none")
    found = f"one since offset {ends.stable}, of {writer or 'an unknown writer'}"
    if writer == ours:
        found, fix = f"one of this task since offset {ends.stable}", _OWN_FIX
    elif writer:
        return subject.fail("MR-3013", what, found=found, wanted="none")
    else:
        fix = _UNKNOWN_FIX
    return subject.warn(
        "MR-3013", what, found=found, wanted="none, unless the task runs now", fix=fix
    )


def _mib(count: int) -> str:
    return f"{count / 2**20:.1f} MiB"
