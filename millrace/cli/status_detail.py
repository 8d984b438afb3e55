"""All that is known of one task, for ``millrace status TASK``: stage by stage, on the way of a change. Pure."""

from collections.abc import Iterator

from millrace.cli.status_line import backlog_text, notes_of
from millrace.cli.texts import duration, size
from schemas.stages.applied import Applied
from schemas.stages.captured import Captured
from schemas.stages.published import Published
from schemas.stages.rates import Rates
from schemas.stages.relayed import Relayed
from schemas.status import TaskReport
from zk.view import TaskView

SWITCHES_SHOWN = 3


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
        *(_applied(report, report.applied) if report.applied is not None else ()),
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
    yield f"  pace      {_rates(stage.rates)}; {stage.rows:,} rows since the start"
    yield f"  Kafka     last commit {stage.commit_s * 1000:.1f} ms, producer replaced {stage.renewed} times"
    if stage.slow_path:
        yield f"  slow      {stage.slow_path}"


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
        f"  done      {counts.rows:,} rows in {counts.statements:,} statements,"
        f" {counts.ddl} DDL statements, {counts.left_out} left out, {counts.turns} turns"
    )
    yield f"  rules     consistency {stage.consistency or '-'}" + (
        f", safe mode {stage.safe_mode}" if stage.safe_mode else ""
    )
    if stage.in_order:
        yield f"  in order  {stage.in_order}"


def _rates(rates: Rates) -> str:
    spans = (("10 s", rates.over_10_s), ("60 s", rates.over_60_s))
    known = [f"{rate:,.0f} rows/s over {span}" for span, rate in spans if rate is not None]
    return ", ".join(known) or "-"
