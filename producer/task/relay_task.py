"""Runs the relay of a set that has ``relay: always``: it receives while no task of the set runs, or none exists.

It shares the set's stream with the tasks on the same worker (``producer.source.set_streams``); all of a set's tasks and
its relay are on one worker.

Where a relay starts, by the first rule that applies:

1. at the earliest position that a task of the set has published, or was created with;
2. at the end of the relay log, as its relay.meta has it;
3. at ``relay.start`` of the set document: the oldest binlog, a GTID set, or a binlog file of a member.

Guarantees: when ``run`` returns or raises, its threads are joined. Not done here: receiving
(``producer.source.feed``).
"""

import threading
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from millrace.background import chore
from millrace.drivers.mysql.members import ask_replications
from millrace.drivers.mysql.start_file import list_binlog_files, previous_gtids
from millrace.errors import Fatal, MillraceError
from millrace.log import get_logger
from millrace.producer.relay import layout
from millrace.producer.relay.files import disk_errors
from millrace.producer.relay.purge import Positions
from millrace.producer.source.choose.chooser import ask_flavour
from millrace.producer.source.connection import Login, connect_member
from millrace.producer.source.set_stream import Upstream, resolve_login
from millrace.producer.source.set_streams import Upstreams
from millrace.schemas.documents import RelayTask, SetDocument, is_binlog_file
from millrace.schemas.documents.model import Member
from millrace.schemas.gtid import Flavour, GtidPosition, earliest, parse_gtid_set
from millrace.schemas.status import TaskReport, TaskState
from millrace.zk.run.runner import HeldLease, Report, SetSource

# The interval of the checks whether relay files are due, or status figures old; the stream has its own limits.
PURGE_CHECK_S = 0.5
LOOK_S = 0.1
REPORT_EVERY = 10  # looks

log = get_logger("producer.task.relay_task")


class RelayRunner:
    """Runs the relays of one worker (``zk.run.runner.TaskRunner``)."""

    def __init__(self, sets: SetSource, streams: Upstreams) -> None:
        self._sets = sets
        self._streams = streams

    def run(
        self, task: RelayTask, *, lease: HeldLease, stop: threading.Event, report: Report
    ) -> None:
        """Receive until ``stop`` is set; see the module."""
        lease.verify()
        document = self._sets.set_document(task.set_name)
        flavour = ask_flavour(document.members, resolve_login(document))
        wanted = self._wanted(document, flavour)
        purge = needed_positions(self._sets, task.set_name, flavour)
        with (
            self._streams.attach(task.name, document, wanted=wanted) as stream,
            chore("purge", partial(stream.purge_if_due, purge), every_s=PURGE_CHECK_S) as purging,
        ):
            looks = 0
            while not stop.is_set():
                stream.check()
                purging.check()
                if looks % REPORT_EVERY == 0:
                    report(_report(stream))
                looks += 1
                stop.wait(LOOK_S)

    def _wanted(self, document: SetDocument, flavour: Flavour) -> GtidPosition | None:
        """The position after which the relay receives; None: from the oldest binlog."""
        texts = self._sets.positions_of(document.name)
        if texts:
            known = [parse_gtid_set(flavour, text) if text else None for text in texts.values()]
            return earliest(known)
        if (end := _relay_end(self._streams.root / document.name, flavour)) is not None:
            return end
        start = document.relay.start
        if start == "first":
            return None
        if is_binlog_file(start):
            return find_position_before(start, document.members, resolve_login(document))
        return parse_gtid_set(flavour, start)


def needed_positions(
    sets: SetSource, set_name: str, flavour: Flavour
) -> Callable[[], Positions | None]:
    """Returns a function for the published positions of the set's tasks; it returns None while they are unknown.

    The position of a task that has published nothing and starts at the first binlog is None: it needs every file.
    """

    def needed() -> Positions | None:
        try:
            texts = sets.positions_of(set_name, is_complete=True)
            return {
                task: parse_gtid_set(flavour, text) if text else None
                for task, text in texts.items()
            }
        except MillraceError as error:
            log.warning("purge skipped: the set's tasks are unknown", error=str(error))
            return None

    return needed


def _report(stream: Upstream) -> TaskReport:
    relayed = stream.relayed()
    return TaskReport(
        TaskState.RUNNING,
        why=f"{relayed.stage}: {relayed.why}",
        gtid_set=relayed.relay.gtid_set,
        captured=stream.captured(),
        relayed=relayed,
    )


def _relay_end(root: Path, flavour: Flavour) -> GtidPosition | None:
    """The end of the relay log by the newest relay.meta; None if there is no log or the file is not usable."""
    with disk_errors(root):
        subdirs = layout.find_subdirs(root)
        meta = layout.read_meta(root / str(subdirs[-1])) if subdirs else None
    if meta is None:
        return None
    try:
        return parse_gtid_set(flavour, meta.binlog_gtid)
    except Fatal as error:
        log.warning("relay.meta ignored", directory=str(root), error=error)
        return None


def find_position_before(file: str, members: Iterable[Member], login: Login) -> GtidPosition:
    """The GTIDs logged before ``file`` on the primary, or else on the first replica that has such a file.

    Fatal MR-1038 if no member that answers has it; if none answers, the error of the last one.
    """
    of_replica: GtidPosition | None = None
    failure: MillraceError | None = None
    is_answered = False
    for member in members:
        try:
            with connect_member(member, login) as connection:
                is_answered = True
                if file not in list_binlog_files(connection):
                    continue
                before = previous_gtids(connection, file)
                if not ask_replications(connection):
                    return before
                of_replica = of_replica or before
        except MillraceError as error:
            failure = error
    if of_replica is not None:
        return of_replica
    if not is_answered and failure is not None:
        raise failure
    raise Fatal("MR-1038", f"no member has the binlog file {file}", file=file)
