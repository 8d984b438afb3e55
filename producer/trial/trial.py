"""Rows of one server as they commit: chooses the member, receives its binlog, converts it. See ``producer.trial``.

    with Trial.open(order) as trial:
        for records in trial.batches():
            …

The dump starts at the end of the newest binlog file, or at the file with the first transaction after ``after``. After a
lost connection it starts again where the look has ended, if the member is the same server; else at that file. The
account needs REPLICATION SLAVE and REPLICATION CLIENT (MariaDB: BINLOG MONITOR); names from the catalogue also SELECT.
All that the server gets is SHOW, SELECT and SET of session variables, and the dump request.
"""

import fnmatch
import math
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import chain, repeat
from threading import Event
from typing import TypeAlias

from millrace.background import Background
from millrace.drivers.mysql.connection import MySqlSession
from millrace.drivers.mysql.members import Identity, ask_identity, with_unlogged
from millrace.drivers.mysql.preflight import Finding
from millrace.drivers.mysql.start_file import find_start_file, list_binlog_files
from millrace.errors import Fatal, Retryable
from millrace.producer.convert.converter import Converter, ConverterSource
from millrace.producer.source.choose.choice import Choice, Preferences, choose
from millrace.producer.source.choose.chooser import ask_flavour, ask_members
from millrace.producer.source.connection import Login, connect_member
from millrace.producer.source.receive.dump import ReplicaIdentity, ask_replica_ids, start_dump
from millrace.producer.source.receive.dump_stream import DumpStream, StreamFigures
from millrace.producer.trial.binlog import SUBDIR, PassingBinlog
from millrace.producer.trial.names import CatalogueNames
from millrace.schemas.documents import Member, TableFilter
from millrace.schemas.gtid import (
    NO_SERVER,
    Flavour,
    GtidPosition,
    next_number,
    parse_gtid_set,
)
from millrace.schemas.place import FIRST_POS, Coordinates
from millrace.schemas.progress import OpenTransaction, Progress
from millrace.schemas.table.table_filter import SYSTEM_DATABASES

RawRecords: TypeAlias = Sequence[tuple[bytes | None, bytes]]  # key and value, as in a set topic
FIRST = "first"
NAME = "try"  # of set, task and topic in the records
SILENCE_S = 30.0
HEARTBEAT_S = 5.0
FIRST_ROWS_MAX = 16  # plain Python takes 20 s for 1,000 rows of as many tables: later batches are each twice as large
ROWS_MAX, BYTES_MAX = 1024, 1 << 20  # of a batch: it is shown at once
POLL_S = 0.2
# Statement format is shown as SQL, missing names come from the catalogue, and a look needs no other member's history.
_PURGED, _NO_GTIDS = "MR-1031", "MR-1016"
TOLERATED = frozenset({"MR-1012", "MR-1014", _NO_GTIDS, "MR-1017", "MR-1018", "MR-1022", _PURGED})
RECONNECT_S = 60.0  # a server restarts in that time; a failover by an operator may take longer
PAUSES_S = (0.5, 1.0, 2.0, 4.0)  # before each attempt; the last one again and again
NOTES_COMPARED = 100


@dataclass(frozen=True, slots=True)
class TrialPlace:
    """Between two source transactions of a binlog. ``position``: all before it. ``server``: whose binlog it is.

    ``open``: how much of the next source transaction was shown already.
    """

    file: str
    pos: int
    position: str
    server: str
    seq: int
    open: OpenTransaction | None = None


@dataclass(frozen=True, slots=True)
class TrialOrder:
    """``after``: the GTID set that was seen already, as the servers write it; "": from now on; FIRST: all that is kept.

    ``place``: where an earlier look has ended.
    """

    members: tuple[Member, ...]
    login: Login
    filter: TableFilter
    after: str = ""
    place: TrialPlace | None = None


@dataclass(frozen=True, slots=True)
class _Begin:
    file: str
    pos: int
    position: GtidPosition


