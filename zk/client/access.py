"""How a process reaches ZooKeeper, and which logins may use the nodes that it creates. Values, without I/O.

``MILLRACE_ZOOKEEPER_TLS``       disabled (default), verify-identity, verify-ca
``MILLRACE_ZOOKEEPER_TLS_CA``    a PEM file; the system's CAs if unset
``MILLRACE_ZOOKEEPER_TLS_CERT``  a PEM file: the client certificate
``MILLRACE_ZOOKEEPER_TLS_KEY``   a PEM file: its key, not encrypted
``MILLRACE_ZOOKEEPER_USER``      the user of a SASL login (DIGEST-MD5)
``MILLRACE_ZOOKEEPER_PASSWORD``  the reference to its password, as in documents
``MILLRACE_ZOOKEEPER_WRITERS``   identities that may do everything, separated by ``;``; sasl:USER if unset
``MILLRACE_ZOOKEEPER_READERS``   identities that may only read; none if unset

An identity is ``scheme:id`` as ZooKeeper writes it: ``sasl:millrace``, ``x509:CN=w1,O=Example``, ``world:anyone``.
Without a user and without writers there is no policy: nodes are open to every client, as in ZooKeeper itself.
Not done here: ZooKeeper's scheme ``digest``. It accepts every password, sends it readably, and names the hash of the
password in each ACL, so that a new password would lose all nodes.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from millrace.errors import Fatal
from millrace.schemas.documents import SecretReference, TlsMode

EVERYTHING = "cdrwa"  # create and delete children, read, write, administer: ZooKeeper's letters
READING = "r"

_PREFIX = "MILLRACE_ZOOKEEPER_"
_TLS_MODES = (TlsMode.DISABLED, TlsMode.VERIFY_IDENTITY, TlsMode.VERIFY_CA)


@dataclass(frozen=True, slots=True, order=True)
class Identity:
    """A client as ZooKeeper knows it after its login."""

    scheme: str
    id: str

    def __str__(self) -> str:
        return f"{self.scheme}:{self.id}"


WORLD = Identity("world", "anyone")


@dataclass(frozen=True, slots=True, order=True)
class Grant:
    """The permissions of an identity on a node: letters of ``EVERYTHING``, in its order."""

    identity: Identity
    permissions: str

    def __str__(self) -> str:
        return f"{self.identity}:{self.permissions}"


Acl = frozenset[Grant]
OPEN: Acl = frozenset({Grant(WORLD, EVERYTHING)})


@dataclass(frozen=True, slots=True)
class Policy:
    """The logins that may use the nodes of a cluster."""

    writers: tuple[Identity, ...]
    readers: tuple[Identity, ...] = ()

    @property
    def acl(self) -> Acl:
        """The ACL of every node."""
        writing = frozenset(Grant(writer, EVERYTHING) for writer in self.writers)
        reading = (reader for reader in self.readers if reader not in self.writers)
        return writing | frozenset(Grant(reader, READING) for reader in reading)


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsAccess:
    """PEM files. Empty: the system's CAs, no client certificate."""

    ca_path: str = ""
    certificate_path: str = ""
    key_path: str = ""
    checks_name: bool = True


@dataclass(frozen=True, slots=True)
class Login:
    """A SASL login."""

    user: str
    password: SecretReference

    @property
    def identity(self) -> Identity:
        """The user as ACLs name it."""
        return Identity("sasl", self.user)


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Everything that a session needs besides the addresses of the servers."""

    tls: TlsAccess | None = None
    login: Login | None = None
    policy: Policy | None = None

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> "Access":
        """Fatal MR-7027 when a variable is malformed or contradicts another one."""
        given = {
            name.removeprefix(_PREFIX): value.strip()
            for name, value in environment.items()
            if name.startswith(_PREFIX) and value.strip()
        }
        tls, login = _tls(given), _login(given)
        return cls(tls=tls, login=login, policy=_policy(given, tls, login))

    def weaknesses(self) -> list[str]:
        """Warnings for the log of a service: what a stranger in the network can do."""
        found = []
        if self.policy is None or WORLD in self.policy.writers:
            found.append("every client of ZooKeeper can change the tasks of this cluster")
        if self.tls is None and self.login is not None:
            found.append("the login to ZooKeeper is sent without TLS")
        return found


def _tls(given: Mapping[str, str]) -> TlsAccess | None:
    mode = given.get("TLS", TlsMode.DISABLED.value)
    if mode not in [known.value for known in _TLS_MODES]:
        wanted = ", ".join(known.value for known in _TLS_MODES)
        raise _wrong("TLS", f"is {mode[:40]!r}, wanted one of {wanted}")
    files = {name: given[name] for name in ("TLS_CA", "TLS_CERT", "TLS_KEY") if name in given}
    if mode == TlsMode.DISABLED.value:
        for name in files:
            raise _wrong(name, f"is set, but {_PREFIX}TLS is not")
        return None
    if ("TLS_CERT" in files) != ("TLS_KEY" in files):
        (alone,) = {"TLS_CERT", "TLS_KEY"} & files.keys()
        raise _wrong(alone, "is set alone: a client certificate needs TLS_CERT and TLS_KEY")
    return TlsAccess(
        ca_path=files.get("TLS_CA", ""),
        certificate_path=files.get("TLS_CERT", ""),
        key_path=files.get("TLS_KEY", ""),
        checks_name=mode == TlsMode.VERIFY_IDENTITY.value,
    )


def _login(given: Mapping[str, str]) -> Login | None:
    user, text = given.get("USER", ""), given.get("PASSWORD", "")
    if not user and not text:
        return None
    if not user or not text:
        alone = "USER" if user else "PASSWORD"
        raise _wrong(alone, "is set alone: a login needs USER and PASSWORD")
    password = SecretReference.parse(text)
    if password is None:  # the text may be the password itself, so it is not shown
        raise _wrong("PASSWORD", "is not a reference: write env:NAME, file:/path or exec:/program")
    return Login(user, password)


def _policy(given: Mapping[str, str], tls: TlsAccess | None, login: Login | None) -> Policy | None:
    writers, readers = _identities("WRITERS", given), _identities("READERS", given)
    if not writers and login is not None:
        writers = (login.identity,)
    if not writers and tls is not None and tls.certificate_path:
        raise _wrong(
            "WRITERS",
            "is not set, and the login is a client certificate: name the subjects of the certificates of all processes,"
            " as in x509:CN=worker1,O=Example",
        )
    if not writers and readers:
        raise _wrong("READERS", "is set, but there is neither a login nor WRITERS")
    return Policy(writers, readers) if writers else None


def _identities(name: str, given: Mapping[str, str]) -> tuple[Identity, ...]:
    found = []
    for text in given.get(name, "").split(";"):
        if not text.strip():
            continue
        scheme, _, identity = text.strip().partition(":")
        if not scheme.isalnum() or not identity:
            raise _wrong(name, f"contains {text.strip()[:60]!r}, which is not scheme:id")
        found.append(Identity(scheme, identity))
    return tuple(dict.fromkeys(found))


def _wrong(name: str, problem: str) -> Fatal:
    return Fatal("MR-7027", f"{_PREFIX}{name} {problem}")
