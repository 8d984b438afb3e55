"""The options of Spark's own Kafka source for a cluster's brokers. None of them holds a secret.

Spark shows options in plans, its UI, event logs and errors. So secrets are written into files of a folder that only
this user can read, and options refer to them. Kafka's client reads the files when it connects, by its own
``DirectoryConfigProvider``:

    kafka.sasl.jaas.config = ${millrace:/dev/shm/…/secrets:jaas}

The folder is in memory and is removed with the query. Java reads keys in PKCS #8 only (else Fatal MR-7007), and only
JSON Web Tokens (else Fatal MR-7008). It reads a token once, and keeps asking after that one has expired. So a query
ends before (``token_end``), and the next one reads a new token. Only the driver connects in this way, to ask for the
end of the topic. Executors read the topic with librdkafka.
"""

import os
import time
from pathlib import Path

from millrace.errors import Fatal
from millrace.schemas.documents import Brokers, Mechanism, TlsMode, resolve_secret
from millrace.schemas.documents.brokers import expiry_of

_PROVIDER = "org.apache.kafka.common.config.provider.DirectoryConfigProvider"
_SECURITY = "org.apache.kafka.common.security"
_MODULES = {
    Mechanism.PLAIN: f"{_SECURITY}.plain.PlainLoginModule",
    Mechanism.SCRAM_SHA_256: f"{_SECURITY}.scram.ScramLoginModule",
    Mechanism.SCRAM_SHA_512: f"{_SECURITY}.scram.ScramLoginModule",
}
_BEARER_MODULE = f"{_SECURITY}.oauthbearer.OAuthBearerLoginModule"
_BEARER_HANDLER = f"{_SECURITY}.oauthbearer.OAuthBearerLoginCallbackHandler"
TOKEN_PART = 0.8  # as librdkafka and Kafka's client renew a login
# a system property of Kafka's client
ALLOWED_URLS = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
_KEY_FORMS = ("-----BEGIN PRIVATE KEY-----", "-----BEGIN ENCRYPTED PRIVATE KEY-----")


def source_options(brokers: Brokers, folder: Path) -> dict[str, str]:
    """The options. Writes the secrets into ``folder``, an existing one that only this user can read."""
    found = {"bootstrap.servers": brokers.bootstrap, "allow.auto.create.topics": "false"}
    if not brokers.is_open:
        secrets = _Secrets(folder)
        found |= {
            "security.protocol": brokers.protocol,
            **_tls_options(brokers, secrets),
            **_login_options(brokers, secrets),
            "config.providers": "millrace",
            "config.providers.millrace.class": _PROVIDER,
            "config.providers.millrace.param.allowed.paths": str(folder),
        }
    return {f"kafka.{name}": value for name, value in found.items()}


def token_url(brokers: Brokers, folder: Path) -> str:
    """The URL from which Kafka's client reads the token of OAUTHBEARER; "" for other logins."""
    is_bearer = brokers.sasl is not None and brokers.sasl.mechanism is Mechanism.OAUTHBEARER
    return (folder / "token").as_uri() if is_bearer else ""


def token_end(folder: Path) -> float | None:
    """When the query must end, in Unix time: after four fifths of what its token has left. None without a token."""
    path = folder / "token"
    if not path.exists():
        return None
    expires_s, now_s = expiry_of(path.read_text()), time.time()
    return None if expires_s is None else now_s + TOKEN_PART * (expires_s - now_s)


class _Secrets:
    """Files of one folder, and what options say instead of their content."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def kept(self, name: str, text: str) -> str:
        """Write a file that only this user can read; its reference."""
        path = self.folder / name
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
        return f"${{millrace:{self.folder}:{name}}}"


def _tls_options(brokers: Brokers, secrets: _Secrets) -> dict[str, str]:
    tls, own = brokers.tls, brokers.certificate
    if tls.mode is TlsMode.DISABLED:
        return {}
    checks_name = tls.mode is TlsMode.VERIFY_IDENTITY
    found = {"ssl.endpoint.identification.algorithm": "https" if checks_name else ""}
    if tls.ca_path:
        found |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": tls.ca_path}
    if own is None:
        return found
    key = resolve_secret(own.key)
    if not key.lstrip().startswith(_KEY_FORMS):
        raise Fatal("MR-7007", f"the key {own.key} is not PEM in PKCS #8, which Spark needs")
    try:
        chain = Path(own.path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise Fatal("MR-7007", f"the certificate {own.path} can't be read: {error}") from error
    found |= {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": secrets.kept("certificate", chain),
        "ssl.keystore.key": secrets.kept("key", key),
    }
    if own.key_password is not None:
        password = resolve_secret(own.key_password)
        found["ssl.key.password"] = secrets.kept("key_password", password)
    return found


def _login_options(brokers: Brokers, secrets: _Secrets) -> dict[str, str]:
    sasl = brokers.sasl
    if sasl is None:
        return {}
    found = {"sasl.mechanism": sasl.mechanism.value}
    secret = resolve_secret(sasl.secret)
    if sasl.mechanism is Mechanism.OAUTHBEARER:
        if expiry_of(secret.strip()) is None:
            why = f"the token {sasl.secret} is no JSON Web Token with `exp`, which Kafka's Java client needs"
            raise Fatal("MR-7008", why)
        secrets.kept("token", secret.strip())
        return found | {
            "sasl.jaas.config": f"{_BEARER_MODULE} required;",
            "sasl.login.callback.handler.class": _BEARER_HANDLER,
            "sasl.oauthbearer.token.endpoint.url": token_url(brokers, secrets.folder),
        }
    login = f"username={_quoted(sasl.user)} password={_quoted(secret)}"
    jaas = f"{_MODULES[sasl.mechanism]} required {login};"
    return found | {"sasl.jaas.config": secrets.kept("jaas", jaas)}


def _quoted(text: str) -> str:
    r"""As JAAS reads it (Java's ``StreamTokenizer``): ``\`` escapes itself and quotes; others are octal."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(f"\\{ord(c):03o}" if ord(c) < 32 else c for c in escaped) + '"'
