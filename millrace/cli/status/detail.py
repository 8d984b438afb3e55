"""All that is known of one task, for ``millrace status TASK``: stage by stage, on the way of a change. Pure."""

import time
from collections.abc import Iterator

from millrace.cli.status.line import backlog_text, notes_of
from millrace.cli.texts import duration, size
from millrace.schemas.stages import (
    Applied,
    Captured,
    Compared,
    Delivered,
    Loaded,
    LoadedTable,
    Published,
    Rates,
    Relayed,
    SnapshotStage,
    SubscriberStage,
)
from millrace.schemas.status import TaskReport
from millrace.wording import counted
from millrace.zk.view import TaskView

SWITCHES_SHOWN = 3
TABLES_SHOWN = 10
SUBSCRIBERS_SHOWN = 20


def detail_of(view: TaskView, *, width: int) -> list[str]:
    """One line for each stage and its parts; what is unknown is left out or "-"."""
    report = view.report
    where = f" on {report.worker}" if report.worker else ""
    return [
        f"{view.name}  {report.state.value.upper()}{where}, reported {view.age_s:.0f} s ago",
        *notes_of(report, width=width),
        f"  route     {view.route}",
        *(_captured(report.captured) if report.captured is not None else ()),
        *(_relayed(report.relayed) if report.relayed is not None else ()),
        *(_published(report, report.published) if report.published is not None else ()),
        *(_loaded(report.loaded) if report.loaded is not None else ()),
        *(_snapshot(report.snapshot) if report.snapshot is not None else ()),
        *(_applied(report, report.applied) if report.applied is not None else ()),
        *(_delivered(report, report.delivered) if report.delivered is not None else ()),
        *_loss(view),
        *(f"  reader    {_subscriber(stage)}" for stage in report.subscribers[:SUBSCRIBERS_SHOWN]),
        *(_compared(report.compared) if report.compared is not None else ()),
    ]


def _captured(stage: Captured) -> Iterator[str]:
    source = stage.source
    yield f"  source    {source.host}:{source.port} ({source.role}) since {source.since}: {source.why}"
    for member in stage.members:
        lag = "-" if member.lag_s is None else f"{member.lag_s:.1f} s"
        missing = "-" if member.missing is None else f"{member.missing:,}"
        yield (
            f"  member    {member.host}:{member.port} ({member.role}), lag {lag}, missing {missing}:"
            f" {member.why}"
        )
    for switch in stage.switches[-SWITCHES_SHOWN:]:
        yield (
            f"  switch    {switch.at} {switch.source} -> {switch.target}, gap {switch.gap_s:.1f} s:"
            f" {switch.why}"
        )


def _relayed(stage: Relayed) -> Iterator[str]:
    pos = "" if stage.relay.pos is None else f":{stage.relay.pos}"
    late = "" if stage.behind_bytes is None else f", {size(stage.behind_bytes)} behind the source"
    yield f"  relay     {stage.stage}, ends at {stage.subdir}/{stage.relay.file}{pos}{late}"
    if stage.stored_bytes is not None and stage.disk_left_bytes is not None:
        yield f"  disk      {size(stage.stored_bytes)} used, {size(stage.disk_left_bytes)} left"
    if stage.time_to_loss_s is not None:
        yield f"  to loss   {duration(stage.time_to_loss_s)}: {stage.loss}"


def _published(report: TaskReport, stage: Published) -> Iterator[str]:
    lag = "-" if stage.lag_s is None else f"{stage.lag_s:.3f} s"
    yield f"  topic     {report.topic} seq {report.seq:,}, GTID set {report.gtid_set or '-'}"
    yield f"  lag       {lag} from the source's commit to a reader of the topic"
    yield f"  pace      {_rates(stage.rates)}; {counted(stage.rows, 'row')} since the start"
    yield f"  Kafka     last commit {stage.commit_s * 1000:.1f} ms, producer replaced {counted(stage.renewed, 'time')}"
    if stage.slow_path:
        yield f"  slow      {stage.slow_path}"


def _loaded(stage: Loaded) -> Iterator[str]:
    yield f"  load      {stage.done} of {stage.count} tables copied, read from {stage.source}"
    share = "" if not stage.expected else f" of about {stage.expected:,}"
    eta = "" if not stage.eta_s else f", ETA {duration(stage.eta_s)}"
    yield f"  copied    {stage.rows:,} rows{share}, {size(stage.bytes)}{eta}"
    yield f"  pace      {_rates(stage.rates)}"
    if stage.paused:
        yield f"  pauses    {stage.paused}"
    yield from (f"  table     {_table(table)}" for table in stage.tables[:TABLES_SHOWN])


def _table(table: LoadedTable) -> str:
    share = "" if not table.expected else f" of about {table.expected:,}"
    pace = "" if table.rows_s is None else f", {table.rows_s:,.0f} rows/s"
    eta = "" if table.eta_s is None else f", ETA {duration(table.eta_s)}"
    if table.waits:
        return f"{table.name} waits for another load: {table.waits}"
    why = f", in one snapshot: {table.snapshot}" if table.snapshot else ""
    return f"{table.name} {table.state}, {table.rows:,} rows{share}{pace}{eta}{why}"


