"""The SASL login to ZooKeeper (DIGEST-MD5), for kazoo, which leaves the mechanism to pure-sasl.

Guarantees
- The password is resolved at each login, in the process that logs in: a rotated one is used at the next connection.
- A server without SASL ends the login. It answers with nothing, and kazoo alone would repeat its request forever.
"""

from collections.abc import Mapping

from puresasl import QOP, SASLProtocolException, mechanisms

from millrace.errors import MillraceError
from millrace.schemas.documents import resolve_secret
from millrace.zk.client.access import Login

MECHANISM = "DIGEST-MD5"


class SaslLogin:
    """Answers what a server asks for. ``problem`` is the reason why the last login could not even be tried."""

    def __init__(self, login: Login) -> None:
        self._login = login
        self.problem: MillraceError | None = None

    def options(self) -> Mapping[str, object]:
        """The settings of kazoo for this login."""
        return {
            "mechanism": MECHANISM,
            "service": "zookeeper",
            "qops": (QOP.AUTH,),  # kazoo could not read encrypted messages
            "callback": self.answer,
        }

    def answer(self, wanted: str) -> str:
        """The user or the password, at the time of the login. Called by kazoo's thread."""
        self.problem = None
        if wanted == "username":
            return self._login.user
        if wanted != "password":
            raise SASLProtocolException(f"the server sent no {wanted}")
        try:
            return resolve_secret(self._login.password)
        except MillraceError as error:
            self.problem = error
            raise


class _BoundedDigest(mechanisms.DigestMD5Mechanism):  # type: ignore[misc]  # pure-sasl has no types
    """DIGEST-MD5 that asks for the first challenge once."""

    _is_asked = False

    def process(self, challenge: bytes | None = None) -> bytes | None:
        if challenge is None:
            if self._is_asked:
                raise SASLProtocolException("the server has no SASL login")
            self._is_asked = True
        answer: bytes | None = super().process(challenge)
        return answer


mechanisms.mechanisms[MECHANISM] = _BoundedDigest
