"""The facts of a set's members, by questions to all of them at the same time. Both halves ask here.

The primary's position is asked again after all others. A replica's transactions that are missing from it then did not
come from the primary (``find_errant``), and a replica's lag is never underestimated.

Guarantees: a member that can't be asked is in the result, with its error. Needs REPLICATION CLIENT, for the binlog also
REPLICATION SLAVE, and sends a few queries per member.

Not done here: judging settings (``preflight``), and which member is read. Capture chooses a binlog
(``producer.source.choose.choice``), a load and a comparison choose rows (``consumer.load.source``), and apply a primary
to write to (``primary``).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import TypeVar

from millrace.drivers.mysql.cloud import (
    CLOUD_VARIABLES,
    RETENTION,
    Cloud,
    ask_replica_status,
    ask_retention,
    cloud_of,
    hides_own_tables,
    is_reader,
    retained_s,
)
from millrace.drivers.mysql.connection import MySqlSession
from millrace.drivers.mysql.errors import MISSING_PRIVILEGE
from millrace.drivers.mysql.start_file import ask_binlog_state, find_start_file
from millrace.errors import Fatal, MillraceError
from millrace.schemas.documents.model import Member
from millrace.schemas.gtid import (
    Flavour,
    GtidPosition,
    GtidSet,
    MariadbGtid,
    MariadbGtidSet,
    is_logged,
    parse_gtid_set,
)
from millrace.schemas.server_version import ServerVersion

VARIABLES = (
    "read_only",
    "log_bin",
    "log_replica_updates",
    "log_slave_updates",
    "binlog_format",
    "binlog_row_image",
    "binlog_row_metadata",
    "binlog_row_value_options",
    "binlog_checksum",
    "gtid_mode",
    "gtid_strict_mode",
    "lower_case_table_names",
    "replica_parallel_workers",
    "slave_parallel_workers",
    "replica_preserve_commit_order",
    "slave_preserve_commit_order",
    "binlog_expire_logs_seconds",
    "binlog_expire_logs_auto_purge",
    "expire_logs_days",
    *CLOUD_VARIABLES,
)

S = TypeVar("S")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Identity:
    """``server`` is MySQL's server_uuid, or MariaDB's ``<gtid_domain_id>-<server_id>``."""

    flavour: Flavour
    server: str
    version: str  # the result of VERSION()

    @property
    def dialect(self) -> ServerVersion:
        """The statements that this version supports."""
        return ServerVersion.parse(self.version)


@dataclass(frozen=True, slots=True)
class Replication:
    """One connection of a replica to its source, which is ``host:port``.

    ``lag_s``: the server's own opinion; None unless both threads run. ``filters``: such as ``Replicate_Do_DB=shop``,
    among them those of the replica's binlog. ``stopped``: the threads that do not run, each with its error.
    """

    lag_s: float | None
    filters: tuple[str, ...] = ()
    source: str = ""
    stopped: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MemberBinlog:
    """The binlog of a member: executed GTIDs, and the GTIDs executed before the oldest file."""

    position: GtidPosition
    oldest_before: GtidPosition
    # why the wanted transactions can't be read here (now)
    wanted_error: MillraceError | None = None
    state: tuple[MariadbGtid, ...] = ()  # MariaDB: the last GTID of each domain and server


@dataclass(frozen=True, slots=True)
class MemberFacts:
    """The answers of a member. Either ``error`` or the other fields are set. A primary has no ``replications``."""

    member: Member
    error: MillraceError | None = None
    identity: Identity | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    replications: tuple[Replication, ...] = ()
    binlog: MemberBinlog | None = None  # None: it writes none

    @property
    def is_primary(self) -> bool:
        """Whether the member answered and is not a replica. An Aurora replica replicates from no server."""
        return self.error is None and not self.replications and not is_reader(self.variables)

    @property
    def cloud(self) -> Cloud | None:
        """The provider that runs the server, if any."""
        version = "" if self.identity is None else self.identity.version
        return cloud_of(version, self.variables)

    @property
    def lag_s(self) -> float | None:
        """The greatest lag of its connections, 0 for a primary; None while one does not replicate."""
        return greatest_lag_s(self.replications)

    @property
    def kept_s(self) -> float | None:
        """How long the server keeps a binlog file before it purges it; None: without a limit in time, or unknown."""
        if RETENTION in self.variables:
            return retained_s(self.variables[RETENTION])
        if self.variables.get("binlog_expire_logs_auto_purge", "ON") != "ON":
            return None
        seconds = float(self.variables.get("binlog_expire_logs_seconds", 0))
        return seconds or float(self.variables.get("expire_logs_days", 0)) * 86_400 or None


def greatest_lag_s(replications: Iterable[Replication]) -> float | None:
    """0 without a replication; None if one does not replicate."""
    lags_s = [one.lag_s for one in replications]
    known_s = [lag_s for lag_s in lags_s if lag_s is not None]
    return max(known_s, default=0.0) if len(known_s) == len(lags_s) else None


def find_errant(position: GtidPosition, reference: MemberBinlog) -> str:
    """The GTIDs of ``position`` that are missing in ``reference``, which was queried later; "" if there are none.

    For MariaDB, only the last GTID of each domain is known and checked.
    """
    reached = reference.position
    if isinstance(position, GtidSet) and isinstance(reached, GtidSet):
        return str(position - reached)
    assert isinstance(position, MariadbGtidSet)
    return ",".join(str(gtid) for gtid in position.gtids() if not _contains(reference, gtid))


def _contains(reference: MemberBinlog, gtid: MariadbGtid) -> bool:
    reached, oldest = reference.position, reference.oldest_before
    assert isinstance(reached, MariadbGtidSet)
    assert isinstance(oldest, MariadbGtidSet)
    last = reached.last(gtid.domain)
    if last is None or last.sequence <= gtid.sequence:
        return last == gtid
    return not reference.state or is_logged(gtid, reference.state, oldest)


def ask_each(servers: Sequence[S], ask: Callable[[S], T]) -> list[T | MillraceError]:
    """Ask all at the same time: the answer or the error of each, in the same order."""

    def answer(server: S) -> T | MillraceError:
        try:
            return ask(server)
        except MillraceError as error:
            return error

    with ThreadPoolExecutor(max_workers=len(servers) or 1, thread_name_prefix="members") as pool:
        return list(pool.map(answer, servers))


def ask_members(
    members: Sequence[Member],
    connect: Callable[[Member], MySqlSession],
    *,
    wanted: GtidPosition | None = None,
) -> tuple[MemberFacts, ...]:
    """Query all members at the same time; the result has the same order. ``wanted``: whether it can be read there."""

    def ask(member: Member) -> MemberFacts:
        with closing(connect(member)) as session:
            return ask_member(session, member, wanted=wanted)

    answers = ask_each(members, ask)
    return tuple(
        _with_later_position(_or_error(member, answer), connect)
        for member, answer in zip(members, answers, strict=True)
    )


def _or_error(member: Member, answer: MemberFacts | MillraceError) -> MemberFacts:
    return MemberFacts(member, error=answer) if isinstance(answer, MillraceError) else answer


def _with_later_position(
    fact: MemberFacts, connect: Callable[[Member], MySqlSession]
) -> MemberFacts:
    if not fact.is_primary or fact.binlog is None:
        return fact
    try:
        with closing(connect(fact.member)) as session:
            position = ask_position(session)
            state = _ask_state(session)
    except MillraceError as error:
        return MemberFacts(fact.member, error=error)
    return replace(fact, binlog=replace(fact.binlog, position=position, state=state))


def ask_member(
    session: MySqlSession, member: Member, *, wanted: GtidPosition | None = None
) -> MemberFacts:
    """Query one member. Errors: those of the session, and Fatal MR-1020."""
    identity = ask_identity(session)
    variables = _ask_variables(session)
    if cloud_of(identity.version, variables) in (Cloud.RDS, Cloud.AURORA):
        variables[RETENTION] = ask_retention(session)
    replications = ask_replications(session)
    if replications:
        filters = tuple(ask_binlog_filters(session))
        replications = tuple(
            replace(one, filters=tuple(sorted({*one.filters, *filters}))) for one in replications
        )
    binlog = None
    if variables.get("log_bin") == "ON":
        binlog = ask_binlog(session, wanted=wanted)
    return MemberFacts(
        member,
        identity=identity,
        variables=variables,
        replications=replications,
        binlog=binlog,
    )


def ask_identity(session: MySqlSession) -> Identity:
    """Query a server's identity. Fatal MR-1020 if it is neither MySQL nor MariaDB."""
    version = session.version_text
    if "mariadb" in version.lower():
        row = session.named("SELECT @@gtid_domain_id AS domain, @@server_id AS server")[0]
        return Identity(Flavour.MARIADB, f"{row['domain']!s}-{row['server']!s}", version)
    rows = session.named("SHOW GLOBAL VARIABLES LIKE 'server_uuid'")
    if not rows:
        what = f"{session.name} ({version}) has no server_uuid"
        raise Fatal("MR-1020", what, member=session.name)
    return Identity(Flavour.MYSQL, str(rows[0]["Value"]).lower(), version)


