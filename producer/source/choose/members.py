"""Queries the members of a set for roles, positions, binlog files and settings, without judging them.

The primary's position is queried again after all others. A replica's transactions that are missing from it then did not
come from the primary, and a replica's lag is never underestimated.

Guarantees: a member that can't be queried is in the result, with its error. Not done here: judging (``preflight``,
``choice``). Needs REPLICATION CLIENT and sends a few queries per member.
"""

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from millrace.errors import Fatal, MillraceError
from producer.source.choose.start_file import ask_binlog_state, find_start_file, list_binlog_files
from producer.source.connection import Login, Row, SourceConnection, Value
from producer.source.identity import Identity, ask_identity
from schemas.documents.model import Member
from schemas.gtid import Flavour, GtidPosition, MariadbGtid, MariadbGtidSet, parse_gtid_set
from schemas.server_version import ServerVersion

VARIABLES = (
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
)


@dataclass(frozen=True, slots=True)
class Replication:
    """The replication status of a replica; a primary has none."""

    seconds_behind: float | None
    filters: tuple[str, ...]  # "Replicate_Do_DB=shop"


@dataclass(frozen=True, slots=True)
class MemberBinlog:
    """The binlog of a member: executed GTIDs, files, and the GTIDs executed before the oldest file."""

    position: GtidPosition
    files: Mapping[str, int]
    oldest_before: GtidPosition
    wanted_error: MillraceError | None  # why the wanted transactions can't be read here (now)
    state: tuple[MariadbGtid, ...] = ()  # MariaDB: the last GTID of each domain and server


@dataclass(frozen=True, slots=True)
class MemberFacts:
    """The answers of a member. Either ``error`` or the other fields are set."""

    member: Member
    error: MillraceError | None = None
    identity: Identity | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    replication: Replication | None = None
    binlog: MemberBinlog | None = None

    @property
    def is_primary(self) -> bool:
        """Whether the member answered and is not a replica."""
        return self.error is None and self.replication is None

    @property
    def kept_s(self) -> float | None:
        """How long the server keeps a binlog file before it purges it; None: without a limit in time, or unknown."""
        if self.variables.get("binlog_expire_logs_auto_purge", "ON") != "ON":
            return None
        seconds = float(self.variables.get("binlog_expire_logs_seconds", 0))
        return seconds or float(self.variables.get("expire_logs_days", 0)) * 86_400 or None


def ask_members(
    members: Sequence[Member],
    login: Login,
    *,
    wanted: GtidPosition | None,
    timeout_s: float = 0.0,
) -> tuple[MemberFacts, ...]:
    """Query all members at the same time; the result has the same order. ``timeout_s``: for each answer."""

    def ask(member: Member) -> MemberFacts:
        return _ask_or_error(member, login, wanted, timeout_s)

    with ThreadPoolExecutor(max_workers=len(members) or 1, thread_name_prefix="members") as pool:
        facts = tuple(pool.map(ask, members))
    return tuple(
        _ask_position_again(fact, login, timeout_s) if fact.is_primary else fact for fact in facts
    )


def ask_flavour(members: Iterable[Member], login: Login) -> Flavour:
    """The flavour of the first member that answers; if none does, raise an error, preferably a retryable one."""
    errors: list[MillraceError] = []
    for member in members:
        try:
            with SourceConnection.connect(member, login) as connection:
                return ask_identity(connection).flavour
        except MillraceError as found:
            errors.append(found)
    if not errors:
        raise Fatal("MR-1020", "the set has no members")
    raise next((error for error in errors if not isinstance(error, Fatal)), errors[-1])


def ask_member(connection: SourceConnection, *, wanted: GtidPosition | None) -> MemberFacts:
    """Query one member. Errors: see ``connection``."""
    identity = ask_identity(connection)
    variables = _ask_variables(connection)
    binlog = None
    if variables.get("log_bin") == "ON":
        binlog = ask_binlog(connection, identity.flavour, wanted=wanted)
    return MemberFacts(
        connection.member,
        identity=identity,
        variables=variables,
        replication=_ask_replication_and_filters(connection, identity.dialect),
        binlog=binlog,
    )


def _ask_or_error(
    member: Member, login: Login, wanted: GtidPosition | None, timeout_s: float
) -> MemberFacts:
    try:
        with SourceConnection.connect(member, login, timeout_s=timeout_s) as connection:
            return ask_member(connection, wanted=wanted)
    except MillraceError as error:
        return MemberFacts(member, error=error)


