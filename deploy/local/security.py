"""TLS, logins and rights of a secured local stack (``millrace up --secure``).

    <stack>/tls/             the stack's own CA, whose key is removed, and two certificates with their keys
        server.pem           of the databases, ZooKeeper and the registry: localhost and 127.0.0.1
        broker.pem           of Kafka; it is also the login of Kafka's administrator
    <stack>/secrets/         a password or token in each file (``SecretFiles``)
    <stack>/kafka-USER.yaml  the mapping ``kafka`` with this user's login, and registry.yaml

Guarantees: no server has a port for plain text or answers a stranger. Each user of Kafka has exactly the rights that
`millrace acl print` names. Keys and secrets can be read only by their owner.
Not done here: certificates of clients other than the broker, and observers of ZooKeeper.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from millrace.deploy.local.secret_files import SecretFiles
from millrace.deploy.servers import KafkaSecurity, Protection
from millrace.deploy.servers.kafka_security import BROKER
from millrace.deploy.servers.kafka_users import KafkaUsers
from millrace.deploy.servers.tls import Authority, TlsFiles, openssl_program
from millrace.drivers.kafka.acls import Acl
from millrace.schemas.documents import (
    Brokers,
    ClientCertificate,
    Mechanism,
    Registry,
    Sasl,
    SecretPlace,
    SecretReference,
    Tls,
    TlsMode,
    plain_brokers,
    plain_registry,
)

ZOOKEEPER_USER = "millrace"
KAFKA_CAPTURE, KAFKA_APPLY, KAFKA_REGISTRY = "capture", "apply", "registry"
TOKEN = "registry-token"
# Every process of a stack overrides them: those of the shell, or of another stack, are for other servers.
LOGIN_VARIABLES = (
    *(f"MILLRACE_ZOOKEEPER_{name}" for name in ("TLS", "TLS_CA", "TLS_CERT", "TLS_KEY")),
    *(f"MILLRACE_ZOOKEEPER_{name}" for name in ("USER", "PASSWORD", "WRITERS", "READERS")),
    *("MILLRACE_KAFKA_CONFIG", "MILLRACE_REGISTRY_CONFIG"),
)
_ZOOKEEPER = f"zookeeper-{ZOOKEEPER_USER}"  # the file of its password
# a replica of MariaDB compares the address of its primary with the DNS names only
_NAMES = "DNS:localhost,DNS:127.0.0.1,IP:127.0.0.1"


@dataclass(frozen=True, slots=True)
class StackSecurity:
    """The files of one stack in ``folder``."""

    folder: Path
    secrets: SecretFiles
    server: TlsFiles
    broker: TlsFiles

    @classmethod
    def make(cls, folder: Path, secrets: SecretFiles) -> Self:
        """A new CA and its certificates. Fatal MR-8002 if ``openssl`` is missing."""
        made = folder / "tls"
        openssl = openssl_program()
        made.mkdir(mode=0o700, parents=True)
        authority = Authority.make(made, openssl=openssl)
        server = authority.issue("server", common_name="localhost", alternatives=_NAMES)
        name = BROKER.removeprefix("CN=")
        broker = authority.issue("broker", common_name=name, alternatives=_NAMES)
        authority.forget_key()
        return cls(folder, secrets, server, broker)

    @property
    def authority(self) -> Path:
        return self.server.authority

    def kafka(self) -> KafkaSecurity:
        return KafkaSecurity(tls=self.broker, is_closed=True)

    def zookeeper(self) -> Protection:
        """The port and the one user of ZooKeeper."""
        users = {ZOOKEEPER_USER: self.secrets.text(_ZOOKEEPER)}
        return Protection(
            tls=self.server, client_auth="none", users=users, requires_login=True, is_closed=True
        )

    def make_kafka_users(self, bootstrap: str, rights: Mapping[str, tuple[Acl, ...]]) -> None:
        """Create the users with these rights. ``bootstrap``: the listener for certificates."""
        key = SecretReference(SecretPlace.FILE, str(self.broker.key))
        own = ClientCertificate(str(self.broker.certificate), key)
        users = KafkaUsers(Brokers(bootstrap, self._tls(), own))
        for user, acls in rights.items():
            users.set_password(user, self.secrets.text(_kafka(user)))
            users.allow(user, acls)

    def brokers(self, bootstrap: str, user: str) -> Brokers:
        """The broker, with the login of this user."""
        sasl = Sasl(Mechanism.SCRAM_SHA_512, self.secrets.reference(_kafka(user)), user)
        return Brokers(bootstrap, self._tls(), None, sasl)

    def registry(self, url: str) -> Registry:
        return Registry(url, str(self.authority), "", self.secrets.reference(TOKEN))

    def registry_arguments(self) -> tuple[str, ...]:
        return (
            *("--kafka-config", str(self._config(KAFKA_REGISTRY))),
            *("--tls-cert", str(self.server.certificate), "--tls-key", str(self.server.key)),
            *("--token", str(self.secrets.reference(TOKEN))),
        )

    def write_configs(self, bootstrap: str, url: str) -> None:
        """Write the files that ``variables`` and ``registry_arguments`` name, and the token."""
        self.secrets.text(TOKEN)
        for user in (KAFKA_APPLY, KAFKA_REGISTRY):
            mapping = plain_brokers(self.brokers(bootstrap, user))
            self._config(user).write_text(json.dumps(mapping, indent=2))
        mapping_of_registry = plain_registry(self.registry(url))
        self._registry_config.write_text(json.dumps(mapping_of_registry, indent=2))

    def variables(self) -> Mapping[str, str]:
        """The variables that processes and commands need besides the addresses."""
        return {
            "MILLRACE_ZOOKEEPER_TLS": TlsMode.VERIFY_IDENTITY.value,
            "MILLRACE_ZOOKEEPER_TLS_CA": str(self.authority),
            "MILLRACE_ZOOKEEPER_USER": ZOOKEEPER_USER,
            "MILLRACE_ZOOKEEPER_PASSWORD": str(self.secrets.reference(_ZOOKEEPER)),
            "MILLRACE_KAFKA_CONFIG": str(self._config(KAFKA_APPLY)),
            "MILLRACE_REGISTRY_CONFIG": str(self._registry_config),
        }

    def _tls(self) -> Tls:
        return Tls(TlsMode.VERIFY_IDENTITY, str(self.authority))

    def _config(self, user: str) -> Path:
        return self.folder / f"kafka-{user}.yaml"

    @property
    def _registry_config(self) -> Path:
        return self.folder / "registry.yaml"


def _kafka(user: str) -> str:
    """The file of the password of a user of Kafka."""
    return f"kafka-{user}"
