"""Rows of one server as they commit: chooses the member, receives its binlog, converts it. See ``producer.trial``.

    with Trial.open(order) as trial:
        for records in trial.batches():
            …

The dump starts at the end of the newest binlog file, or at the file with the first transaction after ``after``. The
account needs REPLICATION SLAVE and REPLICATION CLIENT (MariaDB: BINLOG MONITOR); names from the catalogue also SELECT.
All that the server gets is SHOW, SELECT and SET of session variables, and the dump request.
"""

import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from threading import Event
from typing import TypeAlias

from millrace.background import Background
from millrace.drivers.mysql.connection import MySqlSession
from millrace.drivers.mysql.members import ask_identity, with_unlogged
from millrace.drivers.mysql.preflight import Finding
from millrace.drivers.mysql.start_file import find_start_file
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
from millrace.schemas.gtid import Flavour, GtidPosition, parse_gtid_set
from millrace.schemas.place import FIRST_POS, Coordinates
from millrace.schemas.progress import Progress

RawRecords: TypeAlias = Sequence[tuple[bytes | None, bytes]]  # key and value, as in a set topic
FIRST = "first"
NAME = "try"  # of set, task and topic in the records
SILENCE_S = 30.0
HEARTBEAT_S = 5.0
ROWS_MAX, BYTES_MAX = 1024, 1 << 20  # of a batch: it is shown at once
POLL_S = 0.2
# Statement format is shown as SQL, missing names come from the catalogue, and a look needs no other member's history.
TOLERATED = frozenset({"MR-1012", "MR-1014", "MR-1017", "MR-1018", "MR-1022", "MR-1031"})


@dataclass(frozen=True, slots=True)
class TrialPlace:
    """Between two source transactions of a member's binlog. ``position``: all before it."""

    file: str
    pos: int
    position: str


@dataclass(frozen=True, slots=True)
class TrialOrder:
    """``after``: the GTID set that was seen already, as the servers write it; "": from now on; FIRST: all that is kept.

    ``place``: where an earlier look at the same member has ended.
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
    """See the module. ``choice``: the member that is read.

    ``file``, ``pos``, ``position``: where another look can continue.
    """

    def __init__(
        self, choice: Choice, begin: _Begin, binlog: PassingBinlog, order: TrialOrder
    ) -> None:
        self.choice = choice
        self._progress = Progress(begin.position, None, 0)
        self._place = Coordinates(SUBDIR, begin.file, begin.pos)
        self._binlog, self._order = binlog, order
        self._names = CatalogueNames(
            lambda: connect_member(choice.member, order.login, reads_tables=True)
        )
        self._ids: dict[tuple[str, str], int] = {}
        self._receiver: Background | None = None

    @property
    def file(self) -> str:
        return self._place.file

    @property
    def pos(self) -> int:
        return self._place.pos

    @property
    def position(self) -> GtidPosition:
        return self._progress.gtid_set

    @classmethod
    @contextmanager
    def open(cls, order: TrialOrder) -> Iterator["Trial"]:
        """Choose the member and begin to receive. Errors of ``choose`` and of the session."""
        after = None
        if order.after not in ("", FIRST):
            after = parse_gtid_set(ask_flavour(order.members, order.login), order.after)
        facts = ask_members(order.members, order.login, wanted=after)
        tolerated = TOLERATED if after is None else TOLERATED - {"MR-1031"}
        choice = choose(facts, wanted=after, preferences=Preferences(tolerated=tolerated))
        with ExitStack() as stack:
            session = stack.enter_context(connect_member(choice.member, order.login))
            begin = _begin(session, after, order)
            binlog = PassingBinlog(choice.flavour, file=begin.file, pos=begin.pos)
            stack.callback(binlog.close)
            trial = cls(choice, begin, binlog, order)
            stack.callback(trial._names.close)
            stream = trial._stream(session, begin)
            trial._receiver = stack.enter_context(stream)
            stack.callback(
                binlog.close
            )  # ends an ``append`` that waits, before the thread is joined
            yield trial

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings about the member that is read for which a capture task would refuse it."""
        (verdict,) = (each for each in self.choice.verdicts if each.member == self.choice.member)
        return verdict.tolerated

    @property
    def guessed(self) -> Sequence[str]:
        """The tables whose columns are named by the catalogue of now."""
        return self._names.guessed

    def _stream(self, session: MySqlSession, begin: _Begin) -> Background:
        server = ask_identity(session).dialect
        replica = ReplicaIdentity.for_set(NAME, installation=str(uuid.uuid4()))
        socket = start_dump(
            session,
            replica=replica.avoiding(ask_replica_ids(session, server)),
            flavour=self.choice.flavour,
            file=begin.file,
            pos=begin.pos,
            heartbeat_s=HEARTBEAT_S,
        )
        stream = DumpStream(
            socket,
            self._binlog,
            member=self.choice.member,
            silence_s=SILENCE_S,
            figures=StreamFigures(),
            verification=_NothingToCompare(),
            on_format=self._binlog.note_format,
        )

        def receive(stop: Event) -> None:
            stream.run(stop, file=begin.file, start=begin.pos, known_end=FIRST_POS)

        return Background("try", receive, is_checked=True)

    def batches(self) -> Iterator[RawRecords]:
        """Key and value of each record, as in a set topic, batch by batch; an empty batch while nothing comes.

        Raises the errors of the receiver and the converter, after the rows that precede them.
        """
        assert self._receiver is not None
        self._wait_for_format()
        converter, rows_max = self._converter(), ROWS_MAX
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
                    self._receiver.check()
                    yield ()
                    continue
                self._progress = batch.progress
                if batch.progress.open is None:  # a converter starts between source transactions
                    self._place = batch.coordinates
                    last, release = release, self._binlog.hold(self._place)
                    last()
                octets = batch.buffer
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
        return Converter(
            source=ConverterSource(
                NAME,
                NAME,
                choice.flavour,
                NAME,
                order.filter,
                folds_names=choice.folds_names,
                is_look=True,
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
        assert self._receiver is not None
        deadline_s = time.monotonic() + SILENCE_S
        while not self._binlog.has_format(within_s=POLL_S):
            self._receiver.check()
            if time.monotonic() > deadline_s:
                raise Retryable("MR-1046", f"{self.choice.member} sent nothing for {SILENCE_S:g} s")


class _NothingToCompare:
    """``Verification`` of bytes that no earlier connection has received."""

    def compared(self) -> None: ...

    def appended(self) -> None: ...


def _begin(session: MySqlSession, after: GtidPosition | None, order: TrialOrder) -> _Begin:
    if (place := order.place) is not None:
        return _Begin(place.file, place.pos, parse_gtid_set(session.flavour, place.position))
    if order.after:
        start = find_start_file(session, wanted=after)
        return _Begin(start.file, FIRST_POS, after or start.before)
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