def ask_position(session: MySqlSession) -> GtidPosition:
    """The GTIDs in the server's binlog, plus those it executed before it wrote one."""
    if session.flavour is Flavour.MYSQL:
        (row,) = session.named("SELECT @@GLOBAL.gtid_executed AS position")
        return parse_gtid_set(Flavour.MYSQL, _text(row["position"]))
    (row,) = session.named(
        "SELECT @@GLOBAL.gtid_slave_pos AS executed, @@GLOBAL.gtid_binlog_pos AS position"
    )
    return with_unlogged(_text(row["position"]), _text(row["executed"]))


def with_unlogged(logged: str, executed: str) -> MariadbGtidSet:
    """The GTIDs logged by MariaDB, and those executed: a rebuilt server has logged nothing yet in some domains."""
    position = MariadbGtidSet.parse(logged)
    others = MariadbGtidSet.parse(executed).gtids()
    unlogged = (gtid for gtid in others if position.last(gtid.domain) is None)
    return MariadbGtidSet.of([*position.gtids(), *unlogged])


def _ask_state(session: MySqlSession) -> tuple[MariadbGtid, ...]:
    return ask_binlog_state(session) if session.flavour is Flavour.MARIADB else ()


def _ask_variables(session: MySqlSession) -> dict[str, str]:
    names = ", ".join(f"'{name}'" for name in VARIABLES)
    rows = session.named(f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({names})")
    return {_text(row["Variable_name"]).lower(): _text(row["Value"]) for row in rows}


def ask_binlog(session: MySqlSession, *, wanted: GtidPosition | None = None) -> MemberBinlog:
    """Query a member's binlog. Errors: those of the session; errors about ``wanted`` go into the result."""
    oldest = find_start_file(session, wanted=None)
    wanted_error: MillraceError | None = None
    try:
        if wanted is not None:
            find_start_file(session, wanted=wanted)
    except MillraceError as error:
        wanted_error = error
    position, state = ask_position(session), _ask_state(session)
    return MemberBinlog(position, oldest.before, wanted_error, state)


def ask_replications(session: MySqlSession) -> tuple[Replication, ...]:
    """Query each connection of a replica, with the replica's own filters only; none if the server is no replica."""
    try:
        rows = session.named(session.version.replica_status)
    except MillraceError as refused:
        if session.flavour is not Flavour.MARIADB or refused.errno != MISSING_PRIVILEGE:
            raise
        rows = ask_replica_status(session, refused)
    return tuple(map(replication_of, rows))


def replication_of(row: Mapping[str, object]) -> Replication:
    """A row of SHOW REPLICA STATUS, SHOW SLAVE STATUS or SHOW ALL SLAVES STATUS."""
    status = {
        name.replace("Replica_", "Slave_").replace("Source", "Master"): value
        for name, value in row.items()
    }
    stopped = tuple(_stopped(thread, status) for thread in ("IO", "SQL"))
    lag = status.get("Seconds_Behind_Master")
    return Replication(
        None if lag is None or any(stopped) else float(str(lag)),
        tuple(
            f"{name}={_text(value)}"
            for name, value in row.items()
            if name.startswith("Replicate_")
            and _text(value)
            and not hides_own_tables(name, _text(value))
        ),
        f"{status.get('Master_Host')}:{status.get('Master_Port')}",
        tuple(filter(None, stopped)),
    )


def _stopped(thread: str, status: Mapping[str, object]) -> str:
    """``its SQL thread is stopped (the error)``; "" if it runs."""
    state = _text(status.get(f"Slave_{thread}_Running"))
    if state == "Yes":
        return ""
    error = _text(status.get(f"Last_{thread}_Error"))
    how = "is stopped" if state == "No" else f"is {state.lower()}"
    return f"its {thread} thread {how}" + (f" ({error})" if error else "")


def ask_binlog_filters(session: MySqlSession) -> Iterable[str]:
    """Query which databases the server logs, such as ``Binlog_Do_DB=shop``; nothing if it logs all."""
    for row in session.named(session.version.binlog_status):
        for name in ("Binlog_Do_DB", "Binlog_Ignore_DB"):
            if value := _text(row.get(name)):
                yield f"{name}={value}"


def _text(value: object) -> str:
    return "" if value is None else str(value)
