"""The first load of a task, before its stream starts: copies the tables that exist on the source.

    1  choose   a member of the source set (``consumer.load.source``)
    2  plan     read the GTID set ``begin``; create missing tables; store range and tables (``consumer.load.plan``)
    3  copy     ``consumer.load.copies``; paused while a limit is passed (``consumer.load.throttle``)
    4  end      read the GTID set ``end``. The caller stores it together with the first mark, whose start is ``begin``

A run that finds a stored range continues with 3, perhaps on another member: one that has all of ``begin``.
"""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from millrace.consumer.load.copies import Copier, Job
from millrace.consumer.load.copy_order import Sites
from millrace.consumer.load.plan import Ends, plan_first
from millrace.consumer.load.progress import Progress
from millrace.consumer.load.remaining import groups_left, let_changed_wait
from millrace.consumer.load.source import SourceMember, check_still_not_drained, choose_source
from millrace.consumer.load.tables import Admission
from millrace.consumer.load.throttle import Gauges
from millrace.consumer.target import loads
from millrace.consumer.target.loads import LoadStream
from millrace.consumer.target.progress import Owner
from millrace.drivers.mysql.catalog import TableKey
from millrace.drivers.mysql.connection import Endpoint, connect
from millrace.drivers.mysql.snapshot_position import read_begin, read_end
from millrace.errors import Fatal, Retryable
from millrace.log import get_logger
from millrace.schemas.documents import ApplyTask, CaptureTask, Directives, SetDocument
from millrace.schemas.gtid import GtidPosition, parse_gtid_set
from millrace.schemas.stages import Loaded
from millrace.schemas.throttle import MEASURE_S, SILENT, why_paused

LOOK_S = 0.2  # delay until a stop is noticed
SILENT_S = 30.0  # until another member is chosen, if the one that is read does not replicate

_log = get_logger("apply.load")


@dataclass(frozen=True, slots=True)
class RowSource:
    """Where the rows come from. ``needed``: what the topic no longer holds, or never did; the member must have it.

    ``wishes``: those of an operator about the members, as they are now. Retryable while they are unknown.
    """

    document: SetDocument
    capture: CaptureTask
    wishes: Callable[[], Directives]
    needed: GtidPosition | None = None

    def choose(
        self, *, needed: GtidPosition | None = None, from_primary: bool = False
    ) -> SourceMember:
        """See ``consumer.load.source``."""
        wishes = self.wishes()
        return choose_source(self.document, wishes, needed=needed, from_primary=from_primary)


@dataclass(frozen=True, slots=True)
class Destination:
    """Where the rows go: the target, and who writes there."""

    endpoint: Endpoint
    owner: Owner