class Trial:
    """See the module. ``choice``: the member that is read. ``notes``: lines for the user, in their order.

    ``can_continue``: another look can continue at ``place``. Not if it had to skip source transactions without a GTID.
    ``is_behind``: the last batch was full, so rows may commit faster than they are shown.
    """

    choice: Choice
    _server: str
    _place: Coordinates
    _binlog: PassingBinlog
    _receiver: Background

    def __init__(self, order: TrialOrder) -> None:
        self._order = order
        self._progress: Progress | None = None
        self._names = CatalogueNames(
            lambda: connect_member(self.choice.member, order.login, reads_tables=True)
        )
        self.notes: list[str] = []
        self._ids: dict[tuple[str, str], int] = {}
        self._connection = ExitStack()
        self._connected_at_s = 0.0
        self._lost_at_s = math.inf  # since when no connection has brought a record
        self.can_continue, self.is_behind = True, False

    @classmethod
    @contextmanager
    def open(cls, order: TrialOrder) -> Iterator["Trial"]:
        """Choose the member and begin to receive. Errors of ``choose`` and of the session."""
        trial = cls(order)
        with trial._connection:
            trial._connect(order.place)
            yield trial

    @property
    def position(self) -> GtidPosition:
        """After the last record."""
        assert self._progress is not None
        return self._progress.gtid_set

    @property
    def place(self) -> TrialPlace:
        """Where another look can continue."""
        assert self._progress is not None
        at, progress = self._place, self._progress
        position = str(self.position)
        return TrialPlace(at.file, at.pos, position, self._server, progress.seq, progress.open)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings about the member that is read for which a capture task would refuse it."""
        (verdict,) = (each for each in self.choice.verdicts if each.member == self.choice.member)
        return verdict.tolerated

    @property
    def _has_no_gtids(self) -> bool:
        return any(finding.code == _NO_GTIDS for finding in self.findings)

    @property
    def guessed(self) -> Sequence[str]:
        """The tables whose columns are named by the catalogue of now."""
        return self._names.guessed

    # ---- the connection --------------------------------------------------------------------------------

    def _connect(self, place: TrialPlace | None) -> None:
        """Choose the member and begin to receive, at the place or where the order begins."""
        order = self._order
        wanted, tolerated = None, TOLERATED
        has_numbers = place is not None and NO_SERVER in place.position
        if not has_numbers and (place is not None or order.after not in ("", FIRST)):
            flavour = ask_flavour(order.members, order.login)
            wanted = parse_gtid_set(flavour, place.position if place else order.after)
            tolerated = TOLERATED - {_PURGED}
        facts = ask_members(order.members, order.login, wanted=wanted)
        choice = self.choice = choose(
            facts, wanted=wanted, preferences=Preferences(tolerated=tolerated)
        )
        with ExitStack() as stack:
            session = stack.enter_context(connect_member(choice.member, order.login))
            identity = ask_identity(session)
            if self._progress is None and place is None:
                self._note_missing_databases(session)
            begin = None
            if place is not None and place.server == identity.server:
                begin = _begin_at(session, place)
            if begin is None and has_numbers:
                what = f"{choice.member} has no GTIDs, and not the bytes that follow the last row"
                raise Fatal(_NO_GTIDS, what)
            if begin is None:
                begin = _begin(session, wanted, order)
            numbers_from = next_number(str(begin.position)) if self._has_no_gtids else 0
            binlog = PassingBinlog(
                choice.flavour, file=begin.file, pos=begin.pos, numbers_from=numbers_from
            )
            stack.callback(binlog.close)
            stack.callback(self._names.close)
            receiver = stack.enter_context(self._stream(session, identity, binlog, begin))
            # ends an ``append`` that waits, before the thread is joined
            stack.callback(binlog.close)
            self._connection.push(stack.pop_all())
        self._server, self._binlog, self._receiver = identity.server, binlog, receiver
        self._place = Coordinates(SUBDIR, begin.file, begin.pos)
        self._connected_at_s = time.monotonic()
        if self._progress is None:
            seq, open_ = (place.seq, place.open) if place else (0, None)
            self._progress = Progress(begin.position, open_, seq)

    def _note_missing_databases(self, session: MySqlSession) -> None:
        """A name in the URL may be mistyped, and then no row ever comes. An account may see no database at all."""
        rows = session.named("SHOW DATABASES")
        databases = {str(row["Database"]).casefold() for row in rows} - SYSTEM_DATABASES
        for pattern in self._order.filter.include:
            name, _, _ = pattern.partition(".")
            if databases and not fnmatch.filter(databases, name.casefold()):
                what = f"no database {name} exists now, or the account may not see it"
                self.notes.append(f"{what}: rows are shown when they come")

    def _stream(
        self, session: MySqlSession, identity: Identity, binlog: PassingBinlog, begin: _Begin
    ) -> Background:
        replica = ReplicaIdentity.for_set(NAME, installation=str(uuid.uuid4()))
        socket = start_dump(
            session,
            replica=replica.avoiding(ask_replica_ids(session, identity.dialect)),
            flavour=self.choice.flavour,
            file=begin.file,
            pos=begin.pos,
            heartbeat_s=HEARTBEAT_S,
        )
        stream = DumpStream(
            socket,
            binlog,
            member=self.choice.member,
            silence_s=SILENCE_S,
            figures=StreamFigures(),
            verification=_NothingToCompare(),
            on_format=binlog.note_format,
        )

        def receive(stop: Event) -> None:
            stream.run(stop, file=begin.file, start=begin.pos, known_end=FIRST_POS)

        return Background("try", receive, is_checked=True)

    def _reconnect(self, error: Retryable) -> Iterator[RawRecords]:
        """Connect again, to the best member of now, and continue after the last record.

        Raises the last error ``RECONNECT_S`` after the connection was lost, if no later one has brought a record or
        lasted for long.
        """
        now_s = time.monotonic()
        if now_s - self._connected_at_s > SILENCE_S:
            self._lost_at_s = now_s
        self._lost_at_s = min(self._lost_at_s, now_s)
        place = self.place
        if not self.can_continue:
            raise error
        self._connection.close()
        self.notes.append(f"{error.code} {error.message}: connects again for {RECONNECT_S:g} s")
        for pause_s in chain(PAUSES_S, repeat(PAUSES_S[-1])):
            if time.monotonic() + pause_s > self._lost_at_s + RECONNECT_S:
                raise error
            yield ()
            end_s = time.monotonic() + pause_s
            while time.monotonic() < end_s:
                time.sleep(POLL_S)
                yield ()
            try:
                self._connect(place)
            except Retryable as again:
                error = again
                continue
            self.notes.append(f"reads {self.choice.member} again, after the last row shown")
            yield ()
            return

    def _note_once(self, line: str) -> None:
        """Add a converter's line, unless an earlier converter has added it already."""
        if line not in self.notes[-NOTES_COMPARED:]:
            self.notes.append(line)

    # ---- records ---------------------------------------------------------------------------------------

    def batches(self) -> Iterator[RawRecords]:
        """Key and value of each record, as in a set topic, batch by batch; an empty batch while nothing comes.

        A connection that is lost is made again. Raises the errors of the receiver and the converter, after the rows
        that precede them.
        """
        while True:
            try:
                yield from self._batches_of_connection()
            except Retryable as error:
                yield from self._reconnect(error)

    def _batches_of_connection(self) -> Iterator[RawRecords]:
        """The records that the connection brings; ends with its error."""
        self._wait_for_format()
        converter, rows_max, is_ended = self._converter(), FIRST_ROWS_MAX, False
        release = self._binlog.hold(self._place)
        try:
            while True:
                try:
                    batch = converter.next_batch(
                        rows_max=rows_max, bytes_max=BYTES_MAX, timeout_s=POLL_S
                    )
                except Fatal:
                    if rows_max == 1:
                        raise
                    # once more from the last batch on, source transaction by source transaction
                    converter, rows_max = self._converter(), 1
                    continue
                if batch is None:
                    if is_ended and converter.is_caught_up:
                        self._receiver.check()
                    is_ended = not self._receiver.is_alive()
                    yield ()
                    continue
                self._progress, self._lost_at_s = batch.progress, math.inf
                rows_max = min(2 * rows_max, ROWS_MAX) if rows_max > 1 else 1
                restart = converter.restart
                is_whole = batch.progress.open is None and restart is not None
                # without GTIDs, source transactions are counted from the place on
                self.can_continue = not self._has_no_gtids or (
                    is_whole and restart == batch.coordinates
                )
                if is_whole:
                    assert restart is not None
                    self._place = self._binlog.whole(restart)
                    last, release = release, self._binlog.hold(self._place)
                    last()
                octets, self.is_behind = batch.buffer, len(batch.bounds) >= ROWS_MAX
                yield [
                    (octets[ks:ke].tobytes() if ks >= 0 else None, octets[vs:ve].tobytes())
                    for ks, ke, vs, ve in batch.bounds.tolist()
                ]
                batch.release()
        finally:
            release()

    def _converter(self) -> Converter:
        """One that continues after the last batch."""
        choice, order = self.choice, self._order
        assert self._progress is not None
        return Converter(
            source=ConverterSource(
                NAME,
                NAME,
                choice.flavour,
                NAME,
                order.filter,
                folds_names=choice.folds_names,
                look=self._note_once,
            ),
            reader=self._binlog,
            register=lambda subject, text: self._ids.setdefault(
                (subject, text), len(self._ids) + 1
            ),
            progress=self._progress,
            at=self._place,
            describe=self._names.describe,
        )

    def _wait_for_format(self) -> None:
        """Wait until the server has sent the format of the file. Retryable MR-1046."""
        deadline_s = time.monotonic() + SILENCE_S
        while not self._binlog.has_format(within_s=POLL_S):
            self._receiver.check()
            if time.monotonic() > deadline_s:
                raise Retryable("MR-1046", f"{self.choice.member} sent nothing for {SILENCE_S:g} s")


