"""``millrace topic tail`` and ``millrace topic verify``: show a topic's rows; verify that it is complete."""

import json
import os
import time
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from millrace.cli.exits import Finding, is_output_closed
from millrace.cli.options import Kafka, KafkaConfig, named_brokers
from millrace.errors import Fatal, naming
from millrace.wording import counted

if TYPE_CHECKING:
    from millrace.consumer.topic.selection import Wanted
    from millrace.consumer.topic.verify import Summary, TopicVerifier
    from millrace.drivers.kafka.reader import TopicReader, TopicRecord
    from millrace.schemas.documents import Brokers, Registry

app = typer.Typer(no_args_is_help=True, help="Read a topic, or verify that it is complete.")


def _registry_url(value: str) -> str:
    """Checks a URL as in a document. "" means no registry."""
    from millrace.schemas.documents.fields import Unreadable
    from millrace.schemas.documents.readers import url

    try:
        return url(value) if value else ""
    except Unreadable as error:
        found = f"found {error.found}, " if error.found else ""
        raise typer.BadParameter(f"{found}wanted {error.wanted}") from error


def _suffix(value: str) -> str:
    """Checks the end of a topic's name."""
    from millrace.schemas.documents.fields import Unreadable
    from millrace.schemas.documents.readers import topic

    try:
        return topic(value)
    except Unreadable as error:
        raise typer.BadParameter(f"wanted {error.wanted}") from error


