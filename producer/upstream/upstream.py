"""The one upstream of a set on this worker: its relay log and its receiver, shared by the set's capture tasks.

    with streams.attach("shop-capture", document, wanted=progress.gtid_set) as stream:
        reader = stream.reader()

The first task that attaches chooses the member, opens the relay log and starts the receiver's thread; the last one
that detaches joins the thread and closes the log. An upstream that failed is not mended under its tasks: each sees
the error at its next ``check``, lets go, and comes again; a new attach is refused with that error until all have. So it
is where a task needs an earlier place: its own progress, or the XA PREPARE of what was committed now (MR-6511).

Guarantees: one connection and one writer of the relay directory per set, however many tasks read it; what any attached
task still needs is asked of the source. Not done here: publishing, choosing another member while the stream runs.
"""

import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from millrace.errors import Fatal, Retryable
from millrace.log import get_logger
from producer.relay.control import answer_purge_request
from producer.relay.files import DISK, Files
from producer.relay.purge import Positions, PurgePolicy, purge_due
from producer.relay.reader import RelayReader
from producer.relay.writer import RelayLog
from producer.upstream.choice import Choice, choose
from producer.upstream.connection import Login
from producer.upstream.dump import ReplicaIdentity
from producer.upstream.members import ask_members
from producer.upstream.receiver import Receiver, ReceiverSource, ReceiverStatus
from schemas.documents import Member, SetDocument, resolve_secret
from schemas.gtid import GtidPosition
from schemas.place import FIRST_POS, Coordinates

PURGE_INTERVAL_S = 600.0  # a disk that fills in ten minutes with 15 GiB left fills at 25 MB/s

REQUEST_INTERVAL_S = 0.5  # how often is looked for a request to purge

# A file is gone: the log must be opened anew. An open source transaction has other rows: another member is tried.
_STREAM_ENDING_CODES = frozenset({"MR-2011", "MR-6508"})

log = get_logger("producer.upstream.upstream")


def resolve_login(document: SetDocument) -> Login:
    """How we log in on the set's members; the secret is read now. Fatal MR-4106."""
    password = resolve_secret(document.account.password)
    return Login(user=document.account.user, password=password, tls=document.tls)


