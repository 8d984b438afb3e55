"""The receiver: one connection per set, from which the server's binlog files flow into the relay log as they are.

Where it begins:

| the relay log                                       | the dump                                                       |
|-----------------------------------------------------|----------------------------------------------------------------|
| ends in a file of this server                       | from the last whole transaction of that file: it is compared   |
|                                                     | byte for byte with ours, then what follows is appended         |
| is empty, of another server, or does not reach back | a new sub-directory, from the start of the file that holds the |
| to what is wanted; or is longer than the server's   | first wanted GTID                                              |
| file; or the comparison failed                      |                                                                |
| ends in what this server lacks, as after a failover | the same, and nobody reads the one in front of it any more     |

A lost connection is taken up again at once, a few times; then the supervisor decides. Silence is a lost connection:
an idle server sends heartbeats, and three periods without a byte end it.

A sub-directory is begun only right behind ``choose``, which saw that the member has what is done. Later any doubt ends
the stream: a server that was reset, or lost its tail, uses numbers again that count as done.

Guarantees: what is appended are whole events with a right CRC-32 at their right file offsets, one file after the other
without a gap in numbers. Not done here: choosing the member (``producer.upstream.choice``), switching to another.
"""

import threading
import time
from dataclasses import dataclass

from millrace.errors import Fatal, Retryable
from millrace.log import get_logger
from producer.relay.open_file import ResumePoint
from producer.relay.reader import RelayReader
from producer.relay.writer import RelayLog
from producer.upstream.choice import find_errant
from producer.upstream.connection import Login, SourceConnection
from producer.upstream.dump import POSITION_MAX, ReplicaIdentity, ask_replica_ids, start_dump
from producer.upstream.dump_stream import DumpStream, StreamFigures
from producer.upstream.files import StartFile, find_start_file, list_binlog_files
from producer.upstream.identity import Identity, ask_identity
from producer.upstream.members import ask_binlog, ask_position
from schemas.documents.model import Member
from schemas.gtid import Flavour, GtidPosition
from schemas.place import FIRST_POS

HEARTBEAT_S = 2.0
OVERLAP_BYTES_MAX = 64 << 20  # a last transaction beyond this is not read again for comparison
CATCH_UP_S = 5.0  # for a member to get what another one sent us; later it is all read from this one
POLL_S = 0.1
RECONNECT_DELAYS_S = (0.0, 0.2, 1.0, 2.0)  # then the supervisor's backoff takes over

_CONTINUITY_CODES = frozenset({"MR-1040", "MR-1041"})
_DAMAGE_CODES = frozenset({"MR-2005", "MR-2006"})
_RECONNECT_CODES = _DAMAGE_CODES | {"MR-1001", "MR-1006", "MR-1046"}

log = get_logger("producer.upstream.receiver")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiverSource:
    """Whom to read from, and as whom."""

    member: Member
    login: Login
    replica: ReplicaIdentity
    heartbeat_s: float = HEARTBEAT_S


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiverStatus:
    """Figures for the task's status."""

    member: str
    server: str
    connects: int
    figures: StreamFigures


