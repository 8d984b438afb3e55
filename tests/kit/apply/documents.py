"""Documents of servers on this machine, for the runners of tests."""

from collections.abc import Iterable

from millrace.deploy.servers import DatabaseServer
from millrace.schemas.documents import Account, Member, SecretReference, SetDocument, Tls, TlsMode


def local_set(name: str, ports: Iterable[int], *, user: str, variable: str) -> SetDocument:
    """A set of the servers at these ports. ``variable``: of the environment, with the password."""
    reference = SecretReference.parse(f"env:{variable}")
    assert reference is not None
    return SetDocument(
        name=name,
        members=tuple(Member(DatabaseServer.host, port) for port in ports),
        account=Account(user, reference),
        tls=Tls(TlsMode.REQUIRE_UNVERIFIED),
    )
