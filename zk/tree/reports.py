"""Writes the tasks' reports to ZooKeeper, and reads them.

``status/<task>`` holds the fields of ``schemas/status.py`` and

    revision   the mzxid of the task node that the report is about. A task blocked under a revision stays blocked, on
               any worker, until an operator makes a new revision.
    work       the kind, set and topic that the progress belongs to. A new task of the same name, or one that now has
               another topic or set, has not made this progress.
    brokers    where the progress was made. While the task has other brokers and no runner has read them, status does
               not show the progress. It is kept: the same topic, with its tail lost, may be at the new address.

A report above ``NODE_BYTES_MAX`` is written compressed: a GTID set can have any number of intervals, and ZooKeeper ends
the session that sends a larger request. One that is too large even so is written without its largest fields, and a
warning names them. Without the GTID set it has no progress: a reader does without it, as before a task's first report.

Guarantees: the latest report wins. A change of the state, its code, the owner or the work is written at once, at most
every ``report_s``. Progress and stages are written every ``progress_s``. Progress that comes to rest is written
earlier, at most every ``REST_S``: `millrace task wait` waits for it. An unchanged report is repeated, so that an old
report reveals a hung worker, and its ``silent_s`` a hung task. A report is one request, because it is written with the
version of the last one. It never replaces one of a greater epoch. While the ensemble is away, reports wait and runners
do not. A report under a lease is dropped with its session: written later, to an ensemble that was rebuilt meanwhile,
its epoch would hide all new reports.
"""

import json
import threading
import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from millrace.errors import Fatal, MillraceError, Retryable
from millrace.log import get_logger
from millrace.machine_code import is_compiling
from millrace.schemas.documents import Brokers, RelayTask, Work, address_of, set_of
from millrace.schemas.stall import with_compiler
from millrace.schemas.status import STAGES, TaskReport, TaskState, report_from_json, report_to_plain
from millrace.zk.client.session import REQUEST_BYTES_MAX, Node, Session
from millrace.zk.tree.entries import NODE_BYTES_MAX
from millrace.zk.tree.paths import Tree

PROGRESS_S = 5.0
REST_S = 1.0  # between two reports that the progress has come to rest
REPEAT_S = 5.0  # an unchanged report
_COMPRESSED = b"\x78"  # the first byte of zlib; JSON begins with {
_REPORT_BYTES_MAX = 32 << 20
_PACKED_BYTES_MAX = REQUEST_BYTES_MAX - 10_000  # room for the path
# what can grow with the data, and a report without it
_LARGE: Mapping[str, Mapping[str, object]] = {
    "gtid_set": {"gtid_set": "", "seq": 0, "topic": "", "topic_end": 0},
    "warnings": {"warnings": []},
    "subscribers": {"subscribers": []},
    **{name: {name: None} for name in STAGES},
}

log = get_logger("zk.tree.reports")


@dataclass(frozen=True, slots=True)
class SavedReport:
    """A report in the tree."""

    report: TaskReport
    revision: int
    modified_ms: int
    work: str = ""  # empty, like brokers, when an older Millrace wrote the report
    brokers: str = ""

    def is_of(self, document: Work, *, created: int) -> bool:
        """Whether its progress belongs to this document of the task ``created`` (the node's czxid)."""
        return self.revision >= created and self.work in ("", work_of(document))

    def report_for(self, document: Work) -> TaskReport:
        """The report. Without its progress, if that was made at brokers that share no address with the document's."""
        if isinstance(document, RelayTask):
            return self.report
        here = address_of(document)
        if not self.brokers or here.is_same_topic(replace(here, brokers=Brokers(self.brokers))):
            return self.report
        return replace(
            self.report,
            gtid_set="",
            seq=0,
            topic="",
            topic_end=0,
            captured=None,
            relayed=None,
            published=None,
            applied=None,
            delivered=None,
        )


def work_of(document: Work) -> str:
    """The work that progress belongs to: kind, set and topic, but not the brokers' addresses."""
    if isinstance(document, RelayTask):
        return f"relay {document.set_name}"
    return f"{document.kind.value} {set_of(document)} {address_of(document).topic}"