class Receiver:
    """Runs in a thread of its own; ``status`` may be read from others."""

    def __init__(
        self,
        source: ReceiverSource,
        relay: RelayLog,
        *,
        wanted: GtidPosition | None,
        is_single_member: bool = False,
    ) -> None:
        """``wanted``: everything behind it is needed (None: everything that the source has).

        ``is_single_member``: all of it from this member, also what another's sub-directory holds.
        """
        self._source = source
        self._relay = relay
        self._wanted = wanted
        self._is_single_member = is_single_member
        self._figures = StreamFigures()
        self._server = ""
        self._connects = 0
        self._is_continuous = True
        self._is_choice_current = True  # nothing was lost since ``choose`` asked the member
        # What the relay log ends with is what the server has, or is not read any more: who starts to read waits for it.
        self.verified = threading.Event()

    def set_wanted(self, wanted: GtidPosition) -> None:
        """From now on everything behind ``wanted`` is needed, and no more."""
        self._wanted = wanted

    def status(self) -> ReceiverStatus:
        """As of now."""
        return ReceiverStatus(
            member=str(self._source.member),
            server=self._server,
            connects=self._connects,
            figures=self._figures,
        )

    def run(self, stop: threading.Event) -> None:
        """Receive until ``stop``; raises what a reconnect can't mend."""
        failures = 0
        while not stop.is_set():
            received_before = self._figures.received_bytes
            try:
                self._connect_and_receive(stop)
            except Retryable as error:
                is_fed = self._figures.received_bytes > received_before
                if is_fed and error.code not in _DAMAGE_CODES:
                    failures = 0  # damage that comes again and again is no progress
                if error.code in _CONTINUITY_CODES and self._may_start_subdir():
                    self._is_continuous = False
                    log.warning(
                        "continuity in doubt: a new relay sub-directory is begun", error=error
                    )
                elif error.code not in _RECONNECT_CODES or failures == len(RECONNECT_DELAYS_S):
                    raise
                else:
                    log.warning("connection lost", error=error, failures=failures)
                    self._is_choice_current = False
                    stop.wait(RECONNECT_DELAYS_S[failures])
                failures += 1

    def _may_start_subdir(self) -> bool:
        """Once, and while nobody reads yet what is in doubt."""
        return self._is_choice_current and self._is_continuous and not self.verified.is_set()

    def _connect_and_receive(self, stop: threading.Event) -> None:
        with SourceConnection.connect(self._source.member, self._source.login) as connection:
            self._connects += 1
            identity = ask_identity(connection)
            self._server = identity.server
            self._relay.cut_back()
            resume = self._resume_point(connection, identity)
            if resume is not None:
                self._receive(connection, identity, resume, stop)
                return
            if not self._is_choice_current:
                raise self._doubt("the server does not go on where the relay log ends")
            missing = self._find_missing(connection, identity, stop)
            begin = self._find_start(connection, identity.flavour, missing=missing)
            subdir = self._relay.begin_subdir(identity.server, before=begin.before, missing=missing)
            log.info(
                "relay sub-directory begun",
                subdir=str(subdir),
                file=begin.file,
                wanted=str(self._wanted),
                missing=missing,
            )
            self._relay.begin_file(begin.file)
            self._is_continuous = True
            point = self._relay.resume_point()
            assert point is not None  # a file was begun just now
            self._receive(connection, identity, point, stop)

    def _resume_point(self, connection: SourceConnection, identity: Identity) -> ResumePoint | None:
        """Where to go on in the relay log, if that is possible at all."""
        resume = self._relay.resume_point()
        if not self._is_continuous or resume is None or resume.server != identity.server:
            return None
        size = list_binlog_files(connection).get(resume.at.file)
        if size is None:
            raise self._doubt(f"{resume.at.file} is gone")
        if size < resume.at.pos:  # MariaDB would wait until it has grown beyond that place
            raise self._doubt(f"{resume.at.file} ends at {size}, ours at {resume.at.pos}")
        with RelayReader(self._relay) as reader:
            if self._wanted is not None:
                at = reader.seek(self._wanted)
                is_ours = at is not None and at.subdir == resume.at.subdir
                return (
                    resume if is_ours or (at is not None and not self._is_single_member) else None
                )
            begin = reader.first()
        oldest = find_start_file(connection, flavour=identity.flavour, wanted=None)
        relay_before = self._relay.position_before(begin) if begin is not None else None
        is_older = relay_before is not None and oldest.before.includes(relay_before)
        return resume if is_older else None

    def _find_missing(
        self, connection: SourceConnection, identity: Identity, stop: threading.Event
    ) -> str:
        """What the relay log has and the member lacks: lost in a failover, or late by more than ``CATCH_UP_S``."""
        resume = self._relay.resume_point()
        if resume is None or resume.server == identity.server:  # of one server two are never joined
            return ""
        end = resume.position
        late_at_s = time.monotonic() + CATCH_UP_S
        while not ask_position(connection, identity.flavour).includes(end):
            if time.monotonic() > late_at_s or stop.wait(POLL_S):
                break
        return find_errant(end, ask_binlog(connection, identity.flavour))

    def _find_start(
        self, connection: SourceConnection, flavour: Flavour, *, missing: str
    ) -> StartFile:
        """Where the new sub-directory begins: where the relay log ends, if the source has that, else at ``wanted``."""
        wanted = self._wanted if missing else self._wanted_from_source()
        try:
            return find_start_file(connection, flavour=flavour, wanted=wanted)
        except Fatal as error:
            if error.code != "MR-1031" or wanted == self._wanted:
                raise
            log.info("the relay log ends too early for the source", end=str(wanted))
        return find_start_file(connection, flavour=flavour, wanted=self._wanted)

    def _wanted_from_source(self) -> GtidPosition | None:
        """What the new sub-directory must begin with: what the relay log has already need not come again."""
        if self._wanted is None or self._relay.end() is None or self._is_single_member:
            return self._wanted
        if not self._is_continuous and not self.verified.is_set():
            return self._wanted  # nobody has read of it yet, and nobody shall
        with RelayReader(self._relay) as reader:
            return self._relay.position() if reader.seek(self._wanted) is not None else self._wanted

    def _doubt(self, message: str) -> Retryable:
        member = self._source.member
        return Retryable("MR-1041", f"{member}: {message}", member=member)

    def _receive(
        self,
        connection: SourceConnection,
        identity: Identity,
        resume: ResumePoint,
        stop: threading.Event,
    ) -> None:
        start = resume.overlap_at
        if resume.at.pos - start > OVERLAP_BYTES_MAX:
            start = resume.at.pos
        if (
            start > POSITION_MAX
        ):  # a dump request has 32 bits for it: read the file again, comparing
            start = FIRST_POS
        socket = start_dump(
            connection,
            replica=self._source.replica.avoiding(ask_replica_ids(connection, identity.dialect)),
            flavour=self._relay.flavour,
            file=resume.at.file,
            pos=start,
            heartbeat_s=self._source.heartbeat_s,
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
            silence_s=3 * self._source.heartbeat_s,
            figures=self._figures,
            verified=self.verified,
        )
        stream.run(stop, file=resume.at.file, start=start, known_end=resume.at.pos)
