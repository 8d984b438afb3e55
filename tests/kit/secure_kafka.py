"""A broker with TLS, logins and ACLs, its users, and the ``kafka-acls.sh`` of this kit.

The commands that Millrace prints are parsed as Kafka's own script parses them, and carried out by the admin client.
"""

import argparse
import shlex
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from millrace.deploy.servers import KafkaSecurity, KafkaServer
from millrace.deploy.servers.kafka_users import KafkaUsers
from millrace.deploy.servers.tls import Authority, TlsFiles
from millrace.schemas.documents import (
    Brokers,
    ClientCertificate,
    Mechanism,
    Sasl,
    SecretPlace,
    SecretReference,
    Tls,
    TlsMode,
)
from tests.kit.kafka_topics import make_topic
from tests.kit.tokens import TokenIssuer
from tests.kit.waiting import eventually

CANARY = "kanarienvogel-4711"
PASSWORD = CANARY + '  "quoted" \\ pa§word'  # of every user
USER = "millrace"
CERTIFICATE_USER = "CN=certified"
LOGINS = [*Mechanism, None]  # None: a client certificate
_RESOURCES = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional_id": ResourceType.TRANSACTIONAL_ID,
}


class SecureKafka:
    """One broker in ``folder``, and certificates for a client and a registry. ``start`` makes users, too."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "ca").mkdir(parents=True)
        authority = Authority.make(folder / "ca")
        self.client: TlsFiles = authority.issue("client", common_name="certified")
        broker = authority.issue("broker", common_name="b", alternatives="DNS:localhost")
        users = {"plain": PASSWORD.replace("\\", "\\\\").replace('"', '\\"')}
        self.registry = authority.issue("r", common_name="r", alternatives="IP:127.0.0.1")
        self.issuer = TokenIssuer(folder / "ca")
        self.security = KafkaSecurity(tls=broker, plain_users=users, jwks=self.issuer.jwks)
        self.server = KafkaServer(folder / "kafka", security=self.security)

    def start(self) -> None:
        """Start the broker and create the SCRAM users."""
        self.server.start()
        self.admin = AdminClient({"bootstrap.servers": self.server.bootstrap})
        users = KafkaUsers(Brokers(self.server.bootstrap))
        for mechanism in (Mechanism.SCRAM_SHA_256, Mechanism.SCRAM_SHA_512):
            users.set_password(USER, PASSWORD, mechanism)

    def secret(self, name: str, text: str) -> SecretReference:
        """A file with a secret, and its reference."""
        path = self.folder / name
        path.touch(0o600)
        path.write_text(text)
        return SecretReference(SecretPlace.FILE, str(path))

    @property
    def authority(self) -> str:
        """The CA of the broker's certificate."""
        return str(self.client.authority)

    def brokers(self, mechanism: Mechanism | None = Mechanism.SCRAM_SHA_512) -> Brokers:
        """Brokers with a login; without a mechanism, with a certificate."""
        tls = Tls(TlsMode.VERIFY_IDENTITY, self.authority)
        if mechanism is None:
            key = SecretReference(SecretPlace.FILE, str(self.client.key))
            own = ClientCertificate(str(self.client.certificate), key)
            return Brokers(self.security.certificate, tls, own)
        if mechanism is Mechanism.OAUTHBEARER:
            sasl = Sasl(mechanism, self.secret("token", self.issuer.token(USER)))
        else:
            user = "plain" if mechanism is Mechanism.PLAIN else USER
            sasl = Sasl(mechanism, self.secret("password", PASSWORD), user)
        return Brokers(self.security.login, tls, None, sasl)

    def kafka_acls(self, command: str, *, removes: bool = False) -> None:
        """Carry out a ``kafka-acls.sh`` command, or take back what it adds."""
        bindings, is_removal = _bindings(command)
        if removes or is_removal:
            filters = [_filter(binding) for binding in bindings]
            for done in self.admin.delete_acls(filters).values():
                assert done.result(30), f"nothing to remove: {command}"
        else:
            for made in self.admin.create_acls(bindings).values():
                made.result(30)

    def forbid_all(self) -> None:
        """Remove every ACL."""
        any_name: Any = None
        anything = AclBindingFilter(
            ResourceType.ANY,
            any_name,
            ResourcePatternType.ANY,
            any_name,
            any_name,
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        for done in self.admin.delete_acls([anything]).values():
            done.result(30)

    def create_topic(self, name: str, *, policy: str = "delete") -> None:
        """A topic with one partition and replica; a registry's has the policy `compact`."""
        make_topic(self.admin, name, config={"cleanup.policy": policy})

    def delete_topic(self, name: str) -> None:
        """Delete a topic, and wait until no client finds it."""
        for done in self.admin.delete_topics([name]).values():
            with suppress(KafkaException):  # there is none
                done.result(30)
        eventually(lambda: name not in self.admin.list_topics(timeout=10).topics)


def principal_for(mechanism: Mechanism | None) -> str:
    """The principal of the brokers that ``SecureKafka.brokers`` returns."""
    names = {None: CERTIFICATE_USER, Mechanism.PLAIN: "plain"}
    return f"User:{names.get(mechanism, USER)}"


def _bindings(command: str) -> tuple[list[AclBinding], bool]:
    """The rights that a command names, and whether it removes them."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--bootstrap-server", required=True)
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--add", action="store_true")
    action.add_argument("--remove", action="store_true")
    parser.add_argument("--force", action="store_true")
    parser.add_argument("--allow-principal", required=True)
    parser.add_argument("--operation", action="append", required=True)
    for option in ("--topic", "--group", "--transactional-id"):
        parser.add_argument(option)
    parser.add_argument("--resource-pattern-type", default="literal")
    program, *words = shlex.split(command)
    assert program == "kafka-acls.sh"
    found = parser.parse_args(words)
    resources: Iterable[tuple[ResourceType, str]] = (
        (kind, getattr(found, name)) for name, kind in _RESOURCES.items() if getattr(found, name)
    )
    bindings = [
        AclBinding(
            kind,
            name,
            ResourcePatternType[found.resource_pattern_type.upper()],
            found.allow_principal,
            "*",
            _operation(operation),
            AclPermissionType.ALLOW,
        )
        for kind, name in resources
        for operation in found.operation
    ]
    return bindings, found.remove


def _operation(words: str) -> AclOperation:
    """``DescribeConfigs`` as the admin client names it."""
    return AclOperation["".join(f"_{c}" if c.isupper() else c for c in words).strip("_").upper()]


def _filter(binding: AclBinding) -> AclBindingFilter:
    return AclBindingFilter(
        binding.restype,
        binding.name,
        binding.resource_pattern_type,
        binding.principal,
        binding.host,
        binding.operation,
        binding.permission_type,
    )