def _ask_position_again(fact: MemberFacts, login: Login, timeout_s: float) -> MemberFacts:
    if fact.identity is None or fact.binlog is None:
        return fact
    try:
        with SourceConnection.connect(fact.member, login, timeout_s=timeout_s) as connection:
            position = ask_position(connection, fact.identity.flavour)
            state = _ask_state(connection, fact.identity.flavour)
    except MillraceError as error:
        return MemberFacts(fact.member, error=error)
    return replace(fact, binlog=replace(fact.binlog, position=position, state=state))


def ask_position(connection: SourceConnection, flavour: Flavour) -> GtidPosition:
    """The GTIDs in the server's binlog, plus those it executed before it wrote one."""
    if flavour is Flavour.MYSQL:
        (row,) = connection.query("SELECT @@GLOBAL.gtid_executed AS position")
        return parse_gtid_set(flavour, _text(row["position"]))
    (row,) = connection.query(
        "SELECT @@GLOBAL.gtid_slave_pos AS executed, @@GLOBAL.gtid_binlog_pos AS position"
    )
    logged = MariadbGtidSet.parse(_text(row["position"]))
    executed = MariadbGtidSet.parse(_text(row["executed"])).gtids()
    # A rebuilt server has logged nothing yet in some domains.
    unlogged = (gtid for gtid in executed if logged.last(gtid.domain) is None)
    return MariadbGtidSet.of([*logged.gtids(), *unlogged])


def _ask_state(connection: SourceConnection, flavour: Flavour) -> tuple[MariadbGtid, ...]:
    return ask_binlog_state(connection) if flavour is Flavour.MARIADB else ()


def _ask_variables(connection: SourceConnection) -> dict[str, str]:
    names = ", ".join(f"'{name}'" for name in VARIABLES)
    rows = connection.query(f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({names})")
    return {_text(row["Variable_name"]).lower(): _text(row["Value"]) for row in rows}


def ask_binlog(
    connection: SourceConnection, flavour: Flavour, *, wanted: GtidPosition | None = None
) -> MemberBinlog:
    """Query a member's binlog. Errors: see ``connection``; errors about ``wanted`` go into the result."""
    files = list_binlog_files(connection)
    oldest = find_start_file(connection, flavour=flavour, wanted=None)
    wanted_error: MillraceError | None = None
    try:
        if wanted is not None:
            find_start_file(connection, flavour=flavour, wanted=wanted)
    except MillraceError as error:
        wanted_error = error
    position, state = ask_position(connection, flavour), _ask_state(connection, flavour)
    return MemberBinlog(position, files, oldest.before, wanted_error, state)


def ask_replication(connection: SourceConnection, server: ServerVersion) -> Replication | None:
    """Query the replication status, with the replica's own filters only; None if the server is no replica."""
    rows = connection.query(server.replica_status)
    if not rows:
        return None
    behind = [_seconds(row) for row in rows]
    known = [seconds for seconds in behind if seconds is not None]
    return Replication(
        seconds_behind=max(known) if len(known) == len(behind) else None,
        filters=tuple(sorted({text for row in rows for text in _filters(row)})),
    )


def _ask_replication_and_filters(
    connection: SourceConnection, server: ServerVersion
) -> Replication | None:
    """The same, with the filters of the binlog."""
    replication = ask_replication(connection, server)
    if replication is None:
        return None
    filters = {*replication.filters, *ask_binlog_filters(connection, server)}
    return replace(replication, filters=tuple(sorted(filters)))


def ask_binlog_filters(connection: SourceConnection, server: ServerVersion) -> Iterable[str]:
    """Query which databases the server logs, such as ``Binlog_Do_DB=shop``; nothing if it logs all."""
    for row in connection.query(server.binlog_status):
        for name in ("Binlog_Do_DB", "Binlog_Ignore_DB"):
            if value := _text(row.get(name)):
                yield f"{name}={value}"


def _filters(row: Row) -> Iterable[str]:
    for name, value in row.items():
        if name.startswith("Replicate_") and _text(value):
            yield f"{name}={_text(value)}"


def _seconds(row: Row) -> float | None:
    value = row.get("Seconds_Behind_Source", row.get("Seconds_Behind_Master"))
    return None if value is None else float(value)


def _text(value: Value) -> str:
    return "" if value is None else str(value)
