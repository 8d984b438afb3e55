"""Finds the primary of a set: the member that accepts writes and replicates from no server.

All members are queried at the same time. No primary, or more than one, is Retryable, because a failover takes a moment.

A member that does not answer may be the new primary, and the writable member that answers may be a deposed primary in
a network partition. So most members of the set must answer, and none of them may replicate from a member that does not.
In a set of two both must answer; if one is gone permanently, an operator removes it from the set document.

Not done here: detecting a failover that happens later, while a run writes.
"""

from contextlib import closing
from dataclasses import dataclass, replace

from millrace.drivers.mysql.connection import Endpoint, MySqlSession, Side, connect
from millrace.drivers.mysql.members import ask_each, ask_replications
from millrace.errors import Fatal, MillraceError, Retryable
from millrace.log import get_logger
from millrace.schemas.documents import SetDocument, resolve_secret
from millrace.schemas.documents.secret import refused_login_fix
from millrace.wording import counted

_log = get_logger("apply.members")


def endpoints(document: SetDocument, side: Side = Side.TARGET) -> list[Endpoint]:
    """All members, with the account of the set; Fatal MR-4106 if the password can't be read."""
    password = resolve_secret(document.account.password)
    return [
        Endpoint(member.host, member.port, document.account.user, password, document.tls, side)
        for member in document.members
    ]


def renewed(endpoint: Endpoint, document: SetDocument) -> Endpoint:
    """The endpoint with the password as it is now; unchanged if it can't be read, because the login decides."""
    try:
        return replace(endpoint, password=resolve_secret(document.account.password))
    except MillraceError as exc:
        _log.warning("the password can't be read again", set=document.name, error=exc)
        return endpoint


@dataclass(frozen=True, slots=True)
class _Answer:
    """The state of one member; ``sources`` are the servers it replicates from, as host:port."""

    endpoint: Endpoint
    is_writable: bool
    sources: tuple[str, ...]


def primary_member(
    document: SetDocument, *, for_writing: bool = True, side: Side = Side.TARGET
) -> Endpoint:
    """The primary of a set.

    Fatal MR-5002 if a member refuses the account; Retryable MR-5001, MR-5003, MR-5016 if no primary is certain.
    ``for_writing`` False: the caller only reads, which is harmless on a deposed primary, so the only primary that
    answers is enough.
    """
    answers: list[_Answer] = []
    away: dict[str, str] = {}
    asked = endpoints(document, side)
    for endpoint, answer in zip(asked, ask_each(asked, _ask), strict=True):
        if isinstance(answer, Fatal):
            if answer.code == "MR-5002":
                answer.fix = refused_login_fix(endpoint.user, document.account.password)
            raise answer
        if isinstance(answer, MillraceError):
            away[endpoint.name] = answer.message
        else:
            answers.append(answer)
    failures = "; ".join(f"{name}: {why}" for name, why in away.items())
    primaries = [one for one in answers if one.is_writable and not one.sources]
    if len(primaries) == 1:
        if for_writing:
            _check_certain(document, primaries[0], answers, away)
        return primaries[0].endpoint
    if primaries:
        names = ", ".join(one.endpoint.name for one in primaries)
        raise Retryable("MR-5003", f"{names} of set {document.name} are all writable")
    if answers:
        raise Retryable("MR-5003", f"no member of set {document.name} is writable", away=failures)
    raise Retryable("MR-5001", f"no member of set {document.name} answers: {failures}")


def _check_certain(
    document: SetDocument, primary: _Answer, answers: list[_Answer], away: dict[str, str]
) -> None:
    """Retryable MR-5016 if another member may be the primary; see the module's docstring."""
    alone = f"{primary.endpoint.name} of set {document.name} is writable, but"
    for answer in answers:
        for source in away.keys() & answer.sources:
            what = f"{alone} {answer.endpoint.name} replicates from {source}, which does not answer"
            raise Retryable("MR-5016", what)
    if 2 * len(answers) <= len(document.members):
        silent = ", ".join(away)
        what = (
            f"{alone} only {len(answers)} of {counted(len(document.members), 'member')} answer,"
            f" not {silent}"
        )
        raise Retryable("MR-5016", what)


def _ask(endpoint: Endpoint) -> _Answer:
    with closing(connect(endpoint)) as session:
        is_writable = session.query("SELECT @@global.read_only") == [(0,)]
        return _Answer(endpoint, is_writable, sources_of(session))


def sources_of(session: MySqlSession) -> tuple[str, ...]:
    """The servers it replicates from, as host:port; also empty if the account may not query them."""
    try:
        return tuple(one.source for one in ask_replications(session))
    except Fatal as exc:
        if exc.code == "MR-5007":
            return ()
        raise