@dataclass(slots=True)
class Load:
    """The copies of one run. ``report`` gets the stage of the batch about once a second."""

    task: ApplyTask
    origin: RowSource
    destination: Destination
    copier: Copier
    report: Callable[[Loaded], None]
    batch: int = loads.FIRST
    _progress: Progress = field(default_factory=Progress, init=False)

    @property
    def admission(self) -> Admission:
        """The filters of both tasks."""
        return Admission.of(self.origin.document, self.origin.capture, self.task)

    def choose(self, stream: LoadStream | None) -> SourceMember:
        """The member to read; with a range, one that has all of its begin."""
        needed = self.origin.needed
        if stream is not None:
            needed = parse_gtid_set(stream.flavour, stream.begin)
        from_primary = self.task.rules.load.from_primary
        member = self.origin.choose(needed=needed, from_primary=from_primary)
        _log.info("a load reads", task=self.task.name, member=member.name, lag_s=member.lag_s)
        return member

    def copied(
        self, member: SourceMember, ends: Ends, stream: LoadStream, stop: threading.Event
    ) -> LoadStream | None:
        """Copy what is left of the batch: the range with its end. None if ``stop`` was set before."""
        rules = self.task.rules.load
        groups = groups_left(ends, self.admission, rules, self.batch)
        sites = Sites(ends.owner, member.endpoint, self.destination.endpoint)
        job = Job(
            self.copier,
            sites,
            groups,
            begin=stream.begin,
            parallel=rules.parallel,
            waits=lambda keys: self._wait_now(sites, keys),
        )
        if not self._copy(job, member, ends, stop):
            return None
        read = ends.stored().values()
        of_tables = [table.reach.end for table in read if table.batch == self.batch]
        end = loads.united([*of_tables, str(read_end(ends.source))], stream.flavour)
        return replace(stream, end=end)

    def _copy(self, job: Job, member: SourceMember, ends: Ends, stop: threading.Event) -> bool:
        """Run the job; False if it was stopped."""
        gauges, paused = Gauges(member.endpoint, self.destination.endpoint), ""
        next_s = since_s = 0.0
        job.start()
        try:
            while not stop.wait(LOOK_S) and not job.is_over:
                if time.monotonic() < next_s:
                    continue
                before, paused = paused, self._throttle(job, gauges, paused)
                self._look(member, ends, paused)
                check_still_not_drained(member.endpoint, self.origin.wishes)
                now_s = time.monotonic()
                since_s = since_s if paused == before else now_s
                if paused == SILENT and now_s - since_s > SILENT_S:
                    raise Retryable("MR-5090", f"{member.name}: {paused}")
                next_s = now_s + MEASURE_S
        finally:
            gauges.close()
            job.end()
        self._look(member, ends, "")
        return job.is_complete

    def _wait_now(self, sites: Sites, keys: Sequence[TableKey]) -> bool:
        """After an error of a copy: whether one of these tables waits for another load now. Called by any thread."""
        with connect(sites.source) as source, connect(sites.target) as target:
            waiting = let_changed_wait(
                Ends(source, target, sites.owner), self.admission, self.batch
            )
        names = [".".join(key) for key in sorted(waiting.intersection(keys))]
        if names:
            _log.warning("tables wait for another load", task=self.task.name, tables=names)
        return bool(names)

    def _throttle(self, job: Job, gauges: Gauges, before: str) -> str:
        """Pause or resume the job; the reason of a pause, "" without one. A gauge that fails changes nothing."""
        try:
            measured = gauges.measure()
        except Retryable:  # a copy will find out
            return before
        why = why_paused(measured, self.task.rules.load, busy="target")
        if why:
            job.pause()
        else:
            job.resume()
        if why and not before:
            _log.warning("the load pauses", task=self.task.name, why=why)
        return why

    def _look(self, member: SourceMember, ends: Ends, paused: str) -> None:
        of_batch = [table for table in ends.stored().values() if table.batch == self.batch]
        shown = self._progress.saw(of_batch, at_s=time.monotonic())
        self.report(replace(shown, source=member.name, paused=paused))


def first_load(load: Load, stop: threading.Event) -> LoadStream | None:
    """Load all tables of a task: the range. None if ``stop`` was set before the end."""
    with connect(load.destination.endpoint) as target:
        stream = loads.read_stream(target, load.destination.owner.task)
        target.rollback()
        member = load.choose(stream)

        def alive() -> None:
            load.report(Loaded(source=member.name))

        alive()
        with connect(member.endpoint) as source:
            ends = Ends(source, target, load.destination.owner, alive)
            if stream is None:
                begin = read_begin(source)  # before anything else is read
                stream = LoadStream(str(begin), "", begin.flavour)
                _plan(ends, load.admission, stream)
            return load.copied(member, ends, stream, stop)


def _plan(ends: Ends, admission: Admission, stream: LoadStream) -> None:
    """Plan and store the load. Retryable MR-5111 if the source has dropped a table meanwhile."""
    try:
        plan_first(ends, admission, stream)
    except Fatal as exc:
        if exc.code != "MR-5012":
            raise
        raise Retryable("MR-5111", f"{exc.code} {exc.message}", **dict(exc.context)) from exc
