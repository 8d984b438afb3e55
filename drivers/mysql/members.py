"""Chooses the member of the source set that a load reads.

    admissible      answers, replicates without error and without filters, logs what it replicates, has the needed
                    transactions, and none that the primary does not have
    the primary     only if the document says ``from_primary``, or if the set has no other member
    drained         never, as long as an operator has drained it (`millrace replica drain`)
    chosen          the pinned one (`millrace replica pin`), else that with the lowest lag, then the document's first

All members are asked at the same time. The primary is asked again after them: what a member has then and the primary
does not, is errant.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from drivers.mysql.connection import Endpoint, MySqlSession, Side, connect
from drivers.mysql.primary import endpoints
from drivers.mysql.snapshot_position import executed
from millrace.errors import MillraceError, Retryable
from schemas.documents import Directives, Member, SetDocument
from schemas.gtid import (
    Flavour,
    GtidPosition,
    History,
    MariadbGtidSet,
    beyond,
    missing,
    parse_binlog_state,
    shortened,
    unite,
)

_FILTERS = ("Do_DB", "Ignore_DB", "Do_Table", "Ignore_Table", "Wild_Do_Table", "Wild_Ignore_Table")


@dataclass(frozen=True, slots=True)
class Replication:
    """One connection of a member to its source. ``lag_s`` is None while it does not replicate."""

    lag_s: float | None
    error: str = ""
    is_filtered: bool = False


@dataclass(frozen=True, slots=True)
class Candidate:
    """One member that answered. ``replications`` is empty for a primary.

    ``newest``: what all members together had, if this one is chosen.
    """

    endpoint: Endpoint
    position: GtidPosition
    logs: bool
    is_writable: bool = False
    replications: tuple[Replication, ...] = ()
    newest: GtidPosition | None = None

    @property
    def is_primary(self) -> bool:
        """Whether it replicates from no server."""
        return not self.replications

    @property
    def lag_s(self) -> float:
        """The largest of its connections; 0 for a primary."""
        return max((one.lag_s or 0.0 for one in self.replications), default=0.0)

    @property
    def name(self) -> str:
        """As host:port."""
        return self.endpoint.name


@dataclass(frozen=True, slots=True)
class Wanted:
    """``needed``: what the member must have. ``primary``: the primary's history, asked last; None: it is away.

    ``directives``: an operator's wishes about the members.
    """

    needed: GtidPosition | None = None
    primary: History | None = None
    from_primary: bool = False
    is_alone: bool = False
    directives: Directives = field(default_factory=Directives)


def choose_source(
    document: SetDocument,
    directives: Directives,
    *,
    needed: GtidPosition | None = None,
    from_primary: bool = False,
) -> Candidate:
    """The member to read. Retryable MR-5090 if none is admissible now, with the reason of each."""
    asked = endpoints(document, Side.SOURCE)
    with ThreadPoolExecutor(max_workers=len(asked), thread_name_prefix="members") as pool:
        answers = list(pool.map(_ask_or_error, asked))
    found = [answer for answer in answers if isinstance(answer, Candidate)]
    primary = next((one for one in found if one.is_primary and one.is_writable), None)
    wanted = Wanted(
        needed,
        None if primary is None else _history(primary.endpoint),
        from_primary,
        is_alone=len(asked) == 1,
        directives=directives,
    )
    refusals = {
        endpoint.name: answer.message
        for endpoint, answer in zip(asked, answers, strict=True)
        if isinstance(answer, MillraceError)
    }
    chosen = choose(document.name, found, wanted, refusals)
    newest = chosen.position
    for one in found:
        if one.position.flavour is newest.flavour:
            newest = unite(newest, one.position)
    return replace(chosen, newest=newest)


def choose(
    set_name: str, found: Sequence[Candidate], wanted: Wanted, refusals: dict[str, str]
) -> Candidate:
    """The best of the members that answered. Pure. ``refusals``: why others did not."""
    whys = {one.name: why_not(one, wanted) for one in found}
    admissible = [one for one in found if not whys[one.name]]
    if not admissible:
        reasons = {**refusals, **whys}
        texts = "; ".join(f"{name}: {why}" for name, why in reasons.items())
        raise Retryable("MR-5090", f"no member of set {set_name} can be read: {texts}")
    pinned = wanted.directives.pinned
    return min(admissible, key=lambda one: (member_of(one.endpoint) != pinned, one.lag_s))


def member_of(endpoint: Endpoint) -> Member:
    """The member as its set's document names it."""
    return Member(endpoint.host, endpoint.port)


