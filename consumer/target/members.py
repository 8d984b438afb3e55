"""Which member of a set is its primary: the one that accepts writes and reads from nobody.

Every member is asked. None, or more than one, is no place to write: Retryable, because a failover takes a moment. A
member that can't be reached is passed over.
"""

from consumer.target.connection import Endpoint, TargetConnection, TlsChoice, connect
from millrace.errors import Fatal, MillraceError, Retryable
from schemas.documents import SetDocument, resolve_secret
from schemas.gtid import Flavour


def endpoints(document: SetDocument) -> list[Endpoint]:
    """All members, with the account of the set; Fatal MR-4106 when the password can't be read."""
    password = resolve_secret(document.account.password)
    tls = TlsChoice(str(document.tls.mode), document.tls.ca_path)
    return [
        Endpoint(member.host, member.port, document.account.user, password, tls)
        for member in document.members
    ]


def primary_member(document: SetDocument) -> Endpoint:
    """Fatal MR-5002 when a member refuses the account, Retryable MR-5001 or MR-5003 when there is no single primary."""
    writable: list[Endpoint] = []
    closed: list[Endpoint] = []
    away: list[str] = []
    for endpoint in endpoints(document):
        try:
            (writable if _is_primary(endpoint) else closed).append(endpoint)
        except Fatal:
            raise
        except MillraceError as exc:
            away.append(f"{endpoint.host}:{endpoint.port}: {exc.message}")
    if len(writable) == 1:
        return writable[0]
    if writable:
        names = ", ".join(f"{endpoint.host}:{endpoint.port}" for endpoint in writable)
        raise Retryable("MR-5003", f"{names} of set {document.name} are all writable")
    told = "; ".join(away)
    if closed:
        raise Retryable("MR-5003", f"no member of set {document.name} is writable", away=told)
    raise Retryable("MR-5001", f"no member of set {document.name} answers: {told}")


def _is_primary(endpoint: Endpoint) -> bool:
    session = connect(endpoint)
    try:
        return session.query("SELECT @@global.read_only") == [(0,)] and not _replicates(session)
    finally:
        session.close()


def _replicates(session: TargetConnection) -> bool:
    """False, too, when the account may not ask."""
    ask = "SHOW ALL SLAVES STATUS" if session.flavour is Flavour.MARIADB else "SHOW REPLICA STATUS"
    try:
        return bool(session.query(ask))
    except Fatal as exc:
        if exc.code == "MR-5007":
            return False
        raise
