"""Reads the current position of a set's primary, and finds stopped replicas. Asks all members at the same time.

Guarantees: exactly one primary has answered. Then members that can't be reached are ignored. Otherwise the first Fatal
error of a member is raised, or Retryable MR-4204.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from millrace.drivers.mysql.connection import MySqlSession
from millrace.drivers.mysql.members import ask_each, ask_position, ask_replications
from millrace.drivers.mysql.start_file import ask_binlog_state, next_logged
from millrace.errors import Fatal, MillraceError, Retryable
from millrace.producer.source.connection import Login, connect_member
from millrace.schemas.documents import SetDocument
from millrace.schemas.documents.model import Member
from millrace.schemas.gtid import Flavour, History, MariadbGtid, MariadbGtidSet, missing

T = TypeVar("T")


def primary_history(document: SetDocument) -> History:
    """The position and history of the set's only primary. Errors: see the module."""
    answers = _ask_each(document, _history_of_primary)
    histories = [answer for answer in answers if isinstance(answer, History)]
    if len(histories) == 1:
        return histories[0]
    errors = [answer for answer in answers if isinstance(answer, MillraceError)]
    for refusal in errors:
        if isinstance(refusal, Fatal):
            raise refusal
    count = f"{len(histories)} members are primaries" if histories else "no member is a primary"
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

    def ask(connection: MySqlSession) -> HaltedReplica:
        replications = ask_replications(connection)
        threads = tuple(text for one in replications for text in one.stopped)
        position = ask_position(connection)
        is_mariadb = connection.flavour is Flavour.MARIADB
        start = "START ALL SLAVES" if is_mariadb else f"START {connection.version.replica}"
        absent = missing(history.position, position, history)
        return HaltedReplica(connection.member, threads, absent, start)

    answers = [answer for answer in _ask_each(document, ask) if isinstance(answer, HaltedReplica)]
    return tuple(answer for answer in answers if answer.threads and answer.missing_gtids)


def next_transaction(
    document: SetDocument, done: MariadbGtidSet, domain: int
) -> MariadbGtid | None:
    """MariaDB: the next transaction of ``domain`` after ``done``, from the first member that still has it.

    None if no member has logged one. Raises the last member's error if none can answer.
    """
    answers = _ask_each(document, lambda connection: next_logged(connection, done, domain))
    for answer in answers:
        if isinstance(answer, MariadbGtid):
            return answer
    for answer in reversed(answers):
        if isinstance(answer, MillraceError):
            raise answer
    return None


def _ask_each(document: SetDocument, ask: Callable[[MySqlSession], T]) -> list[T | MillraceError]:
    account = document.account
    login = Login(user=account.user, password=account.password, tls=document.tls)

    def connected(member: Member) -> T:
        with connect_member(member, login) as connection:
            return ask(connection)

    return ask_each(document.members, connected)


def _history_of_primary(connection: MySqlSession) -> History | None:
    if ask_replications(connection):
        return None
    position = ask_position(connection)
    if connection.flavour is Flavour.MYSQL:
        return History(position)
    (row,) = connection.named("SELECT @@GLOBAL.gtid_slave_pos AS gtids")
    replicated = MariadbGtidSet.parse(str(row["gtids"] or ""))
    return History(position, ask_binlog_state(connection), replicated)
