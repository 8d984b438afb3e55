"""Checks a publish task: its set topic, its view, its output topics and its rights on Kafka. Changes nothing.

The dry run makes a Kafka transaction without records and aborts it, under its own transactional ID, so that it
fences no task. The broker only says whether it would create a topic. Tables are those of the set topic's last records.
The source is asked as a start of the task asks it (``consumer.checks.conditions``).
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress

from millrace.checks.requirement import Area, Requirement, Subject, shortened
from millrace.checks.retention import judge_retention
from millrace.consumer.checks.conditions import compared_with_source
from millrace.consumer.checks.outputs import Outputs, outputs_of
from millrace.consumer.publish.definitions import as_continued
from millrace.consumer.topic.published import history_of
from millrace.consumer.topic.structures import topic_tables
from millrace.consumer.view.mask_keys import MaskKeys
from millrace.drivers.kafka.acls import Grants, publish_acls
from millrace.drivers.kafka.names import check_id
from millrace.drivers.kafka.partitions import Place, Topics, places_of
from millrace.drivers.kafka.producer import WRITING, TransactionalProducer
from millrace.drivers.kafka.reader import READING, Ends
from millrace.drivers.kafka.topic import TopicAdmin, TopicSettings
from millrace.drivers.kafka.wire import require_transactions
from millrace.errors import MillraceError
from millrace.schemas.documents import ApplyTask, PublishTask, SetDocument, TopicOptions
from millrace.wording import counted

DRY_RUN_S = 15.0
VIEW = "view and topics"


def check_source(task: PublishTask, *, pause_s: float) -> Iterator[Requirement]:
    """Whether the set topic keeps its records for the longest pause. To see its settings is no right of the task."""
    subject = Subject(Area.KAFKA, f"topic {task.source.topic}")
    admin = TopicAdmin(task.source.brokers, task.source.topic, errors=READING)
    try:
        settings = admin.settings()
    except MillraceError:
        yield subject.ok("records are kept", "the account does not see the topic's settings")
        return
    if settings is not None:
        yield judge_retention(subject, settings.retention_ms, pause_s)


def check_outputs(task: PublishTask, source: Callable[[], SetDocument]) -> Iterator[Requirement]:
    """The view and the topics: MR-5201, MR-4113, MR-3102, MR-3020, and the errors of a writer.

    ``source`` gives the document of the source set, which conditions on texts need.
    """
    subject = Subject(Area.KAFKA, f"topics of {task.name}")
    require_transactions(task.source.brokers)
    tables = topic_tables(task.source)
    with suppress(
        MillraceError
    ):  # of the progress, or a secret that another machine has: other checks report it
        history = history_of(task.source.brokers, task.progress_topic)
        task = as_continued(task, history, MaskKeys().fingerprints(task.view))
    try:
        outputs = compared_with_source(task, tables, source)
    except MillraceError as error:
        yield subject.error(VIEW, error)
        outputs = outputs_of(task, tables)
    else:
        yield from judge_view(subject, outputs)
    with Grants(task.source.brokers, publish_acls(task)).explained():
        yield from _check_topics(subject, task, outputs)
    yield _dry_run(subject, task)


def check_secrets(task: PublishTask | ApplyTask) -> Iterator[Requirement]:
    """MR-4106 if a key of the view's masks can't be read on this machine, as an apply driver must."""
    subject, what = Subject(Area.HOST, f"masks of {task.name}"), "keys"
    try:
        found = MaskKeys().fingerprints(task.view)
    except MillraceError as error:
        yield subject.error(what, error)
        return
    yield subject.ok(what, f"{counted(len(found), 'secret')} can be read")


def judge_view(subject: Subject, outputs: Outputs) -> Iterator[Requirement]:
    """Whether the view suits each table, and each has its topic."""
    for problem in outputs.problems:
        yield subject.error(VIEW, problem)
    if not outputs.problems:
        tables = sum(len(names) for names in outputs.topics.values())
        found = f"{counted(tables, 'table')} in {counted(len(outputs.topics), 'topic')}"
        yield subject.ok(VIEW, found if tables else "the set topic has no table of the view yet")


def _check_topics(subject: Subject, task: PublishTask, outputs: Outputs) -> Iterator[Requirement]:
    """The output topics that exist, and whether the broker would create the others."""
    names = [task.progress_topic, *task.other_topics.values(), *outputs.topics]
    topics = Topics(task.source.brokers, errors=WRITING)
    shapes = topics.shapes(names)
    places = places_of({name: shapes[name] for name in outputs.topics if name in shapes})
    has_run = task.progress_topic in shapes
    yield judge_existing(subject, topics.ends(places), has_run=has_run)
    existing = topics.settings([name for name in names[1:] if name in shapes])
    yield from judge_output_settings(subject, task, existing)
    settings = task.topics.settings
    options = TopicOptions(
        replication_factor=settings.replication_factor,
        min_insync_replicas=settings.min_insync_replicas,
        retention_ms=settings.retention_ms,
    )
    missing = next((name for name in names if name not in shapes), "")
    if not missing:
        yield subject.ok("creation", "all topics exist")
        return
    admin = TopicAdmin(task.source.brokers, missing, errors=WRITING, options=options)
    try:
        admin.create(is_trial=True)
    except MillraceError as error:
        yield subject.error("creation", error)
    else:
        yield subject.ok("creation", f"the broker would create {missing}")


def judge_existing(subject: Subject, ends: Mapping[Place, Ends], *, has_run: bool) -> Requirement:
    """MR-3102 if output topics have records of others. ``has_run``: the task has progress, so they may be its own."""
    what = "existing topics"
    written = list(dict.fromkeys(topic for (topic, _), end in ends.items() if end.high > 0))
    if written and not has_run:
        return subject.fail(
            "MR-3102",
            what,
            found=f"records in {shortened(written)}",
            wanted="topics without records",
        )
    count = counted(len({topic for topic, _ in ends}), "output topic")
    return subject.ok(what, f"{count}, of the task" if has_run else f"{count}, without records")


def judge_output_settings(
    subject: Subject, task: PublishTask, topics: Mapping[str, TopicSettings]
) -> Iterator[Requirement]:
    """MR-3020 as a warning for each setting in which existing topics differ from the document: a start changes none.

    A topic with fewer partitions than the document is no finding: the task adds them.
    """
    options, what = task.topics.settings, "settings of existing topics"
    differing: dict[tuple[str, str], list[str]] = {}
    for topic, own in topics.items():
        compared = {
            "replication_factor": (own.replication_factor, options.replication_factor),
            "min_insync_replicas": (own.min_insync_replicas, options.min_insync_replicas),
            "retention_ms": (own.retention_ms, options.retention_ms),
            "cleanup_policy": (_policies(own.cleanup_policy), options.cleanup_policy),
            "partitions": (
                max(own.partition_count, task.topics.partitions),
                task.topics.partitions,
            ),
        }
        for name, (actual, option) in compared.items():
            if option not in (None, actual):
                pair = (f"{name} {actual}", f"{name} {option}")
                differing.setdefault(pair, []).append(topic)
    for (found, wanted), names in differing.items():
        yield subject.warn(
            "MR-3020",
            what,
            found=f"{found}: {shortened(names)}",
            wanted=wanted,
            fix="Change the topics (`kafka-configs.sh --alter --entity-type topics`; replicas with"
            " `kafka-reassign-partitions.sh`) or the document. Partitions can't be removed.",
        )
    if not differing:
        yield subject.ok(what, f"{counted(len(topics), 'topic')} as in the document")


def _policies(cleanup_policy: str) -> str:
    """As the document writes them."""
    return ",".join(sorted(cleanup_policy.replace(" ", "").split(",")))


def _dry_run(subject: Subject, task: PublishTask) -> Requirement:
    """Whether the account may begin a Kafka transaction under an ID of the task."""
    producer = TransactionalProducer(
        task.source.brokers,
        task.progress_topic,
        errors=WRITING,
        settings={
            "client.id": "millrace-check",
            "transactional.id": check_id(task.progress_topic),
        },
        timeout_s=DRY_RUN_S,
    )
    what = "Kafka transaction"
    try:
        with Grants(task.source.brokers, publish_acls(task)).explained():
            producer.init()
            producer.begin()
            producer.abort()
    except MillraceError as error:
        return subject.error(what, error)
    finally:
        producer.discard()
    return subject.ok(what, "begun and aborted")
