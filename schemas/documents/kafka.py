"""The mapping ``kafka``: of a task document, and of a file for commands (MILLRACE_KAFKA_CONFIG).

    bootstrap: "kafka1:9093,kafka2:9093"
    tls: verify-identity | verify-ca | disabled
    tls_ca: /path/ca.pem                            default: the system's CAs
    tls_cert: /path/client.pem                      a client certificate, with
    tls_key: file:/path | env:NAME                  its key in PEM, PKCS #8, and
    tls_key_password: file:/path | env:NAME         the key's password, if it has one
    sasl:
      mechanism: PLAIN | SCRAM-SHA-256 | SCRAM-SHA-512 | OAUTHBEARER
      user: millrace
      password: file:/path | env:NAME
      token: file:/path | env:NAME                  of OAUTHBEARER, instead of user and password

``tls`` is ``disabled`` by default, but ``verify-identity`` if any other field than ``bootstrap`` is given: a password
never travels in plain text by omission.
"""

from millrace.schemas.documents import readers
from millrace.schemas.documents.brokers import Brokers, ClientCertificate, Mechanism, Sasl
from millrace.schemas.documents.fields import Fields, Problem, refuse_if_any
from millrace.schemas.documents.secret import SecretPlace, SecretReference
from millrace.schemas.documents.tls import Tls, TlsMode

EXAMPLE = '{bootstrap: "host:9092"}'
_SASL_EXAMPLE = "{mechanism: SCRAM-SHA-512, user: millrace, password: file:/path}"
_MODES = (TlsMode.VERIFY_IDENTITY, TlsMode.VERIFY_CA, TlsMode.DISABLED)
_NO_SECRET = SecretReference(SecretPlace.ENVIRONMENT, "UNSET")
_SENT = (Mechanism.PLAIN, Mechanism.OAUTHBEARER)  # the secret itself is sent


def take_brokers(fields: Fields) -> Brokers:
    """Read ``kafka`` of a document."""
    return _take(fields.part("kafka", example=EXAMPLE))


def parse_brokers(plain: object, *, origin: str) -> Brokers:
    """The mapping alone; Fatal MR-4101. ``bootstrap`` may be absent: then it is ""."""
    problems: list[Problem] = []
    brokers = _take(Fields(plain, "", problems, EXAMPLE), needs_bootstrap=False)
    refuse_if_any(problems, origin, "")
    return brokers


def plain_brokers(brokers: Brokers) -> dict[str, object]:
    """The mapping as plain values. Brokers without TLS and login are their addresses alone."""
    if brokers.is_open:
        return {"bootstrap": brokers.bootstrap}
    own, sasl = brokers.certificate, brokers.sasl
    return {
        "bootstrap": brokers.bootstrap,
        "tls": brokers.tls.mode.value,
        **({"tls_ca": brokers.tls.ca_path} if brokers.tls.ca_path else {}),
        **({"tls_cert": own.path, "tls_key": str(own.key)} if own else {}),
        **({"tls_key_password": str(own.key_password)} if own and own.key_password else {}),
        **({"sasl": _plain_sasl(sasl)} if sasl else {}),
    }


def _plain_sasl(sasl: Sasl) -> dict[str, object]:
    if sasl.mechanism is Mechanism.OAUTHBEARER:
        return {"mechanism": sasl.mechanism.value, "token": str(sasl.secret)}
    login = {"user": sasl.user, "password": str(sasl.secret)}
    return {"mechanism": sasl.mechanism.value, **login}


def _take(kafka: Fields, *, needs_bootstrap: bool = True) -> Brokers:
    bootstrap = kafka.take("bootstrap", readers.bootstrap, "", needed=needs_bootstrap)
    mode = kafka.take("tls", readers.one_of(_MODES), None, needed=False)
    ca_path = kafka.take("tls_ca", readers.text("the path of a PEM file"), "", needed=False)
    certificate = _certificate(kafka)
    sasl = _sasl(kafka)
    kafka.finish()
    if mode is None:
        is_secured = bool(ca_path or certificate or sasl)
        mode = TlsMode.VERIFY_IDENTITY if is_secured else TlsMode.DISABLED
    brokers = Brokers(bootstrap, Tls(mode, ca_path), certificate, sasl)
    if mode is TlsMode.DISABLED:
        _refuse_plain_text(kafka, brokers)
    return brokers


def _refuse_plain_text(kafka: Fields, brokers: Brokers) -> None:
    """Refuse what has no effect without TLS, and secrets that would be sent in plain text."""
    verified = "verify-identity or verify-ca"
    if brokers.tls.ca_path or brokers.certificate:
        kafka.refuse("tls", "disabled with certificates", verified)
    if brokers.sasl and brokers.sasl.mechanism in _SENT:
        sends = f"disabled with {brokers.sasl.mechanism}, which sends the secret itself"
        kafka.refuse("tls", sends, verified)


def _certificate(kafka: Fields) -> ClientCertificate | None:
    path = kafka.take("tls_cert", readers.text("the path of a PEM file"), "", needed=False)
    key = kafka.take("tls_key", readers.secret, None, needed=False)
    password = kafka.take("tls_key_password", readers.secret, None, needed=False)
    if bool(path) != (key is not None):
        missing, given = ("tls_key", "tls_cert") if path else ("tls_cert", "tls_key")
        kafka.refuse(missing, "nothing", f"a value, because {given} is given")
    if password is not None and key is None:
        kafka.refuse("tls_key_password", "a password without a key", "a tls_key, too")
    return None if key is None else ClientCertificate(path, key, password)


def _sasl(kafka: Fields) -> Sasl | None:
    part = kafka.part("sasl", needed=False, example=_SASL_EXAMPLE)
    mechanism = part.take("mechanism", readers.choice(Mechanism), None)
    is_bearer = mechanism is Mechanism.OAUTHBEARER
    user = part.take("user", readers.text("a user name"), "", needed=False)
    password = part.take("password", readers.secret, None, needed=False)
    token = part.take("token", readers.secret, None, needed=False)
    part.finish()
    if mechanism is None:
        return None
    given = {"user": bool(user), "password": password is not None, "token": token is not None}
    wanted = {"user": not is_bearer, "password": not is_bearer, "token": is_bearer}
    for name, is_wanted in wanted.items():
        if is_wanted and not given[name]:
            part.refuse(name, "nothing", f"a value, for {mechanism}")
        if given[name] and not is_wanted:
            part.refuse(name, "a value", f"nothing, for {mechanism}")
    return Sasl(mechanism, (token if is_bearer else password) or _NO_SECRET, user)
