"""Checks the members of a source set: whether capture can read them, and what could go wrong later.

Whether a member may be read is decided by the rules that choose one (``choice``, ``preflight``). The same condition has
the same code here and in a task's status. A reason against one member is a failure only if no other may be read.

`check_set` asks; the other functions are pure.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from millrace.checks.clock import judge_clock
from millrace.checks.requirement import Area, Level, Requirement, Subject, shortened
from millrace.drivers.mysql.cloud import (
    AT_ONCE,
    CONFIGURATION,
    RETENTION,
    UNREADABLE,
    retention_fix,
)
from millrace.drivers.mysql.grants import (
    HEARTBEAT_PRIVILEGES,
    Grant,
    Role,
    as_grant_pattern,
    each,
    needed_grants,
    shown,
)
from millrace.drivers.mysql.members import MemberFacts
from millrace.drivers.mysql.preflight import Finding
from millrace.errors import Fatal, MillraceError
from millrace.producer.checks.answers import Answers, Tables, ask_answers, ask_tables
from millrace.producer.source.choose.choice import Preferences, Verdict, choose, verdicts_of
from millrace.producer.source.choose.chooser import ask_members
from millrace.producer.source.connection import Login, connect_member
from millrace.producer.source.set_stream import resolve_login
from millrace.schemas.documents import CaptureTask, Directives, SetDocument, TableFilter, TlsMode
from millrace.schemas.gtid import Flavour, parse_gtid_set
from millrace.wording import counted

ANSWER_S = 5.0  # for each answer of a member

# code of the refusal, name of the requirement, the setting that shows it ("": see ``_held``), wanted
_SETTINGS = (
    ("MR-1023", "version", "", ""),
    ("MR-1010", "log_bin", "log_bin", "ON"),
    ("MR-1011", "log_replica_updates", "log_replica_updates", "ON"),
    ("MR-1012", "binlog_format", "binlog_format", "ROW"),
    ("MR-1013", "binlog_row_image", "binlog_row_image", "FULL"),
    ("MR-1014", "binlog_row_metadata", "binlog_row_metadata", "FULL"),
    ("MR-1015", "binlog_row_value_options", "binlog_row_value_options", "empty"),
    ("MR-1016", "gtid_mode", "gtid_mode", "ON"),
    ("MR-1017", "gtid_strict_mode", "gtid_strict_mode", "ON"),
    ("MR-1018", "replication filters", "", "none"),
    ("MR-1019", "binlog_checksum", "binlog_checksum", "CRC32"),
    ("MR-1022", "replica_preserve_commit_order", "replica_preserve_commit_order", "ON"),
    ("MR-1032", "errant transactions", "", "none"),
)


@dataclass(frozen=True, slots=True)
class SourceUse:
    """How a set is used: its capture tasks, where each continues ("": the first binlog), and the operator's wishes.

    ``asked``: patterns of the tables whose rows publish tasks ask for. ``other_grants``: what the account needs for
    other roles. ``pause_s``: the longest pause that tasks must survive.
    """

    tasks: Sequence[CaptureTask] = ()
    positions: Mapping[str, str] = field(default_factory=dict)
    directives: Directives = field(default_factory=Directives)
    asked: Sequence[str] = ()
    other_grants: Callable[[Flavour], Sequence[Grant]] = lambda _: ()
    pause_s: float = 0.0


def check_set(document: SetDocument, use: SourceUse) -> Iterator[Requirement]:
    """Ask every member, and judge the answers. Fatal MR-4106 if the password can't be read."""
    login = resolve_login(document)
    whole = Subject(Area.SOURCE, f"set {document.name}")
    facts = ask_members(document.members, login, wanted=None, timeout_s=ANSWER_S)
    answering = [fact for fact in facts if fact.error is None]
    if answering:
        yield from _positions(whole, facts, login, use)
    try:
        verdicts = verdicts_of(facts, wanted=None, directives=use.directives, is_live=False)
    except MillraceError as error:  # two primaries
        yield whole.error("one primary", error)
    else:
        starts_first = any(not use.positions.get(task.name) for task in use.tasks)
        yield from judge_set(facts, verdicts, tls=document.tls.mode, starts_first=starts_first)
    answers = ask_answers([fact.member for fact in answering], login, timeout_s=ANSWER_S)
    yield from judge_server_ids(
        whole, {str(got.member): got.server_id for got in answers if isinstance(got, Answers)}
    )
    for fact, got in zip(answering, answers, strict=True):
        if isinstance(got, MillraceError):
            yield Subject(Area.SOURCE, str(fact.member)).error("answers", got)
        else:
            yield from judge_answers(fact, got, document, use)
    yield from _tables(whole, answering, login, use)


