"""Listeners of a local broker with TLS and logins, and its ACLs.

    LOGIN         SASL_SSL   PLAIN, SCRAM, and OAUTHBEARER with the tokens of one issuer
    CERTIFICATE   SSL        a client certificate is required

Both listen on localhost. Kafka's own authorizer decides: what no ACL allows is refused. Who may do everything:

    open      ``User:ANONYMOUS``: the plain listener remains, for the broker itself and for administration
    closed    the owner of the broker's certificate: every listener has TLS, the controller's too, and a login
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from millrace.deploy.servers.process import free_port
from millrace.deploy.servers.properties import property_value
from millrace.deploy.servers.tls import TlsFiles

_TOKEN_CHECK = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
BROKER = "CN=broker"  # the subject of a closed broker's certificate
_MODULES = "org.apache.kafka.common.security"


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSecurity:
    """``tls`` is the broker's certificate. ``plain_users`` log in with PLAIN; SCRAM users are created at runtime.

    ``is_closed``: no listener for plain text. The subject of ``tls`` is then ``CN=broker`` (``BROKER``).
    """

    tls: TlsFiles
    plain_users: Mapping[str, str] = field(default_factory=dict, repr=False)  # name → password
    jwks: Path | None = None  # the public keys of the issuer
    login_port: int = field(default_factory=free_port)
    certificate_port: int = field(default_factory=free_port)
    is_closed: bool = False

    @property
    def login(self) -> str:
        """The bootstrap address of the listener with SASL."""
        return f"localhost:{self.login_port}"

    @property
    def certificate(self) -> str:
        """The bootstrap address of the listener that requires a client certificate."""
        return f"localhost:{self.certificate_port}"

    def listeners(self) -> str:
        """Entries of ``listeners`` and ``advertised.listeners``."""
        return f"LOGIN://{self.login},CERTIFICATE://{self.certificate}"

    def java_options(self) -> tuple[str, ...]:
        """Kafka reads no URL that is not allowed here."""
        if self.jwks is None:
            return ()
        return (f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={self.jwks.as_uri()}",)

    def properties(self) -> str:
        modules = self._modules()
        login = "listener.name.login"
        lines = {
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.tls.authority),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": self.tls.certificate.read_text(),
            "ssl.keystore.key": self.tls.key.read_text(),
            "listener.name.certificate.ssl.client.auth": "required",
            "listener.name.controller.ssl.client.auth": "required",
            f"{login}.sasl.enabled.mechanisms": ",".join(modules),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": f"User:{BROKER}" if self.is_closed else "User:ANONYMOUS",
        } | {f"{login}.{name.lower()}.sasl.jaas.config": module for name, module in modules.items()}
        if self.jwks is not None:
            lines[f"{login}.oauthbearer.sasl.server.callback.handler.class"] = _TOKEN_CHECK
            lines["sasl.oauthbearer.jwks.endpoint.url"] = self.jwks.as_uri()
        return "".join(f"{name}={property_value(value)}\n" for name, value in lines.items())

    def _modules(self) -> Mapping[str, str]:
        users = "".join(f' user_{name}="{text}"' for name, text in self.plain_users.items())
        plain = {"PLAIN": f"{_MODULES}.plain.PlainLoginModule required{users};"}
        token = {"OAUTHBEARER": f"{_MODULES}.oauthbearer.OAuthBearerLoginModule required;"}
        return {
            **(plain if self.plain_users else {}),
            "SCRAM-SHA-256": f"{_MODULES}.scram.ScramLoginModule required;",
            "SCRAM-SHA-512": f"{_MODULES}.scram.ScramLoginModule required;",
            **(token if self.jwks else {}),
        }
