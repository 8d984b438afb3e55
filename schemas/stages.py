"""The stages of a task in its report: typed values for ``millrace status``, metrics and dashboards.

    captured    the member that a capture task reads, its lag, the last switches, all members of the set
    relayed     the set's relay log: what is stored, who needs it, what might be lost
    published   what a capture task has published: rows, pace, and the lag until a reader of the topic sees a row
    snapshot    how far the snapshot of a capture task is; null while none runs
    applied     what an apply task has applied: rows, pace, backlog, and the lag until the target has a row
    loaded      what an apply task that loads tables has copied: rows, pace, ETA; null before and after a load
    delivered   what a publish task has written for subscribers: rows, records, pace, backlog, the place of each slot
    subscribers how far each named subscriber of the topics that the task writes is (``SubscriberStage``)
    compared    the last comparison of source and target beside an apply task, and the one under way; null without
                ``compare`` in its document

They are keys of a task in ``millrace status --json``, but for ``captured``: its ``source`` and ``switches`` are, and
``millrace replica list`` prints its ``members``. Keys are stable; new ones may be added. A value is null while it is
unknown. Pure values; nothing here measures.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated

from millrace.schemas.plain import MaybeTenths, MaybeThousandths, Tenths, Wire
from millrace.wording import counted

REFUSED_KIND = (
    "refused"  # a row that the target refuses, whatever rows it has, and that is kept aside
)
CONFLICT_KINDS = (
    *("insert-exists", "update-missing", "update-exists", "delete-missing"),
    "foreign-key",
    REFUSED_KIND,
)
NO_NUMBER = "0"  # of an error without one, such as a broken socket
SWITCHES_MAX = 10
LOADED_TABLES_MAX = 20  # that are listed, those under way first
LEFT_OUT_MAX = 20  # names of a snapshot; the rest is counted in the warning
_TABLES_NAMED = 3  # of a comparison
_REASON_CHARACTERS_MAX = 500  # of a subscriber; a task may have many


@dataclass(frozen=True, slots=True)
class Rates:
    """Rows and DDL statements a second, over two spans of time; None while the task has run for less than a second."""

    over_10_s: MaybeTenths = None
    over_60_s: MaybeTenths = None


@dataclass(frozen=True, slots=True)
class Incidents:
    """The errors that an apply task has retried on its target, and conflicts. A key without a count is absent.

    ``retries``    by the server's error number, such as "1213" (deadlock) or "2013" (lost connection)
    ``conflicts``  by kind, such as "update-missing": the operation, and whether the row is missing or exists
    """

    # a worker of an earlier version reports neither
    retries: Annotated[Mapping[str, int], Wire(pair=("errno", "count"), is_added_later=True)] = (
        field(default_factory=dict)
    )
    conflicts: Annotated[Mapping[str, int], Wire(pair=("kind", "count"), is_added_later=True)] = (
        field(default_factory=dict)
    )

    def __add__(self, other: "Incidents") -> "Incidents":
        """The sums."""
        return Incidents(_sum(self.retries, other.retries), _sum(self.conflicts, other.conflicts))


def _sum(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return dict(Counter(one) + Counter(other))


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceView:
    """The member that is read. ``since``: the time of the last switch or start, UTC.

    ``missing``: transactions of the set that it does not have. ``still_s``: how long it has
    applied nothing although some are missing.
    """

    host: str
    port: int
    role: str  # primary, replica, unknown
    lag_s: float | None
    missing: int | None
    still_s: float | None
    since: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchView:
    """A change of the member. ``gap_s``: from the last byte of ``source`` to the first byte of ``target``.

    ``refused``: the errors of the members that were tried in between.
    """

    at: str  # when it was decided, UTC
    source: Annotated[str, Wire(key="from")]
    target: Annotated[str, Wire(key="to")]
    why: str
    refused: tuple[str, ...]
    gap_s: float
    switch_s: float  # from the decision to the first byte of ``target``


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberView:
    """A member of the set. ``missing``: transactions of the set that it does not have."""

    host: str
    port: int
    role: str
    reachable: bool
    lag_s: float | None
    missing: int | None
    admissible: bool
    why: str
    chosen: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Captured:
    """The member that is read, the last switches, and all members of the set."""

    source: SourceView
    switches: tuple[SwitchView, ...] = ()  # the last ten, oldest first
    members: tuple[MemberView, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BinlogEnd:
    """Where a binlog ends: the file, the offset in it, and all GTIDs up to there."""

    file: str
    pos: int | None
    gtid_set: str


@dataclass(frozen=True, slots=True)
class PurgeRefusal:
    """Why a purge request was not executed."""

    code: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgeAnswer:
    """The result of a purge: the deleted files and the oldest one that is left, as ``<subdir>/<file>``.

    ``id`` is that of the request; "" if none was answered. ``evicted``: tasks with their positions.
    """

    id: Annotated[str, Wire(is_added_later=True)] = ""
    deleted: Annotated[tuple[str, ...], Wire(is_added_later=True)] = ()
    oldest: Annotated[str, Wire(is_added_later=True)] = ""
    evicted: Annotated[Mapping[str, str], Wire(is_added_later=True)] = field(default_factory=dict)
    error: Annotated[PurgeRefusal | None, Wire(is_added_later=True)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Relayed:
    """The part of a set's binlog that is stored, the tasks that need it, and what might be lost."""

    stage: str  # receives, paused, switches, waits
    why: str
    source: BinlogEnd | None  # of the member that is read
    subdir: str
    relay: BinlogEnd
    caught_up: bool | None
    behind_bytes: int | None  # in the source's file, if the relay log ends in the same one
    received_bytes: int  # like ``connects``, since the stream began
    connects: int
    stored_bytes: int | None
    disk_left_bytes: int | None
    oldest_file: str  # "subdir/file", like the next
    needed: Mapping[str, str]  # by task; "" if it needs more than the relay log has
    end_at_s: float | None  # Unix time of the last event, by the server's clock
    # how long the source keeps its binlogs; None: without a limit in time, or unknown
    kept_s: float | None
    time_to_loss_s: float | None
    loss: str  # what would be lost then
    # the last answer, while a command on another host waits for one
    purge: Annotated[PurgeAnswer | None, Wire(is_added_later=True)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """The stage. ``rows``, ``renewed`` count since the start of the run.

    ``lag_s``    from the source's commit of the last published row to the moment when a reader of the topic can see it,
                 by the clocks of source and worker. 0 if no row waits in the relay log, but never less than the lag of
                 the member that is read; None while that is unknown. It grows with the clock while rows wait and none
                 is published. MariaDB logs whole seconds, so there it is up to 1 s too long.
    ``waits_s``  how long rows have waited in the relay log since one was published; 0 if none waits
    ``at``       the place in the relay log up to which all is published
    ``commit_s`` the duration of the last Kafka transaction's commit
    ``renewed``  how often the Kafka producer was replaced
    ``slow_path`` why records are sent one by one, which is much slower; "" if they are not
    """

    lag_s: MaybeThousandths = None
    waits_s: Tenths = 0.0
    # the source's commit of that row (Unix time); 0 before the first row
    commit_ms: Annotated[int, Wire(is_zero_null=True)] = 0
    rows: int = 0
    rates: Annotated[Rates, Wire(key="rows_s")] = field(default_factory=Rates)
    at: str = ""
    commit_s: Annotated[float, Wire(digits=4)] = 0.0
    renewed: int = 0
    slow_path: str = ""

    def at_rest(self) -> "Published":
        """The values that stay true when the task does not run."""
        return Published(commit_ms=self.commit_ms, rows=self.rows, at=self.at)


@dataclass(frozen=True, slots=True)
class Backlog:
    """The records that wait in the topic after the mark.

    ``records``  offsets, with control records and Kafka's own markers. 0 if only the control record and the marker that
                 end the topic wait.
    ``rows``     rows and DDL statements, by the ``seq`` at the topic's end
    ``bytes``    the records by the mean size of those that this run has read: an estimate
    """

    records: int | None = None
    rows: int | None = None
    bytes: int | None = None


# kept while a task does not run: then it comes nearer
LossTime = Annotated[int, Wire(is_zero_null=True, is_added_later=True)]


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedCounts:
    """The work since the start of the run, of the turns that have ended.

    A turn ends 1 s after the last record, under a constant load after 30 s. ``left_out``: DDL statements that were
    written to the target's table ``left_out``. ``incidents`` are counted since the start of the driver's process: an
    error that is retried may end the run.
    """

    rows: int = 0
    statements: int = 0
    ddl: int = 0
    left_out: int = 0
    turns: int = 0
    incidents: Annotated[Incidents, Wire(is_inline=True)] = field(default_factory=Incidents)


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """The stage. A task that does not run has only ``commit_ms``, ``counts`` and how it applies in its report.

    `millrace status` adds the rows that wait, and the lag since ``commit_ms`` (``zk.view``).

    ``lag_s``      from the source's commit of the last applied row to the target's commit. 0 if no row and no
                   statement waits in the topic. It grows with the clock while some wait and none is applied.
    ``waits_s``    how long records have waited since the mark moved; 0 if none waits
    ``commit_ms``  the source's commit of that row (Unix time); 0 before the first row
    ``loss_at_ms`` when the topic may remove the record that the task must read next, if it reads nothing more (Unix
                   time); 0: unknown, or never
    ``rates``      rows and statements of the topic, also those that the task skips
    ``eta_s``      the backlog at the current pace
    ``in_order``   tables that one lane applies, and why
    ``safe_mode``  the text of its range; "" if the task has none
    ``executes``   a DDL statement that the target executes now, with its progress if the server reports it
    ``kept_rows``  rows that are kept aside, as of the last turn
    """

    lag_s: MaybeThousandths = None
    waits_s: Tenths = 0.0
    commit_ms: Annotated[int, Wire(is_zero_null=True)] = 0
    backlog: Backlog = field(default_factory=Backlog)
    rates: Annotated[Rates, Wire(key="rows_s")] = field(default_factory=Rates)
    eta_s: MaybeTenths = None
    loss_at_ms: LossTime = 0
    counts: Annotated[AppliedCounts, Wire(is_inline=True)] = field(default_factory=AppliedCounts)
    in_order: str = ""
    consistency: str = ""
    safe_mode: str = ""
    executes: Annotated[str, Wire(is_added_later=True)] = ""
    kept_rows: Annotated[int, Wire(is_added_later=True)] = 0

    def at_rest(self) -> "Applied":
        """The values that stay true when the task does not run."""
        return replace(
            self, lag_s=None, waits_s=0.0, backlog=Backlog(), rates=Rates(), eta_s=None, executes=""
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotPlace:
    """One slot: all records of the set topic before ``offset`` are in its partitions. ``seq``: of the last of them.

    ``records``: that its partitions have got since the task exists.
    """

    slot: int
    seq: int
    offset: int
    records: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """The stage. A task that does not run has only ``commit_ms``, the counts and its places in its report.

    `millrace status` adds the rows that wait, and the lag since ``commit_ms`` (``zk.view``). Lag, waiting time,
    backlog and rates are those of the slot that is the furthest behind; compare ``Applied``.

    ``lag_s``       from the source's commit of the last row to the moment when a subscriber can see its record
    ``loss_at_ms``  when the set topic may remove the record that the task must read next (Unix time); 0: unknown, never
    ``rates``       rows and statements of the set topic, also those that the view leaves out
    ``records``     in the output topics, since the task exists
    ``definition``  the number of the definition by which records are written, 1 for the first document; it holds from
                    the record after ``from_seq`` on
    """

    lag_s: MaybeThousandths = None
    waits_s: Tenths = 0.0
    commit_ms: Annotated[int, Wire(is_zero_null=True)] = 0
    backlog: Backlog = field(default_factory=Backlog)
    rates: Annotated[Rates, Wire(key="rows_s")] = field(default_factory=Rates)
    record_rates: Annotated[Rates, Wire(key="records_s")] = field(default_factory=Rates)
    eta_s: MaybeTenths = None
    loss_at_ms: LossTime = 0
    records: int = 0
    topics: int = 0
    definition: int = 1
    from_seq: int = 0
    slots: tuple[SlotPlace, ...] = ()

    @classmethod
    def of(
        cls,
        pace: Applied,
        slots: Sequence[SlotPlace],
        *,
        record_rates: Rates,
        topics: int,
        definition: tuple[int, int],
    ) -> "Delivered":
        """From the pace of the slot that is the furthest behind. ``definition``: its number and ``from_seq``."""
        return cls(
            lag_s=pace.lag_s,
            waits_s=pace.waits_s,
            commit_ms=pace.commit_ms,
            backlog=pace.backlog,
            rates=pace.rates,
            record_rates=record_rates,
            eta_s=pace.eta_s,
            loss_at_ms=pace.loss_at_ms,
            records=sum(one.records for one in slots),
            topics=topics,
            definition=definition[0],
            from_seq=definition[1],
            slots=tuple(slots),
        )

    def at_rest(self) -> "Delivered":
        """The values that stay true when the task does not run."""
        return replace(
            self,
            lag_s=None,
            waits_s=0.0,
            backlog=Backlog(),
            rates=Rates(),
            record_rates=Rates(),
            eta_s=None,
        )


class GroupState(StrEnum):
    """The state of a subscriber's consumer group."""

    ACTIVE = "active"  # it has members
    EMPTY = "empty"  # it has committed offsets, and no member
    NEVER_READ = "never read"  # it exists, and has committed nothing of these topics
    MISSING = "group unknown"  # the brokers know no group of this name
    UNKNOWN = "unknown"  # the account may not see it, or no broker answered


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriberStage:
    """How far a subscriber is in the topics of one task, as measured at ``measured_ms`` (Unix time, as all times here).

    ``lag``        offsets between its committed ones and the ends, with aborted records and Kafka's markers, and in a
                   compacted topic those of removed records: at least the records that wait. None: unknown
    ``lost``       offsets that were removed before it has committed them
    ``topics``     that it reads, of those that exist; ``begun``: of which it has committed an offset
    ``oldest_ms``  the time of the oldest record that it has not committed, in ``oldest_topic``; 0: unknown, or none
    ``loss_at_ms`` when retention may remove a record that it has not read, if it reads nothing more; 0: unknown, or
                   never, also of a group that has read nothing
    ``why``        why something is unknown
    """

    name: str
    group: str
    state: GroupState
    lag: Annotated[int | None, Wire(key="lag_records")] = None
    lost: Annotated[int, Wire(key="lost_records")] = 0
    topics: int = 0
    begun: Annotated[int, Wire(key="topics_read")] = 0
    oldest_ms: Annotated[int, Wire(is_zero_null=True)] = 0
    oldest_topic: str = ""
    loss_at_ms: Annotated[int, Wire(is_zero_null=True)] = 0
    measured_ms: int = 0
    why: Annotated[str, Wire(length_max=_REASON_CHARACTERS_MAX)] = ""

    def time_to_loss_s(self, now_ms: int) -> float | None:
        """None: unknown, or never."""
        return max(self.loss_at_ms - now_ms, 0) / 1000 if self.loss_at_ms else None

    def age_s(self, now_ms: int) -> float | None:
        """The age of the oldest record that it has not committed; None: unknown, or none."""
        return max(now_ms - self.oldest_ms, 0) / 1000 if self.oldest_ms else None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedTable:
    """One table. ``expected``: rows as the source estimates them. ``snapshot``: why it is not read in chunks.

    ``waits``: why it waits for another load.
    """

    name: str
    state: str  # waits, copies, copied
    rows: int = 0
    bytes: int = 0
    expected: Annotated[int | None, Wire(key="expected_rows")] = None
    rows_s: MaybeTenths = None
    eta_s: MaybeTenths = None
    snapshot: str = ""
    waits: Annotated[str, Wire(is_added_later=True)] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """The stage. ``source``: the member that is read. ``paused``: why no chunk begins now; "" if chunks do.

    ``rows`` and ``bytes`` are those of all tables, also of earlier runs; ``tables`` lists some of them.
    """

    source: str = ""
    rows: int = 0
    bytes: int = 0
    expected: Annotated[int | None, Wire(key="expected_rows")] = None
    rates: Annotated[Rates, Wire(key="rows_s")] = field(default_factory=Rates)
    eta_s: MaybeTenths = None
    done: Annotated[int, Wire(key="tables_done")] = 0  # tables
    count: Annotated[int, Wire(key="tables_count")] = 0
    paused: str = ""
    tables: tuple[LoadedTable, ...] = ()

    def at_rest(self) -> "Loaded":
        """The values that stay true when the task does not run."""
        return Loaded(
            source=self.source,
            rows=self.rows,
            bytes=self.bytes,
            expected=self.expected,
            done=self.done,
            count=self.count,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotStage:
    """How far a snapshot is. ``asked``: its patterns. ``left_out``: tables that it can't read, with the reason.

    ``why``: what it does now. ``tables`` and ``done`` are null until the tables are listed. ``chunks`` and ``rows`` are
    those of the table under way. ``eta_s`` is of the whole snapshot, by the source's estimates of rows: null while
    nothing is published, and with a condition.
    """

    id: str
    asked: Annotated[tuple[str, ...], Wire(is_added_later=True)] = ()
    table: str = ""
    tables: int | None = None
    done: int | None = None
    chunks: int = 0
    rows: int = 0
    where: str = ""
    why: str = ""
    left_out: Annotated[tuple[str, ...], Wire(length_max=LEFT_OUT_MAX)] = ()
    rates: Annotated[Rates, Wire(key="rows_s")] = field(default_factory=Rates)
    eta_s: MaybeTenths = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedCounts:
    """The counts of one comparison. ``unsettled``: rows that changed at each look. ``structure``: of definitions."""

    tables: int = 0
    rows: int = 0
    differences: int = 0
    unsettled: int = 0
    repaired: int = 0
    structure: Annotated[int, Wire(is_added_later=True)] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedResult:
    """A comparison that has ended. Times in Unix time. ``by_table``: those with the most differences."""

    began_ms: int
    ended_ms: int
    counts: Annotated[ComparedCounts, Wire(is_inline=True)]
    by_table: Annotated[tuple[tuple[str, int], ...], Wire(pair=("name", "differences"))] = ()

    @property
    def left(self) -> int:
        """The differences that were not repaired."""
        return self.counts.differences - self.counts.repaired

    @property
    def text(self) -> str:
        """One line, such as ``compared 2026-11-24 03:10: 12 tables, 9,000,000 rows, equal``. The time is UTC."""
        counts = self.counts
        at = datetime.fromtimestamp(self.ended_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M")
        verdict = "rows equal" if counts.structure else "equal"
        if counts.unsettled and not counts.differences:
            verdict = "no difference found"
        if counts.differences:
            verdict = f"{counted(counts.differences, 'difference')} ({_named(self.by_table)})"
        if counts.repaired:
            verdict += f", {counts.repaired:,} repaired"
        if counts.unsettled:
            verdict += f", {counted(counts.unsettled, 'row')} unsettled"
        if counts.structure:
            verdict += f", {counted(counts.structure, 'difference')} of structure"
        return f"compared {at}: {counted(counts.tables, 'table')}, {counted(counts.rows, 'row')}, {verdict}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """The stage. ``result``: None before the first end. ``running_rows``: of the one under way; None if none runs."""

    every_h: int
    repair: bool = False
    running_rows: Annotated[int | None, Wire(flag="running")] = None
    result: Annotated[ComparedResult | None, Wire(is_inline=True)] = None

    def at_rest(self) -> "Compared":
        """The values that stay true when the task does not run."""
        return replace(self, running_rows=None)


def _named(by_table: Sequence[tuple[str, int]]) -> str:
    named = [f"{name} {count:,}" for name, count in by_table[:_TABLES_NAMED]]
    return ", ".join([*named, *(["…"] if len(by_table) > _TABLES_NAMED else [])])
