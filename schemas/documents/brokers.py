"""The brokers of a Kafka cluster: where clients connect, and how they protect the connection and log in.

The value holds references to secrets. ``settings`` reads them, in the process that connects and for each client again,
so that a rotated secret takes effect with the next client. ``consumer.spark.kafka_source`` derives the options of
Spark's own Kafka source.

    tls               security.protocol                     without `sasl`
    disabled          SASL_PLAINTEXT                        PLAINTEXT
    verify-ca         SASL_SSL, without the host name       SSL, without the host name
    verify-identity   SASL_SSL                              SSL

Not done here: `require-unverified`, which Java clients can not do, and Kerberos.
"""

import base64
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from millrace.schemas.documents.secret import SecretReference, resolve_secret
from millrace.schemas.documents.tls import Tls, TlsMode

TOKEN_LIFE_S = 300.0  # of a token that does not say when it expires; librdkafka asks again at 80 %
_THIS_MACHINE = ("localhost", "127.0.0.1", "[::1]")

BrokerSettings = dict[str, str | int | float | Callable[..., object]]

OPEN = Tls(TlsMode.DISABLED)


class Mechanism(StrEnum):
    """How a client logs in (Kafka's ``sasl.mechanism``)."""

    PLAIN = "PLAIN"
    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"
    OAUTHBEARER = "OAUTHBEARER"


@dataclass(frozen=True, slots=True)
class Sasl:
    """A login: ``secret`` is the password of ``user``, or the token of OAUTHBEARER, which names its user itself."""

    mechanism: Mechanism
    secret: SecretReference
    user: str = ""


@dataclass(frozen=True, slots=True)
class ClientCertificate:
    """A client shows it to a listener that requires one: the path of the certificate chain, and its key."""

    path: str
    key: SecretReference
    key_password: SecretReference | None = None


@dataclass(frozen=True, slots=True)
class Brokers:
    """``bootstrap`` is host:port[,host:port]."""

    bootstrap: str
    tls: Tls = OPEN
    certificate: ClientCertificate | None = None
    sasl: Sasl | None = None

    @property
    def protocol(self) -> str:
        """Kafka's ``security.protocol``."""
        is_plain = self.tls.mode is TlsMode.DISABLED
        return ("SASL_" if self.sasl else "") + ("PLAINTEXT" if is_plain else "SSL")

    @property
    def is_open(self) -> bool:
        """True without TLS and login."""
        return self.protocol == "PLAINTEXT"

    def settings(self) -> BrokerSettings:
        """librdkafka's settings of a new client (``KafkaAccess``). Fatal MR-4106, Retryable MR-4014."""
        # or a question for a topic, or a record for a deleted one, would create it with the broker's defaults
        found: BrokerSettings = {
            "bootstrap.servers": self.bootstrap,
            "allow.auto.create.topics": False,
        }
        if self.is_open:
            return found
        return found | {"security.protocol": self.protocol} | self._tls_settings() | self._login()

    def _tls_settings(self) -> BrokerSettings:
        if self.tls.mode is TlsMode.DISABLED:
            return {}
        checks_name = self.tls.mode is TlsMode.VERIFY_IDENTITY
        found: BrokerSettings = {
            "ssl.endpoint.identification.algorithm": "https" if checks_name else "none"
        }
        if self.tls.ca_path:
            found["ssl.ca.location"] = self.tls.ca_path
        if (own := self.certificate) is not None:
            found["ssl.certificate.location"] = own.path
            found["ssl.key.pem"] = resolve_secret(own.key)
            if own.key_password is not None:
                found["ssl.key.password"] = resolve_secret(own.key_password)
        return found

    def _login(self) -> BrokerSettings:
        if self.sasl is None:
            return {}
        found: BrokerSettings = {"sasl.mechanism": self.sasl.mechanism.value}
        if self.sasl.mechanism is Mechanism.OAUTHBEARER:
            return found | {"oauth_cb": _Tokens(self.sasl.secret)}
        return found | {
            "sasl.username": self.sasl.user,
            "sasl.password": resolve_secret(self.sasl.secret),
        }

    def shares_address(self, other: "Brokers") -> bool:
        """True if both name a common address. Kafka detects other names of a broker."""
        return not self._addresses().isdisjoint(other._addresses())

    def _addresses(self) -> set[str]:
        """The brokers as ``host:port``, with one name for this machine."""
        found = set()
        for server in self.bootstrap.lower().split(","):
            host, _, port = server.strip().rpartition(":")
            found.add(f"{'localhost' if host in _THIS_MACHINE else host}:{port}")
        return found

    def __str__(self) -> str:
        return self.bootstrap


class _Tokens:
    """librdkafka's callback for tokens. It has the first one already.

    So an error of the secret is raised where the settings are made: librdkafka reports it as a token that did not come
    within 10 seconds.
    """

    def __init__(self, reference: SecretReference) -> None:
        self._reference = reference
        self._first: tuple[str, float] | None = bearer_token(reference)

    def __call__(self, _: str = "") -> tuple[str, float]:
        first, self._first = self._first, None
        return bearer_token(self._reference) if first is None else first


def bearer_token(reference: SecretReference) -> tuple[str, float]:
    """The token as it is now, and when it expires in Unix time. librdkafka asks again before that."""
    token = resolve_secret(reference).strip()
    return token, expiry_of(token) or time.time() + TOKEN_LIFE_S


def expiry_of(token: str) -> float | None:
    """The claim ``exp`` of a JSON Web Token; None if it has none, or if the token is of another kind."""
    parts = token.split(".")
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        return float(claims["exp"])
    except (IndexError, ValueError, LookupError, TypeError):
        return None
