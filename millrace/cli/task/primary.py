"""Reads the current position of a set's primary, and finds stopped replicas. Uses one connection for each member.

Guarantees: exactly one primary has answered. Then members that can't be reached are ignored. Otherwise the first Fatal
error of a member is raised, or Retryable MR-4204.
"""

from dataclasses import dataclass

from drivers.mysql.members import ask_identity, ask_position, ask_replications
from drivers.mysql.start_file import ask_binlog_state, next_logged
from millrace.errors import Fatal, MillraceError, Retryable
from producer.source.connection import Login, SourceConnection
from schemas.documents import SetDocument, resolve_secret
from schemas.documents.model import Member
from schemas.gtid import Flavour, History, MariadbGtid, MariadbGtidSet, missing


def primary_history(document: SetDocument) -> History:
    """The position and history of the set's only primary. Errors: see the module."""
    login = _login(document)
    found: list[History] = []
    errors: list[MillraceError] = []
    for member in document.members:
        try:
            with SourceConnection.connect(member, login) as connection:
                history = _history_of_primary(connection)
        except MillraceError as error:
            errors.append(error)
            continue
        if history is not None:
            found.append(history)
    if len(found) == 1:
        return found[0]
    for refusal in errors:
        if isinstance(refusal, Fatal):
            raise refusal
    count = "no member is a primary" if not found else f"{len(found)} members are primaries"
    what = "; ".join([f"set {document.name}: {count}", *map(str, errors)])
    raise Retryable("MR-4204", what).name(set=document.name)


@dataclass(frozen=True, slots=True)
class HaltedReplica:
    """A replica that no longer replicates: its stopped threads with their errors, and the GTIDs it does not have."""

    member: Member
    threads: tuple[str, ...]
    missing_gtids: str
    start: str  # the statement that starts it again

    def __str__(self) -> str:
        return f"{self.member} does not have {self.missing_gtids}: {'; '.join(self.threads)}"


def halted_replicas(document: SetDocument, history: History) -> tuple[HaltedReplica, ...]:
    """The members that have a stopped thread and not all of the primary's ``history``; only those that answer."""
    login = _login(document)
    found = []
    for member in document.members:
        try:
            with SourceConnection.connect(member, login) as connection:
                identity = ask_identity(connection)
                flavour = identity.flavour
                replications = ask_replications(connection, identity.dialect)
                threads = tuple(text for one in replications for text in one.stopped)
                missing_gtids = missing(
                    history.position, ask_position(connection, flavour), history
                )
        except MillraceError:
            continue
        if threads and missing_gtids:
            is_mariadb = flavour is Flavour.MARIADB
            start = "START ALL SLAVES" if is_mariadb else f"START {identity.dialect.replica}"
            found.append(HaltedReplica(member, threads, missing_gtids, start))
    return tuple(found)


def next_transaction(
    document: SetDocument, done: MariadbGtidSet, domain: int
) -> MariadbGtid | None:
    """MariaDB: the next transaction of ``domain`` after ``done``, from the first member that still has it.

    None if no member has logged one. Raises the last member's error if none can answer.
    """
    login = _login(document)
    errors: list[MillraceError] = []
    for member in document.members:
        try:
            with SourceConnection.connect(member, login) as connection:
                found = next_logged(connection, done, domain)
        except MillraceError as error:
            errors.append(error)
            continue
        if found is not None:
            return found
    if errors:
        raise errors[-1]
    return None


def _login(document: SetDocument) -> Login:
    account = document.account
    return Login(user=account.user, password=resolve_secret(account.password), tls=document.tls)


def _history_of_primary(connection: SourceConnection) -> History | None:
    """The history of a primary; ``None`` for a replica."""
    identity = ask_identity(connection)
    flavour = identity.flavour
    if ask_replications(connection, identity.dialect):
        return None
    position = ask_position(connection, flavour)
    if flavour is Flavour.MYSQL:
        return History(position)
    (row,) = connection.query("SELECT @@GLOBAL.gtid_slave_pos AS gtids")
    replicated = MariadbGtidSet.parse(str(row["gtids"] or ""))
    return History(position, ask_binlog_state(connection), replicated)
