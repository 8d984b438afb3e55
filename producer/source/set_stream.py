"""The stream of a source set on this worker: its relay log, and the feed that fills it.

The relay log is opened and the first member chosen when the stream is made. ``feed`` receives and switches members.
Tasks read the relay log, and see a switch only as a pause.

Guarantees: the receiver requests everything that any attached task still needs. Not done here: publishing, sharing a
stream among tasks (``set_streams``).
"""

import threading
import time
from collections.abc import Callable, Collection
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from millrace.errors import Retryable
from millrace.producer.relay.compression import Compressor
from millrace.producer.relay.control import answer_purge_request, last_answer, place_request
from millrace.producer.relay.durable_end import SyncPolicy
from millrace.producer.relay.files import DISK, Files
from millrace.producer.relay.notes import write_source_note
from millrace.producer.relay.purge import Positions, PurgeSchedule, purge_before
from millrace.producer.relay.reader import RelayReader
from millrace.producer.relay.summary import Summary, summarize
from millrace.producer.relay.writer import RelayLog
from millrace.producer.source.choose.choice import Choice
from millrace.producer.source.choose.chooser import Chooser
from millrace.producer.source.connection import Login
from millrace.producer.source.feed import Feed, FeedStart
from millrace.producer.source.heartbeat import Heartbeat
from millrace.producer.source.receive.dump import ReplicaIdentity
from millrace.producer.source.receive.dump_stream import StreamFigures
from millrace.producer.source.relay_status import relay_status
from millrace.schemas.documents import Compression, Member, RelayMode, SetDocument
from millrace.schemas.documents.model import Directives
from millrace.schemas.gtid import GtidPosition
from millrace.schemas.place import FIRST_POS, Coordinates
from millrace.schemas.stages import Captured, Relayed

OTHER_ROWS_CODES = frozenset({"MR-6508", "MR-1037"})  # another member must be tried

# With ``relay: off``, a power cut may lose more of the relay log: it is read from the source again.
SELDOM = SyncPolicy(bytes_max=1 << 30, delay_ms=60_000)
REQUEST_INTERVAL_S = 0.5  # how often to check for a purge request
SUMMARY_INTERVAL_S = 5.0
POSITIONS_INTERVAL_S = 60.0  # a query of ZooKeeper for each task


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """The things that all streams of a worker share.

    ``root`` has one relay directory per set. ``installation`` names the installation of the sets: two of them may have
    sets with the same name. ``directives`` returns an operator's wishes about a set; Retryable while they are unknown.
    """

    root: Path
    installation: Callable[[], str] = lambda: ""
    directives: Callable[[str], Directives] = lambda _: Directives()
    disk: Files = DISK


def resolve_login(document: SetDocument) -> Login:
    """The login for the set's members. Fatal MR-4106 if its secret can't be read now."""
    account = document.account
    login = Login(user=account.user, password=account.password, tls=document.tls)
    login.resolve()
    return login


