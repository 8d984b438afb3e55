"""The stream of a source set on this worker: its relay log and receiver, shared by the set's capture tasks.

    with streams.attach("shop-capture", document, wanted=progress.gtid_set) as stream:
        reader = stream.reader()

The first task that attaches chooses the member, opens the relay log and starts the receiver's thread. The last task
that detaches joins the thread and closes the log.

A failed stream is not repaired while tasks use it. Each task gets the error at its next ``check``, detaches, and
attaches again. A new attach is refused with the same error until all tasks have detached. The same happens if a task
needs an earlier position: for its own progress, or for the XA PREPARE of an XA COMMIT that was logged now (MR-6511).

Guarantees: a set has one connection and one writer of the relay directory, however many tasks read it; the receiver
requests everything that any attached task still needs. Not done here: publishing, choosing another member while the
stream runs.
"""

import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from millrace.errors import Fatal, Retryable
from millrace.log import get_logger
from producer.relay.compress import Compressor
from producer.relay.control import answer_purge_request
from producer.relay.evictions import mark_reported, report_eviction
from producer.relay.files import DISK, Files
from producer.relay.purge import Positions, PurgeSchedule
from producer.relay.reader import RelayReader
from producer.relay.writer import RelayLog
from producer.upstream.choice import Choice, choose
from producer.upstream.connection import Login
from producer.upstream.dump import ReplicaIdentity
from producer.upstream.members import ask_members
from producer.upstream.receiver import Receiver, ReceiverSource, ReceiverStatus
from schemas.documents import Compression, Member, SetDocument, resolve_secret
from schemas.gtid import GtidPosition
from schemas.place import FIRST_POS, Coordinates

REQUEST_INTERVAL_S = 0.5  # how often to check for a purge request

# MR-2011, a file is missing: the log must be opened again. MR-6508, other rows: another member must be tried.
_STREAM_ENDING_CODES = frozenset({"MR-2011", "MR-6508"})

log = get_logger("producer.upstream.upstream")


def resolve_login(document: SetDocument) -> Login:
    """The login for the set's members; reads the secret now. Fatal MR-4106."""
    password = resolve_secret(document.account.password)
    return Login(user=document.account.user, password=password, tls=document.tls)


class Upstream:
    """A running stream, created by ``Upstreams``."""

    def __init__(
        self,
        document: SetDocument,
        root: Path,
        *,
        wanted: GtidPosition | None,
        avoided: Collection[Member] = (),
        installation: str = "",
        disk: Files = DISK,
    ) -> None:
        login = resolve_login(document)
        self.choice: Choice = choose(
            ask_members(document.members, login, wanted=wanted), wanted=wanted, avoided=avoided
        )
        self.wanted = wanted
        self.is_from_first = wanted is None  # `wanted` itself advances with each purge
        self._is_single_member = bool(avoided)
        identity = ReplicaIdentity.for_set(document.name, installation=installation)
        source = ReceiverSource(member=self.choice.member, login=login, replica=identity)
        self._stop = threading.Event()
        self._failure: BaseException | None = None
        self._purge_lock = threading.Lock()
        self._next_check_s = 0.0
        self._schedule = PurgeSchedule(document.relay.purge)
        self._thread = threading.Thread(target=self._receive, name=f"receiver {document.name}")
        with ExitStack() as undo:
            self._relay = RelayLog.open(root, flavour=self.choice.flavour, disk=disk)
            undo.callback(self._relay.close)
            self._receiver = Receiver(
                source, self._relay, wanted=wanted, is_single_member=self._is_single_member
            )
            self._thread.start()
            is_compressed = document.relay.compress is Compression.ZSTD
            self._compressor = Compressor(self._relay) if is_compressed else None
            undo.pop_all()

    @property
    def relay(self) -> RelayLog:
        """The set's relay log."""
        return self._relay

    def reader(self, task: str = "") -> RelayReader:
        """A reader of the relay log; close it before detaching. It holds all files until it has found its start."""
        reader = RelayReader(self._relay, owner=task)
        if files := self._relay.list_files():
            subdir, name = files[0]
            reader.release(Coordinates(str(subdir), name, FIRST_POS))
        return reader

    def first(self, reader: RelayReader) -> Coordinates | None:
        """The first available file, once ``is_verified``; None until the head of the newest file has arrived."""
        end = self._relay.end()
        if end is None or self._relay.position_before(end) is None:
            return None
        return reader.first()

    def status(self) -> ReceiverStatus:
        """The receiver's figures."""
        return self._receiver.status()

    @property
    def is_verified(self) -> bool:
        """Whether the end of the relay log was compared with the server. It may hold lost transactions until then."""
        return self._receiver.verified.is_set()

    def may_start_at(self, at: Coordinates) -> bool:
        """Whether a task may start at ``at``. After a change of member, only this member's files are allowed."""
        end = self._relay.end()
        return not self._is_single_member or (end is not None and end.subdir == at.subdir)

    def reaches(self, wanted: GtidPosition | None) -> bool:
        """Whether a task that starts at ``wanted`` can read from this stream, now or after it is received."""
        if self.wanted is None or (wanted is not None and wanted.includes(self.wanted)):
            return True
        with self.reader() as reader:
            return wanted is not None and reader.seek(wanted) is not None

    def check(self) -> None:
        """Raise the error that ended the receiver, if any."""
        if self._failure is not None:
            raise self._failure

    def purge_if_due(self, needed: Callable[[], Positions | None]) -> None:
        """Delete relay files that are due or requested, at most twice a second; the tasks' loops call it.

        ``needed`` returns the positions of the set's tasks, running or not. It returns None while they are unknown, and
        then no file is deleted.
        """
        now_s = time.monotonic()
        if now_s < self._next_check_s or not self._purge_lock.acquire(blocking=False):
            return
        try:
            self._next_check_s = now_s + REQUEST_INTERVAL_S
            deleted = answer_purge_request(self._relay, needed=needed)
            deleted += self._schedule.run(self._relay, needed)
            if deleted:
                self._skip_purged()
        finally:
            self._purge_lock.release()

    def _skip_purged(self) -> None:
        """Advance ``wanted`` past the purged files, so that a reconnect does not fetch them again."""
        subdir, name = self._relay.list_files()[0]
        before = self._relay.position_before(Coordinates(str(subdir), name, FIRST_POS))
        if before is not None and (self.wanted is None or before.includes(self.wanted)):
            self.wanted = before
            self._receiver.set_wanted(before)

    @property
    def has_other_rows(self) -> bool:
        """Whether the stream ended because its member logged other rows of a task's open source transaction."""
        return isinstance(self._failure, Retryable) and self._failure.code == "MR-6508"

    def fail(self, error: BaseException) -> None:
        """End the stream: every task gets ``error`` from ``check``."""
        self._failure = self._failure or error
        self._stop.set()

    def close(self) -> None:
        """Join the receiver and close the relay log."""
        self._stop.set()
        self._thread.join()
        if self._compressor is not None:
            self._compressor.close()
        self._relay.close()

    def _receive(self) -> None:
        try:
            self._receiver.run(self._stop)
        except BaseException as error:  # noqa: BLE001 - raised by `check`, in threads that the supervisor watches
            self._failure = self._failure or error


