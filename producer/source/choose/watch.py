"""Watches all members of a set in parallel: a short question to each, every ``probe_s``, and a measured lag.

Each member has a connection that stays open and a thread that asks. An answer that takes longer than ``ANSWER_S``
counts as none, and the next question waits for it. So one frozen member delays no other.

Guarantees: no error ends the watch. The looks of one round are complete. Not done here: what to do about them
(``judge``, ``set_stream``).
"""

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait

from millrace.drivers.mysql.connection import MySqlSession
from millrace.drivers.mysql.members import Identity, ask_identity
from millrace.errors import MillraceError, Retryable
from millrace.log import get_logger
from millrace.producer.source.choose.choice import count_missing
from millrace.producer.source.choose.judge import Look
from millrace.producer.source.choose.lag import LagMeter, Still
from millrace.producer.source.choose.probe import Pulse, ask_pulse
from millrace.producer.source.connection import Login, connect_member
from millrace.schemas.documents.model import Member
from millrace.schemas.gtid import GtidPosition

ANSWER_S = 1.5  # a round waits no longer; a connection's own timeout ends the question later
TIMEOUT_S = 2.0

log = get_logger("producer.source.choose.watch")


class Watch:
    """The watch of one set, from ``start`` to ``stop``. ``on_looks`` is called in its thread after each round."""

    def __init__(
        self,
        members: Sequence[Member],
        login: Login,
        *,
        interval_s: float,
        on_looks: Callable[[Sequence[Look]], None],
    ) -> None:
        self._probes = [_Probe(member, login) for member in members]
        self._interval_s = interval_s
        self._on_looks = on_looks
        self._meter = LagMeter()
        self._stills = {member: Still() for member in members}
        self._looks: tuple[Look, ...] = ()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Join all threads and close all connections; at most ``TIMEOUT_S`` later. Call it once."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()

    def looks(self) -> Sequence[Look]:
        """The members after the last round, in the order of the set; empty before the first."""
        return self._looks

    def _run(self) -> None:
        with ThreadPoolExecutor(len(self._probes), thread_name_prefix="probe") as pool:
            while not self._stop.is_set():
                began_s = time.monotonic()
                self._looks = self._round(pool, began_s)
                try:
                    self._on_looks(self._looks)
                except MillraceError as error:
                    log.warning("members not judged", error=error)
                self._stop.wait(max(0.0, began_s + self._interval_s - time.monotonic()))
        for probe in self._probes:
            probe.close()

    def _round(self, pool: ThreadPoolExecutor, at_s: float) -> tuple[Look, ...]:
        asked = [probe.submit(pool) for probe in self._probes]
        wait(asked, timeout=ANSWER_S)
        pulses = [probe.pulse(future) for probe, future in zip(self._probes, asked, strict=True)]
        self._meter.sample(pulses, at_s=at_s)
        newest = self._meter.newest()
        return tuple(self._look(pulse, newest, at_s) for pulse in pulses)

    def _look(self, pulse: Pulse, newest: GtidPosition | None, at_s: float) -> Look:
        missing = count_missing(newest, pulse.position) if newest and pulse.position else None
        still = self._stills[pulse.member]
        return Look(
            pulse,
            self._meter.lag_s(pulse, at_s=at_s),
            missing,
            still.since(pulse.position, missing=missing, at_s=at_s),
            self._meter.is_known(pulse),
        )


class _Probe:
    """Asks one member, one question at a time."""

    def __init__(self, member: Member, login: Login) -> None:
        self._member = member
        self._login = login
        self._connection: MySqlSession | None = None
        self._identity: Identity | None = None
        self._asked: Future[Pulse] | None = None

    def submit(self, pool: ThreadPoolExecutor) -> Future[Pulse]:
        """The answer to come: of a new question, or of the last one if that has none yet."""
        if self._asked is None or self._asked.done():
            self._asked = pool.submit(self._ask)
        return self._asked

    def pulse(self, asked: Future[Pulse]) -> Pulse:
        """The answer, or the lack of one."""
        if asked.done():
            return asked.result()
        error = Retryable("MR-1001", f"{self._member}: no answer within {ANSWER_S:g} s")
        return Pulse(member=self._member, error=error)

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _ask(self) -> Pulse:
        try:
            if self._connection is None or self._identity is None:
                self.close()
                self._connection = connect_member(self._member, self._login, timeout_s=TIMEOUT_S)
                self._identity = ask_identity(self._connection)
            return ask_pulse(self._connection, self._identity)
        except MillraceError as error:
            self.close()
            return Pulse(member=self._member, error=error)