def check_not_drained(endpoint: Endpoint, directives: Directives) -> None:
    """Retryable MR-5090 if an operator has drained the member that is read: another one is chosen."""
    if why := _why_drained(endpoint, directives):
        raise Retryable("MR-5090", f"{endpoint.name}: {why}")


def _why_drained(endpoint: Endpoint, directives: Directives) -> str:
    member = member_of(endpoint)
    if member not in directives.drained:
        return ""
    return f"an operator drained it (`millrace replica undrain SET {member}`)"


def why_not(one: Candidate, wanted: Wanted) -> str:
    """Why a load does not read this member; "" if it may."""
    if one.is_primary and not (wanted.from_primary or wanted.is_alone):
        return "it is the primary"
    if why := _why_drained(one.endpoint, wanted.directives):
        return why
    for each in one.replications:
        if each.lag_s is None:
            return f"it does not replicate{': ' if each.error else ''}{each.error}"
        if each.is_filtered:
            return "it has replication filters"
    if not one.logs:
        return "it does not log what it replicates (log_bin, log_replica_updates)"
    if wanted.needed is not None:
        if one.position.flavour is not wanted.needed.flavour:
            return f"it is a {one.position.flavour} server"
        if absent := beyond(wanted.needed, one.position):
            return f"it does not have {shortened(absent)} yet"
    if wanted.primary is None or one.is_primary:
        return ""
    errant = missing(one.position, wanted.primary.position, wanted.primary)
    return f"it has {shortened(errant)}, which the primary does not have" if errant else ""


def _ask_or_error(endpoint: Endpoint) -> Candidate | MillraceError:
    try:
        session = connect(endpoint)
        try:
            return _ask(session)
        finally:
            session.close()
    except MillraceError as error:
        return error


def _ask(session: MySqlSession) -> Candidate:
    updates = session.version.variable("log_replica_updates")
    replications = tuple(map(_replication, session.named(session.version.replica_status)))
    ((read_only, log_bin, logs_updates),) = session.query(
        f"SELECT @@global.read_only, @@global.log_bin, @@global.{updates}"
    )
    return Candidate(
        session.endpoint,
        executed(session),
        logs=log_bin == 1 and (logs_updates == 1 or not replications),
        is_writable=read_only == 0,
        replications=replications,
    )


def replication_lag_s(session: MySqlSession) -> float | None:
    """The lag of the member now; None while it does not replicate, 0 for a primary."""
    found = tuple(map(_replication, session.named(session.version.replica_status)))
    if any(one.lag_s is None for one in found):
        return None
    return max((one.lag_s or 0.0 for one in found), default=0.0)


def _replication(row: dict[str, object]) -> Replication:
    named = {name.replace("Replica_", "Slave_"): value for name, value in row.items()}
    behind = named.get("Seconds_Behind_Source", named.get("Seconds_Behind_Master"))
    errors = (str(named.get(name) or "") for name in ("Last_SQL_Error", "Last_IO_Error"))
    running = all(named.get(f"Slave_{thread}_Running") == "Yes" for thread in ("IO", "SQL"))
    lag_s = float(str(behind)) if running and behind is not None else None
    filters = any(named.get(f"Replicate_{name}") for name in _FILTERS)
    return Replication(lag_s, next(filter(None, errors), ""), filters)


def _history(endpoint: Endpoint) -> History | None:
    try:
        session = connect(endpoint)
        try:
            position = executed(session)
            if session.flavour is Flavour.MYSQL:
                return History(position)
            ((state, slave_pos),) = session.query(
                "SELECT @@global.gtid_binlog_state, @@global.gtid_slave_pos"
            )
            restored = MariadbGtidSet.parse(str(slave_pos))
            return History(position, parse_binlog_state(str(state)), restored)
        finally:
            session.close()
    except Retryable:
        return None