class Upstreams:
    """The streams of this worker by set. ``root`` has one relay directory per set.

    ``installation`` names the installation of the sets. Two installations may have sets with the same name.
    """

    def __init__(
        self, root: Path, *, installation: Callable[[], str] = lambda: "", disk: Files = DISK
    ) -> None:
        self._root = root
        self._installation = installation
        self._disk = disk
        self._lock = threading.Lock()
        # One lock per set, held while members are queried and while the receiver is joined. Other sets don't wait.
        self._locks: dict[str, threading.Lock] = {}
        self._streams: dict[str, Upstream] = {}
        self._tasks: dict[str, set[str]] = {}
        self._earlier_starts: dict[str, GtidPosition | None] = {}
        self._avoided: dict[str, set[Member]] = {}  # members with other rows of an open transaction
        self._retried_xa: dict[str, str] = {}  # by task: the XA COMMIT that caused a restart

    @contextmanager
    def attach(
        self, task: str, document: SetDocument, *, wanted: GtidPosition | None
    ) -> Iterator[Upstream]:
        """The set's stream from ``wanted`` on (None: from the first available file), until the block ends."""
        stream = self._attach(task, document, wanted)
        try:
            report_eviction(self._root / document.name, task, self._disk)
            yield stream
        except Retryable as error:
            if error.code == "MR-6508":
                with self._lock_of(document.name):
                    self._avoided.setdefault(document.name, set()).add(stream.choice.member)
            if error.code in _STREAM_ENDING_CODES:
                stream.fail(error)
            raise
        except Fatal as error:
            if error.code == "MR-2014":
                mark_reported(self._root / document.name, task, self._disk)
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
                    self._root / name,
                    wanted=_earliest([*known, wanted]),
                    avoided=self._avoided.get(name, ()),
                    installation=self._installation(),
                    disk=self._disk,
                )
                log.info("source chosen", set=name, member=str(stream.choice.member))
                self._streams[name], self._tasks[name] = stream, set()
            elif not stream.reaches(wanted):
                self._earlier_starts[name] = _earliest([stream.wanted, wanted])
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


def _earliest(wanted: Sequence[GtidPosition | None]) -> GtidPosition | None:
    """The position from which all of ``wanted`` can be reached; None, the first available file, if in doubt."""
    for candidate in wanted:
        if candidate is None:
            return None
        if all(other is not None and other.includes(candidate) for other in wanted):
            return candidate
    return None
