"""Finds the binlog file of a server to start from, so that no wanted transaction is missed and few others are read.

The first events of a file list the GTIDs logged before it. The first wanted transaction is in the newest file whose
list contains no wanted transaction. The transactions in older files are all published.

Transactions that a server received without their binlog (from a dump, xtrabackup or a clone) are in none of its files:

| flavour | how they are registered           | where they are found                                                   |
|---------|-----------------------------------|------------------------------------------------------------------------|
| MySQL   | ``SET GLOBAL gtid_purged``        | in the same variable                                                   |
| MariaDB | ``SET GLOBAL gtid_slave_pos``     | a domain missing from the file's list: everything before the first     |
|         |                                   | logged GTID of it; a domain never logged: in the same variable         |

Guarantees: the file never starts after the first wanted transaction. Otherwise Fatal MR-1031 names the missing
transactions. Fatal MR-1033: MariaDB logged another transaction with the sequence of a published one. Fatal MR-6503: a
MySQL file between the published transactions and the first wanted one has transactions without a GTID.
Not done here: reading the file; a MariaDB that kept its binlog and was given a later position.
The queries need REPLICATION SLAVE (MariaDB: also BINLOG MONITOR) and take some milliseconds per file.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from millrace.drivers.mysql.connection import MySqlSession
from millrace.drivers.mysql.dump_errors import explain_dump_error
from millrace.drivers.mysql.errors import COMMAND_FAILED
from millrace.errors import Fatal, Retryable
from millrace.schemas.documents.model import Member
from millrace.schemas.gtid import (
    Flavour,
    GtidPosition,
    GtidSet,
    MariadbGtid,
    MariadbGtidSet,
    has_same_sequence_from_other_server,
    is_logged,
    parse_binlog_state,
    parse_gtid_set,
    unite,
)

HEAD_EVENTS_MAX = 4  # format description, MariaDB's START_ENCRYPTION if any, previous GTIDs
PAGE_EVENTS = 1000  # per query: MariaDB blocks commits meanwhile, about a millisecond

_MARIADB_GTID = re.compile(r"[0-9]+-[0-9]+-[0-9]+", re.ASCII)
_MARIADB_BEGIN = re.compile(r"\bGTID ([0-9]+-[0-9]+-[0-9]+)", re.ASCII)


@dataclass(frozen=True, slots=True)
class StartFile:
    """The file to start from. ``before``: the GTIDs executed earlier, none of which is in it or in a later file."""

    file: str
    before: GtidPosition


def list_binlog_files(session: MySqlSession) -> dict[str, int]:
    """The size in bytes by file name, oldest file first; empty if the server writes no binlog."""
    return {
        str(row["Log_name"]): int(str(row["File_size"] or 0))
        for row in session.named("SHOW BINARY LOGS")
    }


def find_start_file(
    session: MySqlSession,
    *,
    wanted: GtidPosition | None,
    page_events: int = PAGE_EVENTS,
) -> StartFile:
    """The file to start from to read everything after ``wanted`` (None: everything in the binlog)."""
    files = list(list_binlog_files(session))
    if not files:
        raise Fatal("MR-1010", f"{session.name} has no binlog files", member=session.name)
    index = 0 if wanted is None else len(files) - 1
    before = previous_gtids(session, files[index])
    while wanted is not None and index and not wanted.includes(before):
        index -= 1
        before = previous_gtids(session, files[index])
    from_backup, listed = MariadbGtidSet.of(()), before
    if session.flavour is Flavour.MYSQL:
        if listed == wanted:
            _check_anonymous(session, files[:index], listed)
        before = unite(before, _variable(session, "gtid_purged"))
    else:
        assert isinstance(listed, MariadbGtidSet)
        before = _with_unlogged(session, files[index:], listed, page_events)
        from_backup = MariadbGtidSet.of(g for g in before.gtids() if listed.last(g.domain) is None)
    if wanted is not None and not wanted.includes(before):
        raise Fatal(
            "MR-1031",
            f"the binlog of {session.name} is missing {_describe_missing(wanted, before)},"
            " which is not yet processed",
            member=session.name,
            oldest_file=files[0],
        )
    if isinstance(wanted, MariadbGtidSet):
        _check_history(session, wanted, from_backup)
        # The server's binlog state may have dropped the GTID; the file's list still has it.
        if has_same_sequence_from_other_server(listed, wanted):
            raise _history_error(session, wanted)
    return StartFile(files[index], before)


def previous_gtids(session: MySqlSession, file: str) -> GtidPosition:
    """The GTIDs logged before ``file``, from the head of the file."""
    kind = "Previous_gtids" if session.flavour is Flavour.MYSQL else "Gtid_list"
    for row in binlog_events(session, file, HEAD_EVENTS_MAX):
        if row["Event_type"] == kind:
            text = str(row["Info"] or "")
            return (
                GtidSet.parse(text) if session.flavour is Flavour.MYSQL else parse_gtid_list(text)
            )
    raise Retryable(
        "MR-1040",
        f"{session.name}: {file} does not list its previous GTIDs",
        member=session.name,
    )


def _check_anonymous(session: MySqlSession, earlier: Sequence[str], listed: GtidPosition) -> None:
    """Refuse files right before the start that have transactions without a GTID: they are not published.

    No list of GTIDs shows such a file, so it looks like one without transactions. MySQL begins a new file when
    ``gtid_mode`` changes. Fatal MR-6503.
    """
    for file in reversed(earlier):
        head = binlog_events(session, file, HEAD_EVENTS_MAX)
        if any(row["Event_type"] == "Anonymous_Gtid" for row in head):
            raise Fatal(
                "MR-6503",
                f"{file} of {session.name} has transactions without a GTID that no task has published",
                member=session.name,
                file=file,
            )
        if previous_gtids(session, file) != listed:
            return


def parse_gtid_list(text: str) -> MariadbGtidSet:
    """Parse ``[0-1-5,\\n0-2-7,…]`` as printed by SHOW BINLOG EVENTS; the last GTID of each domain counts."""
    found = (MariadbGtid.parse(item) for item in _MARIADB_GTID.findall(text))
    return MariadbGtidSet.of({gtid.domain: gtid for gtid in found}.values())


def _with_unlogged(
    session: MySqlSession, files: Sequence[str], before: MariadbGtidSet, page_events: int
) -> MariadbGtidSet:
    """``before`` plus everything before the first GTID of each domain missing in it. ``files`` begins with its file."""
    executed = _variable(session, "gtid_slave_pos")  # it may grow: queried first
    logged = _variable(session, "gtid_binlog_pos")
    found: GtidPosition = before
    open_domains = _domains(logged) - _domains(before)
    for file, following in zip(files, [*files[1:], None], strict=True):
        if not open_domains:
            break
        here = open_domains
        if following is not None:
            listed = previous_gtids(session, following)
            here = open_domains & _domains(listed)
        open_domains = open_domains - here
        for gtid in _first_gtids(session, file, here, page_events):
            if gtid.sequence > 1:
                earlier = MariadbGtid(gtid.domain, gtid.server, gtid.sequence - 1)
                found = unite(found, MariadbGtidSet.of([earlier]))
    assert isinstance(executed, MariadbGtidSet)
    unlogged = [gtid for gtid in executed.gtids() if gtid.domain not in _domains(logged)]
    whole = unite(found, MariadbGtidSet.of(unlogged))
    assert isinstance(whole, MariadbGtidSet)
    return whole


def _check_history(
    session: MySqlSession, wanted: MariadbGtidSet, from_backup: MariadbGtidSet
) -> None:
    """Refuse a server that logged another transaction in place of a published one; Fatal MR-1033.

    A server that has not reached ``wanted`` is accepted: it may still get there. ``from_backup``: the transactions of a
    backup, in domains that are missing from the list of the start file.
    """
    state = ask_binlog_state(session)
    for gtid in wanted.gtids():
        is_passed = any(
            last.domain == gtid.domain and last.sequence >= gtid.sequence for last in state
        )
        if is_passed and not is_logged(gtid, state, from_backup):
            raise _history_error(session, gtid)


def _history_error(session: MySqlSession, done: object) -> Fatal:
    return Fatal(
        "MR-1033",
        f"{session.name} logged another transaction in place of {done}, which is already processed",
        member=session.name,
    )


def next_logged(
    session: MySqlSession,
    done: MariadbGtidSet,
    domain: int,
    *,
    page_events: int = PAGE_EVENTS,
) -> MariadbGtid | None:
    """MariaDB: the first transaction of ``domain`` after ``done`` in the server's binlog; None if there is none yet.

    Fatal MR-1031 if the server has purged it.
    """
    first = find_start_file(session, wanted=done).file
    files = list(list_binlog_files(session))
    for file in files[files.index(first) :]:
        for gtid in _logged_gtids(session, file, page_events):
            if gtid.domain == domain and not done.covers(gtid):
                return gtid
    return None


def ask_binlog_state(session: MySqlSession) -> tuple[MariadbGtid, ...]:
    """MariaDB's last GTID of each domain and server."""
    (row,) = session.named("SELECT @@GLOBAL.gtid_binlog_state AS gtids")
    return parse_binlog_state(str(row["gtids"] or ""))


