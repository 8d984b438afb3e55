"""``millrace topic tail``, ``verify`` and ``rebuild`` of topics that publish tasks write."""

import json
import time
from collections.abc import Collection, Mapping
from contextlib import closing
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from millrace.cli.exits import Finding, is_output_closed
from millrace.errors import Fatal
from millrace.wording import counted

if TYPE_CHECKING:
    from millrace.consumer.topic.published import TopicResult
    from millrace.drivers.kafka.partitions import Place
    from millrace.schemas.documents import Brokers, PublishTask

_LOOK_S = 0.2


def verify_task(name: str, *, topic: str, suffix: str, as_json: bool) -> None:
    """Verify one output topic of a task, or all of them if ``topic`` is empty. ``suffix``: those of a rebuild."""
    from millrace.consumer.topic.published import topics_of
    from millrace.schemas.documents.model import progress_topic_of

    brokers = _publish_task(name).source.brokers
    last_n = topics_of(brokers, progress_topic_of(name + suffix))
    names = sorted({place[0] for place in last_n})
    if topic and topic not in names:
        raise typer.BadParameter(f"{name} has not written it", param_hint="TOPIC")
    verify_published(
        brokers, [topic] if topic else names, task=name, last_n=last_n, as_json=as_json
    )


def _publish_task(name: str) -> "PublishTask":
    from millrace.cli.control import control
    from millrace.schemas.documents import PublishTask

    with control() as now:
        document = now.store.task_entry(name).document
    if not isinstance(document, PublishTask):
        raise typer.BadParameter(f"{name} is not a publish task")
    return document


def rebuild_task(name: str, *, suffix: str, as_json: bool) -> None:
    """Write the topics of a task again, up to the present end of its set topic."""
    from millrace.consumer.publish.rebuild import rebuild
    from millrace.consumer.task.publish_start import task_order
    from millrace.drivers.kafka.acls import Grants, publish_acls

    task = _publish_task(name)
    began = time.monotonic()
    with Grants(task.source.brokers, publish_acls(task)).explained():
        rebuilt = rebuild(task, task_order(task, epoch=0), suffix=suffix)
    topics: dict[str, int] = {}
    for (topic, _), records in rebuilt.records.items():
        topics[topic] = topics.get(topic, 0) + records
    first, last = rebuilt.seqs
    if as_json:
        print(json.dumps({"task": name, "after_seq": first, "seq": last, "topics": topics}))
        return
    for topic, records in topics.items():
        print(f"{topic}: {counted(records, 'record')}")
    print(f"seq {first + 1} to {last}, in {time.monotonic() - began:.1f} s")
    print(f"`millrace topic verify --task {name} --suffix {suffix}` verifies them")


def tail_published(
    brokers: "Brokers", topic: str, *, first: int, last: int, follow: bool, as_json: bool
) -> None:
    """Print the ``first`` records, or the ``last`` ones and then new ones as they arrive. 0: all."""
    from millrace.consumer.topic.published import PublishedRecord, PublishedTail

    def show(records: Collection[PublishedRecord]) -> None:
        for record in records:
            text = json.dumps(record.plain(), ensure_ascii=False) if as_json else record.line()
            print(text, flush=follow)

    with closing(PublishedTail(brokers, topic)) as tail:
        if last:
            tail.skip_to_last(last)
        records = tail.read()
        show(records[-last:] if last else records[: first or None])
        while follow and not first:
            show(tail.read())
            if is_output_closed():
                return
            time.sleep(_LOOK_S)


def verify_published(
    brokers: "Brokers",
    names: Collection[str],
    *,
    task: str = "",
    last_n: "Mapping[Place, int] | None" = None,
    as_json: bool,
) -> None:
    """Verify topics and print their results. Finding MR-3503 if one has violations."""
    from millrace.consumer.topic.published import verify_topics

    began = time.monotonic()
    results = verify_topics(brokers, names, task=task, last_n=last_n)
    took_s = time.monotonic() - began
    for topic, result in results.items():
        if as_json:
            print(json.dumps(_plain(topic, result)))
        else:
            _print(topic, result)
    records = sum(result.record_count for result in results.values())
    if not as_json:
        rate = f"{records / max(took_s, 1e-9):,.0f} records/s"
        print(
            f"{counted(records, 'record')} of {counted(len(results), 'topic')} in {took_s:.1f} s ({rate})"
        )
    broken = [topic for topic, result in results.items() if result.violation_count]
    if broken:
        count = sum(result.violation_count for result in results.values())
        where = broken[0] if len(broken) == 1 else f"{len(broken)} topics"
        raise Finding(
            Fatal("MR-3503", f"{counted(count, 'violation')} in {where}", topic=broken[0])
        )


def _plain(topic: str, result: "TopicResult") -> dict[str, object]:
    return {
        "topic": topic,
        "whole": result.violation_count == 0,
        "compacted": result.is_compacted,
        "records": result.record_count,
        "hidden": result.hidden,
        "partitions": [
            {"partition": number, "low": end.low, "end": end.stable, **asdict(summary)}
            for number, (summary, end) in enumerate(
                zip(result.partitions, result.ends, strict=True)
            )
        ],
    }


def _print(topic: str, result: "TopicResult") -> None:
    for number, summary in enumerate(result.partitions):
        for violation in summary.violations:
            where = f"offset {violation.offset}" if violation.offset >= 0 else "end"
            print(f"{topic} partition {number} {where}: {violation.check.value}: {violation.what}")
    whole = "NOT whole" if result.violation_count else "whole"
    if result.is_compacted and not result.violation_count:
        whole = "in order; compacted: gaps cannot be proved"
    print(f"{topic}: {whole}")
    for number, (summary, end) in enumerate(zip(result.partitions, result.ends, strict=True)):
        epochs = ", ".join(f"{epoch} from offset {offset}" for epoch, offset in summary.epochs)
        removed = f", {counted(summary.removed, 'record')} compacted" if summary.removed else ""
        ranges = (
            f"n {summary.first_n} to {summary.last_n}, seq {summary.first_seq} to {summary.last_seq}"
            if summary.records
            else f"from offset {end.low} to {end.stable}"
        )
        print(
            f"  {number:<5} {counted(summary.records, 'record')}{removed}, {ranges}"
            + (f", epoch {epochs}" if epochs else "")
        )
    print(f"  violations    {result.violation_count:,}")
    if result.hidden:
        print(
            f"  not verified  {counted(result.hidden, 'offset')}: Kafka transactions have not ended."
            " If this stays so, one hangs, and hides all later records from every reader"
        )
