"""Feeds a relay log from the best member of a set: receives from one, watches all, and switches between them.

    receiver's thread   runs one receiver after the other, each for one member
    watch's thread      asks all members and may request to leave the member (``judge``)

| the member …                                      | then …                                                         |
|---------------------------------------------------|----------------------------------------------------------------|
| ends the connection                               | it is tried once more, then left                               |
| is silent for ``silence_s``                       | it is left                                                     |
| is drained, late, or the primary, or another one  | another one is chosen first; if there is none, it is kept      |
| is pinned                                         |                                                                |
| is read while an operator pauses the relay        | the connection is closed until the operator resumes it         |
| was just chosen, and does not have the end of the | the next one is chosen; the former one too, if it still        |
| relay log, or has other changes there             | answers                                                        |

A member is left only for another one that can continue: its binlog has all that was received. While no member can,
the feed chooses again for ``CHOICE_S``. Then it ends with the error that made it leave. Its tasks start again, and a
start has more choices: it may read from where the topic ends.

Guarantees: readers see one history. They cross over to the sub-directory of the next member only after the end of the
preceding one was compared with it (``receiver``). One dump connection at a time.
"""

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from millrace.errors import Fatal, Fenced, MillraceError, Retryable
from millrace.faults import fault_point, register
from millrace.log import get_logger
from millrace.producer.relay.writer import RelayLog
from millrace.producer.source.choose.choice import Choice
from millrace.producer.source.choose.chooser import Chooser
from millrace.producer.source.choose.judge import Look, Reason, find_reason
from millrace.producer.source.choose.probe import Pulse
from millrace.producer.source.choose.watch import Watch
from millrace.producer.source.connection import Login
from millrace.producer.source.receive.dump import ReplicaIdentity
from millrace.producer.source.receive.dump_stream import StreamFigures
from millrace.producer.source.receive.receiver import Handover, Receiver, ReceiverSource
from millrace.producer.source.switches import Departure, Switches
from millrace.schemas.documents.model import Member, SetDocument
from millrace.schemas.gtid import GtidPosition
from millrace.schemas.stages import Captured, SourceView

CHOICE_S = 15.0  # from the decision to leave: a late replica may catch up, and a switchover may end
CHOICE_POLL_S = 0.2
LOST_TAIL_S = 2.0  # a replica may show a transaction before its primary does
FRUITLESS_S = 5.0  # after a choice that found no other member
LOOK_AGAIN_S = 30.0

_RELAY_CODES = "MR-2"  # the disk of the relay log is no reason to leave a member
_DAMAGED_STREAM = frozenset({"MR-2005", "MR-2006", "MR-2007", "MR-2008", "MR-2009"})

BEFORE_SWITCH = register("upstream.before_switch")
AFTER_SWITCH = register("upstream.after_switch")

log = get_logger("producer.source.feed")


@dataclass(frozen=True, slots=True)
class FeedStart:
    """Where a feed starts: the set, its login, the identity that servers see, the first choice, the position."""

    document: SetDocument
    login: Login
    replica: ReplicaIdentity
    choice: Choice
    wanted: GtidPosition | None
    is_single_member: bool


@dataclass(frozen=True, slots=True)
class _Request:
    choice: Choice
    reason: Reason