def _first_gtids(
    session: MySqlSession, file: str, domains: frozenset[int], page_events: int
) -> Iterator[MariadbGtid]:
    """The first GTID of each of ``domains`` in ``file``."""
    if not domains:
        return
    for gtid in _logged_gtids(session, file, page_events):
        if gtid.domain in domains:
            domains -= {gtid.domain}
            yield gtid
            if not domains:
                return


def _logged_gtids(session: MySqlSession, file: str, page_events: int) -> Iterator[MariadbGtid]:
    """Every GTID in ``file``, in the file's order."""
    pos, last = 4, -1
    while True:
        rows = binlog_events(session, file, page_events, pos=pos)
        for row in rows:
            begin = _MARIADB_BEGIN.search(str(row["Info"])) if row["Event_type"] == "Gtid" else None
            at = int(str(row["Pos"] or 0))
            if begin and at > last:
                last = at
                yield MariadbGtid.parse(begin[1])
        if len(rows) < page_events:
            return
        # the last event again: events in a group don't name their end
        pos = int(str(rows[-1]["Pos"] or 0))


def binlog_events(
    session: MySqlSession, file: str, count: int, *, pos: int = 0
) -> Sequence[Mapping[str, object]]:
    """The first events of a file, or those from ``pos`` on. An event that can't be shown has the code of a dump."""
    begin = f" FROM {pos}" if pos else ""
    try:
        return session.named(f"SHOW BINLOG EVENTS IN {_quoted(file)}{begin} LIMIT {count}")
    except Fatal as error:
        if error.errno != COMMAND_FAILED:
            raise
        text = error.message.removeprefix(f"{session.name}: ")
        raise explain_dump_error(COMMAND_FAILED, text, Member.parse(session.name)) from error


def _domains(position: GtidPosition) -> frozenset[int]:
    assert isinstance(position, MariadbGtidSet)
    return frozenset(gtid.domain for gtid in position.gtids())


def _variable(session: MySqlSession, name: str) -> GtidPosition:
    (row,) = session.named(f"SELECT @@GLOBAL.{name} AS gtids")
    return parse_gtid_set(session.flavour, str(row["gtids"] or ""))


def _quoted(file: str) -> str:
    return "'" + file.replace("\\", "\\\\").replace("'", "''") + "'"


def _describe_missing(wanted: GtidPosition, before: GtidPosition) -> str:
    if isinstance(wanted, GtidSet) and isinstance(before, GtidSet):
        return str(before - wanted)
    if isinstance(wanted, MariadbGtidSet) and isinstance(before, MariadbGtidSet):
        uncovered = [gtid for gtid in before.gtids() if not wanted.covers(gtid)]
        return ", ".join(
            f"{wanted.last(gtid.domain) or 'the start'} to {gtid}" for gtid in uncovered
        )
    return "wanted transactions"