def _snapshot(stage: SnapshotStage) -> Iterator[str]:
    done = "-" if stage.tables is None else f"{stage.done} of {counted(stage.tables, 'table')}"
    where = f" where {stage.where}" if stage.where else ""
    yield f"  snapshot  {stage.id}: {done}; {stage.why}"
    if stage.table:
        yield f"  table     {stage.table}{where}: {stage.rows:,} rows in {stage.chunks:,} chunks"
    if stage.rates.over_10_s is not None:
        eta = "" if stage.eta_s is None else f", ETA {duration(stage.eta_s)}"
        yield f"  reads     {_rates(stage.rates)}{eta}"
    for table in stage.left_out:
        yield f"  left out  {table}"


def _applied(report: TaskReport, stage: Applied) -> Iterator[str]:
    lag = "-" if stage.lag_s is None else f"{stage.lag_s:.3f} s"
    yield f"  applied   seq {report.seq:,}, GTID set {report.gtid_set or '-'}"
    yield f"  lag       {lag} from the source's commit to the target's"
    eta = (
        "" if stage.eta_s is None or not stage.backlog.records else f", ETA {duration(stage.eta_s)}"
    )
    yield f"  backlog   {backlog_text(stage) or '-'}{eta}"
    yield f"  pace      {_rates(stage.rates)}"
    counts = stage.counts
    yield (
        f"  done      {counted(counts.rows, 'row')} in {counted(counts.statements, 'statement')},"
        f" {counted(counts.ddl, 'DDL statement')}, {counts.left_out} left out, {counted(counts.turns, 'turn')}"
    )
    yield f"  rules     consistency {stage.consistency or '-'}" + (
        f", safe mode {stage.safe_mode}" if stage.safe_mode else ""
    )
    if stage.kept_rows:
        yield f"  aside     {counted(stage.kept_rows, 'row')} that the target refused, or that follow one"
    if stage.in_order:
        yield f"  in order  {stage.in_order}"


def _delivered(report: TaskReport, stage: Delivered) -> Iterator[str]:
    lag = "-" if stage.lag_s is None else f"{stage.lag_s:.3f} s"
    eta = (
        "" if stage.eta_s is None or not stage.backlog.records else f", ETA {duration(stage.eta_s)}"
    )
    yield f"  published seq {report.seq:,}, GTID set {report.gtid_set or '-'}"
    yield f"  lag       {lag} from the source's commit to a subscriber"
    yield f"  backlog   {backlog_text(stage) or '-'}{eta}"
    yield f"  pace      {_rates(stage.rates)}; {_rates(stage.record_rates, 'records')}"
    yield f"  topics    {counted(stage.records, 'record')} in {counted(stage.topics, 'topic')}"
    if stage.definition > 1:
        yield f"  document  the change number {stage.definition - 1}, from seq {stage.from_seq + 1:,} on"
    for place in stage.slots if len(stage.slots) > 1 else ():
        yield (
            f"  slot      {place.slot}: seq {place.seq:,}, offset {place.offset:,},"
            f" {counted(place.records, 'record')}"
        )


def _loss(view: TaskView) -> Iterator[str]:
    if view.time_to_loss_s is not None:
        what = "what the task has not read when the topic's retention removes it"
        yield f"  to loss   {duration(view.time_to_loss_s)}: {what}"


def _subscriber(stage: SubscriberStage) -> str:
    if stage.lag is None:
        return f"{stage.name}, {stage.state.value}: {stage.why}"
    now_ms = time.time_ns() // 1_000_000
    age_s, left_s = stage.age_s(now_ms), stage.time_to_loss_s(now_ms)
    parts = [f"{stage.name}, {stage.state.value}: lag {counted(stage.lag, 'record')}"]
    parts += [f"{counted(stage.lost, 'record')} lost"] if stage.lost else []
    parts += [f"the oldest from {duration(age_s)} ago"] if age_s is not None else []
    parts += [f"to loss {duration(left_s)}"] if left_s is not None else []
    return ", ".join(parts)


def _compared(stage: Compared) -> Iterator[str]:
    repairs = ", and repairs" if stage.repair else ""
    yield f"  compares  {stage.every_h} h after the last comparison{repairs}"
    if stage.running_rows is not None:
        yield f"  compares  now, {counted(stage.running_rows, 'row')} so far"
    if stage.result is not None:
        took = duration((stage.result.ended_ms - stage.result.began_ms) / 1000)
        yield f"  {stage.result.text}, in {took}"
        yield from (
            f"  differs   {name}: {counted(count, 'row')}"
            for name, count in stage.result.by_table[:TABLES_SHOWN]
        )


def _rates(rates: Rates, unit: str = "rows") -> str:
    spans = (("10 s", rates.over_10_s), ("60 s", rates.over_60_s))
    known = [f"{rate:,.0f} {unit}/s over {span}" for span, rate in spans if rate is not None]
    return ", ".join(known) or "-"
