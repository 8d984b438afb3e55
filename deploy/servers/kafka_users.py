"""Users and rights on a broker, made as its administrator.

A right that is not listed is refused. Both calls may be repeated. Fatal MR-8007 if the broker refuses one of them.
"""

from collections.abc import Iterable
from concurrent.futures import Future
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from millrace.drivers.kafka.acls import Acl, Resource
from millrace.errors import Fatal
from millrace.schemas.documents import Brokers, Mechanism

ANSWER_S = 60.0
_ITERATIONS = 4096  # the least that Kafka accepts; the passwords are random
_SCRAM = {
    Mechanism.SCRAM_SHA_256: ScramMechanism.SCRAM_SHA_256,
    Mechanism.SCRAM_SHA_512: ScramMechanism.SCRAM_SHA_512,
}
_TYPES = {
    Resource.TOPIC: ResourceType.TOPIC,
    Resource.GROUP: ResourceType.GROUP,
    Resource.TRANSACTIONAL_ID: ResourceType.TRANSACTIONAL_ID,
}


class KafkaUsers:
    """The users of one broker. ``brokers``: how its administrator logs in."""

    def __init__(self, brokers: Brokers) -> None:
        settings: dict[str, Any] = brokers.settings()
        self._admin = AdminClient(settings)

    def set_password(
        self, user: str, password: str, mechanism: Mechanism = Mechanism.SCRAM_SHA_512
    ) -> None:
        """Create a SCRAM user, or change its password. ``mechanism``: SCRAM-SHA-256 or SCRAM-SHA-512."""
        info = ScramCredentialInfo(_SCRAM[mechanism], _ITERATIONS)
        change = UserScramCredentialUpsertion(user, info, password.encode())
        _wait(f"user {user}", self._admin.alter_user_scram_credentials([change]).values())

    def allow(self, user: str, acls: Iterable[Acl]) -> None:
        bindings = [_binding(user, acl) for acl in acls]
        _wait(f"the rights of user {user}", self._admin.create_acls(bindings).values())


def _wait(what: str, answers: "Iterable[Future[Any]]") -> None:
    try:
        for answer in answers:
            answer.result(ANSWER_S)
    except (KafkaException, TimeoutError) as error:
        raise Fatal("MR-8007", f"Kafka did not accept {what}: {error}") from error


def _binding(user: str, acl: Acl) -> AclBinding:
    return AclBinding(
        _TYPES[acl.resource],
        acl.name,
        ResourcePatternType.PREFIXED if acl.is_prefix else ResourcePatternType.LITERAL,
        f"User:{user}",
        "*",
        _operation(acl.operation),
        AclPermissionType.ALLOW,
    )


def _operation(words: str) -> AclOperation:
    """``DescribeConfigs`` as the admin client names it."""
    return AclOperation["".join(f"_{c}" if c.isupper() else c for c in words).strip("_").upper()]
