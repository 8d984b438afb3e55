"""The streams of a worker by set: shared by the set's tasks, started by the first and closed by the last.

    with streams.attach("shop-capture", document, wanted=progress.gtid_set) as stream:
        reader = stream.reader()

A failed stream is not repaired while tasks use it. Each task gets the error at its next ``check``, detaches, and
attaches again. A new attach is refused with the same error until all tasks have detached. The same happens if a task
needs an earlier position: for its own progress, or for the XA PREPARE of an XA COMMIT that was logged now (MR-6511).
A damaged closed relay file is set aside first. It leaves a gap, so the next stream reads its part from a member again.

Guarantees: a set has one stream and one writer of its relay directory on this worker, however many tasks read it.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from millrace.errors import Fatal, Retryable
from millrace.log import get_logger
from millrace.producer.relay.evictions import mark_reported, report_eviction
from millrace.producer.relay.quarantine import set_aside_damaged
from millrace.producer.source.set_stream import OTHER_ROWS_CODES, Site, Upstream
from millrace.schemas.documents import Member, SetDocument
from millrace.schemas.gtid import GtidPosition, earliest

# MR-2011, a file is missing: the log must be opened again. MR-6508, other rows: another member must be tried.
_STREAM_ENDING_CODES = frozenset({"MR-2011", "MR-6508"})

log = get_logger("producer.source.set_streams")


class Upstreams:
    """The streams of this worker by set."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._lock = threading.Lock()
        # One lock per set, held while members are queried and while the receiver is joined. Other sets don't wait.
        self._locks: dict[str, threading.Lock] = {}
        self._streams: dict[str, Upstream] = {}
        self._tasks: dict[str, set[str]] = {}
        self._earlier_starts: dict[str, GtidPosition | None] = {}
        self._avoided: dict[str, set[Member]] = {}  # members with other rows of an open transaction
        self._retried_xa: dict[str, str] = {}  # by task: the XA COMMIT that caused a restart

    @property
    def root(self) -> Path:
        return self._site.root

    @contextmanager
    def attach(
        self, task: str, document: SetDocument, *, wanted: GtidPosition | None
    ) -> Iterator[Upstream]:
        """The set's stream from ``wanted`` on (None: from the first available file), until the block ends."""
        stream = self._attach(task, document, wanted)
        folder, disk = self._site.root / document.name, self._site.disk
        try:
            report_eviction(folder, task, disk)
            yield stream
        except Retryable as error:
            if stream.has_other_rows or error.code in OTHER_ROWS_CODES:
                with self._lock_of(document.name):
                    self._avoided.setdefault(document.name, set()).add(stream.choice.member)
            if error.code in _STREAM_ENDING_CODES:
                stream.fail(error)
            raise
        except Fatal as error:
            if error.code == "MR-2014":
                mark_reported(folder, task, disk)
            if (damage := set_aside_damaged(stream.relay, error)) is not None:
                message = (
                    f"{error.message}. It is set aside; {damage.lost} is read from a member again"
                )
                damaged = Retryable(error.code, message, **error.context)
                stream.fail(damaged)
                raise damaged from error
            if error.code != "MR-6511" or not self._may_restart_from_first(task, stream, error):
                raise
            again = Retryable(error.code, error.message, fix=error.fix, **error.context)
            with self._lock:
                self._earlier_starts[document.name] = None
            stream.fail(again)
            raise again from error
        finally:
            self._detach(task, document.name)

    def _may_restart_from_first(self, task: str, stream: Upstream, error: Fatal) -> bool:
        """Whether to look for a missing XA PREPARE in the source's whole binlog: once for each XA COMMIT."""
        missed = error.context.get("gtid", "")
        if stream.wanted is None or (stream.is_from_first and self._retried_xa.get(task) == missed):
            return False
        self._retried_xa[task] = missed
        return True

    def _attach(self, task: str, document: SetDocument, wanted: GtidPosition | None) -> Upstream:
        name = document.name
        with self._lock_of(name):
            stream = self._streams.get(name)
            if stream is None:
                known = [self._earlier_starts.pop(name)] if name in self._earlier_starts else []
                stream = Upstream(
                    document,
                    self._site,
                    wanted=earliest([*known, wanted]),
                    avoided=self._avoided.get(name, ()),
                )
                log.info("source chosen", set=name, member=str(stream.choice.member))
                self._streams[name], self._tasks[name] = stream, set()
            elif not stream.reaches(wanted):
                self._earlier_starts[name] = earliest([stream.wanted, wanted])
                stream.fail(
                    Retryable(
                        "MR-1034",
                        f"task {task} needs set {name} from an earlier position",
                        task=task,
                    )
                )
            try:
                stream.check()
            except BaseException:
                self._close_if_unused(name)  # the stream may have failed before any task used it
                raise
            self._tasks[name].add(task)
            return stream

    def _detach(self, task: str, name: str) -> None:
        with self._lock_of(name):
            self._tasks[name].discard(task)
            self._close_if_unused(name)

    def _close_if_unused(self, name: str) -> None:
        if not self._tasks[name]:
            stream = self._streams.pop(name)
            stream.close()
            if not stream.has_other_rows:
                self._avoided.pop(name, None)

    def _lock_of(self, name: str) -> threading.Lock:
        with self._lock:
            return self._locks.setdefault(name, threading.Lock())
