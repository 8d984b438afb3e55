"""Which member of the target set we write to: the one that accepts writes.

Every member is asked; exactly one may be writable. None, or more than one, is no place to write: Retryable, because
a failover takes a moment. A member that can't be reached is passed over.
"""

from consumer.target.connection import Endpoint, TlsChoice, connect
from millrace.errors import Fatal, MillraceError, Retryable
from schemas.documents import SetDocument, resolve_secret


def endpoints(document: SetDocument) -> list[Endpoint]:
    """All members, with the account of the set; Fatal MR-4106 when the password can't be read."""
    password = resolve_secret(document.account.password)
    tls = TlsChoice(str(document.tls.mode), document.tls.ca_path)
    return [
        Endpoint(member.host, member.port, document.account.user, password, tls)
        for member in document.members
    ]


def writable_member(document: SetDocument) -> Endpoint:
    """Fatal MR-5002 when a member refuses the account, Retryable MR-5001 or MR-5003 when no single one is writable."""
    writable, closed, away = [], [], []
    for endpoint in endpoints(document):
        try:
            if _is_writable(endpoint):
                writable.append(endpoint)
            else:
                closed.append(endpoint)
        except Fatal:
            raise
        except MillraceError as exc:
            away.append(f"{endpoint.host}:{endpoint.port}: {exc.message}")
    if len(writable) == 1:
        return writable[0]
    if writable:
        names = ", ".join(f"{endpoint.host}:{endpoint.port}" for endpoint in writable)
        raise Retryable("MR-5003", f"{names} of set {document.name} are all writable")
    if closed:
        raise Retryable(
            "MR-5003", f"no member of set {document.name} is writable", away="; ".join(away)
        )
    raise Retryable("MR-5001", f"no member of set {document.name} answers: {'; '.join(away)}")


def _is_writable(endpoint: Endpoint) -> bool:
    session = connect(endpoint)
    try:
        return session.query("SELECT @@global.read_only") == [(0,)]
    finally:
        session.close()