class Feed:
    """A running feed, from ``start`` to ``stop``."""

    def __init__(self, relay: RelayLog, chooser: Chooser, start: FeedStart) -> None:
        self._relay = relay
        self._chooser = chooser
        self._start = start
        self.choice = start.choice
        self.wanted = start.wanted
        self.figures = StreamFigures()
        self.failure: BaseException | None = None
        self._switches = Switches("lowest lag at the start")
        self._stop = threading.Event()
        self._leave = threading.Event()
        self._may_receive = threading.Event()  # cleared while an operator pauses the relay
        self._follow_pause()
        self._request: _Request | None = None
        self._departure: Departure | None = None
        self._tried: set[Member] = set()
        self._refused: tuple[str, ...] = ()  # why each candidate of this switch was refused
        self._waits_for = ""  # why no member can be chosen now
        self._lag_switch_at_s = self._fruitless_at_s = float("-inf")
        self._looked_again_at_s = time.monotonic()
        self._receiver = self._new_receiver(is_live=False)
        document = start.document
        self._watch = Watch(
            document.members,
            start.login,
            interval_s=document.upstream.probe_s,
            on_looks=self._judge,
        )
        self._thread = threading.Thread(target=self._run, name=f"receiver {document.name}")

    def start(self) -> None:
        """Start both threads, or none."""
        self._watch.start()
        try:
            self._thread.start()
        except BaseException:
            self._watch.stop()
            raise

    def stop(self) -> None:
        """Join both threads. Call it once."""
        self.request_stop()
        self._watch.stop()
        self._thread.join()

    def request_stop(self) -> None:
        """Ask both threads to end."""
        self._stop.set()
        self._leave.set()
        self._may_receive.set()

    @property
    def paused_by(self) -> str:
        """The operator who pauses the relay; "" while none does."""
        return self._chooser.directives.relay_paused_by

    @property
    def purge_request(self) -> str:
        """The purge request that came through ZooKeeper; "" if there is none."""
        return self._chooser.directives.relay_purge

    def stage(self) -> tuple[str, str]:
        """The present action of the feed, in one word, and the reason."""
        if self.paused_by:
            return "paused", f"paused by {self.paused_by}"
        if self._departure is not None:
            return "switches", self._explain()
        if not self.is_verified:
            return "waits", f"{self.choice.member} has not answered yet"
        return "receives", f"from {self.choice.member}"

    def pulse(self) -> Pulse | None:
        """The last answer of the member that is read."""
        here = (look.pulse for look in self._watch.looks() if look.member == self.choice.member)
        return next(here, None)

    def kept_s(self) -> float | None:
        """How long the members keep their binlogs; None: without a limit in time, or unknown."""
        return self._chooser.kept_s()

    @property
    def is_verified(self) -> bool:
        """Whether the end of the relay log was compared with the member that is read."""
        return self._receiver.verified.is_set()

    def looks(self) -> Sequence[Look]:
        """The last look at each member; empty before the first."""
        return self._watch.looks()

    def set_wanted(self, wanted: GtidPosition) -> None:
        self.wanted = wanted
        self._receiver.set_wanted(wanted)

    def captured(self) -> Captured:
        member, looks = self.choice.member, self._watch.looks()
        members = self._chooser.views(looks, chosen=member)
        here = next(view for view in members if view.chosen)
        still_s = next((look.still_s for look in looks if look.member == member), None)
        return Captured(
            source=SourceView(
                host=member.host,
                port=member.port,
                role=here.role,
                lag_s=here.lag_s,
                missing=here.missing,
                still_s=None if still_s is None else round(still_s, 1),
                since=self._switches.since,
                why=self._explain(),
            ),
            switches=self._switches.last(),
            members=members,
        )

    def _explain(self) -> str:
        """Why the member is read, or is being left."""
        departure = self._departure
        if departure is None:
            return self._switches.why
        waits = f"; no member can continue yet: {self._waits_for}" if self._waits_for else ""
        return f"leaves {departure.member}: {departure.why}{waits}"

    # ---- the watch's thread --------------------------------------------------------------------------

    def _judge(self, looks: Sequence[Look]) -> None:
        """Request to leave the member if there is a reason and another one."""
        now_s = time.monotonic()
        directives = self._chooser.renew_directives()
        self._follow_pause()
        if self.paused_by or not self.is_verified:
            return
        if self._departure is not None or self._request is not None:
            return
        reason = find_reason(
            self.choice.member,
            looks,
            rules=self._start.document.upstream,
            directives=directives,
            since_lag_switch_s=now_s - self._lag_switch_at_s,
        )
        if reason is None or now_s - self._fruitless_at_s < FRUITLESS_S:
            if now_s - self._looked_again_at_s > LOOK_AGAIN_S:
                self._looked_again_at_s = now_s
                self._chooser.look_again(self._relay.position())
            return
        self._fruitless_at_s = now_s
        choice = self._chooser.next(
            self._relay.position(), avoided={self.choice.member}, looks=looks
        )
        if choice.member != self.choice.member:
            self._request = _Request(choice, reason)
            self._leave.set()

    def _follow_pause(self) -> None:
        """Make the receiver's thread do what the operator wishes."""
        if not self.paused_by:
            self._may_receive.set()
        elif self._may_receive.is_set():
            self._may_receive.clear()
            self._leave.set()

    # ---- the receiver's thread -----------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self._may_receive.wait()
                error = self._receive()
                if self._stop.is_set():
                    return
                if error is not None or not self._was_only_paused():
                    self._switch(error)
        except BaseException as error:  # noqa: BLE001 - raised in threads that the supervisor watches
            self.failure = self.failure or error

    def _was_only_paused(self) -> bool:
        """Whether the receiver ended for a pause alone; the member stays then."""
        if self._request is not None or self._departure is not None:
            return False
        self._leave.clear()
        return not self._has_request()

    def _has_request(self) -> bool:
        return self._request is not None  # the watch may have made one meanwhile

    def _receive(self) -> MillraceError | None:
        """Receive until the member must be left; the error if that is the reason."""
        try:
            self._receiver.run(self._leave)
        except Fenced:
            raise
        except MillraceError as error:
            if not self._is_about_member(error):
                raise
            return error
        return None

    def _is_about_member(self, error: MillraceError) -> bool:
        """Whether another member may not have this error; a start leaves it to the tasks."""
        has_readers = self._receiver.is_live or self.is_verified
        is_relay = error.code.startswith(_RELAY_CODES) and error.code not in _DAMAGED_STREAM
        return has_readers and not is_relay and len(self._start.document.members) > 1

    def _switch(self, error: MillraceError | None) -> None:
        """Replace the receiver by one of the next member. Raises ``error`` if there is none."""
        request, self._request = self._request, None
        if self._departure is None:
            why = str(error) if error is not None or request is None else request.reason.why
            self._departure = Departure(
                self.choice.member, why, time.monotonic(), self.figures.last_byte_at_s
            )
        elif error is not None:
            self._refused = (*self._refused, str(error))
        if error is not None:
            self._tried.add(self.choice.member)
            log.warning("member left", member=str(self.choice.member), error=error)
        elif request is not None and request.reason.is_by_lag:
            self._lag_switch_at_s = time.monotonic()
        choice = request.choice if request is not None and error is None else self._choose(error)
        if choice is None:
            return  # stopped
        fault_point(BEFORE_SWITCH)
        self.choice = choice
        self._request = None  # the watch may have made one before it saw the departure
        self._leave.clear()
        if self._stop.is_set():
            return
        self.figures.first_byte_at_s = 0.0
        self._receiver = self._new_receiver(is_live=True)

    def _choose(self, error: MillraceError | None) -> Choice | None:
        """Another member than those that were tried; None when stopped. Raises ``error``, or Fatal MR-1033."""
        assert self._departure is not None, "``_switch`` notes it first"
        left, noticed_at_s = self._departure.member, self._departure.noticed_at_s
        began_s = time.monotonic()
        wanted, refused_count = self._relay.position(), 0
        while not self._stop.is_set():
            waited_s = time.monotonic() - began_s
            try:
                looks = self._watch.looks()
                choice = self._chooser.next(
                    wanted, avoided=self._tried, looks=looks, is_first=not refused_count
                )
                if choice.member not in self._tried:
                    return choice
                if choice.member == left and waited_s > CHOICE_POLL_S:
                    return choice  # all others are refused, and it answers again
            except Fatal as refusal:
                refused_count += 1
                self._waits_for = str(refusal)
                if refusal.code != "MR-1033" or waited_s > LOST_TAIL_S:
                    raise
            except Retryable as refusal:
                refused_count += 1
                self._waits_for = str(refusal)
                log.info("no member can continue", error=refusal)
            if time.monotonic() - noticed_at_s > CHOICE_S:
                raise error or Retryable("MR-1030", "no member can continue the stream")
            self._stop.wait(CHOICE_POLL_S)
        return None

    def _note_verified(self) -> None:
        """Called by the receiver: its member continues the relay log."""
        departure, self._departure = self._departure, None
        refused, self._refused, self._waits_for = self._refused, (), ""
        self._tried.clear()
        if departure is None:
            return
        fault_point(AFTER_SWITCH)
        if departure.member != self.choice.member:
            self._switches.note(
                departure,
                self.choice.member,
                first_byte_at_s=self.figures.first_byte_at_s,
                refused=refused,
            )

    def _may_leave(self) -> bool:
        """Whether another member answers and is not drained."""
        drained = self._chooser.directives.drained
        return any(
            look.member not in (self.choice.member, *drained) and look.pulse.error is None
            for look in self._watch.looks()
        )

    def _new_receiver(self, *, is_live: bool) -> Receiver:
        start = self._start
        source = ReceiverSource(
            member=self.choice.member,
            login=start.login,
            replica=start.replica,
            silence_s=start.document.upstream.silence_s,
        )
        handover = Handover(
            is_live=is_live,
            may_leave=self._may_leave,
            on_verified=self._note_verified,
            figures=self.figures,
        )
        return Receiver(
            source,
            self._relay,
            wanted=self.wanted,
            is_single_member=start.is_single_member and not is_live,
            handover=handover,
        )