def _positions(
    whole: Subject, facts: Sequence[MemberFacts], login: Login, use: SourceUse
) -> Iterator[Requirement]:
    """Whether a member can be read from the position of each task; without tasks, from the first binlog."""
    wanted: dict[str, list[str]] = {}
    for task in use.tasks:
        wanted.setdefault(use.positions.get(task.name, ""), []).append(task.name)
    for position, names in (wanted or {"": []}).items():
        what = f"position of {', '.join(names)}" if names else "first binlog"
        try:
            yield whole.ok(what, _chosen(facts, login, position, use.directives))
        except MillraceError as error:
            yield whole.error(what, error)


def _chosen(
    facts: Sequence[MemberFacts], login: Login, position: str, directives: Directives
) -> str:
    """The member that a start at the position would read. Errors: see ``choose``. Silent members stay silent."""
    flavour = next(fact.identity.flavour for fact in facts if fact.identity is not None)
    wanted = parse_gtid_set(flavour, position) if position else None
    if wanted is not None:
        silent = [fact for fact in facts if fact.error is not None]
        asked = [fact.member for fact in facts if fact.error is None]
        facts = [*ask_members(asked, login, wanted=wanted, timeout_s=ANSWER_S), *silent]
    choice = choose(facts, wanted=wanted, preferences=Preferences(directives=directives))
    count = sum(verdict.is_admissible for verdict in choice.verdicts)
    return f"{count} of {counted(len(facts), 'member')} can continue from it"


def judge_set(
    facts: Sequence[MemberFacts], verdicts: Sequence[Verdict], *, tls: TlsMode, starts_first: bool
) -> Iterator[Requirement]:
    """The requirements of every member. ``starts_first``: a task begins at the first binlog."""
    level = Level.WARN if any(verdict.is_admissible for verdict in verdicts) else Level.FAIL
    for fact, verdict in zip(facts, verdicts, strict=True):
        subject = Subject(Area.SOURCE, str(fact.member))
        reasons = {reason.code: reason for reason in verdict.reasons}
        if not starts_first:
            reasons.pop("MR-1031", None)  # the position of each task reports it
        if fact.error is not None:
            yield _refused(subject, "answers", reasons[fact.error.code], level)
            continue
        yield subject.ok("answers", f"{verdict.role}, tls: {tls}")
        for code, what, name, wanted in _SETTINGS:
            if code in reasons:
                yield _refused(subject, what, reasons.pop(code), level, wanted=wanted)
            elif (found := _held(fact, code, name)) is not None:
                yield subject.ok(what, found or "empty")
        for reason in reasons.values():
            yield _refused(subject, "may be read", reason, level)


def _refused(
    subject: Subject, what: str, reason: Finding, level: Level, *, wanted: str = ""
) -> Requirement:
    make = subject.warn if level is Level.WARN else subject.fail
    return make(reason.code, what, found=reason.message, wanted=wanted, fix=reason.fix)


def _held(fact: MemberFacts, code: str, name: str) -> str | None:
    """The text for a requirement that holds; None if this member has no such setting."""
    assert fact.identity is not None
    if name:
        return fact.variables.get(fact.identity.dialect.variable(name))
    if code == "MR-1023":
        return fact.identity.version
    return "none" if fact.replications else None


def judge_server_ids(whole: Subject, ids: Mapping[str, str]) -> Iterator[Requirement]:
    """MR-4160 if two members have one server id: replication would drop each other's changes."""
    by_id: dict[str, list[str]] = {}
    for member, server_id in ids.items():
        by_id.setdefault(server_id, []).append(member)
    for server_id, members in by_id.items():
        if len(members) > 1:
            found = f"{' and '.join(members)} have server_id={server_id}"
            yield whole.fail("MR-4160", "server ids", found=found, wanted="each member its own")
            return
    if ids:
        yield whole.ok("server ids", ", ".join(sorted(by_id)))


def judge_answers(
    fact: MemberFacts, got: Answers, document: SetDocument, use: SourceUse
) -> Iterator[Requirement]:
    """The requirements of one member that only the check asks for."""
    subject = Subject(Area.SOURCE, str(fact.member))
    assert fact.identity is not None
    flavour = fact.identity.flavour
    yield _privileges(subject, got, flavour, use)
    if fact.is_primary:
        yield judge_logged(subject, got.binlog_filters)
        if document.heartbeat.database:
            yield judge_heartbeat(subject, got, document)
    yield judge_expiry(subject, fact, use.pause_s, account=got.grants.account)
    yield judge_clock(subject, got.clock)


def judge_logged(subject: Subject, filters: Sequence[str]) -> Requirement:
    """MR-4179 if the primary logs only some databases. A replica that filters is not read at all (MR-1018)."""
    if filters:
        return subject.warn("MR-4179", "logged databases", found=", ".join(filters), wanted="all")
    return subject.ok("logged databases", "all")


