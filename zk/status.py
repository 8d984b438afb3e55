"""Reports on their way to ZooKeeper, and back.

Layout of ``status/<task>``: the fields of ``schemas/status.py``; ``revision``, the task node's mzxid that the report
is about: a task that was blocked under a revision stays blocked until an operator makes a new one, whichever worker it
goes to; ``work``, whose progress it tells: a task of the same name that was created anew, or has another topic or
set by now, has made none of it; and ``brokers``, where that was: elsewhere it is shown to nobody, as long as nobody has
looked there, but kept, since a topic that lost its tail is the same at another address.

Guarantees: the latest report wins and at most one is written every ``report_s`` for a task; an unchanged one is
repeated every ``REPEAT_S`` (its age tells a hung worker); a report never replaces one of a greater epoch. While the
ensemble is away reports wait; runners never do. A report under a lease goes with its session: written later, into an
ensemble that was rebuilt meanwhile, its epoch would hide every report to come.
"""

import json
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

from millrace.errors import Fatal, MillraceError, Retryable
from millrace.log import get_logger
from schemas.documents import TaskDocument, address_of, set_of
from schemas.status import TaskReport, report_from_json, report_to_plain
from zk.session import Node, Session
from zk.tree import Tree

REPEAT_S = 5.0

log = get_logger("zk.status")


@dataclass(frozen=True, slots=True)
class Standing:
    """A report as it stands in the tree."""

    report: TaskReport
    revision: int
    modified_ms: int
    work: str = ""  # empty: written before reports told it; so are the brokers
    brokers: str = ""

    def is_of(self, document: TaskDocument, *, created: int) -> bool:
        """Whether its progress is that of the task that was ``created`` (the node's czxid) and reads so now."""
        return self.revision >= created and self.work in ("", work_of(document))

    def told_of(self, document: TaskDocument) -> TaskReport:
        """The report; without its progress where that was made at brokers that have no address in common with these."""
        here = address_of(document)
        if not self.brokers or here.is_same_topic(replace(here, bootstrap=self.brokers)):
            return self.report
        return replace(self.report, gtid_set="", seq=0, topic="", topic_end=0, figures={})


def work_of(document: TaskDocument) -> str:
    """What progress is of, wherever its brokers are."""
    return f"{document.kind.value} {set_of(document)} {address_of(document).topic}"


@dataclass(slots=True)
class _Offer:
    report: TaskReport
    revision: int
    work: str = ""
    brokers: str = ""
    incarnation: int | None = None
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
        self._writing = (
            threading.Lock()
        )  # one writer at a time, so that an older report can't overtake

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
        """Make this the task's report; returns at once. Reports without a lease (epoch 0) are not for the tree.

        ``work``: see ``work_of``; ``brokers``: where its progress was made. ``incarnation``: of the session it is true
        in; ``None`` for one that outlives sessions.
        """
        with self._lock:
            known = self._offers.setdefault(task, _Offer(report, revision))
            known.report, known.revision, known.incarnation = report, revision, incarnation
            known.work, known.brokers = work, brokers

    def latest(self, task: str) -> TaskReport | None:
        """The report offered last."""
        with self._lock:
            offer = self._offers.get(task)
            return offer.report if offer else None

    def forget(self, task: str) -> None:
        """The task is somebody else's now: write nothing more of it."""
        with self._lock:
            self._offers.pop(task, None)

    def flush(self, task: str) -> bool:
        """Write the task's report now; False when the ensemble is away (it is tried again later)."""
        with self._lock:
            offer = self._offers.get(task)
        return offer is None or self._write(task, offer, is_due=True)

    def run(self, stop: threading.Event) -> None:
        """Write what is due, until ``stop``."""
        while not stop.wait(self._report_s):
            with self._lock:
                offers = list(self._offers.items())
            for task, offer in offers:
                self._write(task, offer, is_due=False)

    def _write(self, task: str, offer: _Offer, *, is_due: bool) -> bool:
        with self._writing:
            report, now_s = offer.report, time.monotonic()
            content = _content(offer)
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
            standing = report_from_json(node.content, origin=path)
        except Fatal:
            standing = None  # not ours to keep: written over
        if standing is None or standing.epoch <= report.epoch:
            self._session.put(path, content, version=node.version)


def read_status(session: Session, tree: Tree, task: str) -> Standing | None:
    """The task's report in the tree; ``None`` when there is none that can be read."""
    node = session.get(tree.status(task))
    return standing_of(node, task) if node else None


def standing_of(node: Node, task: str) -> Standing | None:
    """The report in a status node; ``None`` when it can't be read."""
    try:
        report = report_from_json(node.content, origin=f"status/{task}")
        plain = json.loads(node.content)
        revision = _revision(plain)
    except (Fatal, ValueError):
        return None
    work, brokers = str(plain.get("work", "")), str(plain.get("brokers", ""))
    return Standing(report, revision, node.modified_ms, work, brokers)


def _content(offer: _Offer) -> bytes:
    about = {"revision": offer.revision, "work": offer.work, "brokers": offer.brokers}
    plain = {**report_to_plain(offer.report), **about}
    return json.dumps(plain, separators=(",", ":"), ensure_ascii=False).encode()


def _revision(plain: Mapping[str, object]) -> int:
    revision = plain.get("revision")
    if not isinstance(revision, int):
        raise ValueError("no revision")
    return revision