class Upstream:
    """A running upstream; made by ``Upstreams``."""

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
        self.is_from_first = wanted is None  # `wanted` moves with what is purged
        self._is_single_member = bool(avoided)
        identity = ReplicaIdentity.for_set(document.name, installation=installation)
        source = ReceiverSource(member=self.choice.member, login=login, replica=identity)
        self._stop = threading.Event()
        self._failure: BaseException | None = None
        self._purge_lock = threading.Lock()
        self._next_purge_s = self._next_check_s = 0.0
        self._thread = threading.Thread(target=self._receive, name=f"receiver {document.name}")
        with ExitStack() as undo:
            self._relay = RelayLog.open(root, flavour=self.choice.flavour, disk=disk)
            undo.callback(self._relay.close)
            self._receiver = Receiver(
                source, self._relay, wanted=wanted, is_single_member=self._is_single_member
            )
            self._thread.start()
            undo.pop_all()

    @property
    def relay(self) -> RelayLog:
        """The set's relay log."""
        return self._relay

    def reader(self) -> RelayReader:
        """A reader of the relay log; close it before detaching. Nothing is purged before it has found its place."""
        reader = RelayReader(self._relay)
        if files := self._relay.list_files():
            subdir, name = files[0]
            self._relay.hold(reader, Coordinates(str(subdir), name, FIRST_POS))
        return reader

    def first(self, reader: RelayReader) -> Coordinates | None:
        """The first binlog there is, once ``is_verified``; None until the head of the newest file is here."""
        end = self._relay.end()
        if end is None or self._relay.position_before(end) is None:
            return None
        return reader.first()

    def status(self) -> ReceiverStatus:
        """The receiver's figures."""
        return self._receiver.status()

    @property
    def is_verified(self) -> bool:
        """Whether the relay log was compared with its server: before, it may hold what the server has no more."""
        return self._receiver.verified.is_set()

    def may_start_at(self, at: Coordinates) -> bool:
        """Whether a task may begin at ``at``; not if that is another member's, and this one's are asked for."""
        end = self._relay.end()
        return not self._is_single_member or (end is not None and end.subdir == at.subdir)

    def reaches(self, wanted: GtidPosition | None) -> bool:
        """Whether a task that begins at ``wanted`` finds it here, now or as soon as it is received."""
        if self.wanted is None or (wanted is not None and wanted.includes(self.wanted)):
            return True
        with self.reader() as reader:
            return wanted is not None and reader.seek(wanted) is not None

    def check(self) -> None:
        """Raise what the receiver ended with, if it did."""
        if self._failure is not None:
            raise self._failure

    def purge_if_due(self, needed: Callable[[], Positions | None]) -> None:
        """Delete relay files that are due or asked for, at most twice a second; called from the tasks' loops.

        ``needed`` gives the positions of the set's tasks, running or not. None while they are unknown: no file is
        deleted then.
        """
        now_s = time.monotonic()
        if now_s < self._next_check_s or not self._purge_lock.acquire(blocking=False):
            return
        try:
            self._next_check_s = now_s + REQUEST_INTERVAL_S
            deleted = answer_purge_request(self._relay, needed=needed)
            if now_s >= self._next_purge_s:
                self._next_purge_s = now_s + PURGE_INTERVAL_S
                if (positions := needed()) is not None:
                    deleted += purge_due(self._relay, PurgePolicy(), needed=positions)
            if deleted:
                self._skip_purged()
        finally:
            self._purge_lock.release()

    def _skip_purged(self) -> None:
        """What was purged is published: a receiver that connects again must not fetch it once more."""
        subdir, name = self._relay.list_files()[0]
        before = self._relay.position_before(Coordinates(str(subdir), name, FIRST_POS))
        if before is not None and (self.wanted is None or before.includes(self.wanted)):
            self.wanted = before
            self._receiver.set_wanted(before)

    @property
    def has_other_rows(self) -> bool:
        """Whether it was ended because its member's rows were not those of a task's open source transaction."""
        return isinstance(self._failure, Retryable) and self._failure.code == "MR-6508"

    def fail(self, error: BaseException) -> None:
        """Make every task let go with ``error``."""
        self._failure = self._failure or error
        self._stop.set()

    def close(self) -> None:
        """Join the receiver, close the relay log."""
        self._stop.set()
        self._thread.join()
        self._relay.close()

    def _receive(self) -> None:
        try:
            self._receiver.run(self._stop)
        except BaseException as error:  # noqa: BLE001 - comes out of `check`, in threads that the supervisor watches
            self._failure = self._failure or error


class Upstreams:
    """Every upstream of this worker, by set. ``root`` has one relay directory a set.

    ``installation`` names the installation that the sets belong to; two may have sets of one name.
    """

    def __init__(
        self, root: Path, *, installation: Callable[[], str] = lambda: "", disk: Files = DISK
    ) -> None:
        self._root = root
        self._installation = installation
        self._disk = disk
        self._lock = threading.Lock()
        # One a set: its members are asked, and its receiver is joined, under it; no other set waits for that.
        self._locks: dict[str, threading.Lock] = {}
        self._streams: dict[str, Upstream] = {}
        self._tasks: dict[str, set[str]] = {}
        self._earlier_starts: dict[str, GtidPosition | None] = {}
        self._avoided: dict[str, set[Member]] = {}  # whose rows were not those of an open one
        self._retried_xa: dict[
            str, str
        ] = {}  # by task: the XA COMMIT for whose rows all began again

    @contextmanager
    def attach(
        self, task: str, document: SetDocument, *, wanted: GtidPosition | None
    ) -> Iterator[Upstream]:
        """The set's stream from ``wanted`` on (None: from the first binlog there is), until the block ends."""
        stream = self._attach(task, document, wanted)
        try:
            yield stream
        except Retryable as error:
            if error.code == "MR-6508":
                with self._lock_of(document.name):
                    self._avoided.setdefault(document.name, set()).add(stream.choice.member)
            if error.code in _STREAM_ENDING_CODES:
                stream.fail(error)
            raise
        except Fatal as error:
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
        """Whether the source may have the XA PREPARE that the relay log lacks: it is asked once for an XA COMMIT."""
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
                        "MR-1034", f"task {task} needs {name} from an earlier place", task=task
                    )
                )
            try:
                stream.check()
            except BaseException:
                self._close_if_unused(name)  # it may have failed before anybody had it
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
    """The place from which all of these are reached: None, the first binlog, when there is doubt."""
    for candidate in wanted:
        if candidate is None:
            return None
        if all(other is not None and other.includes(candidate) for other in wanted):
            return candidate
    return None