@dataclass(frozen=True, slots=True)
class Offered:
    """A report and what it is about. ``incarnation``: the session in which it is valid; None: also after it."""

    report: TaskReport
    revision: int
    work: str = ""
    brokers: str = ""
    incarnation: int | None = None

    @property
    def head(self) -> tuple[object, ...]:
        """A change of this is written at once."""
        report = self.report
        state = (report.state, report.code, report.worker, report.epoch)
        is_running = report.state is TaskState.RUNNING
        return (*state, "" if is_running else report.why, self.revision, self.work, self.brokers)

    @property
    def progress(self) -> tuple[object, ...]:
        """It has come to rest when this stays the same."""
        return (self.report.gtid_set, self.report.seq, self.report.why)


@dataclass(slots=True)
class _Task:
    """The latest report of a task, and the last one written."""

    offered: Offered
    moved_at_s: float
    offered_at_s: float = 0.0
    written: Offered | None = None
    version: int | None = None  # of the node, while no other process has written it
    written_at_s: float = float("-inf")
    early_at_s: float = float("-inf")

    def silent_s(self, now_s: float) -> float:
        return max(0.0, now_s - self.offered_at_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ages:
    """Seconds since the last write, the last early write, and the last change of the progress."""

    written_s: float
    early_s: float
    moved_s: float


def is_due(
    now: Offered, written: Offered | None, ages: Ages, *, every: tuple[float, float]
) -> bool:
    """Whether to write ``now`` over ``written``; ``every``: ``report_s`` and ``progress_s``."""
    report_s, progress_s = every
    if written is None or ages.written_s >= REPEAT_S:
        return True
    if now != written and ages.written_s >= progress_s:
        return True
    if ages.written_s < report_s:
        return False
    is_at_rest = now.progress != written.progress and ages.moved_s >= report_s
    return now.head != written.head or (is_at_rest and ages.early_s >= min(REST_S, progress_s))


class StatusWriter:
    """The reports of one worker's tasks."""

    def __init__(
        self, session: Session, tree: Tree, *, report_s: float, progress_s: float = PROGRESS_S
    ) -> None:
        self._session = session
        self._tree = tree
        self._report_s = report_s
        self._round_at_s = time.monotonic()
        self._progress_s = progress_s
        self._tasks: dict[str, _Task] = {}
        self._lock = threading.Lock()  # around the tasks
        self._writing = threading.Lock()  # one writer at a time: an older report can't overtake

    def offer(self, task: str, offered: Offered) -> None:
        """Make this the task's report; returns at once. A report without a lease (epoch 0) is never written."""
        now_s = time.monotonic()
        with self._lock:
            known = self._tasks.setdefault(task, _Task(offered, now_s))
            if offered.progress != known.offered.progress:
                known.moved_at_s = now_s
            known.offered, known.offered_at_s = offered, now_s

    def silent_s(self, task: str) -> float:
        """How long ago the task's last report was offered; 0 if none was."""
        with self._lock:
            known = self._tasks.get(task)
        return known.silent_s(time.monotonic()) if known else 0.0

    @property
    def round_age_s(self) -> float:
        """How long ago `run` began to write the reports that were due then."""
        return time.monotonic() - self._round_at_s

    def forget(self, task: str) -> None:
        """Write no more reports of this task, which this worker no longer runs."""
        with self._lock:
            self._tasks.pop(task, None)

    def flush(self, task: str) -> bool:
        """Write the task's report now. False when the ensemble is away; ``run`` then tries again."""
        with self._lock:
            known = self._tasks.get(task)
        return known is None or self._write(task, known, is_forced=True)

    def run(self, stop: threading.Event) -> None:
        """Write the reports that are due, until ``stop`` is set."""
        while not stop.wait(self._report_s):
            self._round_at_s = time.monotonic()
            with self._lock:
                tasks = list(self._tasks.items())
            for name, known in tasks:
                self._write(name, known, is_forced=False)

    def _write(self, task: str, known: _Task, *, is_forced: bool) -> bool:
        with self._writing:
            now_s = time.monotonic()
            silent_s = known.silent_s(now_s)
            report = replace(known.offered.report, silent_s=silent_s)
            if is_compiling():
                report = with_compiler(report)
            # how long it is silent is no change
            offered = replace(known.offered, report=replace(report, silent_s=0.0))
            if offered.report.epoch == 0:
                return True
            if offered.incarnation not in (None, self._session.incarnation):
                return True
            ages = Ages(
                written_s=now_s - known.written_at_s,
                early_s=now_s - known.early_at_s,
                moved_s=now_s - known.moved_at_s,
            )
            every = (self._report_s, self._progress_s)
            if not is_forced and not is_due(offered, known.written, ages, every=every):
                return True
            path, epoch = self._tree.status(task), offered.report.epoch
            content = _content(offered, silent_s=silent_s)
            try:
                known.version = self._put(path, content, epoch=epoch, version=known.version)
            except Retryable as error:
                log.debug("a report waits", task=task, error=error)
                return False
            except MillraceError as error:
                log.warning("a report can't be written", task=task, error=error)
            is_early = known.written is not None and offered.head == known.written.head
            if is_early and ages.written_s < self._progress_s:
                known.early_at_s = now_s
            known.written, known.written_at_s = offered, now_s
            return True

    def _put(self, path: str, content: bytes, *, epoch: int, version: int | None) -> int | None:
        """The node's new version; None if a report of a greater epoch is there."""
        if version is not None:
            try:
                return self._session.put(path, content, version=version).version
            except Retryable as error:
                if error.code != "MR-4007":  # another process wrote or deleted it: read it
                    raise
        node = self._session.get(path)
        if node is None:
            made = self._session.create(path, content)
            return made.version if made is not None else None
        try:
            saved = report_from_json(_json_of(node.content), origin=path)
        except Fatal:
            saved = None  # can't be read, so it is overwritten
        if saved is not None and saved.epoch > epoch:
            return None
        return self._session.put(path, content, version=node.version).version


def read_status(session: Session, tree: Tree, task: str) -> SavedReport | None:
    """The task's report in the tree; ``None`` when it is missing or can't be read."""
    node = session.get(tree.status(task))
    return saved_report_of(node, task) if node else None


def saved_report_of(node: Node, task: str) -> SavedReport | None:
    """The report in a status node; ``None`` when it can't be read."""
    try:
        content = _json_of(node.content)
        report = report_from_json(content, origin=f"status/{task}")
        plain = json.loads(content)
        revision = _revision(plain)
    except (Fatal, ValueError):
        return None
    work, brokers = str(plain.get("work", "")), str(plain.get("brokers", ""))
    return SavedReport(report, revision, node.modified_ms, work, brokers)


def _content(offered: Offered, *, silent_s: float) -> bytes:
    about = {"revision": offered.revision, "work": offered.work, "brokers": offered.brokers}
    plain = {**report_to_plain(replace(offered.report, silent_s=silent_s)), **about}
    content, left_out = _packed(plain), list[str]()
    while len(content) > _PACKED_BYTES_MAX and len(left_out) < len(_LARGE):
        largest = max(_LARGE, key=lambda name: len(_json(plain[name])))
        left_out.append(largest)
        plain |= _LARGE[largest]
        kept = () if "warnings" in left_out else offered.report.warnings
        content = _packed(plain | {"warnings": [_note(left_out), *kept]})
    return content


def _packed(plain: Mapping[str, object]) -> bytes:
    """The content of a node; longer than ``_PACKED_BYTES_MAX`` if a node can't have it, or no reader takes it."""
    content = _json(plain)
    if len(content) <= NODE_BYTES_MAX or len(content) > _REPORT_BYTES_MAX:
        return content
    return zlib.compress(content)


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def _note(left_out: Sequence[str]) -> str:
    return (
        f"This report is too large for ZooKeeper (MR-4145), so it is without {', '.join(left_out)}."
    )


def _json_of(content: bytes) -> bytes:
    """The JSON of a node; unchanged if it is not compressed, or damaged."""
    if content[:1] != _COMPRESSED:
        return content
    inflater = zlib.decompressobj()
    try:
        plain = inflater.decompress(content, _REPORT_BYTES_MAX)
    except zlib.error:
        return content
    return plain if inflater.eof else content


def _revision(plain: Mapping[str, object]) -> int:
    revision = plain.get("revision")
    if not isinstance(revision, int):
        raise ValueError("no revision")
    return revision