Topic = Annotated[str, typer.Argument(help="The topic.", show_default=False)]
RegistryUrl = Annotated[
    str,
    typer.Option(
        "--registry",
        help="Schema registry, for schemas that the topic no longer holds.",
        envvar="MILLRACE_REGISTRY",
        callback=_registry_url,
    ),
]
RegistryConfig = Annotated[
    str,
    typer.Option(
        "--registry-config",
        help="File with the mapping `registry` of a task document: CA and login.",
        envvar="MILLRACE_REGISTRY_CONFIG",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]

FromBeginning = Annotated[
    bool, typer.Option("--from-beginning", help="Start at the first record that Kafka still has.")
]
Count = Annotated[
    int,
    typer.Option(
        "-n", help="Show N rows and exit: the last N, or with --from-beginning the first N.", min=0
    ),
]
Follow = Annotated[
    bool, typer.Option(help="Wait for further rows until Ctrl-C, or exit at the end of the topic.")
]
Control = Annotated[
    bool, typer.Option("--control", help="Show schema, resolved and fence records too.")
]
Tables = Annotated[
    list[str] | None,
    typer.Option(
        "--table", help="Show rows and DDL of this table or pattern alone; may be repeated."
    ),
]
Ops = Annotated[
    list[str] | None,
    typer.Option("--op", help="Show rows with this op alone: c, u, d or r; may be repeated."),
]

_LAST_ROWS = 10  # shown by default
_OPS = ("c", "u", "d", "r")


@app.command()
def tail(
    topic: Topic,
    kafka: Kafka = "",
    kafka_config: KafkaConfig = "",
    registry: RegistryUrl = "",
    registry_config: RegistryConfig = "",
    from_beginning: FromBeginning = False,
    count: Count = 0,
    follow: Follow = True,
    control: Control = False,
    tables: Tables = None,
    ops: Ops = None,
    as_json: Json = False,
) -> None:
    """Show the last ten rows, then new rows as they arrive. With --json, each line is one object.

    A topic of a publish task shows partition, offset, seq, n, key and value of each record.

    With --table or --op, the rows and statements that were passed over are counted on standard error.
    """
    from millrace.cli.published import tail_published
    from millrace.consumer.topic.decode import TopicLookUp
    from millrace.consumer.topic.published import is_published
    from millrace.consumer.topic.selection import Selected, offset_of_last
    from millrace.consumer.topic.tail import as_json as object_of
    from millrace.consumer.topic.tail import line
    from millrace.drivers.kafka.acls import Grants, subscriber_acls
    from millrace.drivers.kafka.reader import TopicReader
    from millrace.registry.client import RegistryClient
    from millrace.schemas.record.record import KnownSchemas

    wanted = _wanted(tables or [], ops or [])
    brokers = _brokers(kafka, kafka_config, topic)
    known_registry = _registry(registry, registry_config, brokers)
    with naming(topic=topic), Grants(brokers, subscriber_acls(topic)).explained():
        if is_published(brokers, topic):
            first, last = (count, 0) if from_beginning else (0, count or _LAST_ROWS)
            is_open = follow and not count
            tail_published(brokers, topic, first=first, last=last, follow=is_open, as_json=as_json)
            return
        reader = TopicReader(brokers, topic)
        ends = reader.ends()
        look_up = RegistryClient(known_registry).schema_by_id if known_registry.url else None

        def selected_from(start: int) -> Selected:
            found = TopicLookUp(lambda: TopicReader(brokers, topic), start, registry=look_up)
            return Selected(wanted, KnownSchemas(found))

        start = (
            ends.low
            if from_beginning
            else offset_of_last(reader, count or _LAST_ROWS, selected=selected_from)
        )
        selected, shown = selected_from(start), 0
        try:
            for record in _records(reader, start, None if follow else ends.stable):
                if (found := selected.decoded(record)) is None:
                    continue
                decoded, is_counted = found
                if is_counted or control:
                    plain = object_of(record.offset, record.timestamp_ms, decoded)
                    print(
                        json.dumps(plain, ensure_ascii=False)
                        if as_json
                        else line(record.offset, decoded),
                        flush=follow,
                    )
                shown += is_counted
                if count and shown >= count:
                    break
        finally:
            if not wanted.is_all:
                passed = counted(selected.passed, "row or statement", "rows and statements")
                typer.echo(f"passed over {passed} from offset {start} on", err=True)
        reader.close()


def _wanted(tables: list[str], ops: list[str]) -> "Wanted":
    from millrace.consumer.topic.selection import Wanted
    from millrace.schemas.documents.fields import Unreadable
    from millrace.schemas.documents.readers import table_pattern

    for pattern in tables:
        try:
            table_pattern(pattern)
        except Unreadable as error:
            raise typer.BadParameter(
                f"{pattern!r} is not {error.wanted}", param_hint="--table"
            ) from error
    for op in ops:
        if op not in _OPS:
            raise typer.BadParameter(f"{op!r} is not c, u, d or r", param_hint="--op")
    return Wanted(tuple(tables), tuple(ops))


def _records(reader: "TopicReader", start: int, stop: int | None) -> "Iterator[TopicRecord]":
    chunks = reader.follow(start, is_output_closed) if stop is None else reader.chunks(start, stop)
    for chunk in chunks:
        yield from chunk


@app.command()
def verify(
    topic: Annotated[str, typer.Argument(help="The topic.", show_default=False)] = "",
    task: Annotated[
        str, typer.Option("--task", help="Verify all topics of this publish task.")
    ] = "",
    suffix: Annotated[
        str, typer.Option("--suffix", help="With --task: the topics of its rebuild.")
    ] = "",
    kafka: Kafka = "",
    kafka_config: KafkaConfig = "",
    as_json: Json = False,
) -> None:
    """Verify that no record is missing, repeated, out of order or from a stale owner. Exits with 1 if one is.

    A set topic is verified record by record, a topic of a publish task by the headers of each partition. Records of a
    Kafka transaction that has not ended are not read; the output says how many.
    """
    from millrace.cli.published import verify_task

    if task:
        verify_task(task, topic=topic, suffix=suffix, as_json=as_json)
    elif topic:
        _verify_topic(_brokers(kafka, kafka_config, topic), topic, as_json=as_json)
    else:
        raise typer.BadParameter("give a topic or --task")


def _verify_topic(brokers: "Brokers", topic: str, *, as_json: bool) -> None:
    from millrace.cli.published import verify_published
    from millrace.consumer.topic.published import is_published, verified_ends
    from millrace.consumer.topic.verify import TopicVerifier
    from millrace.drivers.kafka.acls import Grants, subscriber_acls
    from millrace.drivers.kafka.reader import TopicReader

    with naming(topic=topic), Grants(brokers, subscriber_acls(topic)).explained():
        if is_published(brokers, topic):
            verify_published(brokers, [topic], as_json=as_json)
            return
        reader = TopicReader(brokers, topic)
        ends = reader.ends()
        verifier = TopicVerifier(from_beginning=ends.low == 0)
        began = time.monotonic()
        _feed_all(verifier, reader, ends.low, ends.stable)
        now = reader.all_ends()
        hidden = max(0, verified_ends(ends, now).high - ends.stable)
        reader.close()
    summary = verifier.finish()
    took_s = time.monotonic() - began
    if as_json:
        verdict = {
            "topic": topic,
            "whole": summary.violation_count == 0,
            "took_s": round(took_s, 3),
        }
        read = {"low": ends.low, "end": ends.stable, "hidden": hidden}
        print(json.dumps(verdict | read | asdict(summary)))
    else:
        _print_summary(topic, summary, took_s)
        if hidden:
            print(
                f"  not verified  {counted(hidden, 'offset')} after {ends.stable}: a Kafka transaction has not ended."
                " If this stays so, it hangs, and hides all later records from every reader"
            )
    if summary.violation_count:
        violations = f"{counted(summary.violation_count, 'violation')} in {topic}"
        raise Finding(Fatal("MR-3503", violations, topic=topic))


@app.command()
def rebuild(
    task: Annotated[str, typer.Argument(help="The publish task.", show_default=False)],
    suffix: Annotated[
        str,
        typer.Option(
            "--suffix",
            help="Ends the names of the new topics, such as .again.",
            callback=_suffix,
            show_default=False,
        ),
    ],
    as_json: Json = False,
) -> None:
    """Write the topics of a publish task again, from the set topic alone, into topics of other names.

    Ends where the set topic ends now. Run it again after an interruption: it continues.
    """
    from millrace.cli.published import rebuild_task

    rebuild_task(task, suffix=suffix, as_json=as_json)


def _feed_all(verifier: "TopicVerifier", reader: "TopicReader", start: int, stop: int) -> None:
    feed = verifier.feed
    for chunk in reader.chunks(start, stop):
        for record in chunk:
            feed(record.offset, record.key, record.value)


def _print_summary(topic: str, summary: "Summary", took_s: float) -> None:
    counts = summary.counts
    for violation in summary.violations:
        print(f"offset {violation.offset}: {violation.check.value}: {violation.what}")
    for named in summary.gaps:
        gap = named.gap
        missing = gap.missing or "nothing"
        print(
            f"offset {named.offset}: gap by {gap.kind}: seq {named.seq} for {missing} ({gap.reason})"
        )
    epochs = ", ".join(f"{epoch} from offset {offset}" for epoch, offset in summary.epochs)
    print(
        f"{topic}: {'whole' if not summary.violation_count else 'NOT whole'}\n"
        f"  records       {counts.records:,} ({counts.resolved:,} resolved, {counted(counts.fences, 'fence')},"
        f" {counted(counts.schemas, 'schema')})\n"
        f"  rows          {counts.rows:,}, DDL {counts.ddl:,}\n"
        f"  snapshots     {counts.snapshot_rows:,} of the rows, {counts.snapshot_tables:,} whole tables\n"
        f"  transactions  {counts.transactions:,}\n"
        f"  seq           {summary.first_seq} to {summary.last_seq}\n"
        f"  GTID set      {summary.gtid_set}\n"
        f"  epochs        {epochs}\n"
        f"  gaps          {summary.gap_count:,}, decided by an operator\n"
        f"  violations    {summary.violation_count:,}\n"
        f"  read in       {took_s:.1f} s ({counts.records / max(took_s, 1e-9):,.0f} records/s)"
    )


def _brokers(kafka: str, config: str, topic: str) -> "Brokers":
    """From options, from MILLRACE_KAFKA (a local stack sets it), or from a task with this topic; or Fatal MR-3502."""
    found = named_brokers(kafka, config) or _brokers_of_task(topic)
    if found is None:
        raise Fatal("MR-3502", f"no brokers are known for the topic {topic}")
    return found


def _registry(url: str, config: str, brokers: "Brokers") -> "Registry":
    """From the file, else from the option or MILLRACE_REGISTRY. Fatal MR-4101, MR-4102, MR-4206."""
    from millrace.cli.control import plain_from_file
    from millrace.schemas.documents import Registry, parse_registry

    if config:
        return parse_registry(plain_from_file(config), origin=config)
    return Registry(registry_for(url, brokers.bootstrap))


def registry_for(registry: str, bootstrap: str) -> str:
    """The registry to ask; "" if it belongs to other brokers than the topic.

    MILLRACE_REGISTRY (a local stack sets it) is valid only for topics of MILLRACE_KAFKA. Schema IDs are small numbers:
    another registry has other schemas under the same IDs.
    """
    is_of_environment = registry == os.environ.get("MILLRACE_REGISTRY", "")
    is_elsewhere = bootstrap != os.environ.get("MILLRACE_KAFKA", bootstrap)
    return "" if is_of_environment and is_elsewhere else registry


def _brokers_of_task(topic: str) -> "Brokers | None":
    """From a task with this topic in ZooKeeper; None when there is none, or MILLRACE_ZOOKEEPER is not set."""
    from millrace.cli.control import control
    from millrace.schemas.documents import address_of
    from millrace.zk.tree.entries import TaskEntry

    if not os.environ.get("MILLRACE_ZOOKEEPER"):
        return None
    with control() as now:
        entries = [entry for entry in now.store.tasks().values() if isinstance(entry, TaskEntry)]
    addresses = (address_of(entry.document) for entry in entries)
    return next((a.brokers for a in addresses if a.topic == topic), None)
