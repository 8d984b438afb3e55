"""Sessions on the members of a source set: the login of the set's document. Errors have capture's codes:

Retryable MR-1001 not reachable     MR-1006 connection lost
Fatal     MR-1002 account refused   MR-1003 certificate not verified   MR-1004 no TLS offered
          MR-1005 missing privilege MR-1008 authentication needs TLS   MR-1007 any other server error
"""

from dataclasses import dataclass, field

from millrace.drivers.mysql.connection import Endpoint, MySqlSession, connect
from millrace.drivers.mysql.errors import CAPTURE_CODES
from millrace.errors import Fatal
from millrace.schemas.documents import Member, Tls
from millrace.schemas.documents.secret import SecretReference, refused_login_fix, resolve_secret

QUERY_TIMEOUT_S = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """The account and TLS settings for every member of a set.

    A reference to the password is resolved at each connection, so that a changed password is used at the next one.
    """

    user: str
    password: str | SecretReference = field(repr=False)
    tls: Tls

    def resolve(self) -> str:
        """The password of now. Fatal MR-4106."""
        password = self.password
        return password if isinstance(password, str) else resolve_secret(password)


def connect_member(
    member: Member, login: Login, *, timeout_s: float = 0.0, reads_tables: bool = False
) -> MySqlSession:
    """A session with autocommit. ``timeout_s``: for each answer, 0 for the default. Errors: see the module.

    ``reads_tables``: with the settings for it, which a served relay log refuses.
    """
    answer_s = timeout_s or QUERY_TIMEOUT_S
    endpoint = Endpoint(member.host, member.port, login.user, login.resolve(), login.tls)
    try:
        return connect(
            endpoint,
            codes=CAPTURE_CODES,
            autocommit=True,
            answer_s=answer_s,
            is_plain=not reads_tables,
        )
    except Fatal as refusal:
        if refusal.code == "MR-1002" and isinstance(login.password, SecretReference):
            refusal.fix = refused_login_fix(login.user, login.password)
        raise