class Upstream:
    """A running stream, created by ``Upstreams``."""

    def __init__(
        self,
        document: SetDocument,
        site: Site,
        *,
        wanted: GtidPosition | None,
        avoided: Collection[Member] = (),
    ) -> None:
        login = resolve_login(document)
        chooser = Chooser(document, login, site.directives)
        choice = chooser.first(wanted, avoided=avoided)
        self.is_from_first = wanted is None  # ``wanted`` itself advances with each purge
        self._is_single_member = bool(avoided)
        self._failure: BaseException | None = None
        self._purge_lock = threading.Lock()
        self._next_check_s = self._next_summary_s = self._next_positions_s = 0.0
        self._summary = Summary()
        self._positions: Positions = {}
        # tasks that held files when the positions were asked
        self._readers: frozenset[str] = frozenset()
        self._mode = document.relay.mode
        self._schedule = PurgeSchedule(document.relay.purge)
        replica = ReplicaIdentity.for_set(document.name, installation=site.installation())
        with ExitStack() as undo:
            root = site.root / document.name
            policy = SELDOM if self._mode is RelayMode.OFF else SyncPolicy()
            self._relay = RelayLog.open(root, flavour=choice.flavour, policy=policy, disk=site.disk)
            undo.callback(self._relay.close)
            write_source_note(root, folds_names=choice.folds_names, files=site.disk)
            is_compressed = document.relay.compress is Compression.ZSTD
            self._compressor = Compressor(self._relay) if is_compressed else None
            if self._compressor is not None:
                undo.callback(self._compressor.close)
            start = FeedStart(document, login, replica, choice, wanted, self._is_single_member)
            self._feed = Feed(self._relay, chooser, start)
            self._heartbeat = Heartbeat(document, login, self._feed.looks)
            self._feed.start()
            undo.callback(self._feed.stop)
            self._heartbeat.start()
            undo.pop_all()

    @property
    def choice(self) -> Choice:
        """The member that is read now, and the findings about every member when it was chosen."""
        return self._feed.choice

    @property
    def wanted(self) -> GtidPosition | None:
        """The position after which everything is received; None: from the first available file on."""
        return self._feed.wanted

    @property
    def figures(self) -> StreamFigures:
        return self._feed.figures

    def captured(self) -> Captured:
        return self._feed.captured()

    def relayed(self) -> Relayed:
        """The relay's stage for the status of the set's tasks. Its part from the disk is a few seconds old."""
        stage = relay_status(self._relay, self._feed, self._summary, self._mode)
        if not self._feed.purge_request:
            return stage
        return replace(stage, purge=last_answer(self._relay))  # its command waits for it

    @property
    def paused_by(self) -> str:
        """The operator who pauses the relay; "" while none does."""
        return self._feed.paused_by

    @property
    def heartbeat_warning(self) -> str:
        """Why the heartbeat row was not written; "" if it was, or none is wanted."""
        return self._heartbeat.warning

    @property
    def relay(self) -> RelayLog:
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

    @property
    def is_verified(self) -> bool:
        """Whether the end of the relay log was compared with the server. It may hold lost transactions until then."""
        return self._feed.is_verified

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
        failure = self._failure or self._feed.failure
        if failure is not None:
            raise failure

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
            place_request(self._relay, self._feed.purge_request)
            deleted = answer_purge_request(self._relay, needed=needed)
            deleted += self._schedule.run(self._relay, needed)
            if self._mode is RelayMode.OFF and (end := self._relay.end()) is not None:
                deleted += purge_before(self._relay, end, needed={})
            if deleted:
                self._skip_purged()
            self._summarize_if_due(now_s, needed)
        finally:
            self._purge_lock.release()

    def _summarize_if_due(self, now_s: float, needed: Callable[[], Positions | None]) -> None:
        readers = frozenset(self._relay.holds.by_owner())
        if now_s >= self._next_positions_s or readers != self._readers:
            self._readers = readers
            self._positions = needed() or self._positions
            self._next_positions_s = now_s + POSITIONS_INTERVAL_S
        if now_s >= self._next_summary_s:
            self._summary = summarize(self._relay, self._positions)
            self._next_summary_s = now_s + SUMMARY_INTERVAL_S

    def _skip_purged(self) -> None:
        """Advance ``wanted`` past the purged files, so that a reconnect does not fetch them again."""
        subdir, name = self._relay.list_files()[0]
        before = self._relay.position_before(Coordinates(str(subdir), name, FIRST_POS))
        if before is not None and (self.wanted is None or before.includes(self.wanted)):
            self._feed.set_wanted(before)

    @property
    def has_other_rows(self) -> bool:
        """Whether the stream ended because its member logged other rows of a task's open source transaction."""
        failure = self._failure or self._feed.failure
        return isinstance(failure, Retryable) and failure.code in OTHER_ROWS_CODES

    def fail(self, error: BaseException) -> None:
        """End the stream: every task gets ``error`` from ``check``."""
        self._failure = self._failure or error
        self._feed.request_stop()

    def close(self) -> None:
        self._heartbeat.stop()
        self._feed.stop()
        if self._compressor is not None:
            self._compressor.close()
        self._relay.close()