class _NothingToCompare:
    """``Verification`` of bytes that no earlier connection has received."""

    def compared(self) -> None: ...

    def appended(self) -> None: ...


def _begin_at(session: MySqlSession, place: TrialPlace) -> _Begin | None:
    """The place, unless the server's file is gone or shorter: it may have lost its end in a crash."""
    if place.pos > list_binlog_files(session).get(place.file, 0):
        return None
    return _Begin(place.file, place.pos, parse_gtid_set(session.flavour, place.position))


def _begin(session: MySqlSession, after: GtidPosition | None, order: TrialOrder) -> _Begin:
    if after is not None or order.after:
        start = find_start_file(session, wanted=after)
        return _Begin(start.file, FIRST_POS, start.before if after is None else after)
    rows = session.named(session.version.binlog_status)
    if not rows:
        raise Fatal("MR-1010", f"{session.name} writes no binlog")
    file, pos = str(rows[0]["File"]), int(str(rows[0]["Position"]))
    if session.flavour is Flavour.MYSQL:
        text = str(rows[0]["Executed_Gtid_Set"]).replace("\n", "")
        return _Begin(file, pos, parse_gtid_set(Flavour.MYSQL, text))
    (row,) = session.named(
        "SELECT BINLOG_GTID_POS(%s, %s) AS position, @@GLOBAL.gtid_slave_pos AS executed",
        (file, pos),
    )
    position = with_unlogged(str(row["position"] or ""), str(row["executed"] or ""))
    return _Begin(file, pos, position)
