"""The receiver: one connection per set that copies the server's binlog files unchanged into the relay log.

Where the dump starts:

| the relay log                                       | the dump                                                       |
|-----------------------------------------------------|----------------------------------------------------------------|
| ends in a file of this server                       | starts at the last whole transaction of that file, which is    |
|                                                     | compared byte for byte; then new bytes are appended            |
| is empty, from another server, starts too late, is  | starts at the file with the first wanted GTID, in a new        |
| longer than the server's file, or differs from it   | sub-directory                                                  |
| ends with transactions that this server is missing, | the same, and no reader continues from the preceding           |
| as after a failover                                 | sub-directory any more                                         |
| is read by running tasks, which another member fed  | starts at the file with the end of the relay log, in a new     |
| until now (a live receiver)                         | sub-directory; refused if this server is missing transactions  |

The end of another member's sub-directory is compared with this server by canonical checksum (``overlap``). Readers
cross over afterwards. If the comparison fails or does not end, the new sub-directory is dropped.

The receiver reconnects a few times after a lost connection; then the supervisor decides. A silent connection counts as
lost: an idle server sends heartbeats, and three periods without a byte end the dump.

A sub-directory is started only directly after ``choose``, which verified that the member has the published
transactions. Later, any doubt ends the stream: a server that was reset or lost its tail reuses published GTIDs.

Guarantees: only whole events with a correct CRC-32 are appended, at their file offsets, and file numbers have no gaps.
Not done here: choosing the member (``producer.source.choose.choice``), switching to another member.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from millrace.drivers.mysql.connection import MySqlSession
from millrace.drivers.mysql.members import (
    Identity,
    ask_binlog,
    ask_identity,
    ask_position,
    find_errant,
)
from millrace.drivers.mysql.start_file import StartFile, find_start_file, list_binlog_files
from millrace.errors import Fatal, Retryable
from millrace.log import get_logger
from millrace.producer.relay import layout
from millrace.producer.relay.open_file import ResumePoint
from millrace.producer.relay.quarantine import CORRUPTION
from millrace.producer.relay.reader import RelayReader
from millrace.producer.relay.writer import RelayLog
from millrace.producer.source.connection import Login, connect_member
from millrace.producer.source.receive.dump import (
    POSITION_MAX,
    ReplicaIdentity,
    ask_replica_ids,
    start_dump,
)
from millrace.producer.source.receive.dump_stream import DumpStream, StreamFigures
from millrace.producer.source.receive.overlap import Overlap
from millrace.producer.source.receive.verification import Joint, Verifier
from millrace.schemas.documents.model import Member
from millrace.schemas.gtid import GtidPosition
from millrace.schemas.place import FIRST_POS

SILENCE_S = 6.0
HEARTBEATS_MISSED = 3  # in ``silence_s``
OVERLAP_BYTES_MAX = 64 << 20  # a larger last transaction is not read again for comparison
# Time for a member to catch up with the relay log. After that, all that is wanted is read from this member.
CATCH_UP_S = 5.0
POLL_S = 0.1
RECONNECT_DELAYS_S = (0.0, 0.2, 1.0, 2.0)  # then the supervisor's backoff takes over

_CONTINUITY_CODES = frozenset({"MR-1040", "MR-1041"})
_DAMAGE_CODES = frozenset({"MR-2005", "MR-2006"})
_SILENCE_CODE = "MR-1046"
_RECONNECT_CODES = _DAMAGE_CODES | {"MR-1001", "MR-1006", _SILENCE_CODE}

log = get_logger("producer.source.receive.receiver")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiverSource:
    """The member to read from, the login, and the identity of the reader.

    ``silence_s``: a connection without an event or a heartbeat for this long counts as lost.
    """

    member: Member
    login: Login
    replica: ReplicaIdentity
    silence_s: float = SILENCE_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Handover:
    """The facts that a receiver shares with the feed that it belongs to.

    ``is_live``: readers follow, so a sub-directory must continue the preceding one. ``may_leave``: whether another
    member can be read instead of this one. ``on_verified``: called when the relay log is known to be the member's.
    """

    is_live: bool = False
    may_leave: Callable[[], bool] = lambda: False
    on_verified: Callable[[], None] = lambda: None
    figures: StreamFigures = field(default_factory=StreamFigures)


class Receiver:
    """Receives the binlog. ``run`` occupies one thread; other threads may call ``status``."""

    def __init__(
        self,
        source: ReceiverSource,
        relay: RelayLog,
        *,
        wanted: GtidPosition | None,
        is_single_member: bool = False,
        handover: Handover | None = None,
    ) -> None:
        """``wanted``: everything after it is needed (None: everything in the source's binlog).

        ``is_single_member``: read all of it from this member, even if another member's sub-directory has it.
        """
        self._source = source
        self._relay = relay
        self._wanted = wanted
        self._is_single_member = is_single_member
        self._handover = handover or Handover()
        self._figures = self._handover.figures
        self._is_continuous = True
        self._is_choice_current = True  # no connection was lost since ``choose`` queried the member
        self._joint: Joint | None = None
        # Set once the end of the relay log matches the server. New readers wait for it.
        self.verified = threading.Event()

    def set_wanted(self, wanted: GtidPosition) -> None:
        self._wanted = wanted

    @property
    def is_live(self) -> bool:
        return self._handover.is_live

    @property
    def figures(self) -> StreamFigures:
        return self._figures

    def run(self, stop: threading.Event) -> None:
        """Receive until ``stop``. Raises the errors that a reconnect can't fix."""
        failures = 0
        while not stop.is_set():
            received_before = self._figures.received_bytes
            try:
                self._connect_and_receive(stop)
            except Retryable as error:
                has_received = self._figures.received_bytes > received_before
                if error.code in _DAMAGE_CODES:
                    CORRUPTION.labels(where="stream").inc()
                if has_received and error.code not in _DAMAGE_CODES:
                    failures = 0  # repeated damage is not progress
                if error.code in _CONTINUITY_CODES and self._may_start_subdir():
                    self._is_continuous = False
                    log.warning(
                        "continuity in doubt: starting a new relay sub-directory", error=error
                    )
                elif (
                    error.code not in _RECONNECT_CODES
                    or failures == len(RECONNECT_DELAYS_S)
                    or self._should_leave(error, failures)
                ):
                    raise
                else:
                    log.warning("connection lost", error=error, failures=failures)
                    self._is_choice_current = False
                    stop.wait(RECONNECT_DELAYS_S[failures])
                failures += 1

    def _should_leave(self, error: Retryable, failures: int) -> bool:
        """Whether not to reconnect: a second failure, or silence, of a member that is not the only one.

        A connection that was ended is tried once more, because a member that answers at once is the nearest one. A
        silent member would let that wait for a timeout. A live receiver that is not verified has nothing to lose.
        """
        if self._handover.is_live and not self.verified.is_set():
            return True
        is_hopeless = failures > 0 or error.code == _SILENCE_CODE
        return is_hopeless and self._handover.may_leave()

    def _may_start_subdir(self) -> bool:
        """Whether a new sub-directory may be started: once, and before any reader uses the doubtful bytes."""
        is_unused = self._is_continuous and not self.verified.is_set()
        return self._is_choice_current and is_unused and not self._handover.is_live

    def _connect_and_receive(self, stop: threading.Event) -> None:
        with connect_member(self._source.member, self._source.login) as connection:
            self._figures.connects += 1
            identity = ask_identity(connection)
            self._relay.cut_back()
            resume = self._resume_point(connection, identity)
            if resume is not None:
                self._receive(connection, identity, resume, stop)
                return
            if not self._is_choice_current or self._would_begin_twice(identity):
                raise self._doubt("the server does not continue where the relay log ends")
            self._receive_in_new_subdir(connection, identity, stop)

    def _would_begin_twice(self, identity: Identity) -> bool:
        """Whether readers would cross over from a doubtful sub-directory to another one of the same server."""
        resume = self._relay.resume_point()
        is_same = resume is not None and resume.server == identity.server
        return self._handover.is_live and is_same

    def _receive_in_new_subdir(
        self, connection: MySqlSession, identity: Identity, stop: threading.Event
    ) -> None:
        missing = self._find_missing(connection, identity, stop)
        if missing and self._handover.is_live:
            message = f"{self._source.member} does not have {missing}, which is already received"
            raise Retryable("MR-1036", message, member=self._source.member)
        overlap = None if missing else self._new_overlap(identity)
        start = self._find_start(connection, missing=missing, overlap=overlap)
        apart = missing or (layout.NOT_COMPARED if overlap is not None else "")
        subdir = self._relay.begin_subdir(identity.server, before=start.before, apart=apart)
        self._joint = None if overlap is None else Joint(subdir, overlap)
        log.info(
            "relay sub-directory started",
            subdir=str(subdir),
            file=start.file,
            wanted=str(self._wanted),
            missing=missing,
        )
        try:
            self._relay.begin_file(start.file)
            self._is_continuous = True
            point = self._relay.resume_point()
            assert point is not None  # begin_file has just created a file
            self._receive(connection, identity, point, stop)
        finally:
            if self._joint is not None and not self.verified.is_set():
                self._joint = None
                self._relay.drop_subdir(subdir)

    def _new_overlap(self, identity: Identity) -> Overlap | None:
        """The end of another member's sub-directory; None if the relay log is empty, in doubt or of this server."""
        resume = self._relay.resume_point()
        is_other = resume is not None and resume.server != identity.server
        return Overlap(self._relay) if is_other and self._is_continuous else None

    def _resume_point(self, connection: MySqlSession, identity: Identity) -> ResumePoint | None:
        """Where to resume in the relay log; None if that is not possible."""
        resume = self._relay.resume_point()
        if not self._is_continuous or resume is None or resume.server != identity.server:
            return None
        size = list_binlog_files(connection).get(resume.at.file)
        if size is None:
            raise self._doubt(f"{resume.at.file} is gone")
        if size < resume.at.pos:  # MariaDB would wait until the file has grown to that position
            raise self._doubt(f"{resume.at.file} ends at {size}, the relay file at {resume.at.pos}")
        with RelayReader(self._relay) as reader:
            if self._wanted is not None:
                at = reader.seek(self._wanted)
                if at is None or (self._is_single_member and at.subdir != resume.at.subdir):
                    return None
                return resume
            first = reader.first()
        oldest = find_start_file(connection, wanted=None)
        relay_before = self._relay.position_before(first) if first is not None else None
        is_older = relay_before is not None and oldest.before.includes(relay_before)
        return resume if is_older else None

    def _find_missing(
        self, connection: MySqlSession, identity: Identity, stop: threading.Event
    ) -> str:
        """The GTIDs of the relay log that the member is missing after at most ``CATCH_UP_S``; "" if none."""
        resume = self._relay.resume_point()
        # Two sub-directories of one server are never continuous, so a gap need not be recorded.
        if resume is None or resume.server == identity.server:
            return ""
        end = resume.position
        late_at_s = time.monotonic() + CATCH_UP_S
        while not ask_position(connection).includes(end):
            if time.monotonic() > late_at_s or stop.wait(POLL_S):
                break
        return find_errant(end, ask_binlog(connection))

    def _find_start(
        self,
        connection: MySqlSession,
        *,
        missing: str,
        overlap: Overlap | None,
    ) -> StartFile:
        """The first file of a new sub-directory: where the relay log ends if the source has it, else at ``wanted``.

        Preferably it also has the last transactions of the relay log, to compare them. A live receiver accepts no
        file after the end of the relay log: Fatal MR-1031.
        """
        wanted = self._wanted if missing else self._wanted_from_source()
        choices = (
            [wanted] if self._handover.is_live or wanted == self._wanted else [wanted, self._wanted]
        )
        if overlap is not None and wanted is not None and wanted.includes(overlap.end):
            choices.insert(0, overlap.wanted)
        for choice in choices[:-1]:
            try:
                return find_start_file(connection, wanted=choice)
            except Fatal as error:
                if error.code != "MR-1031":
                    raise
                log.info("the source's binlog starts too late", wanted=str(choice))
        return find_start_file(connection, wanted=choices[-1])

    def _wanted_from_source(self) -> GtidPosition | None:
        """The start of a new sub-directory: the end of the relay log if it covers ``wanted``, else ``wanted``."""
        if self._handover.is_live:
            return self._relay.position()
        if self._wanted is None or self._relay.end() is None or self._is_single_member:
            return self._wanted
        if not self._is_continuous and not self.verified.is_set():
            return self._wanted  # the doubtful bytes have no reader and must not get one
        with RelayReader(self._relay) as reader:
            return self._relay.position() if reader.seek(self._wanted) is not None else self._wanted

    def _doubt(self, message: str) -> Retryable:
        member = self._source.member
        return Retryable("MR-1041", f"{member}: {message}", member=member)

    def _receive(
        self,
        connection: MySqlSession,
        identity: Identity,
        resume: ResumePoint,
        stop: threading.Event,
    ) -> None:
        start = resume.overlap_at
        if resume.at.pos - start > OVERLAP_BYTES_MAX:
            start = resume.at.pos
        if (
            start > POSITION_MAX
        ):  # a dump request has 32 bits: read the whole file again and compare
            start = FIRST_POS
        socket = start_dump(
            connection,
            replica=self._source.replica.avoiding(ask_replica_ids(connection, identity.dialect)),
            flavour=self._relay.flavour,
            file=resume.at.file,
            pos=start,
            heartbeat_s=self._source.silence_s / HEARTBEATS_MISSED,
        )
        log.info(
            "dump started",
            member=str(self._source.member),
            file=resume.at.file,
            pos=start,
            end=resume.at.pos,
        )
        stream = DumpStream(
            socket,
            self._relay,
            member=self._source.member,
            silence_s=self._source.silence_s,
            figures=self._figures,
            verification=Verifier(
                self._relay, self.verified, self._handover.on_verified, self._joint
            ),
        )
        stream.run(stop, file=resume.at.file, start=start, known_end=resume.at.pos)
