"""Writes the tasks' reports to ZooKeeper, and reads them.

``status/<task>`` holds the fields of ``schemas/status.py`` and

    revision   the mzxid of the task node that the report is about. A task blocked under a revision stays blocked, on
               any worker, until an operator makes a new revision.
    work       the kind, set and topic that the progress belongs to. A new task of the same name, or one that now has
               another topic or set, has not made this progress.
    brokers    where the progress was made. While the task has other brokers and no runner has read them, status does
               not show the progress. It is kept: the same topic, with its tail lost, may be at the new address.

Guarantees: the latest report wins. A task's report is written at most once every ``report_s``; an unchanged one is
repeated every ``REPEAT_S``, so that an old report reveals a hung worker, and its ``silent_s`` a hung task. A report
never replaces one of a greater epoch. While the ensemble is away, reports wait and runners do not. A report under a
lease is dropped with its session: written later, to an ensemble that was rebuilt meanwhile, its epoch would hide all
new reports.
"""

import json
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

from millrace.errors import Fatal, MillraceError, Retryable
from millrace.log import get_logger
from schemas.documents import RelayTask, Work, address_of, set_of
from schemas.status import TaskReport, report_from_json, report_to_plain
from zk.client.session import Node, Session
from zk.tree.paths import Tree

REPEAT_S = 5.0

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
        if not self.brokers or here.is_same_topic(replace(here, bootstrap=self.brokers)):
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
        )


def work_of(document: Work) -> str:
    """The work that progress belongs to: kind, set and topic, but not the brokers' addresses."""
    if isinstance(document, RelayTask):
        return f"relay {document.set_name}"
    return f"{document.kind.value} {set_of(document)} {address_of(document).topic}"


@dataclass(slots=True)
class _Offer:
    report: TaskReport
    revision: int
    work: str = ""
    brokers: str = ""
    incarnation: int | None = None
    offered_at_s: float = 0.0
    written: TaskReport | None = None
    written_at_s: float = float("-inf")


class StatusWriter:
    """The reports of one worker's tasks."""

    def __init__(self, session: Session, tree: Tree, *, report_s: float) -> None:
        self._session = session
        self._tree = tree
        self._report_s = report_s
        self._offers: dict[str, _Offer] = {}
        self._lock = threading.Lock()  # around the offers
        self._writing = threading.Lock()  # one writer at a time: an older report can't overtake

    def offer(
        self,
        task: str,
        report: TaskReport,
        *,
        revision: int,
        work: str = "",
        brokers: str = "",
        incarnation: int | None = None,
    ) -> None:
        """Make this the task's report; returns at once. A report without a lease (epoch 0) is never written.

        ``work``: see ``work_of``. ``brokers``: where its progress was made. ``incarnation``: the session in which the
        report is valid; ``None`` if it stays valid after the session.
        """
        with self._lock:
            known = self._offers.setdefault(task, _Offer(report, revision))
            known.report, known.revision, known.incarnation = report, revision, incarnation
            known.work, known.brokers = work, brokers
            known.offered_at_s = time.monotonic()

    def latest(self, task: str) -> TaskReport | None:
        """The last offered report."""
        with self._lock:
            offer = self._offers.get(task)
            return offer.report if offer else None

    def forget(self, task: str) -> None:
        """Write no more reports of this task, which this worker no longer runs."""
        with self._lock:
            self._offers.pop(task, None)

    def flush(self, task: str) -> bool:
        """Write the task's report now. False when the ensemble is away; ``run`` then tries again."""
        with self._lock:
            offer = self._offers.get(task)
        return offer is None or self._write(task, offer, is_due=True)

    def run(self, stop: threading.Event) -> None:
        """Write the reports that are due, until ``stop`` is set."""
        while not stop.wait(self._report_s):
            with self._lock:
                offers = list(self._offers.items())
            for task, offer in offers:
                self._write(task, offer, is_due=False)

    def _write(self, task: str, offer: _Offer, *, is_due: bool) -> bool:
        with self._writing:
            report, now_s = offer.report, time.monotonic()
            content = _content(offer, now_s=now_s)
            age_s = now_s - offer.written_at_s
            if report.epoch == 0 or offer.incarnation not in (None, self._session.incarnation):
                return True
            if not is_due and (
                age_s < self._report_s or (report == offer.written and age_s < REPEAT_S)
            ):
                return True
            try:
                self._put(task, report, content)
            except Retryable as error:
                log.debug("a report waits", task=task, error=error)
                return False
            except MillraceError as error:
                log.warning("a report can't be written", task=task, error=error)
            offer.written, offer.written_at_s = report, now_s
            return True

    def _put(self, task: str, report: TaskReport, content: bytes) -> None:
        path = self._tree.status(task)
        node = self._session.get(path)
        if node is None:
            self._session.create(path, content)
            return
        try:
            saved = report_from_json(node.content, origin=path)
        except Fatal:
            saved = None  # can't be read, so it is overwritten
        if saved is None or saved.epoch <= report.epoch:
            self._session.put(path, content, version=node.version)


def read_status(session: Session, tree: Tree, task: str) -> SavedReport | None:
    """The task's report in the tree; ``None`` when it is missing or can't be read."""
    node = session.get(tree.status(task))
    return saved_report_of(node, task) if node else None


def saved_report_of(node: Node, task: str) -> SavedReport | None:
    """The report in a status node; ``None`` when it can't be read."""
    try:
        report = report_from_json(node.content, origin=f"status/{task}")
        plain = json.loads(node.content)
        revision = _revision(plain)
    except (Fatal, ValueError):
        return None
    work, brokers = str(plain.get("work", "")), str(plain.get("brokers", ""))
    return SavedReport(report, revision, node.modified_ms, work, brokers)


def _content(offer: _Offer, *, now_s: float) -> bytes:
    about = {"revision": offer.revision, "work": offer.work, "brokers": offer.brokers}
    report = replace(offer.report, silent_s=max(0.0, now_s - offer.offered_at_s))
    plain = {**report_to_plain(report), **about}
    return json.dumps(plain, separators=(",", ":"), ensure_ascii=False).encode()


def _revision(plain: Mapping[str, object]) -> int:
    revision = plain.get("revision")
    if not isinstance(revision, int):
        raise ValueError("no revision")
    return revision