def _privileges(subject: Subject, got: Answers, flavour: Flavour, use: SourceUse) -> Requirement:
    """MR-1005 and MR-4161. The queries of the check do not need all privileges: MariaDB's dump needs another one."""
    captured = (task.tables.include for task in use.tasks if task.begins_with_rows)
    patterns = {as_grant_pattern(pattern) for each in (use.asked, *captured) for pattern in each}
    needed = needed_grants(Role.SOURCE, flavour)
    needed += needed_grants(Role.SNAPSHOT, flavour, sorted(patterns))
    if missing := got.grants.missing(needed):
        return subject.fail(
            "MR-1005", "privileges", found=str(missing), wanted=shown(needed), fix=missing.fix
        )
    allowed = (*needed, *use.other_grants(flavour))
    if excess := got.grants.excess(allowed):
        fix = got.grants.revoking(excess, allowed)
        return subject.warn(
            "MR-4161", "privileges", found=shortened(each(excess)), wanted=shown(allowed), fix=fix
        )
    return subject.ok("privileges", "sufficient, and no more")


def judge_heartbeat(subject: Subject, got: Answers, document: SetDocument) -> Requirement:
    """MR-1047 unless the primary has the heartbeat's database and the account may write there."""
    name = document.heartbeat.database
    pattern = as_grant_pattern(name)
    fixes = [] if name in got.databases else [f"CREATE DATABASE `{name}`;"]
    if missing := got.grants.missing(needed_grants(Role.HEARTBEAT, Flavour.MYSQL, (pattern,))):
        fixes.append(missing.fix)
    if fixes:
        held = sorted(got.grants.on(pattern) & set(HEARTBEAT_PRIVILEGES))
        there = "" if name in got.databases else f"no database {name} is visible; "
        return subject.warn(
            "MR-1047",
            "heartbeat",
            found=f"{there}{', '.join(held) or 'no privilege'} on {name}.*",
            wanted=f"{', '.join(HEARTBEAT_PRIVILEGES)} on {name}.*",
            fix=" ".join(fixes),
        )
    return subject.ok("heartbeat", f"database {name}")


def judge_expiry(
    subject: Subject, fact: MemberFacts, pause_s: float, *, account: str
) -> Requirement:
    """MR-4162 if the server purges binlogs before the longest pause is over. ``account``: as SQL, for the fix."""
    kept_s = fact.kept_s
    retention = fact.variables.get(RETENTION, "")
    found = "without a limit" if kept_s is None else f"{kept_s / 3600:.1f} h"
    if retention == AT_ONCE:
        found = f"`{RETENTION}` is NULL: the server purges them as soon as it can"
    elif retention == UNREADABLE:
        found = f"unknown: the account can't read {CONFIGURATION}"
    if kept_s is None or kept_s >= pause_s:
        return subject.ok("binlogs are kept", found)
    return subject.warn(
        "MR-4162",
        "binlogs are kept",
        found=found,
        wanted=f"at least {pause_s / 3600:g} h (--pause-h)",
        fix=retention_fix(fact.cloud, retention, pause_s, account),
    )


def _tables(
    whole: Subject, facts: Sequence[MemberFacts], login: Login, use: SourceUse
) -> Iterator[Requirement]:
    """Ask the first of these members."""
    admitted = [task.tables for task in use.tasks] or [TableFilter()]
    for fact in facts[:1]:
        with connect_member(fact.member, login, timeout_s=ANSWER_S) as connection:
            yield judge_tables(whole, ask_tables(connection, admitted))


def judge_tables(whole: Subject, tables: Tables) -> Requirement:
    """MR-4164 if there are tables without a primary key; their rows are applied one by one."""
    what = "primary keys"
    if not tables.count:
        return whole.ok(what, "the account sees no table (needs SELECT)")
    if not tables.keyless:
        return whole.ok(what, f"in each of {tables.count} visible tables")
    return whole.warn(
        "MR-4164", what, found=f"none in {shortened(tables.keyless)}", wanted="in every table"
    )


def widest_row(document: SetDocument, tables: TableFilter) -> Tables:
    """The tables of the first member that answers. Fatal MR-1001, … if none does."""
    login = resolve_login(document)
    errors: list[MillraceError] = []
    for member in document.members:
        try:
            with connect_member(member, login, timeout_s=ANSWER_S) as connection:
                return ask_tables(connection, [tables])
        except MillraceError as error:
            errors.append(error)
    raise errors[0] if errors else Fatal("MR-1020", f"set {document.name} has no members")


def folds_names(document: SetDocument) -> bool | None:
    """Whether the source stores table names in lower case; None if no member answers."""
    for fact in ask_members(
        document.members, resolve_login(document), wanted=None, timeout_s=ANSWER_S
    ):
        if fact.error is None:
            return fact.variables.get("lower_case_table_names", "0") != "0"
    return None
